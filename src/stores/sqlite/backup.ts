import { existsSync, linkSync, mkdtempSync, renameSync, rmSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { backup, DatabaseSync } from "node:sqlite";
import { OperatorError } from "../../errors.ts";
import { unavailableReason } from "./connection.ts";
import { findDatabase, makeFile } from "./directory.ts";

/** All pages in one step: SQLite starts over if another process writes between two steps. */
const PAGES_A_STEP = 2 ** 31 - 1;
const BUSY_TIMEOUT_MS = 5_000;

/** A copy of a database in a folder beside its destination, readable by its owner only. */
export interface DatabaseCopy {
  /** A data directory, to open the copy as a store. */
  directory: string;
  bytes: number;
  /** Moves the copy to its destination, unless a file of that name has appeared meanwhile. Throws OperatorError. */
  keep(): void;
  /** Removes the copy, if it was not moved, and its folder. */
  discard(): void;
}

/**
 * Copies the database of a data directory, also while a service runs, and checks the integrity of the copy. Leaves nothing
 * behind on failure. Rejects with OperatorError.
 */
export async function copyDatabase(dataDir: string, destination: string): Promise<DatabaseCopy> {
  const source = findDatabase(dataDir);
  if (source === undefined) throw new OperatorError(`There is no store in ${dataDir}.`);
  refuseExisting(destination);
  const directory = makeFolder(destination);
  const path = join(directory, basename(source));
  const discard = () => rmSync(directory, { recursive: true, force: true });
  const onSignal = () => {
    discard();
    process.exit(1);
  };
  for (const signal of SIGNALS) process.once(signal, onSignal);
  try {
    makeFile(path);
    await copy(source, path);
    expectWhole(path);
    return {
      directory,
      bytes: statSync(path).size,
      keep: () => move(path, destination),
      discard: () => {
        discard();
        for (const signal of SIGNALS) process.removeListener(signal, onSignal);
      },
    };
  } catch (error) {
    discard();
    throw backupFailure(destination, error);
  }
}

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

function refuseExisting(destination: string): void {
  if (existsSync(destination)) throw new OperatorError(`${destination}: already exists; name a new file`);
}

function makeFolder(destination: string): string {
  try {
    return mkdtempSync(`${destination}.partial-`);
  } catch (error) {
    throw backupFailure(destination, error);
  }
}

async function copy(source: string, path: string): Promise<void> {
  const database = new DatabaseSync(source, { readOnly: true, timeout: BUSY_TIMEOUT_MS });
  try {
    await backup(database, path, { rate: PAGES_A_STEP });
  } finally {
    database.close();
  }
}

function expectWhole(path: string): void {
  const database = new DatabaseSync(path, { timeout: BUSY_TIMEOUT_MS });
  try {
    const [row] = database.prepare("PRAGMA integrity_check(1)").all();
    if (row?.integrity_check !== "ok") throw new OperatorError(`The copy is damaged: ${row?.integrity_check}`);
  } finally {
    database.close();
  }
}

/** Moves a file by a link, which never replaces a file, or by a rename if the file system has no links. */
function move(path: string, destination: string): void {
  try {
    linkSync(path, destination);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    refuseExisting(destination);
    if (code !== "EPERM" && code !== "ENOTSUP" && code !== "ENOSYS") throw backupFailure(destination, error);
    renameSync(path, destination);
  }
}

const REASONS: Record<string, string> = {
  ENOENT: "there is no such directory",
  ENOTDIR: "a part of its path is not a directory",
  EACCES: "permission denied",
  EPERM: "permission denied",
  EROFS: "the file system is read-only",
  ENOSPC: "the disk is full",
  ENAMETOOLONG: "its path is too long",
};

function backupFailure(destination: string, error: unknown): OperatorError {
  if (error instanceof OperatorError) return error;
  const { code = "", message } = error as NodeJS.ErrnoException;
  const reason = unavailableReason(error) ?? REASONS[code] ?? message;
  return new OperatorError(`${destination}: the backup cannot be written: ${reason}`, { cause: error });
}
