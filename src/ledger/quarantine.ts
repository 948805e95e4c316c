import { createReadStream } from "node:fs";
import { open } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Log } from "../contract/log.ts";
import { makeDirectory, syncDirectory } from "./spool/directory.ts";
import { type SpooledTransition, toPlain } from "./spool/record.ts";

const LINE_END = 0x0a;

/** The file of a data directory that holds what could not be booked: one JSON document a line. */
export function quarantineFileOf(dataDir: string): string {
  return join(dataDir, "quarantine", "transitions.jsonl");
}

/** How many entries a quarantine file holds; 0 where there is none. */
export async function countQuarantined(file: string): Promise<number> {
  let count = 0;
  try {
    for await (const chunk of createReadStream(file) as AsyncIterable<Buffer>) {
      for (let at = chunk.indexOf(LINE_END); at >= 0; at = chunk.indexOf(LINE_END, at + 1)) count += 1;
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
  }
  return count;
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
    const handle = await open(this.#file, "a", 0o600);
    try {
      const at = new Date(this.#clock()).toISOString();
      await handle.appendFile(`${JSON.stringify({ at, ...entry })}\n`);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await syncDirectory(dirname(this.#file));
  }
}

function wordsOf(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}
