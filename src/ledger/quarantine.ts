import { createReadStream } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Log } from "../contract/log.ts";
import { makeDirectory, syncDirectory } from "./spool/directory.ts";
import { type SpooledTransition, toPlain } from "./spool/record.ts";

const LINE_END = 0x0a;

/** The file of a data directory that holds what could not be booked: one JSON document a line. */
export function quarantineFileOf(dataDir: string): string {
  return join(dataDir, "quarantine", "transitions.jsonl");
}

/** How many entries a quarantine file holds, torn ones too; 0 where there is none. */
export async function countQuarantined(file: string): Promise<number> {
  let count = 0;
  let last: number | undefined = LINE_END;
  try {
    for await (const chunk of createReadStream(file) as AsyncIterable<Buffer>) {
      for (let at = chunk.indexOf(LINE_END); at >= 0; at = chunk.indexOf(LINE_END, at + 1)) count += 1;
      last = chunk.at(-1);
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  return last === LINE_END ? count : count + 1;
}

/** Keeps what no retry can book, for an operator to look at: nothing is thrown away, and nothing else waits for it. */
export class Quarantine {
  readonly #file: string;
  readonly #clock: () => number;
  readonly #log: Log;

  constructor({ file, clock, log }: { file: string; clock: () => number; log: Log }) {
    this.#file = file;
    this.#clock = clock;
    this.#log = log;
  }

  /** Resolves when the transition is on the disk. */
  async add(transition: SpooledTransition, reason: unknown): Promise<void> {
    const { organizationId, holdId } = transition.kind === "settle" ? transition.facts : transition;
    await this.#write({ reason: wordsOf(reason), transition: toPlain(transition) });
    const fields = { kind: transition.kind, organizationId, holdId, file: this.#file, err: reason };
    this.#log.error(fields, "a transition that cannot be booked was put into quarantine");
  }

  /** Resolves when the line, which is no record of a spool, is on the disk. */
  async addLine(line: string): Promise<void> {
    await this.#write({ reason: "the line was damaged", line });
    this.#log.error({ file: this.#file }, "a damaged line of a spool was put into quarantine");
  }

  count(): Promise<number> {
    return countQuarantined(this.#file);
  }

  async #write(entry: object): Promise<void> {
    await makeDirectory(dirname(this.#file));
    const handle = await open(this.#file, "a+", 0o600);
    try {
      const at = new Date(this.#clock()).toISOString();
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
