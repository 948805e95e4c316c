import { createReadStream } from "node:fs";
import { type FileHandle, open, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isoTime } from "../api/time.ts";
import type { Log } from "../telemetry/logger.ts";
import { createDurableDirectory, type SpooledTransition, syncDirectory, toPlain } from "./spool-file.ts";

const LINE_END = 0x0a;

/** Returns the path of a data directory's dead-letter file: one JSON document per line. */
export function deadLetterFileOf(dataDir: string): string {
  return join(dataDir, "quarantine", "transitions.jsonl");
}

/** Progress of counting a dead-letter file. Counting continues from there while the file only grows. */
interface Counted {
  inode: number;
  bytes: number;
  lineEnds: number;
  endsWithLine: boolean;
}

const NOTHING_COUNTED: Counted = { inode: 0, bytes: 0, lineEnds: 0, endsWithLine: true };

/** Counts the entries of a dead-letter file, including incomplete ones; 0 if there is no file. */
export async function countDeadLetters(file: string): Promise<number> {
  return entriesOf(await continueCount(file, NOTHING_COUNTED));
}

function entriesOf({ lineEnds, endsWithLine }: Counted): number {
  return endsWithLine ? lineEnds : lineEnds + 1;
}

/** Continues an earlier count, or starts over if the file was replaced or truncated. */
async function continueCount(file: string, earlier: Counted): Promise<Counted> {
  try {
    const { ino: inode, size } = await stat(file);
    if (inode === earlier.inode && size === earlier.bytes) return earlier;
    const hasGrown = inode === earlier.inode && size > earlier.bytes;
    const counted = { ...(hasGrown ? earlier : NOTHING_COUNTED), inode };
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

/** Stores transitions that no retry can book, so that an operator can review them and no other transition waits for them. */
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

  /** Adds a transition. Resolves when it is on the disk. */
  async add(transition: SpooledTransition, reason: unknown): Promise<void> {
    const { organizationId, holdId } = transition.facts;
    await this.#write({ reason: messageOf(reason), transition: toPlain(transition) });
    const fields = { kind: transition.kind, organizationId, holdId, file: this.#file, err: reason };
    this.#log.error(fields, "a transition could not be booked: it is in the dead-letter file");
  }

  /** Adds a line of a spool that is not a valid record. Resolves when it is on the disk. */
  async addLine(line: string): Promise<void> {
    await this.#write({ reason: "the line was damaged", line });
    this.#log.error({ file: this.#file }, "a line of a spool is damaged: it is in the dead-letter file");
  }

  /** Counts the entries. Only lines appended since the last count are read. */
  count(): Promise<number> {
    this.#counting ??= this.#continueCount().finally(() => {
      this.#counting = undefined;
    });
    return this.#counting;
  }

  async #continueCount(): Promise<number> {
    this.#counted = await continueCount(this.#file, this.#counted);
    return entriesOf(this.#counted);
  }

  async #write(entry: object): Promise<void> {
    await createDurableDirectory(dirname(this.#file));
    const handle = await open(this.#file, "a+", 0o600);
    try {
      const at = isoTime(this.#clock());
      // An incomplete line, left by a full disk or a crash, stays a line of its own.
      const before = (await isIncomplete(handle)) ? "\n" : "";
      await handle.appendFile(`${before}${JSON.stringify({ at, ...entry })}\n`);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await syncDirectory(dirname(this.#file));
  }
}

/** Returns true if the last line of a file is incomplete. */
async function isIncomplete(handle: FileHandle): Promise<boolean> {
  const { size } = await handle.stat();
  if (size === 0) return false;
  const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0] !== LINE_END;
}

function messageOf(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}
