import { createHash } from "node:crypto";
import { open, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createDirectory, syncPath } from "../internals/directory.ts";
import { LINE_END, linesOf, writeAll } from "./lines.ts";
import { fromPlain, type SpooledTransition } from "./spool-file.ts";

/*
 * A dead-letter file has one JSON document per line: an entry, or the note that an entry was booked. Nothing is ever removed
 * from it, so that the service and commands can append to it at the same time. The id of an entry is a digest of its line.
 */

const ID_DIGITS = 12;
const BOOKED = /^\{"at":"[^"]*","booked":"([0-9a-f]+)"\}$/;
/** Longer than any note, so that long entries are not converted to text. */
const NOTE_BYTES_MAX = 120;

/** Returns the path of a data directory's dead-letter file. */
export function deadLetterFileOf(dataDir: string): string {
  return join(dataDir, "dead-letters", "transitions.jsonl");
}

export interface DeadLetter {
  id: string;
  /** ISO time; null if the entry cannot be read. */
  at: string | null;
  reason: string;
  /** Null if the entry cannot be read, or contains a damaged line of a spool. */
  transition: SpooledTransition | null;
}

/** Yields the entries of a dead-letter file that were not booked, in the order in which they were added. */
export async function* readDeadLetters(file: string): AsyncGenerator<DeadLetter> {
  const waiting = await waitingIn(file);
  if (waiting.size === 0) return;
  for await (const { line } of linesOf(file)) if (waiting.delete(idOf(line))) yield toDeadLetter(line);
}

/** Counts the entries of a dead-letter file that were not booked; 0 if there is no file. */
export async function countDeadLetters(file: string): Promise<number> {
  return (await waitingIn(file)).size;
}

/** Returns the ids of the entries that were not booked. An incomplete line at the end is an entry, too. */
async function waitingIn(file: string): Promise<Set<string>> {
  const waiting = new Set<string>();
  if ((await versionOf(file)) === undefined) return waiting;
  for await (const { line } of linesOf(file)) {
    const booked = line.length > NOTE_BYTES_MAX ? undefined : BOOKED.exec(line.toString())?.[1];
    if (booked !== undefined) waiting.delete(booked);
    else if (line.length > 0) waiting.add(idOf(line));
  }
  return waiting;
}

/** Returns a text that changes with the file, because nothing is removed from it; undefined if there is no file. */
export async function versionOf(file: string): Promise<string | undefined> {
  try {
    const { ino, size } = await stat(file);
    return `${ino} ${size}`;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return undefined;
  }
}

/** Appends one JSON document as a line. Resolves when it is on the disk. */
export async function appendLine(file: string, document: object): Promise<void> {
  createDirectory(dirname(file));
  await using handle = await open(file, "a+", 0o600);
  const { size } = await handle.stat();
  const { buffer: last } = await handle.read(Buffer.alloc(1), 0, 1, size - 1);
  // An incomplete line, left by a full disk or a crash, stays a line of its own.
  const before = size > 0 && last[0] !== LINE_END ? "\n" : "";
  // Written at once: what another process appends meanwhile comes before or after it.
  await writeAll(handle, Buffer.from(`${before}${JSON.stringify(document)}\n`), null);
  await handle.sync();
  if (size === 0) syncPath(dirname(file));
}

function idOf(line: Buffer): string {
  return createHash("sha256").update(line).digest("hex").slice(0, ID_DIGITS);
}

function toDeadLetter(line: Buffer): DeadLetter {
  const id = idOf(line);
  try {
    const { at, reason, transition, line: spooled } = JSON.parse(line.toString());
    if (typeof at !== "string" || typeof reason !== "string") throw new TypeError("The entry has no time or reason.");
    const found = spooled === undefined ? fromPlain(transition) : undefined;
    if (found?.kind === "settle" && typeof found.tokens !== "object") throw new TypeError("The entry has no tokens.");
    return { id, at, reason, transition: found ?? null };
  } catch {
    return { id, at: null, reason: "the entry cannot be read", transition: null };
  }
}
