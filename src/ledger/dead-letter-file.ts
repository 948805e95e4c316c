import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createDurableDirectory, fromPlain, type SpooledTransition, syncDirectory } from "./spool-file.ts";

/*
 * A dead-letter file has one JSON document per line: an entry, or the note that an entry was booked. Nothing is ever removed
 * from it, so that the service and commands can append to it at the same time. The id of an entry is a digest of its line.
 */

const LINE_END = 0x0a;
const ID_DIGITS = 12;
const BOOKED = /^\{"at":"[^"]*","booked":"([0-9a-f]+)"\}$/;
/** Longer than any note, so that long entries are not converted to text. */
const NOTE_BYTES_MAX = 120;

/** Returns the path of a data directory's dead-letter file. */
export function deadLetterFileOf(dataDir: string): string {
  return join(dataDir, "dead-letters", "transitions.jsonl");
}

/** An entry that was not booked. */
export interface DeadLetter {
  id: string;
  /** ISO time; null if the entry cannot be read. */
  at: string | null;
  reason: string;
  /** Null if the entry cannot be read, or contains a damaged line of a spool. */
  transition: SpooledTransition | null;
}

/** Progress of reading a dead-letter file. Reading continues from there while the file only grows. */
export interface ReadProgress {
  inode: number;
  /** Size of the file when it was read. */
  size: number;
  /** Length of its complete lines. */
  bytes: number;
  /** Number of entries that were not booked, by id. */
  waiting: ReadonlyMap<string, number>;
  hasIncompleteLine: boolean;
}

export const NOTHING_READ: ReadProgress = {
  inode: 0,
  size: 0,
  bytes: 0,
  waiting: new Map(),
  hasIncompleteLine: false,
};

/** Counts the entries of a dead-letter file that were not booked; 0 if there is no file. */
export async function countDeadLetters(file: string): Promise<number> {
  return waitingOf(await continueReading(file, NOTHING_READ));
}

/** Returns the number of entries that were not booked, including an incomplete one at the end of the file. */
export function waitingOf({ waiting, hasIncompleteLine }: ReadProgress): number {
  return [...waiting.values()].reduce((sum, count) => sum + count, hasIncompleteLine ? 1 : 0);
}

/** Continues reading, or starts over if the file was replaced or truncated. */
export async function continueReading(file: string, earlier: ReadProgress): Promise<ReadProgress> {
  try {
    const { ino: inode, size } = await stat(file);
    if (inode === earlier.inode && size === earlier.size) return earlier;
    const hasGrown = inode === earlier.inode && size > earlier.size;
    const start = hasGrown ? earlier : NOTHING_READ;
    const waiting = new Map(start.waiting);
    let { bytes } = start;
    let hasIncompleteLine = false;
    for await (const { line, isComplete } of linesOf(file, bytes)) {
      hasIncompleteLine = !isComplete;
      if (!isComplete) continue;
      bytes += line.length + 1;
      const booked = bookedIn(line);
      if (booked !== undefined) waiting.delete(booked);
      else if (line.length > 0) waiting.set(idOf(line), (waiting.get(idOf(line)) ?? 0) + 1);
    }
    return { inode, size, bytes, waiting, hasIncompleteLine };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return NOTHING_READ;
  }
}

/** Yields the entries of a dead-letter file that were not booked, in the order in which they were added. */
export async function* readDeadLetters(file: string): AsyncGenerator<DeadLetter> {
  const { waiting, inode } = await continueReading(file, NOTHING_READ);
  if (inode === 0) return;
  for await (const { line, isComplete } of linesOf(file, 0)) {
    if (line.length === 0 || (isComplete && !waiting.has(idOf(line)))) continue;
    yield toDeadLetter(line);
  }
}

/** Appends one JSON document as a line. Resolves when it is on the disk. */
export async function appendLine(file: string, document: object): Promise<void> {
  await createDurableDirectory(dirname(file));
  const handle = await open(file, "a+", 0o600);
  try {
    // An incomplete line, left by a full disk or a crash, stays a line of its own.
    const before = (await isIncomplete(handle)) ? "\n" : "";
    const bytes = Buffer.from(`${before}${JSON.stringify(document)}\n`);
    // One write: what another process appends meanwhile comes before or after it.
    for (let written = 0; written < bytes.length; ) {
      written += (await handle.write(bytes, written, bytes.length - written)).bytesWritten;
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
  await syncDirectory(dirname(file));
}

/** Returns true if the last line of a file is incomplete. */
async function isIncomplete(handle: FileHandle): Promise<boolean> {
  const { size } = await handle.stat();
  if (size === 0) return false;
  const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0] !== LINE_END;
}

/** Yields the lines of a file from a position on, without their ends. */
async function* linesOf(file: string, start: number): AsyncGenerator<{ line: Buffer; isComplete: boolean }> {
  let pieces: Buffer[] = [];
  for await (const chunk of createReadStream(file, { start }) as AsyncIterable<Buffer>) {
    let from = 0;
    for (let end = chunk.indexOf(LINE_END); end >= 0; end = chunk.indexOf(LINE_END, from)) {
      yield { line: Buffer.concat([...pieces, chunk.subarray(from, end)]), isComplete: true };
      pieces = [];
      from = end + 1;
    }
    if (from < chunk.length) pieces.push(chunk.subarray(from));
  }
  if (pieces.length > 0) yield { line: Buffer.concat(pieces), isComplete: false };
}

function idOf(line: Buffer): string {
  return createHash("sha256").update(line).digest("hex").slice(0, ID_DIGITS);
}

/** Returns the id of the entry that a note says was booked; undefined for an entry. */
function bookedIn(line: Buffer): string | undefined {
  return line.length > NOTE_BYTES_MAX ? undefined : BOOKED.exec(line.toString())?.[1];
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
