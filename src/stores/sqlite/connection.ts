import { closeSync, fstatSync, openSync, statfsSync, statSync, writeSync } from "node:fs";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { StoreUnavailableError } from "../../errors.ts";
import type { Statement } from "../sql.ts";

/** The pages that a batch uses; the system keeps the others in its own cache of the file. */
const CACHE_KIBIBYTES = 8 * 1024;
/** The texts of the queries are few; the limit only bounds the memory that a mistake could use. */
const STATEMENTS_KEPT_MAX = 256;
const RETRY_MS = 20;
/** Short, because what is booked into a file that was removed is lost. */
const FILES_CHECKED_EVERY_MS = 100;
/** Size of the log under load, between two checkpoints. */
export const LOG_BYTES = 64 * 1024 * 1024;
const PIECE_BYTES = 1024 * 1024;
const LOG_ROOM_LEAST_BYTES = 16 * LOG_BYTES;

export interface ConnectionOptions {
  databasePath: string;
  /** Time for which a transaction waits for one of another process. */
  busyTimeoutMs: number;
  /** The file that is used; absent: the one that the connection opens first. */
  fileId?: string | undefined;
}

/** Identifies the file at a path; undefined if there is none. */
export function fileIdOf(path: string): string | undefined {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false });
  return found && `${found.dev}:${found.ino}`;
}

/** A connection, opened on first use and again after it broke. Integers are bigint. Disk failures are StoreUnavailableError. */
export class Connection {
  readonly #options: ConnectionOptions;
  #database: DatabaseSync | undefined;
  #statements = new Map<string, StatementSync>();
  #durable = false;
  /** The files that are used: never others that appear under their names. */
  #fileId: string | undefined;
  #logId: string | undefined;
  #filesCheckedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#fileId = options.fileId;
  }

  /** Runs `work` in a transaction, which is rolled back if it throws. Durable: on disk before this returns. */
  transaction<T>(begin: "BEGIN" | "BEGIN IMMEDIATE", durable: boolean, work: () => T): T {
    return this.#guard((database) => {
      this.#setDurable(database, durable);
      this.prepare(begin).run();
      const result = work();
      this.prepare("COMMIT").run();
      return result;
    });
  }

  /** Runs one read, inside a transaction or on its own. */
  read({ sql, parameters }: Statement): Record<string, unknown>[] {
    return this.#guard(() => this.prepare(sql).all(...parameters));
  }

  /** Runs one write inside a transaction; returns the number of rows that it changed. */
  change({ sql, parameters }: Statement): number {
    return Number(this.prepare(sql).run(...parameters).changes);
  }

  /** Returns a prepared statement, cached per connection. A text must always use the same kind of rows. */
  prepare(sql: string, rowsAs: "objects" | "arrays" = "objects"): StatementSync {
    const kept = this.#statements.get(sql);
    if (kept !== undefined) return kept;
    if (this.#statements.size >= STATEMENTS_KEPT_MAX) this.#statements.clear();
    const prepared = this.#open().prepare(sql);
    prepared.setReturnArrays(rowsAs === "arrays");
    this.#statements.set(sql, prepared);
    return prepared;
  }

  script(sql: string): void {
    this.#open().exec(sql);
  }

  /** Switches the file to a write-ahead log, permanently. SQLite itself does not wait for others that have the file open. */
  enterWalMode(): void {
    this.#guard((database) => {
      for (let waitedMs = 0; ; waitedMs += RETRY_MS) {
        try {
          database.exec("PRAGMA journal_mode = WAL");
          return;
        } catch (error) {
          if (!isBusy(error) || waitedMs >= this.#options.busyTimeoutMs) throw error;
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS);
        }
      }
    });
  }

  /** Copies the log into the database. Returns the number of pages in the log. */
  checkpoint(mode: "PASSIVE" | "TRUNCATE"): number {
    return this.#guard(() => Number(this.prepare(`PRAGMA wal_checkpoint(${mode})`).get()?.log ?? 0));
  }

  close(): void {
    this.#statements.clear();
    this.#logId = undefined;
    const database = this.#database;
    this.#database = undefined;
    database?.close();
  }

  #guard<T>(work: (database: DatabaseSync) => T): T {
    try {
      this.#expectSameFiles();
      const result = work(this.#open());
      // Its first read keeps the log from being removed with the connection of another process.
      this.#logId ??= fileIdOf(`${this.#options.databasePath}-wal`);
      return result;
    } catch (error) {
      this.#recover(error);
      throw asStoreError(this.#options.databasePath, error);
    }
  }

  /** Throws if a file was removed or replaced: SQLite would write on into one that nobody else can open. */
  #expectSameFiles(): void {
    const nowMs = performance.now();
    if (nowMs - this.#filesCheckedAtMs < FILES_CHECKED_EVERY_MS) return;
    const { databasePath } = this.#options;
    for (const [path, id] of [[databasePath, this.#fileId] as const, [`${databasePath}-wal`, this.#logId] as const]) {
      if (id === undefined || fileIdOf(path) === id) continue;
      throw new StoreUnavailableError(
        `The file ${path} was removed or replaced while in use, so nothing is booked. Put it back if it was moved. Otherwise stop the service, put the right store in its place, and start it again.`,
      );
    }
    this.#filesCheckedAtMs = nowMs;
  }

  #recover(error: unknown): void {
    try {
      if (this.#database?.isTransaction) this.#database.exec("ROLLBACK");
      if (leavesConnectionUsable(error)) return;
    } catch {
      // A transaction that cannot be rolled back ends with its connection.
    }
    try {
      this.close();
    } catch {
      // The next call opens a new connection in any case.
    }
  }

  #open(): DatabaseSync {
    if (this.#database !== undefined) return this.#database;
    const { databasePath, busyTimeoutMs } = this.#options;
    const location = pathToFileURL(databasePath);
    // A file that disappeared must not be created again, empty.
    location.searchParams.set("mode", "rw");
    const database = new DatabaseSync(location, { timeout: busyTimeoutMs, readBigInts: true });
    try {
      database.exec(`PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = NORMAL;
        PRAGMA cache_size = -${CACHE_KIBIBYTES}; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF`);
    } catch (error) {
      database.close();
      throw error;
    }
    this.#durable = false;
    this.#database = database;
    this.#fileId ??= fileIdOf(databasePath);
    return database;
  }

  #setDurable(database: DatabaseSync, durable: boolean): void {
    if (durable === this.#durable) return;
    database.exec(durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
    this.#durable = durable;
  }
}

/**
 * Fills the write-ahead log with zeros, which SQLite takes for its end (section 4.4 of its file format), if the disk has room:
 * a commit that makes the file longer also waits for the file system. Must run inside a write transaction.
 */
export function lengthenLog(databasePath: string, roomLeastBytes: number = LOG_ROOM_LEAST_BYTES): void {
  const { bavail, bsize } = statfsSync(databasePath);
  if (bavail * bsize < roomLeastBytes) return;
  const file = openSync(`${databasePath}-wal`, "r+");
  try {
    const zeros = Buffer.alloc(PIECE_BYTES);
    for (let at = fstatSync(file).size; at < LOG_BYTES; at += PIECE_BYTES) writeSync(file, zeros, 0, PIECE_BYTES, at);
  } finally {
    closeSync(file);
  }
}

/** SQLite's primary result codes (https://sqlite.org/rescode.html) for failures of the file or its disk. */
const UNAVAILABLE = new Map([
  [3, "access was denied"],
  [5, "it is locked by another process"],
  [6, "it is locked"],
  [7, "out of memory"],
  [8, "it is read-only"],
  [9, "the operation was interrupted"],
  [10, "reading or writing the disk failed"],
  [11, "the file is damaged"],
  [13, "the disk is full"],
  [14, "the file cannot be opened"],
  [15, "its log cannot be locked"],
  [22, "the file is too large for this system"],
  [26, "the file is not a database"],
]);
const BUSY = 5;
const FULL = 13;

/** Returns the primary result code of an error of SQLite; undefined for any other error. */
export function sqliteCode(error: unknown): number | undefined {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return undefined;
  return error.errcode & 0xff;
}

/** Returns true if another connection has locked the database. */
export function isBusy(error: unknown): boolean {
  return sqliteCode(error) === BUSY;
}

/** Returns why the database is unavailable; undefined if the error is a defect. */
export function unavailableReason(error: unknown): string | undefined {
  const code = sqliteCode(error);
  return code === undefined ? undefined : UNAVAILABLE.get(code);
}

/** Returns true if the connection can still be used after the error, once its transaction was rolled back. */
export function leavesConnectionUsable(error: unknown): boolean {
  const code = sqliteCode(error);
  return code === undefined || code === BUSY || code === FULL || !UNAVAILABLE.has(code);
}

/** Returns StoreUnavailableError for a failure of the file or its disk; every other error unchanged. */
export function asStoreError(databasePath: string, error: unknown): unknown {
  const reason = unavailableReason(error);
  if (reason === undefined) return error;
  return new StoreUnavailableError(`The database ${databasePath} does not work: ${reason}.`, { cause: error });
}
