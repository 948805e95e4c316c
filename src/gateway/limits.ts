import { ApiError } from "../errors.ts";

const SECONDS_A_MINUTE = 60;
const SECONDS_A_DAY = 86_400;
const RETRY_AFTER_SECONDS_MAX = 60;

/** State of one limit for a caller. */
export interface LimitState {
  unit: "requests" | "tokens";
  limit: number;
  remaining: number;
  /** Time until the next window. */
  resetSeconds: number;
  windowSeconds: number;
}

/** A limit, and whom it applies to. */
export interface LimitKey {
  /** `token:…`, `organization:…`, `address:…` or `exports:…` */
  key: string;
  limit: number;
}

/** Tokens that were counted in a window. */
export interface TakenTokens {
  state: LimitState;
  /** Returns unused tokens to their windows. */
  giveBack(tokens: number): void;
}

interface Count extends LimitState {
  isPassed: boolean;
  window: CountWindow;
}

/**
 * Counts requests and tokens in windows of a minute (tokens of the playground in a day), and concurrent requests. All
 * methods are synchronous: every request calls them several times.
 */
export class RateLimiter {
  readonly #clock: () => number;
  readonly #requests = new Windows(SECONDS_A_MINUTE);
  readonly #tokens = new Windows(SECONDS_A_MINUTE);
  readonly #tokensOfDay = new Windows(SECONDS_A_DAY);
  readonly #running = new Map<string, number>();

  constructor(clock: () => number) {
    this.#clock = clock;
  }

  /** Counts one request. Returns the limit with the fewest requests left. Throws rate_limit_exceeded when one is exceeded. */
  countRequest(keys: readonly LimitKey[]): LimitState {
    const counts = this.#count(this.#requests, "requests", keys, 1);
    const passed = counts.find((count) => count.isPassed);
    if (passed !== undefined) throw exceeded(passed, 1);
    return tightestOf(counts);
  }

  /** Reverts a `countRequest` of a key. */
  uncountRequest(key: string): void {
    const window = this.#requests.current(key, this.#clock());
    window.used = Math.max(0, window.used - 1);
  }

  /** Counts tokens of the minute or of the day. Throws rate_limit_exceeded and counts nothing when a limit is exceeded. */
  takeTokens(window: "minute" | "day", keys: readonly LimitKey[], tokens: number): TakenTokens {
    const windows = window === "minute" ? this.#tokens : this.#tokensOfDay;
    const counts = this.#count(windows, "tokens", keys, tokens);
    const giveBack = (unused: number) => {
      for (const count of counts) count.window.used -= unused;
    };
    const passed = counts.find((count) => count.isPassed);
    if (passed === undefined) return { state: tightestOf(counts), giveBack };
    giveBack(tokens);
    throw exceeded(passed, tokens);
  }

  /** Counts a running request or export, until the returned function is called. Throws rate_limit_exceeded at the limit. */
  enter(keys: readonly LimitKey[], unit: "requests" | "exports" = "requests"): () => void {
    const full = keys.find(({ key, limit }) => (this.#running.get(key) ?? 0) >= limit);
    if (full !== undefined) {
      const message = `Rate limit reached for ${unit} at once: limit ${full.limit}. Try again when one has ended.`;
      throw new ApiError("rate_limit_exceeded", message, { headers: { "retry-after": "1" } });
    }
    for (const { key } of keys) this.#running.set(key, (this.#running.get(key) ?? 0) + 1);
    return () => {
      for (const { key } of keys) {
        const left = (this.#running.get(key) ?? 1) - 1;
        if (left === 0) this.#running.delete(key);
        else this.#running.set(key, left);
      }
    };
  }

  #count(windows: Windows, unit: LimitState["unit"], keys: readonly LimitKey[], amount: number): Count[] {
    const nowMs = this.#clock();
    return keys.map(({ key, limit }) => {
      const window = windows.current(key, nowMs);
      window.used += amount;
      return {
        unit,
        limit,
        remaining: Math.max(0, limit - window.used),
        resetSeconds: Math.max(1, Math.ceil((window.endsAtMs - nowMs) / 1000)),
        windowSeconds: windows.seconds,
        isPassed: window.used > limit,
        window,
      };
    });
  }
}

interface CountWindow {
  used: number;
  endsAtMs: number;
}

/** Usage of each key in its window. A window begins with the first use after the previous one has ended. */
class Windows {
  readonly seconds: number;
  readonly #windows = new Map<string, CountWindow>();
  #clearedAtMs = 0;

  constructor(seconds: number) {
    this.seconds = seconds;
  }

  current(key: string, nowMs: number): CountWindow {
    const lengthMs = this.seconds * 1000;
    const window = this.#windows.get(key);
    // A window that ends too late was begun before the clock was set back.
    if (window !== undefined && window.endsAtMs > nowMs && window.endsAtMs <= nowMs + lengthMs) return window;
    const begun = { used: 0, endsAtMs: nowMs + lengthMs };
    this.#windows.set(key, begun);
    this.#clear(nowMs, lengthMs);
    return begun;
  }

  /** Removes windows that have ended, once per window length. */
  #clear(nowMs: number, lengthMs: number): void {
    if (nowMs >= this.#clearedAtMs && nowMs < this.#clearedAtMs + lengthMs) return;
    this.#clearedAtMs = nowMs;
    for (const [key, { endsAtMs }] of this.#windows) if (endsAtMs <= nowMs) this.#windows.delete(key);
  }
}

function tightestOf(states: readonly LimitState[]): LimitState {
  return states.reduce((a, b) => (b.remaining < a.remaining ? b : a));
}

function exceeded(state: LimitState, asked: number): ApiError {
  const window = state.windowSeconds === SECONDS_A_DAY ? "day" : "minute";
  const tooLarge = asked > state.limit;
  const hint = tooLarge
    ? `The request alone counts ${asked}; send a shorter prompt or a smaller max_tokens.`
    : `Try again in ${state.resetSeconds} s.`;
  const message = `Rate limit reached for ${state.unit} per ${window}: limit ${state.limit}. ${hint}`;
  const headers: Record<string, string> = {
    ...rateLimitHeaders([state]),
    "retry-after": String(Math.min(state.resetSeconds, RETRY_AFTER_SECONDS_MAX)),
  };
  if (tooLarge || state.resetSeconds > RETRY_AFTER_SECONDS_MAX) headers["x-should-retry"] = "false";
  return new ApiError("rate_limit_exceeded", message, { headers });
}

/** Returns the headers of limits, by OpenAI's names and by those of draft-ietf-httpapi-ratelimit-headers. */
export function rateLimitHeaders(states: readonly LimitState[]): Record<string, string> {
  const headers: Record<string, string> = {};
  let policy = "";
  let state = "";
  for (const { unit, limit, remaining, resetSeconds, windowSeconds } of states) {
    const names = HEADER_NAMES[unit];
    headers[names.limit] = String(limit);
    headers[names.remaining] = String(remaining);
    headers[names.reset] = `${resetSeconds}s`;
    const separator = policy === "" ? "" : ", ";
    policy += `${separator}"${unit}";q=${limit};w=${windowSeconds}`;
    state += `${separator}"${unit}";r=${remaining};t=${resetSeconds}`;
  }
  headers["ratelimit-policy"] = policy;
  headers.ratelimit = state;
  return headers;
}

const HEADER_NAMES = {
  requests: {
    limit: "x-ratelimit-limit-requests",
    remaining: "x-ratelimit-remaining-requests",
    reset: "x-ratelimit-reset-requests",
  },
  tokens: {
    limit: "x-ratelimit-limit-tokens",
    remaining: "x-ratelimit-remaining-tokens",
    reset: "x-ratelimit-reset-tokens",
  },
} as const;
