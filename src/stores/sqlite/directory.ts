import { closeSync, existsSync, mkdirSync, openSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { OperatorError } from "../../errors.ts";
import { isBusy } from "./failure.ts";

const DATABASE_FILE = "tollgate.db";
const LOCK_FILE = "service.lock";

const REASONS: Record<string, string> = {
  EACCES: "permission denied",
  EPERM: "permission denied",
  EROFS: "the file system is read-only",
  ENOTDIR: "a part of its path is not a directory",
  EEXIST: "it is not a directory",
  ENOENT: "it cannot be made there",
  ENOSPC: "the disk is full",
};

/** Makes the data directory and the database's file, for its owner alone; gives the path of the file. */
export function prepareDirectory(dataDir: string): string {
  return inDirectory(dataDir, () => {
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    return makeFile(dataDir, DATABASE_FILE);
  });
}

/**
 * Makes this process the one service on the directory, until the function that it gives is called or the process dies.
 * SQLite's own lock does it: it needs no cleaning up, whatever way a process ends.
 */
export function lockDirectory(dataDir: string): () => void {
  return inDirectory(dataDir, () => {
    const lock = new DatabaseSync(makeFile(dataDir, LOCK_FILE), { timeout: 0 });
    try {
      lock.exec("BEGIN EXCLUSIVE");
    } catch (error) {
      lock.close();
      if (!isBusy(error)) throw error;
      throw new OperatorError(`Another Tollgate service is running on the data directory ${dataDir}.`);
    }
    return () => lock.close();
  });
}

/**
 * Never opens a file that exists: closing it would drop the locks that connections of this process have on it.
 */
function makeFile(dataDir: string, name: string): string {
  const path = join(dataDir, name);
  if (!existsSync(path)) {
    try {
      closeSync(openSync(path, "wx", 0o600));
    } catch (error) {
      if (codeOf(error) !== "EEXIST") throw error;
    }
  }
  return path;
}

function inDirectory<T>(dataDir: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    const reason = REASONS[codeOf(error)] ?? (error as Error).message;
    throw new OperatorError(`Cannot use the data directory ${dataDir}: ${reason}.`, { cause: error });
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}
