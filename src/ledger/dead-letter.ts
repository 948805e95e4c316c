import { createHash } from "node:crypto";
import { open, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isoTime } from "../api/time.ts";
import type { MicroCredits } from "../credits/amount.ts";
import { StoreUnavailableError } from "../errors.ts";
import { createDirectory, syncPath } from "../internals/directory.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { Books } from "../stores/queries/books.ts";
import type { Log } from "../telemetry/logger.ts";
import { LINE_END, linesOf, writeAll } from "./lines.ts";
import { fromPlain, type SpooledTransition, toPlain } from "./spool-file.ts";

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
async function versionOf(file: string): Promise<string | undefined> {
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

export type DeadLetters = ReturnType<typeof deadLettersIn>;

/** Stores transitions that no retry can book, so that an operator can review them and no other transition waits for them. */
export function deadLettersIn({ file, clock, log }: { file: string; clock: () => number; log: Log }) {
  let counted: { version: string | undefined; count: number } = { version: undefined, count: 0 };
  const append = (entry: object) => appendLine(file, { at: isoTime(clock()), ...entry });
  return {
    /** Counts the entries that were not booked. The file, which may be large, is read once at a time, and only if it has changed. */
    count: sharedRun(async () => {
      const version = await versionOf(file);
      if (version !== counted.version) counted = { version, count: await countDeadLetters(file) };
      return counted.count;
    }),
    /** Adds a transition. Resolves when it is on the disk. */
    async add(transition: SpooledTransition, reason: unknown): Promise<void> {
      const { organizationId, holdId } = transition.facts;
      await append({ reason: messageOf(reason), transition: toPlain(transition) });
      const fields = { kind: transition.kind, organizationId, holdId, file, err: reason };
      log.error(fields, "a transition could not be booked: it is in the dead-letter file");
    },
    /** Adds a line of a spool that is not a valid record. Resolves when it is on the disk. */
    async addLine(line: string): Promise<void> {
      await append({ reason: "the line was damaged", line });
      log.error({ file }, "a line of a spool is damaged: it is in the dead-letter file");
    },
  };
}

/** Returns why a transition can never be booked, from the outcome of its booking; undefined if it is booked. */
export function refusalOf({ kind }: SpooledTransition, { outcome }: { outcome: string }): string | undefined {
  if (outcome === "closed") return "the request belongs to a closed period, and may have been booked in it";
  // The hold of a release may have expired or been lost: there is nothing left to return.
  if (kind === "settle" ? outcome === "charged" : outcome !== "unknown_organization") return undefined;
  return `the store answered ${outcome}`;
}

export type RetryOutcome =
  | { outcome: "booked"; charged: MicroCredits; shortfall: MicroCredits }
  | { outcome: "refused"; reason: string };

/** Books a dead letter, but no charge twice, and notes in the file that it is booked. Rejects with StoreUnavailableError. */
export async function retryDeadLetter(
  books: Pick<Books, "apply">,
  { file, clock }: { file: string; clock: () => number },
  { id, reason, transition }: DeadLetter,
): Promise<RetryOutcome> {
  if (transition === null) return { outcome: "refused", reason };
  const booked = await book(books, transition);
  if (booked.outcome === "booked") await appendLine(file, { at: isoTime(clock()), booked: id });
  return booked;
}

async function book(books: Pick<Books, "apply">, transition: SpooledTransition): Promise<RetryOutcome> {
  try {
    const [outcome] = await books.apply("durable", [transition]);
    const refusal = refusalOf(transition, outcome);
    if (refusal !== undefined) return { outcome: "refused", reason: refusal };
    const { charged = 0n, shortfall = 0n } = "shortfall" in outcome ? outcome : {};
    return { outcome: "booked", charged, shortfall };
  } catch (error) {
    if (error instanceof StoreUnavailableError) throw error;
    return { outcome: "refused", reason: messageOf(error) };
  }
}

function messageOf(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}
