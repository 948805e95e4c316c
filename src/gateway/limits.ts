import { RateLimiterMemory } from "rate-limiter-flexible";
import { ApiError } from "../errors.ts";

const SECONDS_A_MINUTE = 60;
const SECONDS_A_DAY = 86_400;
const RETRY_AFTER_SECONDS_MAX = 60;

/** A caller's standing against one limit. */
export interface Standing {
  /** What is limited: "requests" or "tokens". */
  unit: "requests" | "tokens";
  limit: number;
  remaining: number;
  /** Until the window starts anew. */
  resetSeconds: number;
  windowSeconds: number;
}

/** A limit to count against: of whom, and how much. */
export interface LimitKey {
  /** `token:…`, `organization:…` or `address:…` */
  key: string;
  limit: number;
}

/** Tokens that were taken of a window. */
export interface TakenTokens {
  standing: Standing;
  /** Gives back what was not used, to the windows that are still the same. */
  giveBack(tokens: number): Promise<void>;
}

interface Count extends Standing {
  key: string;
  isPassed: boolean;
  windowEndsAtMs: number;
}

/** Counts requests and tokens in windows of a minute (tokens of the playground in a day), and requests at once. */
export class Limits {
  readonly #clock: () => number;
  readonly #requests = windowOf(SECONDS_A_MINUTE);
  readonly #tokens = windowOf(SECONDS_A_MINUTE);
  readonly #tokensOfDay = windowOf(SECONDS_A_DAY);
  readonly #running = new Map<string, number>();

  constructor(clock: () => number) {
    this.#clock = clock;
  }

  /** Counts one request; throws rate_limit_exceeded when any of the limits is passed. Returns the tightest standing. */
  async countRequest(keys: readonly LimitKey[]): Promise<Standing> {
    const counts = await this.#count(this.#requests, "requests", keys, 1);
    const passed = counts.find((count) => count.isPassed);
    if (passed !== undefined) throw exceeded(passed, 1);
    return tightestOf(counts);
  }

  /** Takes tokens of the minute or of the day; throws rate_limit_exceeded, with what was refused given back. */
  async takeTokens(window: "minute" | "day", keys: readonly LimitKey[], tokens: number): Promise<TakenTokens> {
    const limiter = window === "minute" ? this.#tokens : this.#tokensOfDay;
    const counts = await this.#count(limiter, "tokens", keys, tokens);
    const giveBack = async (unused: number) => {
      for (const { key, windowEndsAtMs } of counts) {
        if (this.#clock() < windowEndsAtMs) await limiter.reward(key, unused);
      }
    };
    const passed = counts.find((count) => count.isPassed);
    if (passed === undefined) return { standing: tightestOf(counts), giveBack };
    await giveBack(tokens);
    throw exceeded(passed, tokens);
  }

  /** Enters a request that runs; throws rate_limit_exceeded when too many do. Returns how to leave. */
  enter(keys: readonly LimitKey[]): () => void {
    const full = keys.find(({ key, limit }) => (this.#running.get(key) ?? 0) >= limit);
    if (full !== undefined) {
      const message = `Rate limit reached for requests at once: limit ${full.limit}. Try again when one has ended.`;
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

  async #count(
    limiter: RateLimiterMemory,
    unit: Standing["unit"],
    keys: readonly LimitKey[],
    points: number,
  ): Promise<Count[]> {
    const counts: Count[] = [];
    for (const { key, limit } of keys) {
      const { consumedPoints, msBeforeNext } = await limiter.consume(key, points);
      counts.push({
        key,
        unit,
        limit,
        remaining: Math.max(0, limit - consumedPoints),
        resetSeconds: Math.max(1, Math.ceil(msBeforeNext / 1000)),
        windowSeconds: limiter.duration,
        isPassed: consumedPoints > limit,
        windowEndsAtMs: this.#clock() + msBeforeNext,
      });
    }
    return counts;
  }
}

/** The limit differs from key to key, so the limiter only counts and the comparison is made here. */
function windowOf(seconds: number): RateLimiterMemory {
  return new RateLimiterMemory({ points: Number.MAX_SAFE_INTEGER, duration: seconds });
}

function tightestOf(standings: readonly Standing[]): Standing {
  return standings.reduce((a, b) => (b.remaining < a.remaining ? b : a));
}

function exceeded(standing: Standing, asked: number): ApiError {
  const window = standing.windowSeconds === SECONDS_A_DAY ? "day" : "minute";
  const tooLarge = asked > standing.limit;
  const hint = tooLarge
    ? `The request alone counts ${asked}; send a shorter prompt or a smaller max_tokens.`
    : `Try again in ${standing.resetSeconds} s.`;
  const message = `Rate limit reached for ${standing.unit} per ${window}: limit ${standing.limit}. ${hint}`;
  const headers: Record<string, string> = {
    ...rateLimitHeaders([standing]),
    "retry-after": String(Math.min(standing.resetSeconds, RETRY_AFTER_SECONDS_MAX)),
  };
  if (tooLarge || standing.resetSeconds > RETRY_AFTER_SECONDS_MAX) headers["x-should-retry"] = "false";
  return new ApiError("rate_limit_exceeded", message, { headers });
}

/** Both header families: OpenAI's, and the IETF draft's (draft-ietf-httpapi-ratelimit-headers). */
export function rateLimitHeaders(standings: readonly Standing[]): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const { unit, limit, remaining, resetSeconds } of standings) {
    headers[`x-ratelimit-limit-${unit}`] = String(limit);
    headers[`x-ratelimit-remaining-${unit}`] = String(remaining);
    headers[`x-ratelimit-reset-${unit}`] = `${resetSeconds}s`;
  }
  headers["ratelimit-policy"] = standings
    .map((one) => `"${one.unit}";q=${one.limit};w=${one.windowSeconds}`)
    .join(", ");
  headers.ratelimit = standings.map((one) => `"${one.unit}";r=${one.remaining};t=${one.resetSeconds}`).join(", ");
  return headers;
}
