import {
  exceeded,
  fullError,
  type LimitEntry,
  type LimitedRequest,
  type LimitKey,
  type LimitState,
  type LimitsStatus,
  type RateLimiter,
  requestUses,
  shownLimits,
  stateOf,
  tightestOf,
  tooManyAtOnce,
  usesOf,
  type WantedLimits,
  WINDOW_SECONDS,
  type WindowUse,
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
    return new CountedRequest(this, this.countRequest(keys));
  }

  countRequest(keys: readonly LimitKey[]): LimitState {
    return tightestOf(this.take(requestUses(keys), []).states);
  }

  enterExport({ key, limit }: LimitKey): () => void {
    if ((this.#exports.get(key) ?? 0) >= limit) throw fullError("exports at once", limit);
    add(this.#exports, key, 1);
    return () => add(this.#exports, key, -1);
  }

  /** Counts amounts and concurrent requests, all or nothing. Throws rate_limit_exceeded. */
  take(uses: readonly WindowUse[], concurrent: readonly LimitKey[]): Taken {
    const nowMs = this.#clock();
    const windows = this.#windowsOf(uses, nowMs);
    for (const [index, use] of uses.entries()) {
      const { used, endsAtMs } = windows[index] as CountWindow;
      if (used + use.amount > use.limit) throw exceeded(use, stateOf(use, used, endsAtMs - nowMs));
    }
    for (const limited of concurrent) {
      if ((this.#running.get(limited.key) ?? 0) >= limited.limit) throw tooManyAtOnce(limited);
    }
    return this.#record(uses, windows, concurrent, nowMs);
  }

  /** Counts amounts and concurrent requests, also above their limits. */
  record(uses: readonly WindowUse[], concurrent: readonly LimitKey[]): Taken {
    const nowMs = this.#clock();
    return this.#record(uses, this.#windowsOf(uses, nowMs), concurrent, nowMs);
  }

  #windowsOf(uses: readonly WindowUse[], nowMs: number): CountWindow[] {
    return uses.map(({ kind, key }) => this.#windows[kind].current(key, nowMs));
  }

  #record(
    uses: readonly WindowUse[],
    windows: readonly CountWindow[],
    concurrent: readonly LimitKey[],
    nowMs: number,
  ): Taken {
    const states = uses.map((use, index) => {
      const window = windows[index] as CountWindow;
      window.used += use.amount;
      return stateOf(use, window.used, window.endsAtMs - nowMs);
    });
    for (const { key } of concurrent) add(this.#running, key, 1);
    const keys = concurrent.map(({ key }) => key);
    // `filter` makes an array with room for more, and `slice` one without, for as long as the request runs.
    const tokenWindows = windows.filter((_window, index) => uses[index]?.kind !== "requests").slice();
    return { states, leave: this.#leaving(keys, tokenWindows) };
  }

  /** Returns the function that ends the uses of a request. A function of its own keeps nothing else while the request runs. */
  #leaving(keys: readonly string[], tokenWindows: readonly CountWindow[]): Taken["leave"] {
    return (tokensUnused) => {
      for (const key of keys) add(this.#running, key, -1);
      if (tokensUnused <= 0) return;
      for (const window of tokenWindows) window.used -= tokensUnused;
    };
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

class CountedRequest implements LimitedRequest {
  readonly #limiter: LocalLimiter;
  readonly #counted: LimitState;

  constructor(limiter: LocalLimiter, counted: LimitState) {
    this.#limiter = limiter;
    this.#counted = counted;
  }

  counted(): LimitState {
    return this.#counted;
  }

  admit(wanted: WantedLimits): LimitEntry {
    const { states, leave } = this.#limiter.take(usesOf(wanted), wanted.concurrentRequests);
    return { ...shownLimits(this.#counted, states), leave: leavingWith(wanted.tokens, leave) };
  }
}

function leavingWith(tokensWanted: number, leave: Taken["leave"]): LimitEntry["leave"] {
  return (tokensUsed) => leave(tokensWanted - tokensUsed);
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
