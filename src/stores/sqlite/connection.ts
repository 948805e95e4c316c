import { closeSync, fstatSync, openSync, statfsSync, writeSync } from "node:fs";
import { DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { asStoreError, isBusy, leavesConnectionSound } from "./failure.ts";
import type { CheckpointResult, Statement, StatementResult, WorkerOptions } from "./messages.ts";

const CACHE_KIBIBYTES = 32_768;
/** The texts of the portable queries are few; the bound only keeps a mistake from eating memory. */
const STATEMENTS_KEPT_MAX = 256;
const RETRY_MS = 20;
/** The log under load, between two copies of it into the database. */
export const LOG_BYTES = 64 * 1024 * 1024;
const PIECE_BYTES = 1024 * 1024;
const LOG_ROOM_LEAST_BYTES = 16 * LOG_BYTES;

/**
 * One connection, opened when it is first needed and again after a failure that left it unsound. Integers are read as
 * bigint. Failures of the file or its disk are StoreUnavailableError.
 */
export class Connection {
  readonly #options: WorkerOptions;
  #database: DatabaseSync | undefined;
  #statements = new Map<string, StatementSync>();
  #durable = false;

  constructor(options: WorkerOptions) {
    this.#options = options;
  }

  /** Runs `work` in a transaction, rolled back when it throws. Durable: on the disk before this returns. */
  transaction<T>(begin: "BEGIN" | "BEGIN IMMEDIATE", durable: boolean, work: () => T): T {
    return this.#guard((database) => {
      this.#setDurable(database, durable);
      this.prepare(begin).run();
      const result = work();
      this.prepare("COMMIT").run();
      return result;
    });
  }

  /** Runs one statement in a transaction of its own. */
  run(statement: Statement, durable: boolean): StatementResult {
    return this.#guard((database) => {
      this.#setDurable(database, durable);
      return this.step(statement);
    });
  }

  /** Runs one statement inside a transaction. */
  step({ sql, parameters }: Statement): StatementResult {
    const prepared = this.prepare(sql);
    const values = parameters as SQLInputValue[];
    if (prepared.columns().length > 0) return { rows: prepared.all(...values), changed: 0 };
    return { rows: [], changed: Number(prepared.run(...values).changes) };
  }

  /** A prepared statement, made once a connection. A text gives its rows always as objects, or always as arrays. */
  prepare(sql: string, rowsAs: "objects" | "arrays" = "objects"): StatementSync {
    const kept = this.#statements.get(sql);
    if (kept !== undefined) return kept;
    if (this.#statements.size >= STATEMENTS_KEPT_MAX) this.#statements.clear();
    const prepared = this.#open().prepare(sql);
    prepared.setReturnArrays(rowsAs === "arrays");
    this.#statements.set(sql, prepared);
    return prepared;
  }

  /** Runs a script of several statements inside a transaction. */
  script(sql: string): void {
    this.#open().exec(sql);
  }

  /**
   * Gives the file a write-ahead log, which it keeps from then on. SQLite does not wait by itself for others that have
   * the file open meanwhile.
   */
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

  checkpoint(mode: "PASSIVE" | "TRUNCATE"): CheckpointResult {
    return this.#guard(() => {
      const row = this.prepare(`PRAGMA wal_checkpoint(${mode})`).get();
      return { logPages: Number(row?.log ?? 0), checkpointedPages: Number(row?.checkpointed ?? 0) };
    });
  }

  close(): void {
    this.#statements.clear();
    const database = this.#database;
    this.#database = undefined;
    database?.close();
  }

  #guard<T>(work: (database: DatabaseSync) => T): T {
    try {
      return work(this.#open());
    } catch (error) {
      this.#recover(error);
      throw asStoreError(this.#options.databasePath, error);
    }
  }

  #recover(error: unknown): void {
    try {
      if (this.#database?.isTransaction) this.#database.exec("ROLLBACK");
      if (leavesConnectionSound(error)) return;
    } catch {
      // What cannot be rolled back ends with its connection.
    }
    try {
      this.close();
    } catch {
      // The next call opens a new one in any case.
    }
  }

  #open(): DatabaseSync {
    if (this.#database !== undefined) return this.#database;
    const { databasePath, busyTimeoutMs } = this.#options;
    const location = pathToFileURL(databasePath);
    // A file that went away must not come back empty.
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
    return database;
  }

  #setDurable(database: DatabaseSync, durable: boolean): void {
    if (durable === this.#durable) return;
    database.exec(durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
    this.#durable = durable;
  }
}

/**
 * Fills the write-ahead log of a database up with zeros, to the size that it grows to under load; called inside a write
 * transaction, so that nobody else writes to it. SQLite takes a frame of zeros for the log's end (SQLite's file format,
 * section 4.4). A file system that has to lengthen a file at every commit makes each wait for its own journal as well. A disk
 * with less room than `roomLeastBytes` is left as it is.
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
