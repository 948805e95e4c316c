import { type FileHandle, mkdir, open, rm, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { crc32 } from "node:zlib";
import type { HoldFacts, ReleaseTransition, SettleTransition } from "../credits/books.ts";
import { decodeLines, encodeLines } from "../credits/charge-lines.ts";
import { NO_TOKENS } from "../credits/price.ts";

/** Transitions that end a hold. They wait in the spool while the store is unavailable. */
export type SpooledTransition = SettleTransition | ReleaseTransition;

/** Length of the checksum in hexadecimal digits. */
const CHECKSUM_DIGITS = 8;
/** Length of the checksum and the space after it. */
const HEAD_BYTES = CHECKSUM_DIGITS + 1;

/**
 * Serializes a transition as a record of the spool: a line with a checksum and a JSON text. It also begins with a line feed,
 * so that an incomplete or damaged record before it does not affect it.
 */
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

/** Size of one read: some thousand records, or a single large one. */
const PAGE_BYTES = 1024 * 1024;
const LINE_END = 0x0a;
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
  /** Position of the next page. */
  end: number;
}

interface PendingAppend {
  record: Buffer;
  resolve: () => void;
  reject: (error: unknown) => void;
}

/**
 * A file of records that are appended at the end and read from the start. Records that arrive during a write go into the
 * next write together. Each append resolves when its record is on the disk.
 */
export class SpoolFile {
  readonly path: string;
  readonly #handle: FileHandle;
  /** Bytes that are confirmed on the disk. Anything after them is left from a failed write. */
  #length: number;
  /** Bytes from the start of the file that are allocated on the disk. */
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
   * Creates an empty file that only its owner can read; rejects if it exists. Its space is allocated in advance: when a full
   * disk stops the store, the spool must still work.
   */
  static async create(path: string): Promise<SpoolFile> {
    const file = new SpoolFile(path, await open(path, "wx+", 0o600), 0);
    await file.#reserve();
    return file;
  }

  /** Opens the file of an ended process, and counts its records. */
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

  /** Number of records that were appended and not yet passed. */
  get entries(): number {
    return this.#entries;
  }

  /** Appends a record. Resolves when it is on the disk. If it rejects, the record will never be read. */
  append(record: Buffer): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ record, resolve, reject });
      this.#working ??= this.#work();
    });
  }

  /** Reads the next page of records; undefined if all have been passed. */
  async read(): Promise<SpoolPage | undefined> {
    for (let bytes = PAGE_BYTES; this.#position < this.#length; bytes *= 2) {
      const isLast = this.#position + bytes >= this.#length;
      const page = parse(await this.#bytes(Math.min(bytes, this.#length - this.#position)), isLast);
      if (page !== undefined) return { ...page, end: this.#position + page.end };
    }
    return undefined;
  }

  /** Passes a page: its records are not read again. A file whose records are all passed is emptied. */
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

  /** Closes and deletes the file. */
  async remove(): Promise<void> {
    while (this.#working !== undefined) await this.#working;
    await rm(this.path, { force: true });
    await this.#handle.close();
  }

  async #work(): Promise<void> {
    // Records appended in one turn of the event loop are written together.
    await nextTurn();
    do {
      if (this.#isConsumed) await this.#empty();
      if (this.#waiting.length > 0) await this.#write(this.#waiting.splice(0));
    } while (this.#waiting.length > 0 || this.#isConsumed);
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
      // A record whose append was rejected must not be booked later. If clearing fails too, the next write overwrites it.
      await this.#clear(this.#length, this.#length + bytes.length).catch(() => {});
      for (const { reject } of group) reject(error);
      return;
    }
    for (const { resolve } of group) resolve();
  }

  get #isConsumed(): boolean {
    return this.#length > 0 && this.#position === this.#length;
  }

  async #empty(): Promise<void> {
    // If clearing fails, the next write overwrites the file. Booking a leftover record again has no effect.
    await this.#clear(0, this.#length).catch(() => {});
    this.#length = 0;
    this.#position = 0;
  }

  /** Clears a range so that the next process finds no records in it. The allocated space stays allocated. */
  async #clear(start: number, end: number): Promise<void> {
    await this.#handle.truncate(Math.max(start, this.#reserved));
    const last = Math.min(end, this.#reserved);
    for (let at = start; at < last; at += ZEROS.length) {
      await this.#handle.write(ZEROS, 0, Math.min(ZEROS.length, last - at), at);
    }
  }

  /** Allocates the file's space. If the disk is already full, the spool works without it. */
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
      if (result.bytesRead === 0) throw new Error(`${this.path} was truncated`);
      read += result.bytesRead;
    }
    return bytes;
  }
}

/** Returns the length of the written part of a file. The allocated space after it contains only zeros. */
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

/** Parses the lines of a chunk of a file; undefined if no line ends in it. */
function parse(bytes: Buffer, isLast: boolean): SpoolPage | undefined {
  const page: SpoolPage = { transitions: [], damaged: [], isIncomplete: false, end: bytes.length };
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
    else if (found < 0) page.isIncomplete = true;
    else page.damaged.push(line.toString());
  }
  return page;
}

/** Creates a directory that only its owner can read, durably. An existing directory is left as it is. */
export async function createDurableDirectory(path: string): Promise<void> {
  const whole = resolve(path);
  try {
    // Not `recursive`: Node never returns if a file system such as /proc refuses directories with ENOENT.
    await mkdir(whole, { mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && (await stat(whole)).isDirectory()) return;
    if (code !== "ENOENT" || (await exists(dirname(whole)))) throw error;
    await createDurableDirectory(dirname(whole));
    return createDurableDirectory(whole);
  }
  await syncDirectory(dirname(whole));
}

/** Writes a directory's entries to the disk, so that a new file in it survives a power failure. */
export async function syncDirectory(path: string): Promise<void> {
  // Windows cannot open directories, and writes their entries immediately.
  if (process.platform === "win32") return;
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Returns true if a file or directory exists and can be reached. */
export async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
