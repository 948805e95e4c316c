import { closeSync, existsSync, fsyncSync, mkdirSync, openSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";

/**
 * Creates a directory that only its owner can read, and those above it, durably. An existing directory is left as it is. Not
 * `recursive`: Node never returns if a file system such as /proc refuses directories with ENOENT. Throws errors of node:fs.
 */
export function createDirectory(path: string): void {
  const whole = resolve(path);
  try {
    mkdirSync(whole, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && statSync(whole).isDirectory()) return;
    if (code !== "ENOENT" || existsSync(dirname(whole))) throw error;
    createDirectory(dirname(whole));
    createDirectory(whole);
    return;
  }
  syncPath(dirname(whole));
}

/** Writes a file, or the entries of a directory, to the disk, so that they survive a power failure. Throws errors of node:fs. */
export function syncPath(path: string): void {
  // Windows cannot open directories, and writes their entries immediately.
  if (process.platform === "win32") return;
  const descriptor = openSync(path, "r");
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
