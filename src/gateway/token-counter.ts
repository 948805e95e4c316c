import { Worker } from "node:worker_threads";
import type { Log } from "../contract/log.ts";

const WORKER = new URL(
  import.meta.url.endsWith(".ts") ? "./token-counter-worker.ts" : "./token-counter-worker.js",
  import.meta.url,
);
/** Characters of one group that are tokenized [at most 1.5 s for the worst text]. Longer ones are sampled. */
const CHARACTERS_MAX = 256 * 1024;
const SAMPLE_CHARACTERS = 1024;
const SAMPLES = CHARACTERS_MAX / SAMPLE_CHARACTERS;
const HEAP_MIB_MAX = 256;
const DEADLINE_MS = 5_000;
/** The vocabulary takes about 75 MiB, so a thread without work is ended. */
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
 * Counts tokens with the o200k vocabulary in a worker thread, which the first count starts and a minute without work ends.
 * Work is bounded: a long text is counted by samples, and a count that takes longer than five seconds is given up.
 */
export class TokenCounter {
  readonly #log: Log;
  readonly #deadlineMs: number;
  readonly #jobs = new Map<number, Job>();
  #worker: Worker | undefined;
  #idle: NodeJS.Timeout | undefined;
  #lastId = 0;
  #isStopped = false;

  constructor({ log, deadlineMs = DEADLINE_MS }: { log: Log; deadlineMs?: number }) {
    this.#log = log;
    this.#deadlineMs = deadlineMs;
  }

  /** Whether the thread is running. */
  get isRunning(): boolean {
    return this.#worker !== undefined;
  }

  /** Tokens of each group of texts; undefined where they could not be counted in time. Never rejects. */
  count(groups: readonly (readonly string[])[]): Promise<number[] | undefined> {
    if (this.#isStopped) return Promise.resolve(undefined);
    const samples = groups.map(sampleOf);
    return new Promise((resolve) => {
      const id = ++this.#lastId;
      const timer = setTimeout(() => this.#giveUp(id), this.#deadlineMs);
      this.#jobs.set(id, { scales: samples.map(({ scale }) => scale), resolve, timer });
      clearTimeout(this.#idle);
      const request: CountRequest = { id, groups: samples.map(({ texts }) => texts) };
      this.#start().postMessage(request);
    });
  }

  /** Ends the thread. Counts that are under way resolve with undefined. */
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
    worker.on("message", ({ id, counts }: CountReply) => this.#finish(id, counts));
    worker.on("error", (error) => {
      this.#log.error({ err: error }, "the token counter failed; tokens are estimated from bytes");
    });
    worker.on("exit", () => {
      if (this.#worker === worker) this.#worker = undefined;
      if (this.#worker === undefined) this.#abandon();
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

  #giveUp(id: number): void {
    this.#log.warn({ waiting: this.#jobs.size }, "tokens were not counted in time and are estimated from bytes");
    this.#finish(id, undefined);
  }

  #abandon(): void {
    for (const id of [...this.#jobs.keys()]) this.#finish(id, undefined);
  }

  async #end(): Promise<void> {
    clearTimeout(this.#idle);
    const worker = this.#worker;
    this.#worker = undefined;
    await worker?.terminate();
    this.#abandon();
  }
}

/**
 * The texts of a group, or evenly spaced samples of them where they are too long; `scale` is how much longer the whole is.
 * Exported for its test.
 */
export function sampleOf(texts: readonly string[]): { texts: string[]; scale: number } {
  const total = texts.reduce((sum, { length }) => sum + length, 0);
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
