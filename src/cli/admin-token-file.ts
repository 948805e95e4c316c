import { closeSync, fsyncSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";

function fileOf(dataDir: string): string {
  return join(dataDir, "admin-token");
}

/** Writes the admin token to a new file of the data directory, readable by its owner alone; returns its path. */
export function writeAdminToken(dataDir: string, token: string): string {
  const path = fileOf(dataDir);
  rmSync(path, { force: true });
  // Exclusive: a file or link that somebody put there meanwhile is not written through.
  const file = openSync(path, "wx", 0o600);
  try {
    writeSync(file, `${token}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  return path;
}

/** Removes the file, once its token has ended. Fails silently: the token in it is worth nothing then. */
export function removeAdminToken(dataDir: string): void {
  try {
    rmSync(fileOf(dataDir), { force: true });
  } catch {
    // The directory may be missing or read-only.
  }
}
