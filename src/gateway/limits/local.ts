import {
  exceeded,
  fullError,
  type LimitedRequest,
  type LimitKey,
  type LimitState,
  type LimitsStatus,
  limitStateOf,
  type RateLimiter,
  shownLimits,
  tightestOf,
  tooManyAtOnce,
  WINDOW_SECONDS,
  type WindowUse,
  windowUses,
} from "../limits.ts";

/** Amounts that were counted together. */
interface Taken {
  /** One for each use. */
  states: LimitState[];
  /** Returns unused tokens to their windows, and ends the concurrency. */
  leave(tokensUnused: number): void;
}

/** Counts in the memory of this process. All methods are synchronous: every request calls them several times. */
export class LocalLimiter implements RateLimiter {
  readonly #clock: () => number;
  readonly #windows = {
    requests: new Windows(WINDOW_SECONDS.requests),
    tokens: new Windows(WINDOW_SECONDS.tokens),
    tokensOfDay: new Windows(WINDOW_SECONDS.tokensOfDay),
  };
  readonly #running = new Map<string, number>();
  readonly #exports = new Map<string, number>();

  constructor(clock: () => number) {
    this.#clock = clock;
  }

  begin(keys: readonly LimitKey[]): LimitedRequest {
    const counted = this.countRequest(keys);
    return {
      counted: () => counted,
      admit: (wanted) => {
        const { states, leave } = this.take(wanted.uses, wanted.concurrent);
        return { ...shownLimits(counted, states), leave: (tokensUsed) => leave(wanted.tokens - tokensUsed) };
      },
    };
  }

  countRequest(keys: readonly LimitKey[]): LimitState {
    return tightestOf(this.take(windowUses("requests", keys, 1), []).states);
  }

  enterExport(limited: LimitKey): () => void {
    const { key, limit } = limited;
    if ((this.#exports.get(key) ?? 0) >= limit) throw fullError("exports at once", limited);
    add(this.#exports, key, 1);
    return () => add(this.#exports, key, -1);
  }

  /** Counts amounts and concurrent requests, all or nothing. Throws rate_limit_exceeded. */
  take(uses: readonly WindowUse[], concurrent: readonly LimitKey[]): Taken {
    const nowMs = this.#clock();
    for (const use of uses) {
      const { used, endsAtMs } = this.#windows[use.kind].current(use.key, nowMs);
      if (used + use.amount > use.limit) throw exceeded(use, limitStateOf(use, used, endsAtMs - nowMs));
    }
    for (const limited of concurrent) {
      if ((this.#running.get(limited.key) ?? 0) >= limited.limit) throw tooManyAtOnce(limited);
    }
    return this.record(uses, concurrent);
  }

  /** Counts amounts and concurrent requests, also above their limits. */
  record(uses: readonly WindowUse[], concurrent: readonly LimitKey[]): Taken {
    const nowMs = this.#clock();
    const tokenWindows: CountWindow[] = [];
    const states = uses.map((use) => {
      const window = this.#windows[use.kind].current(use.key, nowMs);
      window.used += use.amount;
      if (use.kind !== "requests") tokenWindows.push(window);
      return limitStateOf(use, window.used, window.endsAtMs - nowMs);
    });
    for (const { key } of concurrent) add(this.#running, key, 1);
    const leave = (tokensUnused: number) => {
      for (const { key } of concurrent) add(this.#running, key, -1);
      for (const window of tokenWindows) window.used -= Math.max(0, tokensUnused);
    };
    return { states, leave };
  }

  /** Returns the number of concurrent requests of each key. */
  running(): ReadonlyMap<string, number> {
    return this.#running;
  }

  partOf(limit: number): number {
    return limit;
  }

  status(): LimitsStatus {
    return { mode: "local", nodes: 1 };
  }

  async stop(): Promise<void> {}
}

interface CountWindow {
  used: number;
  endsAtMs: number;
}

/** Usage of each key in its window. A window begins with the first use after the previous one has ended. */
class Windows {
  readonly #lengthMs: number;
  readonly #windows = new Map<string, CountWindow>();
  #clearedAtMs = 0;

  constructor(seconds: number) {
    this.#lengthMs = seconds * 1000;
  }

  current(key: string, nowMs: number): CountWindow {
    const window = this.#windows.get(key);
    // A window that ends too late was begun before the clock was set back.
    if (window !== undefined && window.endsAtMs > nowMs && window.endsAtMs <= nowMs + this.#lengthMs) return window;
    const begun = { used: 0, endsAtMs: nowMs + this.#lengthMs };
    this.#windows.set(key, begun);
    this.#clear(nowMs);
    return begun;
  }

  /** Removes windows that have ended, once per window length. */
  #clear(nowMs: number): void {
    if (nowMs >= this.#clearedAtMs && nowMs < this.#clearedAtMs + this.#lengthMs) return;
    this.#clearedAtMs = nowMs;
    for (const [key, { endsAtMs }] of this.#windows) if (endsAtMs <= nowMs) this.#windows.delete(key);
  }
}

/** Changes a count, and removes one that has reached 0. */
export function add(counts: Map<string, number>, key: string, change: number): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}
