import { type FileHandle, open, rm } from "node:fs/promises";
import { setImmediate as nextTurn } from "node:timers/promises";
import { crc32 } from "node:zlib";
import type { HoldFacts, ReleaseTransition, SettleTransition } from "../credits/books.ts";
import { TOKEN_CLASSES, type UnitPrices } from "../credits/price.ts";

/** What ends a hold: the transitions that wait in a spool while the store is away. */
export type SpooledTransition = SettleTransition | ReleaseTransition;

/** Of the checksum in hexadecimal digits, and of the space behind it. */
const CHECKSUM_DIGITS = 8;
const HEAD_BYTES = CHECKSUM_DIGITS + 1;

/**
 * A record of a spool: a line with the checksum of its text and the text. It begins with the end of a line as well, so
 * that whatever stands before it, torn or damaged, takes nothing of it along.
 */
export function toRecord(transition: SpooledTransition): Buffer {
  const text = Buffer.from(JSON.stringify(toPlain(transition)));
  return Buffer.concat([Buffer.from(`\n${checksumOf(text)} `), text, Buffer.from("\n")]);
}

/** Reads a line of a spool; undefined where it is not what was written, or nothing that this version knows. */
export function fromRecord(line: Buffer): SpooledTransition | undefined {
  const text = line.subarray(HEAD_BYTES);
  if (line.toString("latin1", 0, HEAD_BYTES) !== `${checksumOf(text)} `) return undefined;
  try {
    return fromPlain(JSON.parse(text.toString()));
  } catch {
    return undefined;
  }
}

/** A transition as JSON can hold it: prices as decimal text. */
export function toPlain(transition: SpooledTransition): object {
  const { facts } = transition;
  return { ...transition, facts: { ...facts, prices: mapPrices(facts.prices, String) } };
}

type Plain<Transition> = Omit<Transition, "facts"> & {
  facts: Omit<HoldFacts, "prices"> & { prices: Record<keyof UnitPrices, string> };
};

function fromPlain(plain: Plain<SettleTransition> | Plain<ReleaseTransition>): SpooledTransition | undefined {
  if (plain.kind !== "settle" && plain.kind !== "release") return undefined;
  const { facts } = plain;
  return { ...plain, facts: { ...facts, prices: mapPrices(facts.prices, BigInt) } };
}

function mapPrices<From, To>(prices: Record<keyof UnitPrices, From>, map: (price: From) => To) {
  const entries = TOKEN_CLASSES.map((tokenClass) => [tokenClass, map(prices[tokenClass])]);
  return Object.fromEntries(entries) as Record<keyof UnitPrices, To>;
}

function checksumOf(text: Buffer): string {
  return crc32(text).toString(16).padStart(CHECKSUM_DIGITS, "0");
}

/** What is read at once: some thousand records, or a single large one. */
const PAGE_BYTES = 1024 * 1024;
const LINE_END = 0x0a;
/** Room for the records of 10,000 settlements, which is as many as may ever wait. */
const RESERVE_BYTES = 8 * 1024 * 1024;
const ZEROS = Buffer.alloc(1024 * 1024);

export interface SpoolPage {
  /** In the order in which they were appended. */
  transitions: SpooledTransition[];
  /** Lines that are no record: something other than this service has changed the file. */
  damaged: string[];
  /** Whether the file ends in a piece of a record, which nobody was told to be written. */
  isTorn: boolean;
  /** Where the next page begins. */
  end: number;
}

interface PendingAppend {
  record: Buffer;
  resolve: () => void;
  reject: (error: unknown) => void;
}

/**
 * A file of records that are appended at its end and read from its start. Writing is shared: what comes while the disk
 * works goes with the next write, and each append resolves when its record is on the disk.
 */
export class SpoolFile {
  readonly path: string;
  readonly #handle: FileHandle;
  /** Bytes that are known to be on the disk. What stands behind them is the rest of a write that failed. */
  #length: number;
  /** Bytes from the start of the file that have their room on the disk. */
  #reserved = 0;
  #position = 0;
  #entries = 0;
  #waiting: PendingAppend[] = [];
  #working: Promise<void> | undefined;

  private constructor(path: string, handle: FileHandle, length: number) {
    this.path = path;
    this.#handle = handle;
    this.#length = length;
  }

  /**
   * Makes an empty file for its owner alone; rejects where there is one. It has room on the disk before it is needed: a
   * disk that is full stops the store, and what the store cannot take must not stop with it.
   */
  static async create(path: string): Promise<SpoolFile> {
    const file = new SpoolFile(path, await open(path, "wx+", 0o600), 0);
    await file.#reserve();
    return file;
  }

  /** Opens the file of a process that has ended, and counts what it left. */
  static async open(path: string): Promise<SpoolFile> {
    const handle = await open(path, "r+");
    const file = new SpoolFile(path, handle, await writtenLength(handle));
    for (let page = await file.read(); page !== undefined; page = await file.read()) {
      file.#position = page.end;
      file.#entries += page.transitions.length + page.damaged.length;
    }
    file.#position = 0;
    return file;
  }

  /** Records that were appended and not passed. */
  get entries(): number {
    return this.#entries;
  }

  /** Resolves when the record is on the disk; rejects where it could not be written, and then it never is. */
  append(record: Buffer): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ record, resolve, reject });
      this.#working ??= this.#work();
    });
  }

  /** The records that come next; undefined where all have been passed. */
  async read(): Promise<SpoolPage | undefined> {
    for (let bytes = PAGE_BYTES; this.#position < this.#length; bytes *= 2) {
      const isLast = this.#position + bytes >= this.#length;
      const page = parse(await this.#bytes(Math.min(bytes, this.#length - this.#position)), isLast);
      if (page !== undefined) return { ...page, end: this.#position + page.end };
    }
    return undefined;
  }

  /** Passes a page whose records need not be read again. A file all of which was passed is emptied. */
  pass({ transitions, damaged, end }: SpoolPage): void {
    this.#entries -= transitions.length + damaged.length;
    this.#position = end;
    this.#working ??= this.#work();
  }

  async close(): Promise<void> {
    while (this.#working !== undefined) await this.#working;
    await this.#handle.truncate(this.#length).catch(() => {});
    await this.#handle.close();
  }

  /** Removes the file, with all that stands in it, and closes it. */
  async remove(): Promise<void> {
    while (this.#working !== undefined) await this.#working;
    await rm(this.path, { force: true });
    await this.#handle.close();
  }

  async #work(): Promise<void> {
    // What is appended in one turn is written in one go.
    await nextTurn();
    do {
      if (this.#isSpent) await this.#empty();
      if (this.#waiting.length > 0) await this.#write(this.#waiting.splice(0));
    } while (this.#waiting.length > 0 || this.#isSpent);
    this.#working = undefined;
  }

  async #write(group: PendingAppend[]): Promise<void> {
    const bytes = Buffer.concat(group.map(({ record }) => record));
    try {
      for (let written = 0; written < bytes.length; ) {
        const result = await this.#handle.write(bytes, written, bytes.length - written, this.#length + written);
        written += result.bytesWritten;
      }
      await this.#handle.datasync();
      this.#length += bytes.length;
      this.#entries += group.length;
    } catch (error) {
      // Whoever is told that it was not written must not find it booked. Where even this fails, the next write goes over it.
      await this.#clear(this.#length, this.#length + bytes.length).catch(() => {});
      for (const { reject } of group) reject(error);
      return;
    }
    for (const { resolve } of group) resolve();
  }

  get #isSpent(): boolean {
    return this.#length > 0 && this.#position === this.#length;
  }

  async #empty(): Promise<void> {
    // Where it fails the next write goes over what is there, and what is left of that books nothing twice.
    await this.#clear(0, this.#length).catch(() => {});
    this.#length = 0;
    this.#position = 0;
  }

  /** Leaves nothing between two places that the next process would take for a record, and keeps what was reserved. */
  async #clear(start: number, end: number): Promise<void> {
    await this.#handle.truncate(Math.max(start, this.#reserved));
    const last = Math.min(end, this.#reserved);
    for (let at = start; at < last; at += ZEROS.length) {
      await this.#handle.write(ZEROS, 0, Math.min(ZEROS.length, last - at), at);
    }
  }

  /** Where there is no room even now, the spool does without. */
  async #reserve(): Promise<void> {
    try {
      this.#reserved = RESERVE_BYTES;
      await this.#clear(0, RESERVE_BYTES);
      await this.#handle.sync();
    } catch {
      this.#reserved = 0;
      await this.#handle.truncate(0).catch(() => {});
    }
  }

  async #bytes(count: number): Promise<Buffer> {
    const bytes = Buffer.alloc(count);
    let read = 0;
    while (read < count) {
      const result = await this.#handle.read(bytes, read, count - read, this.#position + read);
      if (result.bytesRead === 0) throw new Error(`${this.path} is shorter than it was`);
      read += result.bytesRead;
    }
    return bytes;
  }
}

/** How much of a file was written: what was only kept free for it is zeros. */
async function writtenLength(handle: FileHandle): Promise<number> {
  let { size: length } = await handle.stat();
  const page = Buffer.alloc(ZEROS.length);
  while (length > 0) {
    const start = Math.max(0, length - page.length);
    const { bytesRead } = await handle.read(page, 0, length - start, start);
    const read = page.subarray(0, bytesRead);
    if (!read.equals(ZEROS.subarray(0, bytesRead))) return start + read.findLastIndex((byte) => byte !== 0) + 1;
    length = start;
  }
  return 0;
}

/** The lines of a piece of a file; undefined where not even one of them ends in it. */
function parse(bytes: Buffer, isLast: boolean): SpoolPage | undefined {
  const page: SpoolPage = { transitions: [], damaged: [], isTorn: false, end: bytes.length };
  const whole = isLast ? bytes.length : bytes.lastIndexOf(LINE_END) + 1;
  if (whole === 0) return undefined;
  page.end = whole;
  for (let start = 0; start < whole; ) {
    const found = bytes.indexOf(LINE_END, start);
    const end = found < 0 ? whole : found;
    const line = bytes.subarray(start, end);
    start = end + 1;
    if (line.length === 0) continue;
    const transition = fromRecord(line);
    if (transition !== undefined) page.transitions.push(transition);
    else if (found < 0) page.isTorn = true;
    else page.damaged.push(line.toString());
  }
  return page;
}
