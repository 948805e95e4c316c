import { closeSync, existsSync, openSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { isBusy } from "./failure.ts";

/**
 * Locks a file, which is created if missing, until the returned function is called or the process ends. Returns undefined
 * if it is already locked. Uses SQLite's own lock, which needs no cleanup however a process ends.
 */
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

/**
 * Creates a file if it does not exist. Never opens an existing file: closing it would release this process's locks on it.
 */
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
