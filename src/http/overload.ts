import { totalmem } from "node:os";
import { getHeapStatistics } from "node:v8";
import type { onRequestHookHandler } from "fastify";
import { ApiError } from "../errors.ts";
import { sendError } from "./errors.ts";

/** Load above which new work is refused. */
export interface OverloadLimits {
  /** Time by which the event loop may be late; 0 for no limit. */
  eventLoopDelayMs: number;
  /** Share of the memory limit that may be used; 0 for no limit. */
  memoryShare: number;
}

/** Load of the process; a delay of undefined means that it was not measured since the last reading. */
export interface LoadReading {
  eventLoopDelayMs: number | undefined;
  memoryShare: number;
}

export interface OverloadOptions {
  limits: OverloadLimits;
  read: () => LoadReading;
  /** Collects garbage, which the used memory may be; stops the process meanwhile. */
  collect: () => void;
  /** Returns a number from 0 up to 1. */
  random: () => number;
  /** Monotonic time in milliseconds. */
  now: () => number;
  /** Logs that requests are refused. */
  outage: { failed(fields: object): void; succeeded(): void };
}

const SAMPLE_EVERY_MS = 100;
/** A sample that is this old when a request arrives is replaced, because the timer of the samples is late, too. */
const SAMPLE_OLD_MS = 300;
/** A late sample counts for the ones that were missed, up to this number. */
const STEPS_MAX = 10;
/** Weight of the newest delay in the average, so that a single collection of garbage refuses nothing. */
const NEWEST_WEIGHT = 0.3;
/**
 * Gains of the controller for each sample, relative to the limit: a delay of twice the limit raises the refused share by
 * 5 % ten times a second. `TREND_GAIN` damps it: the share follows a rising delay at once, and a falling one too.
 */
const EXCESS_GAIN = 0.05;
const TREND_GAIN = 0.2;
/** A longer delay is a suspended machine or one long task, which refusing requests does not shorten. */
const DELAY_MAX_LIMITS = 4;
const COLLECT_EVERY_MS = 60_000;
const RETRY_AFTER_MAX_SECONDS = 5;

/**
 * Refuses a share of new work while the process is overloaded, so that the work that it takes is finished in time. The
 * event loop's delay sets the share by the controller of PIE (RFC 8033, section 4.2), which adapts it in small steps: to
 * refuse all or nothing would alternate between overload and idleness. Memory above its limit sets it directly: from
 * nothing at the limit to everything halfway between the limit and all memory.
 */
export class Overload {
  readonly #options: OverloadOptions;
  #delayMs = 0;
  #sampledAtMs: number;
  #shareForDelay = 0;
  #shareForMemory = 0;
  #memoryShare = 0;
  #collectedAtMs = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: OverloadOptions) {
    this.#options = options;
    this.#sampledAtMs = options.now();
  }

  /** Share of new work that is refused now, from 0 to 1. */
  get refusedShare(): number {
    return Math.max(this.#shareForDelay, this.#shareForMemory);
  }

  start(): void {
    this.#timer = setInterval(() => this.sample(), SAMPLE_EVERY_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Adapts the refused share to the load. Must be called ten times a second. */
  sample(): void {
    const reading = this.#options.read();
    const nowMs = this.#options.now();
    const passedMs = nowMs - this.#sampledAtMs;
    this.#sampledAtMs = nowMs;
    const lateMs = Math.max(0, passedMs - SAMPLE_EVERY_MS);
    const steps = Math.min(STEPS_MAX, Math.max(1, Math.round(passedMs / SAMPLE_EVERY_MS)));
    const { eventLoopDelayMs = lateMs > 0 ? lateMs : undefined } = reading;
    if (eventLoopDelayMs !== undefined) this.#followDelay(Math.max(eventLoopDelayMs, lateMs), steps);
    this.#followMemory(reading.memoryShare);
    if (this.refusedShare === 0) this.#options.outage.succeeded();
  }

  /** Returns the error of a request that is refused, undefined for one that is taken. */
  refusal(): ApiError | undefined {
    if (this.#options.now() - this.#sampledAtMs >= SAMPLE_OLD_MS) this.sample();
    const share = this.refusedShare;
    if (share === 0 || this.#options.random() >= share) return undefined;
    // The collection of a full memory delays the event loop, and may just have made room.
    const isShortOfMemory = this.#shareForMemory > 0 || this.#options.now() - this.#collectedAtMs < COLLECT_EVERY_MS;
    this.#options.outage.failed({
      cause: isShortOfMemory ? "memory" : "event loop",
      eventLoopDelayMs: Math.round(this.#delayMs),
      memoryShare: Math.round(this.#memoryShare * 100) / 100,
      refusedShare: share,
    });
    const seconds = Math.max(1, Math.ceil(share * RETRY_AFTER_MAX_SECONDS));
    return new ApiError("overloaded", "The service is overloaded. Try again later.", {
      headers: { "retry-after": String(seconds) },
    });
  }

  #followDelay(measuredMs: number, steps: number): void {
    const { eventLoopDelayMs: limitMs } = this.#options.limits;
    if (limitMs === 0) return;
    const before = this.#delayMs;
    const bounded = Math.min(measuredMs, limitMs * DELAY_MAX_LIMITS);
    this.#delayMs = before + NEWEST_WEIGHT * (bounded - before);
    const change = steps * EXCESS_GAIN * (this.#delayMs - limitMs) + TREND_GAIN * (this.#delayMs - before);
    const next = this.#shareForDelay + (this.#delayMs > limitMs ? change : Math.min(0, change)) / limitMs;
    this.#shareForDelay = Math.min(1, Math.max(0, next));
  }

  #followMemory(used: number): void {
    const { limits, now, collect, read } = this.#options;
    if (limits.memoryShare === 0) return;
    const shareOf = (share: number) => {
      if (share <= limits.memoryShare) return 0;
      return Math.min(1, (share - limits.memoryShare) / ((1 - limits.memoryShare) / 2));
    };
    this.#memoryShare = used;
    this.#shareForMemory = shareOf(used);
    // Without new work V8 has no reason to collect, and the service would refuse everything because of garbage.
    if (this.#shareForMemory === 0 || now() - this.#collectedAtMs < COLLECT_EVERY_MS) return;
    this.#collectedAtMs = now();
    collect();
    this.#memoryShare = read().memoryShare;
    this.#shareForMemory = shareOf(this.#memoryShare);
  }
}

/** Returns the hook that refuses requests of an operation before they are authenticated and their bodies are read. */
export function refuseWhenOverloaded(overload: Pick<Overload, "refusal">): onRequestHookHandler {
  return (_request, reply, done) => {
    const refusal = overload.refusal();
    if (refusal === undefined) done();
    else sendError(reply, refusal);
  };
}

/** With less, an idle process already uses most of its memory: docs/performance.md, section Memory. */
export const MEMORY_BYTES_LEAST = 256 * 1024 * 1024;

/** Returns the memory that the container or the machine has for each of `workers` processes. */
export function memoryBytesFor(workers: number): number {
  return Math.min(process.constrainedMemory() || Number.POSITIVE_INFINITY, totalmem()) / workers;
}

/**
 * Returns a function that reads the load of this process: the delay of the event loop since the last reading, and the
 * larger one of two shares, of V8's heap limit and of the memory of the process. `now` returns monotonic milliseconds.
 */
export function loadReader({ memoryBytes, now }: { memoryBytes: number; now: () => number }): () => LoadReading {
  const readDelay = delayReader(now);
  return () => {
    const { used_heap_size: heapBytes, heap_size_limit: heapLimitBytes } = getHeapStatistics();
    return {
      eventLoopDelayMs: readDelay(),
      memoryShare: Math.max(heapBytes / heapLimitBytes, process.memoryUsage.rss() / memoryBytes),
    };
  };
}

const RESOLUTION_MS = 10;

/**
 * Returns a function that reads the mean delay of the event loop since the last reading; undefined if it was not measured.
 * Delays are weighted by their length: a request is more likely to arrive during a long one than during a short one.
 * Node's own monitor cannot tell that without going through its whole histogram, which takes 0.4 ms.
 */
function delayReader(now: () => number): () => number | undefined {
  let lastMs = now();
  let sum = 0;
  let sumOfSquares = 0;
  setInterval(() => {
    const nowMs = now();
    const periodMs = nowMs - lastMs;
    lastMs = nowMs;
    sum += periodMs;
    sumOfSquares += periodMs ** 2;
  }, RESOLUTION_MS).unref();
  return () => {
    const delayMs = sum === 0 ? undefined : Math.max(0, sumOfSquares / sum - RESOLUTION_MS);
    sum = 0;
    sumOfSquares = 0;
    return delayMs;
  };
}
