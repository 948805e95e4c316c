import { createReadStream } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isoTime } from "../api/time.ts";
import type { Log } from "../telemetry/logger.ts";
import { makeDirectory, syncDirectory } from "./directory.ts";
import { type SpooledTransition, toPlain } from "./spool-file.ts";

const LINE_END = 0x0a;

/** The file of a data directory that holds what could not be booked: one JSON document a line. */
export function deadLetterFileOf(dataDir: string): string {
  return join(dataDir, "quarantine", "transitions.jsonl");
}

/** Position up to which a dead-letter file was counted. Counting continues there while the file only grows. */
interface Counted {
  inode: number;
  bytes: number;
  lineEnds: number;
  endsWithLine: boolean;
}

const NOTHING_COUNTED: Counted = { inode: 0, bytes: 0, lineEnds: 0, endsWithLine: true };

/** Number of entries of a dead-letter file, torn ones included; 0 where there is no file. */
export async function countDeadLetters(file: string): Promise<number> {
  return entriesOf(await countOn(file, NOTHING_COUNTED));
}

function entriesOf({ lineEnds, endsWithLine }: Counted): number {
  return endsWithLine ? lineEnds : lineEnds + 1;
}

/** Counts what was appended to a file since an earlier count; all of it when the file was replaced or cut. */
async function countOn(file: string, earlier: Counted): Promise<Counted> {
  try {
    const { ino: inode, size } = await stat(file);
    if (inode === earlier.inode && size === earlier.bytes) return earlier;
    const isGrown = inode === earlier.inode && size > earlier.bytes;
    const counted = { ...(isGrown ? earlier : NOTHING_COUNTED), inode };
    for await (const chunk of createReadStream(file, { start: counted.bytes }) as AsyncIterable<Buffer>) {
      for (let at = chunk.indexOf(LINE_END); at >= 0; at = chunk.indexOf(LINE_END, at + 1)) counted.lineEnds += 1;
      counted.bytes += chunk.length;
      counted.endsWithLine = chunk.at(-1) === LINE_END;
    }
    return counted;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return NOTHING_COUNTED;
  }
}

/** Keeps what no retry can book, for an operator to look at: nothing is thrown away, and nothing else waits for it. */
export class DeadLetters {
  readonly #file: string;
  readonly #clock: () => number;
  readonly #log: Log;
  #counted = NOTHING_COUNTED;
  #counting: Promise<number> | undefined;

  constructor({ file, clock, log }: { file: string; clock: () => number; log: Log }) {
    this.#file = file;
    this.#clock = clock;
    this.#log = log;
  }

  /** Resolves when the transition is on the disk. */
  async add(transition: SpooledTransition, reason: unknown): Promise<void> {
    const { organizationId, holdId } = transition.facts;
    await this.#write({ reason: wordsOf(reason), transition: toPlain(transition) });
    const fields = { kind: transition.kind, organizationId, holdId, file: this.#file, err: reason };
    this.#log.error(fields, "a transition that cannot be booked was put into quarantine");
  }

  /** Resolves when the line, which is no record of a spool, is on the disk. */
  async addLine(line: string): Promise<void> {
    await this.#write({ reason: "the line was damaged", line });
    this.#log.error({ file: this.#file }, "a damaged line of a spool was put into quarantine");
  }

  /** Number of entries. It is kept in memory; only what was appended since the last count is read. */
  count(): Promise<number> {
    this.#counting ??= this.#countOn().finally(() => {
      this.#counting = undefined;
    });
    return this.#counting;
  }

  async #countOn(): Promise<number> {
    this.#counted = await countOn(this.#file, this.#counted);
    return entriesOf(this.#counted);
  }

  async #write(entry: object): Promise<void> {
    await makeDirectory(dirname(this.#file));
    const handle = await open(this.#file, "a+", 0o600);
    try {
      const at = isoTime(this.#clock());
      // What a full disk or a crash has torn stays a line of its own.
      const before = (await isTorn(handle)) ? "\n" : "";
      await handle.appendFile(`${before}${JSON.stringify({ at, ...entry })}\n`);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await syncDirectory(dirname(this.#file));
  }
}

/** Whether the last line of a file has no end. */
async function isTorn(handle: FileHandle): Promise<boolean> {
  const { size } = await handle.stat();
  if (size === 0) return false;
  const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0] !== LINE_END;
}

function wordsOf(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}
