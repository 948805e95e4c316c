import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { OperatorError } from "../../errors.ts";
import { makeFile, takeLock } from "./lock.ts";

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
    return makeFile(join(dataDir, DATABASE_FILE));
  });
}

/**
 * Makes this process the one service on the directory, until the function that it gives is called or the process dies.
 */
export function lockDirectory(dataDir: string): () => void {
  return inDirectory(dataDir, () => {
    const unlock = takeLock(join(dataDir, LOCK_FILE));
    if (unlock !== undefined) return unlock;
    throw new OperatorError(`Another Tollgate service is running on the data directory ${dataDir}.`);
  });
}

function inDirectory<T>(dataDir: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw directoryFailure(dataDir, error);
  }
}

/** Why a data directory cannot be used, in one line for the operator. */
export function directoryFailure(dataDir: string, error: unknown): OperatorError {
  if (error instanceof OperatorError) return error;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const reason = REASONS[code] ?? (error as Error).message;
  return new OperatorError(`Cannot use the data directory ${dataDir}: ${reason}.`, { cause: error });
}
