import { accessSync, closeSync, constants, existsSync, openSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { OperatorError } from "../../errors.ts";
import { createDirectory } from "../../internals/directory.ts";
import { isBusy } from "./connection.ts";

const DATABASE_FILE = "tollgate.db";
const LOCK_FILE = "service.lock";

/** Why a file system refuses a call, by the code of its error. */
export const FILE_REASONS: Record<string, string> = {
  EACCES: "permission denied",
  EPERM: "permission denied",
  EROFS: "the file system is read-only",
  ENOTDIR: "a part of its path is not a directory",
  EEXIST: "it is not a directory",
  ENOENT: "it cannot be made there",
  ENOSPC: "the disk is full",
  ELOOP: "its symbolic links lead in a circle",
  ENAMETOOLONG: "its path is too long",
};

/** Returns why the system refuses to write a file, which SQLite does not say; undefined if it does not refuse. */
export function writeRefusal(path: string): string | undefined {
  try {
    accessSync(path, constants.W_OK);
    return undefined;
  } catch (error) {
    return FILE_REASONS[(error as NodeJS.ErrnoException).code ?? ""];
  }
}

/** Creates a data directory, for its owner only. Throws OperatorError. */
export function createDataDirectory(dataDir: string): void {
  inDirectory(dataDir, () => createDirectory(dataDir));
}

/** Returns the path of the database's file in a data directory, which need not exist. */
export function databasePathOf(dataDir: string): string {
  return join(dataDir, DATABASE_FILE);
}

/** Throws OperatorError if a data directory has files of a database: a log without its database would be read as part of the next. */
export function expectNoDatabase(dataDir: string): void {
  for (const suffix of ["", "-wal", "-shm"]) {
    const path = `${databasePathOf(dataDir)}${suffix}`;
    if (inDirectory(dataDir, () => existsSync(path))) {
      throw new OperatorError(
        `${path} exists already. Move it away, together with all files whose names begin with ${DATABASE_FILE}.`,
      );
    }
  }
}

/**
 * Creates the data directory and the database's file, for their owner only; returns its path. Throws OperatorError for a
 * command that would create one beside a service, and if there is a spool, which a new store could not book.
 */
export function prepareDirectory(dataDir: string, role: "service" | "command"): string {
  return inDirectory(dataDir, () => {
    createDirectory(dataDir);
    const path = databasePathOf(dataDir);
    using lock = new DisposableStack();
    if (role === "command" && !existsSync(path) && hasLock(dataDir)) {
      const unlock = tryLockDirectory(dataDir);
      if (unlock !== undefined) lock.defer(unlock);
      else if (!existsSync(path)) {
        throw new OperatorError(
          `A Tollgate service is running on the data directory ${dataDir}, but the file ${path} is missing. Put it back if it was moved; otherwise stop the service first.`,
        );
      }
    }
    if (!existsSync(path)) expectNoSpool(dataDir, path);
    return makeFile(path);
  });
}

/** Returns the path of the directory in which services keep settlements that the store could not take. */
export function spoolDirectoryOf(dataDir: string): string {
  return join(dataDir, "spool");
}

/** A service makes its spool after its store, and removes it when it is booked: one without a store shows that the store is lost. */
function expectNoSpool(dataDir: string, databasePath: string): void {
  const spool = spoolDirectoryOf(dataDir);
  if (!existsSync(spool) || !readdirSync(spool).some((name) => name.endsWith(".jsonl"))) return;
  throw new OperatorError(
    `The file ${databasePath} is missing, but ${spool} has the spool of a service that used it. Put the file back, or restore a backup with tollgate store restore; to begin with an empty store instead, move ${spool} away.`,
  );
}

/** Returns the path of the database's file in a data directory; undefined if there is none. Creates nothing. */
export function findDatabase(dataDir: string): string | undefined {
  return inDirectory(dataDir, () => {
    const path = join(dataDir, DATABASE_FILE);
    const isDirectory = statSync(dataDir, { throwIfNoEntry: false })?.isDirectory();
    if (isDirectory === false) throw Object.assign(new Error(), { code: "EEXIST" });
    const found = statSync(path, { throwIfNoEntry: false });
    // A first start that was killed leaves an empty file.
    return found?.isFile() === true && found.size > 0 ? path : undefined;
  });
}

/** Makes this process the only service on the directory, until the returned function is called or the process ends. */
export function lockDirectory(dataDir: string): () => void {
  const unlock = tryLockDirectory(dataDir);
  if (unlock !== undefined) return unlock;
  throw new OperatorError(`Another Tollgate service is running on the data directory ${dataDir}.`);
}

/** Returns true if the directory has the file of the lock, so that a service may be running on it. */
export function hasLock(dataDir: string): boolean {
  return inDirectory(dataDir, () => existsSync(join(dataDir, LOCK_FILE)));
}

/** Locks a directory as `lockDirectory` does; returns undefined if a service is running on it. */
export function tryLockDirectory(dataDir: string): (() => void) | undefined {
  return inDirectory(dataDir, () => takeLock(join(dataDir, LOCK_FILE)));
}

/** Locks a file until the returned function is called or the process ends, by SQLite's lock. Returns undefined if it is locked. */
export function takeLock(path: string): (() => void) | undefined {
  const lock = new DatabaseSync(makeFile(path), { timeout: 0 });
  try {
    // Nothing is ever written, so the file needs no journal.
    lock.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
  } catch (error) {
    lock.close();
    if (!isBusy(error)) throw error;
    return undefined;
  }
  return () => lock.close();
}

/** Creates a file if it does not exist. Never opens an existing one: closing it would release this process's locks. */
export function makeFile(path: string): string {
  if (!existsSync(path)) {
    try {
      closeSync(openSync(path, "wx", 0o600));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
  }
  return path;
}

function inDirectory<T>(dataDir: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw directoryFailure(dataDir, error);
  }
}

/** Returns why a data directory cannot be used, in one line for the operator. */
export function directoryFailure(dataDir: string, error: unknown): OperatorError {
  if (error instanceof OperatorError) return error;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const reason = FILE_REASONS[code] ?? (error as Error).message;
  return new OperatorError(`Cannot use the data directory ${dataDir}: ${reason}.`, { cause: error });
}
