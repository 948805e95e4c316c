import { isUtf8 } from "node:buffer";
import { closeSync, openSync, readSync, statSync } from "node:fs";
import { OperatorError } from "../errors.ts";

const REASONS: Record<string, string> = {
  ENOENT: "there is no such file",
  EACCES: "permission denied",
  EEXIST: "the file exists already",
  ENOSPC: "the disk is full",
  EISDIR: "it is a directory",
  ENOTDIR: "a part of its path is not a directory",
  ELOOP: "its symbolic links lead in a circle",
  ENAMETOOLONG: "its name is too long",
};

/** Returns why a file cannot be read or written. */
export function reasonOf(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code ?? "";
  return REASONS[code] ?? (code || String(error));
}

/** Reads a text file of bounded size, which may be a pipe without end. Throws OperatorError, and the errors of node:fs. */
export function readTextFile(path: string, name: string, bytesMax: number): string {
  const file = openSync(path, "r");
  try {
    const buffer = Buffer.alloc(bytesMax + 1);
    let length = 0;
    for (let read = 1; read > 0; length += read) read = readSync(file, buffer, { offset: length });
    if (length > bytesMax) throw new OperatorError(`${name} is larger than ${bytesMax} bytes`);
    const bytes = buffer.subarray(0, length);
    if (!isUtf8(bytes) || bytes.includes(0)) throw new OperatorError(`${name} is not text in UTF-8`);
    return new TextDecoder().decode(bytes);
  } finally {
    closeSync(file);
  }
}

/** Throws OperatorError unless a file can be read again: opening a pipe would wait for its writer. */
export function expectRegularFile(path: string, name: string): void {
  const found = statSync(path);
  if (found.isDirectory()) throw Object.assign(new Error(path), { code: "EISDIR" });
  if (!found.isFile()) throw new OperatorError(`${name} is not a regular file`);
}
