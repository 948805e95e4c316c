import { closeSync, existsSync, openSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { isBusy } from "./failure.ts";

/**
 * Locks a file, made where it is missing, until the function that this gives is called or the process dies; undefined
 * where it is locked already. SQLite's own lock does it: it needs no cleaning up, whatever way a process ends.
 */
export function takeLock(path: string): (() => void) | undefined {
  const lock = new DatabaseSync(makeFile(path), { timeout: 0 });
  try {
    // Nothing is ever written, so no journal has to lie beside the file.
    lock.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE");
  } catch (error) {
    lock.close();
    if (!isBusy(error)) throw error;
    return undefined;
  }
  return () => lock.close();
}

/**
 * Never opens a file that exists: closing it would drop the locks that connections of this process have on it.
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
