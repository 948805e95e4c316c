import { type FileHandle, open, rm, stat } from "node:fs/promises";
import { setImmediate as nextTurn } from "node:timers/promises";
import { crc32 } from "node:zlib";
import type { ReleaseTransition, SettleTransition } from "../credits/books.ts";
import { decodeLines, encodeLines } from "../credits/charge-lines.ts";
import type { HoldFacts } from "../credits/facts.ts";
import { NO_TOKENS } from "../credits/price.ts";
import { type FileLine, linesOf, writeAll } from "./lines.ts";

/** Transitions that end a hold. They wait in the spool while the store is unavailable. */
export type SpooledTransition = SettleTransition | ReleaseTransition;

const CHECKSUM_DIGITS = 8;
/** Length of the checksum and the space after it. */
const HEAD_BYTES = CHECKSUM_DIGITS + 1;

/** Serializes a transition as a line with a checksum. The line feed before it ends an incomplete record. */
export function toSpoolRecord(transition: SpooledTransition): Buffer {
  const text = Buffer.from(JSON.stringify(toPlain(transition)));
  return Buffer.concat([Buffer.from(`\n${checksumOf(text)} `), text, Buffer.from("\n")]);
}

/** Parses a line of a spool; returns undefined if it is damaged. */
export function fromRecord(line: Buffer): SpooledTransition | undefined {
  const text = line.subarray(HEAD_BYTES);
  if (line.toString("latin1", 0, HEAD_BYTES) !== `${checksumOf(text)} `) return undefined;
  try {
    return fromPlain(JSON.parse(text.toString()));
  } catch {
    return undefined;
  }
}

/** Converts a transition to a JSON-compatible object, with prices as the books store them. */
export function toPlain(transition: SpooledTransition): object {
  const { facts } = transition;
  return { ...transition, facts: { ...facts, prices: encodeLines(NO_TOKENS, facts.prices) } };
}

type Plain<Transition> = Omit<Transition, "facts"> & { facts: Omit<HoldFacts, "prices"> & { prices: string } };

/** Converts such an object back; returns undefined for another kind. Throws if it is incomplete. */
export function fromPlain(plain: Plain<SettleTransition> | Plain<ReleaseTransition>): SpooledTransition | undefined {
  if (plain.kind !== "settle" && plain.kind !== "release") return undefined;
  const { facts } = plain;
  return { ...plain, facts: { ...facts, prices: decodeLines(facts.prices).prices } };
}

function checksumOf(text: Buffer): string {
  return crc32(text).toString(16).padStart(CHECKSUM_DIGITS, "0");
}

/** Size of a page: some thousand records, or a single large one. */
const PAGE_BYTES = 1024 * 1024;
/** Space for the records of 20,000 settlements, the most that may wait. Records with a stored answer are longer. */
export const RESERVE_BYTES = 16 * 1024 * 1024;
const ZEROS = Buffer.alloc(1024 * 1024);

export interface SpoolPage {
  /** In the order in which they were appended. */
  transitions: SpooledTransition[];
  /** Lines that are not valid records: something other than this service has changed the file. */
  damaged: string[];
  /** True if the file ends in an incomplete record: its append was never confirmed. */
  isIncomplete: boolean;
  byteLength: number;
}

/**
 * A file of records that are appended at the end and read from the start. Records that are appended in one turn of the event
 * loop or during a write are written together. Each append resolves when its record is on the disk.
 */
export class SpoolFile {
  readonly path: string;
  readonly #handle: FileHandle;
  /** Bytes that are confirmed on the disk. Anything after them is left from a failed write. */
  #length: number;
  /** Bytes from the start of the file that are allocated on the disk. */
  #reserved = 0;
  /** Bytes from the start of the file that are not read again. */
  #passed = 0;
  #entries = 0;
  #group: { records: Buffer[]; written: Promise<void> } | undefined;
  /** Resolves when the file is not being changed any more. */
  #unchanging: Promise<void> = Promise.resolve();

  private constructor(path: string, handle: FileHandle, length: number) {
    this.path = path;
    this.#handle = handle;
    this.#length = length;
  }

  /** Creates a file for its owner only; rejects if it exists. Its space is allocated: the spool must work when the disk is full. */
  static async create(path: string): Promise<SpoolFile> {
    const file = new SpoolFile(path, await open(path, "wx+", 0o600), 0);
    await file.allocate();
    return file;
  }

  /** Opens the file of an ended process, and counts its records. */
  static async open(path: string): Promise<SpoolFile> {
    const handle = await open(path, "r+");
    const file = new SpoolFile(path, handle, (await handle.stat()).size);
    for await (const page of pagesOf(path, 0, file.#length)) file.#entries += entriesOf(page);
    return file;
  }

  /** Number of records that were appended and not yet passed. */
  get entries(): number {
    return this.#entries;
  }

  /** True if the file's space is allocated. */
  get isAllocated(): boolean {
    return this.#reserved > 0;
  }

  /** Allocates the file's space if it is not. If the disk is full, the spool works without it. Never rejects. */
  allocate(): Promise<void> {
    return this.#change(async () => {
      if (this.isAllocated) return;
      try {
        this.#reserved = RESERVE_BYTES;
        await this.#clear(this.#length, RESERVE_BYTES);
        await this.#handle.sync();
      } catch {
        this.#reserved = 0;
        await this.#handle.truncate(this.#length).catch(() => {});
      }
    });
  }

  /** Appends a record. Resolves when it is on the disk. If it rejects, the record will never be read. */
  append(record: Buffer): Promise<void> {
    this.#group ??= { records: [], written: this.#change(() => this.#write()) };
    this.#group.records.push(record);
    return this.#group.written;
  }

  /** Yields the records page by page; a page is passed when the next one is requested. Ends when all are, and the file is empty. */
  async *pages(): AsyncGenerator<SpoolPage> {
    while (this.#passed < this.#length) {
      const end = this.#length;
      for await (const page of pagesOf(this.path, this.#passed, end)) {
        yield page;
        this.#entries -= entriesOf(page);
        this.#passed += page.byteLength;
      }
      if (this.#passed < end) throw new Error(`${this.path} was truncated`);
      await this.#change(() => this.#emptyIfPassed());
    }
  }

  async close(): Promise<void> {
    await this.#unchanging;
    await this.#handle.truncate(this.#length).catch(() => {});
    await this.#handle.close();
  }

  /** Closes and deletes the file. */
  async remove(): Promise<void> {
    await this.#unchanging;
    await rm(this.path, { force: true });
    await this.#handle.close();
  }

  #change(work: () => Promise<void>): Promise<void> {
    const change = this.#unchanging.then(work);
    this.#unchanging = change.catch(() => {});
    return change;
  }

  async #write(): Promise<void> {
    await nextTurn();
    const records = this.#group?.records ?? [];
    this.#group = undefined;
    const bytes = Buffer.concat(records);
    try {
      // The next process could not find the records.
      const [named, opened] = await Promise.all([stat(this.path), this.#handle.stat()]);
      if (named.ino !== opened.ino) throw new Error(`${this.path} was replaced`);
      await writeAll(this.#handle, bytes, this.#length);
      await this.#handle.datasync();
    } catch (error) {
      // A record whose append was rejected must not be booked later. If clearing fails too, the next write overwrites it.
      await this.#clear(this.#length, this.#length + bytes.length).catch(() => {});
      throw error;
    }
    this.#length += bytes.length;
    this.#entries += records.length;
  }

  async #emptyIfPassed(): Promise<void> {
    if (this.#passed < this.#length) return;
    // If clearing fails, the next write overwrites the file. Booking a leftover record again has no effect.
    await this.#clear(0, this.#length).catch(() => {});
    this.#length = 0;
    this.#passed = 0;
  }

  /** Clears a range so that the next process finds no records in it. The allocated space stays allocated. */
  async #clear(start: number, end: number): Promise<void> {
    await this.#handle.truncate(Math.max(start, this.#reserved));
    const last = Math.min(end, this.#reserved);
    for (let at = start; at < last; at += ZEROS.length) {
      await writeAll(this.#handle, ZEROS.subarray(0, last - at), at);
    }
  }
}

function entriesOf({ transitions, damaged }: SpoolPage): number {
  return transitions.length + damaged.length;
}

async function* pagesOf(path: string, start: number, end: number): AsyncGenerator<SpoolPage> {
  if (start === end) return;
  let page = emptyPage();
  for await (const line of linesOf(path, start, end)) {
    addLine(page, line);
    if (page.byteLength < PAGE_BYTES) continue;
    yield page;
    page = emptyPage();
  }
  if (page.byteLength > 0) yield page;
}

function emptyPage(): SpoolPage {
  return { transitions: [], damaged: [], isIncomplete: false, byteLength: 0 };
}

function addLine(page: SpoolPage, { line, isComplete }: FileLine): void {
  page.byteLength += line.length + (isComplete ? 1 : 0);
  // The allocated space after the records contains only zeros.
  const isUnused = line.length === 0 || (line[0] === 0 && line.equals(Buffer.alloc(line.length)));
  if (isUnused) return;
  const transition = fromRecord(line);
  if (transition !== undefined) page.transitions.push(transition);
  else if (isComplete) page.damaged.push(line.toString());
  else page.isIncomplete = true;
}
