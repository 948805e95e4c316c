import { Worker } from "node:worker_threads";
import type { Log } from "../telemetry/logger.ts";

const WORKER = new URL(
  import.meta.url.endsWith(".ts") ? "./token-counter-worker.ts" : "./token-counter-worker.js",
  import.meta.url,
);
/** Characters of one group that are tokenized [at most 1.5 s for the worst text]. A longer group is sampled. */
const CHARACTERS_MAX = 256 * 1024;
const SAMPLE_CHARACTERS = 1024;
const SAMPLES = CHARACTERS_MAX / SAMPLE_CHARACTERS;
const HEAP_MIB_MAX = 256;
const DEADLINE_MS = 5_000;
/** Characters that may wait for the thread. */
const WAITING_CHARACTERS_MAX = 16 * 1024 * 1024;
/** The vocabulary takes about 75 MiB, so an idle thread is ended. */
const IDLE_MS = 60_000;

export interface CountRequest {
  id: number;
  groups: string[][];
}

export interface CountReply {
  id: number;
  counts: number[];
}

interface Job {
  scales: number[];
  resolve(counts: number[] | undefined): void;
  timer: NodeJS.Timeout;
}

/**
 * Counts tokens with the o200k vocabulary in a worker thread, which starts with the first count and ends after a minute
 * without work. Work is bounded: a long text is sampled, a count that takes longer than five seconds is abandoned, and a
 * count is not begun while too much text waits.
 */
export class TokenCounter {
  readonly #log: Log;
  readonly #deadlineMs: number;
  readonly #jobs = new Map<number, Job>();
  /** Characters of each request that the thread has not answered, including abandoned ones. */
  readonly #sent = new Map<number, number>();
  #waitingCharacters = 0;
  #worker: Worker | undefined;
  #idle: NodeJS.Timeout | undefined;
  #lastId = 0;
  #isStopped = false;

  constructor({ log, deadlineMs = DEADLINE_MS }: { log: Log; deadlineMs?: number }) {
    this.#log = log;
    this.#deadlineMs = deadlineMs;
  }

  /** True while the thread is running. */
  get isRunning(): boolean {
    return this.#worker !== undefined;
  }

  /** Counts the tokens of each group of texts; undefined where they could not be counted in time. Never rejects. */
  count(groups: readonly (readonly string[])[]): Promise<number[] | undefined> {
    const samples = groups.map(sampleOf);
    const characters = samples.reduce((sum, { texts }) => sum + lengthOf(texts), 0);
    if (this.#isStopped || this.#waitingCharacters + characters > WAITING_CHARACTERS_MAX) {
      return Promise.resolve(undefined);
    }
    return new Promise((resolve) => {
      const id = ++this.#lastId;
      const timer = setTimeout(() => this.#abandonOne(id), this.#deadlineMs);
      this.#jobs.set(id, { scales: samples.map(({ scale }) => scale), resolve, timer });
      clearTimeout(this.#idle);
      const request: CountRequest = { id, groups: samples.map(({ texts }) => texts) };
      try {
        this.#start().postMessage(request);
        this.#sent.set(id, characters);
        this.#waitingCharacters += characters;
      } catch (error) {
        this.#log.error({ err: error }, "the token counter cannot be started; tokens are estimated from bytes");
        this.#finish(id, undefined);
      }
    });
  }

  /** Ends the thread. Running counts resolve with undefined. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#end();
  }

  #start(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    const worker = new Worker(WORKER, {
      name: "token counter",
      env: {},
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB_MAX },
    });
    worker.unref();
    worker.on("message", ({ id, counts }: CountReply) => {
      this.#waitingCharacters -= this.#sent.get(id) ?? 0;
      this.#sent.delete(id);
      this.#finish(id, counts);
    });
    worker.on("error", (error) => {
      this.#log.error({ err: error }, "the token counter failed; tokens are estimated from bytes");
    });
    worker.on("exit", () => {
      if (this.#worker !== worker) return;
      this.#worker = undefined;
      this.#abandonAll();
    });
    this.#worker = worker;
    return worker;
  }

  #finish(id: number, counts: number[] | undefined): void {
    const job = this.#jobs.get(id);
    if (job === undefined) return;
    this.#jobs.delete(id);
    clearTimeout(job.timer);
    job.resolve(counts?.map((count, index) => Math.ceil(count * (job.scales[index] ?? 1))));
    if (this.#jobs.size === 0) this.#idle = setTimeout(() => void this.#end(), IDLE_MS).unref();
  }

  #abandonOne(id: number): void {
    this.#log.warn({ waiting: this.#jobs.size }, "tokens were not counted in time and are estimated from bytes");
    this.#finish(id, undefined);
  }

  #abandonAll(): void {
    this.#sent.clear();
    this.#waitingCharacters = 0;
    for (const id of [...this.#jobs.keys()]) this.#finish(id, undefined);
  }

  async #end(): Promise<void> {
    clearTimeout(this.#idle);
    const worker = this.#worker;
    this.#worker = undefined;
    this.#abandonAll();
    await worker?.terminate();
  }
}

/**
 * Returns the texts of a group, or evenly spaced samples where they are too long; `scale` is the ratio of the whole length to
 * that of the samples. Exported for its test.
 */
export function sampleOf(texts: readonly string[]): { texts: string[]; scale: number } {
  const total = lengthOf(texts);
  if (total <= CHARACTERS_MAX) return { texts: [...texts], scale: 1 };
  const stride = total / SAMPLES;
  const samples: string[] = [];
  let taken = 0;
  let start = 0;
  for (const text of texts) {
    const end = start + text.length;
    const first = Math.max(0, Math.floor((start - SAMPLE_CHARACTERS) / stride));
    for (let sample = first; sample < SAMPLES && sample * stride < end; sample += 1) {
      const from = Math.floor(sample * stride);
      const part = text.slice(Math.max(0, from - start), Math.max(0, from + SAMPLE_CHARACTERS - start));
      if (part === "") continue;
      samples.push(part);
      taken += part.length;
    }
    start = end;
  }
  return { texts: samples, scale: total / taken };
}

function lengthOf(texts: readonly string[]): number {
  return texts.reduce((sum, { length }) => sum + length, 0);
}
