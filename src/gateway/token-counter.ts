import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { FairTurns } from "../ledger/fair-queue.ts";
import type { Log } from "../telemetry/logger.ts";

const WORKER = new URL(
  import.meta.url.endsWith(".ts") ? "./token-counter-worker.ts" : "./token-counter-worker.js",
  import.meta.url,
);
/**
 * Characters of one group that are tokenized [at most 0.6 s for the worst text]. A longer group is sampled. The bound is not a
 * time, because a charge must not depend on the load of the machine.
 */
const CHARACTERS_MAX = 256 * 1024;
const SAMPLE_CHARACTERS = 1024;
const SAMPLES = CHARACTERS_MAX / SAMPLE_CHARACTERS;
/**
 * Characters that are tokenized at once. The time grows with the square of a run without a word boundary
 * [65,536 times one letter: 2.4 s at once, 2 ms in windows].
 */
const WINDOW_CHARACTERS = 512;
/** Windows that are sent to the thread together. It counts as many of them as it can in a few milliseconds. */
const PIECE_WINDOWS = 64;
const HEAP_MIB_MAX = 256;
/** The vocabulary takes about 75 MiB, so an idle thread is ended. */
const IDLE_MS = 60_000;
const PREVIEW_DEADLINE_MS = 5_000;
/** All previews together take turns as one organization with this id. */
const PREVIEWS = "previews";
/** Far more than a piece takes on a busy machine. */
const PIECE_TIMEOUT_MS = 30_000;
/** Threads that may end while they work on a piece before it counts as their cause. */
const ENDED_THREADS_MAX = 2;
const STARTS_MAX = 5;
const START_RETRY_MS = 1_000;
/** Time without counts after the thread could not be started. */
const BROKEN_MS = 10_000;

const lengthOf = (texts: readonly string[]) => texts.reduce((sum, { length }) => sum + length, 0);

type Groups = readonly (readonly string[])[];

/** Counts the tokens of each group of texts; undefined where they cannot be counted. Never rejects. */
export interface TextCounter {
  count(groups: Groups): Promise<number[] | undefined>;
}

export interface TokenCounterOptions {
  log: Log;
  previewDeadlineMs?: number;
  pieceTimeoutMs?: number;
  startRetryMs?: number;
  heapMiBMax?: number;
}

/** Waits for its turn, and runs the count of a piece. */
type TakeTurn = (count: () => Promise<number[] | undefined>) => Promise<number[] | undefined>;

/**
 * Counts tokens with the o200k vocabulary in a worker thread, which starts with the first count and ends after a minute
 * without work. The thread gets one piece of a few milliseconds at a time. Organizations take turns with the pieces of their
 * charges, and all previews together with one piece. So a charge waits for others for a moment, and is never given up because
 * of them.
 */
export class TokenCounter {
  readonly #options: TokenCounterOptions;
  readonly #turns = new FairTurns(1);
  readonly #previewTurns = new FairTurns(1);
  /** Each organization has one preview at a time, so that its own do not make each other late. */
  readonly #previews = new FairTurns(Number.POSITIVE_INFINITY);
  #thread: CounterThread | undefined;
  #idle: NodeJS.Timeout | undefined;
  /** Running while the thread cannot be started. */
  #broken: NodeJS.Timeout | undefined;
  readonly #stopping = new AbortController();

  constructor(options: TokenCounterOptions) {
    this.#options = options;
  }

  get isRunning(): boolean {
    return this.#thread !== undefined;
  }

  /** Returns the counter for the charges of an organization. It fails only if the thread does not work, or was stopped. */
  forCharges(organizationId: string): TextCounter {
    const takeTurn: TakeTurn = (count) => this.#turns.run(organizationId, count);
    return { count: (groups) => this.#count(organizationId, groups, takeTurn, this.#stopping.signal) };
  }

  /**
   * Counts the text of a prompt without a charge, and tells whether it was counted whole or by samples; undefined if the count
   * is given up: after five seconds, or when the signal is aborted.
   */
  async countPrompt(organizationId: string, texts: readonly string[], signal: AbortSignal) {
    const { previewDeadlineMs = PREVIEW_DEADLINE_MS } = this.#options;
    const takeTurn: TakeTurn = (count) =>
      this.#previewTurns.run(organizationId, () => this.#turns.run(PREVIEWS, count));
    const givenUp = AbortSignal.any([signal, this.#stopping.signal, AbortSignal.timeout(previewDeadlineMs)]);
    const count = () => (givenUp.aborted ? undefined : this.#count(organizationId, [texts], takeTurn, givenUp));
    // Those before it have earlier deadlines, so that it is not waited for longer than until its own.
    const [tokens] = (await this.#previews.run(organizationId, count)) ?? [];
    return tokens === undefined ? undefined : { tokens, isWhole: lengthOf(texts) <= CHARACTERS_MAX };
  }

  /** Ends the thread. Running counts resolve with undefined. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    clearTimeout(this.#broken);
    await this.#endThread();
  }

  async #count(
    organizationId: string,
    groups: Groups,
    takeTurn: TakeTurn,
    signal: AbortSignal,
  ): Promise<number[] | undefined> {
    const { promise: givenUp, resolve } = Promise.withResolvers<undefined>();
    const giveUp = () => resolve(undefined);
    signal.addEventListener("abort", giveUp);
    const countPiece: CountPiece = (piece) =>
      takeTurn(async () => (signal.aborted ? undefined : this.#countPiece(organizationId, piece)));
    try {
      return await Promise.race([countGroups(groups, countPiece), givenUp]);
    } finally {
      signal.removeEventListener("abort", giveUp);
    }
  }

  /** Counts the first windows of a piece. A piece that ends several threads is given up. */
  async #countPiece(organizationId: string, piece: readonly string[]): Promise<number[] | undefined> {
    const { log, pieceTimeoutMs = PIECE_TIMEOUT_MS } = this.#options;
    for (let endedThreads = 0; endedThreads < ENDED_THREADS_MAX; endedThreads += 1) {
      const thread = await this.#startedThread();
      if (thread === undefined) return undefined;
      const counts = await thread.count(piece, pieceTimeoutMs);
      if (counts !== undefined) return counts;
      this.#thread = undefined;
      if (this.#stopping.signal.aborted) return undefined;
      log.error({ organizationId, reason: thread.failure }, "the token counter's thread ended while it counted");
    }
    log.error({ organizationId }, "a text cannot be counted: its tokens are estimated from bytes");
    return undefined;
  }

  /** Starts the thread if it does not run; undefined if it cannot be started. */
  async #startedThread(): Promise<CounterThread | undefined> {
    const { log, startRetryMs = START_RETRY_MS, heapMiBMax = HEAP_MIB_MAX } = this.#options;
    const { signal } = this.#stopping;
    if (this.#broken !== undefined) return undefined;
    this.#idle?.refresh();
    for (let starts = 1; this.#thread === undefined && !signal.aborted; starts += 1) {
      const thread = new CounterThread(heapMiBMax);
      this.#thread = thread;
      clearTimeout(this.#idle);
      this.#idle = setTimeout(() => void this.#endThread(), IDLE_MS).unref();
      // It can count once it has replied to a piece without windows.
      if ((await thread.count([], PIECE_TIMEOUT_MS)) !== undefined) return thread;
      this.#thread = undefined;
      if (signal.aborted) return undefined;
      log.warn({ reason: thread.failure }, "the token counter's thread could not be started");
      if (starts === STARTS_MAX) {
        log.error({}, "the token counter does not work: tokens are estimated from bytes until it can be started");
        this.#broken = setTimeout(() => {
          this.#broken = undefined;
        }, BROKEN_MS).unref();
        return undefined;
      }
      await sleep(startRetryMs, undefined, { signal }).catch(() => undefined);
    }
    return this.#thread;
  }

  async #endThread(): Promise<void> {
    clearTimeout(this.#idle);
    const thread = this.#thread;
    this.#thread = undefined;
    await thread?.end();
  }
}

/**
 * A worker thread, which gets one piece of work at a time, so that nothing waits in its port. It replies with the tokens of the
 * first windows of the piece: at least of one, unless it is empty.
 */
class CounterThread {
  readonly #worker: Worker;
  #reply: ((counts: number[] | undefined) => void) | undefined;
  failure: string | undefined;

  constructor(heapMiBMax: number) {
    const resourceLimits = { maxOldGenerationSizeMb: heapMiBMax };
    this.#worker = new Worker(WORKER, { name: "token counter", env: {}, resourceLimits });
    this.#worker.unref();
    this.#worker.on("message", (counts: number[]) => this.#reply?.(counts));
    this.#worker.on("error", ({ message }) => {
      this.failure = message;
    });
    this.#worker.on("exit", () => {
      this.#reply?.(undefined);
    });
  }

  /** Counts the first windows of a piece; undefined if the thread has ended. It is ended if it takes too long. */
  count(windows: readonly string[], timeoutMs: number): Promise<number[] | undefined> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.failure = `no reply in ${timeoutMs} ms`;
        void this.end();
      }, timeoutMs);
      this.#reply = (counts) => {
        clearTimeout(timer);
        resolve(counts);
      };
      this.#worker.postMessage(windows);
    });
  }

  async end(): Promise<void> {
    await this.#worker.terminate();
  }
}

interface Window {
  group: number;
  text: string;
}

/** Counts the tokens of the first texts; undefined if the count is given up. */
type CountPiece = (texts: readonly string[]) => Promise<number[] | undefined>;

/** Counts the tokens of each group of texts; undefined if the count of a piece is given up. */
async function countGroups(groups: Groups, countPiece: CountPiece): Promise<number[] | undefined> {
  const samples = groups.map(sampleOf);
  const tokens = samples.map(() => 0);
  const windows = [...windowsOf(samples.map(({ texts }) => texts))];
  for (let next = 0; next < windows.length; ) {
    const piece = windows.slice(next, next + PIECE_WINDOWS);
    const counts = await countPiece(piece.map(({ text }) => text));
    if (counts === undefined) return undefined;
    for (const [index, count] of counts.entries()) {
      const group = piece[index]?.group ?? 0;
      tokens[group] = (tokens[group] ?? 0) + count;
    }
    next += counts.length;
  }
  return samples.map(({ scale }, group) => Math.ceil((tokens[group] ?? 0) * scale));
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

/** Divides texts into windows. They are the same whatever the thread counts at once, and so is the sum of their tokens. */
function* windowsOf(groups: Groups): Generator<Window> {
  for (const [group, texts] of groups.entries()) {
    for (const text of texts) {
      for (let start = 0; start < text.length; ) {
        const end = endOfWindow(text, start);
        yield { group, text: text.slice(start, end) };
        start = end;
      }
    }
  }
}

/** Returns the end of a window: before a space in its second half, if any, and never inside a surrogate pair. */
function endOfWindow(text: string, start: number): number {
  const end = start + WINDOW_CHARACTERS;
  if (end >= text.length) return text.length;
  // Searched in the second half alone: without a space, a search of the whole text would start again for each window.
  const half = start + WINDOW_CHARACTERS / 2 + 1;
  const space = text.slice(half, end + 1).lastIndexOf(" ");
  if (space >= 0) return half + space;
  const code = text.charCodeAt(end);
  const isLowSurrogate = code >= 0xdc00 && code <= 0xdfff;
  return isLowSurrogate ? end - 1 : end;
}
