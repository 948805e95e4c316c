import { totalmem } from "node:os";
import { getHeapStatistics } from "node:v8";
import { ApiError } from "../errors.ts";

export interface OverloadOptions {
  /** Time by which the event loop may be late, and share of the memory limit that may be used; 0 for no limit. */
  limits: { eventLoopDelayMs: number; memoryShare: number };
  readMemoryShare: () => number;
  random: () => number;
  /** Monotonic time in milliseconds. */
  now: () => number;
  readTurns: () => number;
  /** Called after the event loop did not run for `STALL_MS` or longer. */
  onStall: (durationMs: number) => void;
  outage: { failed(fields: object): void; succeeded(): void };
}

/** Short, because the timer of the samples is as late as the event loop. */
const SAMPLE_EVERY_MS = 20;
/** Less often: to read it, V8 gives up the memory that it has reserved for the next objects. */
const MEMORY_EVERY_MS = 500;
/** After this time without a sample a request takes one: the event loop has not come to the timer. */
const SAMPLE_OLD_MS = 300;
/** Long enough to endanger leases and calls to upstreams. */
const STALL_MS = 5_000;
/** The gains below are those of a step of this length. */
const STEP_MS = 100;
/** A late sample counts for the steps that it lasted, up to this number. */
const STEPS_MAX = 10;
/** Weight of the newest delay in the average, so that a single collection of garbage refuses nothing. */
const NEWEST_WEIGHT = 0.3;
/**
 * Gains of the controller for each step, relative to the limit: a delay of twice the limit raises the refused share by
 * 5 % ten times a second. `TREND_GAIN` damps it: the share follows a rising delay at once, and a falling one too.
 */
const EXCESS_GAIN = 0.05;
const TREND_GAIN = 0.1;
/** A longer delay is a suspended machine or one long task, which refusing requests does not shorten. */
const DELAY_MAX_LIMITS = 3;
const RETRY_AFTER_MAX_SECONDS = 5;

/**
 * Refuses a share of new work while the process is overloaded, so that the rest is finished in time. The event loop's delay sets
 * the share by the controller of PIE (RFC 8033, section 4.2), in small steps instead of all or nothing. New connections count
 * too: while Node accepts one in every turn, others wait. Memory above its limit sets the share directly.
 */
export class Overload {
  readonly #options: OverloadOptions;
  #delayMs = 0;
  #sampledAtMs: number;
  /** Time when the event loop last came to the timer, and no connection waited to be accepted. */
  #onTimeAtMs: number;
  #connectionsWait = false;
  #accepted = 0;
  #turns = 0;
  #shareForDelay = 0;
  #memoryShare = 0;
  #memoryReadAtMs = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: OverloadOptions) {
    this.#options = options;
    this.#sampledAtMs = options.now();
    this.#onTimeAtMs = this.#sampledAtMs;
  }

  get refusedShare(): number {
    return Math.max(this.#shareForDelay, this.#shareForMemory);
  }

  get #shareForMemory(): number {
    const { memoryShare: limit } = this.#options.limits;
    if (limit === 0 || this.#memoryShare <= limit) return 0;
    return Math.min(1, (this.#memoryShare - limit) / ((1 - limit) / 2));
  }

  start(): void {
    this.#sampledAtMs = this.#options.now();
    this.#onTimeAtMs = this.#sampledAtMs;
    this.#timer = setInterval(() => this.turn(), SAMPLE_EVERY_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  countConnection(): void {
    this.#accepted += 1;
  }

  /** Adapts the refused share to the load, in a new turn of the event loop. */
  turn(): void {
    this.#sample();
    const turns = this.#options.readTurns();
    this.#connectionsWait = this.#accepted >= turns - this.#turns;
    this.#turns = turns;
    this.#accepted = 0;
    if (!this.#connectionsWait) this.#onTimeAtMs = this.#sampledAtMs;
  }

  #sample(): void {
    const { now, readMemoryShare, onStall, outage } = this.#options;
    const passedMs = now() - this.#sampledAtMs;
    this.#sampledAtMs += passedMs;
    if (passedMs >= STALL_MS) onStall(passedMs);
    this.#followDelay(passedMs);
    if (this.#sampledAtMs - this.#memoryReadAtMs >= MEMORY_EVERY_MS) {
      this.#memoryReadAtMs = this.#sampledAtMs;
      this.#memoryShare = readMemoryShare();
    }
    if (this.refusedShare === 0) outage.succeeded();
  }

  /** Returns the error of a request that is refused, undefined for one that is taken. */
  refusal(): ApiError | undefined {
    if (this.#options.now() - this.#sampledAtMs >= SAMPLE_OLD_MS) this.#sample();
    const share = this.refusedShare;
    if (share === 0 || this.#options.random() >= share) return undefined;
    const cause = this.#connectionsWait ? "new connections" : "event loop";
    this.#options.outage.failed({
      cause: this.#shareForMemory > this.#shareForDelay ? "memory" : cause,
      delayMs: Math.round(this.#delayMs),
      memoryShare: Math.round(this.#memoryShare * 100) / 100,
      refusedShare: share,
    });
    const seconds = Math.max(1, Math.ceil(share * RETRY_AFTER_MAX_SECONDS));
    return new ApiError("overloaded", "The service is overloaded. Try again later.", {
      headers: { "retry-after": String(seconds) },
    });
  }

  #followDelay(passedMs: number): void {
    const { eventLoopDelayMs: limitMs } = this.#options.limits;
    if (limitMs === 0) return;
    const steps = Math.min(STEPS_MAX, passedMs / STEP_MS);
    const before = this.#delayMs;
    // A request's own sample does not end the delay, which lasts until the event loop comes to the timer.
    const lateMs = this.#sampledAtMs - this.#onTimeAtMs - SAMPLE_EVERY_MS;
    const newest = Math.min(Math.max(0, lateMs), limitMs * DELAY_MAX_LIMITS);
    this.#delayMs += Math.min(1, steps) * NEWEST_WEIGHT * (newest - before);
    const change = steps * EXCESS_GAIN * (this.#delayMs - limitMs) + TREND_GAIN * (this.#delayMs - before);
    const next = this.#shareForDelay + (this.#delayMs > limitMs ? change : Math.min(0, change)) / limitMs;
    this.#shareForDelay = Math.min(1, Math.max(0, next));
  }
}

/** Counts the requests of each organization that start work, and refuses some of them while the process is overloaded. */
export class RunningWork {
  readonly #overload: Pick<Overload, "refusal">;
  readonly #counts = new Map<string, number>();
  #total = 0;

  constructor(overload: Pick<Overload, "refusal">) {
    this.#overload = overload;
  }

  /** Counts a request until the returned function is called. Throws overloaded, unless its organization has few. */
  begin(organizationId: string): () => void {
    const count = this.#counts.get(organizationId) ?? 0;
    const isLight = count < Math.max(1, this.#total / (2 * Math.max(1, this.#counts.size)));
    const refusal = this.#overload.refusal();
    if (refusal !== undefined && !isLight) throw refusal;
    this.#counts.set(organizationId, count + 1);
    this.#total += 1;
    return () => {
      this.#total -= 1;
      const left = (this.#counts.get(organizationId) ?? 0) - 1;
      if (left > 0) this.#counts.set(organizationId, left);
      else this.#counts.delete(organizationId);
    };
  }
}

/** With less, an idle process already uses most of its memory: docs/performance.md, section Memory. */
export const MEMORY_BYTES_LEAST = 256 * 1024 * 1024;

/** Returns the memory that the container or the machine has for each of `workers` processes. */
export function memoryBytesFor(workers: number): number {
  return Math.min(process.constrainedMemory() || Number.POSITIVE_INFINITY, totalmem()) / workers;
}

/** Returns a function that reads the larger one of two shares: of V8's heap limit, and of the memory of the process. */
export function memoryReader(memoryBytes: number): () => number {
  return () => {
    const { used_heap_size: heapBytes, heap_size_limit: heapLimitBytes } = getHeapStatistics();
    return Math.max(heapBytes / heapLimitBytes, process.memoryUsage.rss() / memoryBytes);
  };
}
