import { UpstreamError, type UpstreamFailure } from "../errors.ts";
import { CONSEQUENCES } from "./fallback.ts";
import { RollingCount } from "./rolling-count.ts";

/** Failures in a row that open a circuit. */
const FAILURES_MAX = 5;
/** Until the first probe of an open circuit; twice as long after each probe that fails. */
const PROBE_AFTER_MS = 1_000;
const PROBE_AFTER_MS_MAX = 30_000;
const RECENT_MINUTES = 5;
/** How much the newest answer weighs in the mean of the time to the first byte. */
const NEWEST_WEIGHT = 0.2;

/** What is known of an upstream from the requests that went there. Times are milliseconds since 1970. */
export interface RouteHealth {
  provider: string;
  /** The upstream's own name of the model. */
  model: string;
  /** Open: it is not called but for a probe now and then. Half open: such a probe is out. */
  state: "closed" | "open" | "half_open";
  /** When an open circuit lets the next probe through. */
  nextProbeAtMs: number | null;
  /** Until when the upstream has asked, by Retry-After, to be left alone. */
  limitedUntilMs: number | null;
  lastFailure: { failure: UpstreamFailure; atMs: number } | null;
  lastSuccessAtMs: number | null;
  /** Of the last five minutes. */
  recent: { successes: number; failures: number };
  /** Mean time until an answer began, the last ones weighing most; null before the first. */
  firstByteMs: number | null;
}

/** What a call has changed, for the log. */
export type Turn = "opened" | "closed" | undefined;

/**
 * A circuit breaker for one upstream. Closed, it lets everything through; after five failures in a row it opens, and from
 * then on lets one request through as a probe, after a second, then two, four, up to every 30 s, until one is answered.
 * Between two probes is a time and no lock, so that a probe that hangs, or whose client leaves, holds up no other. Calls
 * that began before it opened change nothing any more. Beside that it keeps the time that the upstream asked to be left
 * alone for, and what the operator wants to know of it.
 */
export class Circuit {
  readonly #route: { providerId: string; model: string };
  readonly #opens: boolean;
  #failures = 0;
  /** Streams in a row that the upstream broke off. */
  #breaks = 0;
  /** Null: closed. */
  #probeAfterMs: number | null = null;
  #openedAtMs = Number.NEGATIVE_INFINITY;
  #nextProbeAtMs = 0;
  #isProbing = false;
  #limitedUntilMs = 0;
  #limitedSinceMs = 0;
  #lastFailure: { failure: UpstreamFailure; atMs: number } | null = null;
  #lastSuccessAtMs: number | null = null;
  #firstByteMs: number | null = null;
  readonly #successes = new RollingCount(RECENT_MINUTES, 60_000);
  readonly #failed = new RollingCount(RECENT_MINUTES, 60_000);

  /** `opens` is false for an upstream whose failures say nothing of the next request. */
  constructor(route: { providerId: string; model: string }, opens: boolean) {
    this.#route = route;
    this.#opens = opens;
  }

  /** Whether a request may go there now. */
  admits(nowMs: number): boolean {
    this.#followClock(nowMs);
    if (nowMs < this.#limitedUntilMs) return false;
    if (this.#probeAfterMs === null) return true;
    if (nowMs < this.#nextProbeAtMs) return false;
    this.#nextProbeAtMs = nowMs + this.#probeAfterMs;
    this.#isProbing = true;
    return true;
  }

  /** Why a request may not go there, and when it may: the failure that the upstream was last seen with. */
  refusal(nowMs: number): UpstreamError {
    const { providerId, model } = this.#route;
    const isLimited = nowMs < this.#limitedUntilMs;
    const untilMs = isLimited ? this.#limitedUntilMs : this.#nextProbeAtMs;
    const retryAfterSeconds = Math.max(1, Math.ceil((untilMs - nowMs) / 1000));
    const name = `${providerId}/${model}`;
    if (isLimited) {
      return new UpstreamError("overloaded", `${name} asked to be left alone for a while`, { retryAfterSeconds });
    }
    const failure = this.#lastFailure?.failure ?? "unavailable";
    return new UpstreamError(failure, `${name} failed again and again and is not called now`, { retryAfterSeconds });
  }

  /** An answer has begun. */
  answered(startedMs: number, nowMs: number): Turn {
    const tookMs = nowMs - startedMs;
    this.#firstByteMs =
      this.#firstByteMs === null ? tookMs : this.#firstByteMs + NEWEST_WEIGHT * (tookMs - this.#firstByteMs);
    this.#lastSuccessAtMs = nowMs;
    this.#successes.add(nowMs);
    return this.#isWell(startedMs);
  }

  /** An answer has come to its end. */
  completed(): void {
    this.#breaks = 0;
  }

  /** An answer that had begun was broken off, by the upstream or by what the request asked for. */
  broke(failure: UpstreamFailure, nowMs: number): Turn {
    if (!CONSEQUENCES[failure].isUpstreams) return undefined;
    this.#note(failure, nowMs);
    this.#breaks += 1;
    return this.#breaks >= FAILURES_MAX && this.#probeAfterMs === null ? this.#open(nowMs) : undefined;
  }

  /** A call has failed before an answer began. */
  failed({ failure, retryAfterSeconds = 0 }: UpstreamError, startedMs: number, nowMs: number): Turn {
    // It never came to the upstream.
    if (failure === "unsupported") return undefined;
    if (!CONSEQUENCES[failure].isUpstreams) return this.#isWell(startedMs);
    this.#note(failure, nowMs);
    if (!this.#opens) return undefined;
    if (failure === "overloaded" && retryAfterSeconds > 0) {
      this.#limitedUntilMs = Math.max(this.#limitedUntilMs, nowMs + retryAfterSeconds * 1000);
      this.#limitedSinceMs = nowMs;
      this.#isProbing = false;
      return undefined;
    }
    if (startedMs <= this.#openedAtMs) return undefined;
    if (this.#probeAfterMs !== null) {
      this.#reopen(nowMs, this.#probeAfterMs);
      return undefined;
    }
    this.#failures += 1;
    return this.#failures >= FAILURES_MAX ? this.#open(nowMs) : undefined;
  }

  health(nowMs: number): RouteHealth {
    const isOpen = this.#probeAfterMs !== null;
    return {
      provider: this.#route.providerId,
      model: this.#route.model,
      state: isOpen ? (this.#isProbing ? "half_open" : "open") : "closed",
      nextProbeAtMs: isOpen ? this.#nextProbeAtMs : null,
      limitedUntilMs: nowMs < this.#limitedUntilMs ? this.#limitedUntilMs : null,
      lastFailure: this.#lastFailure,
      lastSuccessAtMs: this.#lastSuccessAtMs,
      recent: { successes: this.#successes.total(nowMs), failures: this.#failed.total(nowMs) },
      firstByteMs: this.#firstByteMs === null ? null : Math.round(this.#firstByteMs),
    };
  }

  /** Where the clock was set back to before a pause began, the pause begins anew, and is no longer than it was. */
  #followClock(nowMs: number): void {
    if (nowMs < this.#limitedSinceMs) {
      this.#limitedUntilMs += nowMs - this.#limitedSinceMs;
      this.#limitedSinceMs = nowMs;
    }
    if (nowMs < this.#openedAtMs) {
      this.#nextProbeAtMs = Math.min(this.#nextProbeAtMs, nowMs + (this.#probeAfterMs ?? 0));
      this.#openedAtMs = nowMs - 1;
    }
  }

  #note(failure: UpstreamFailure, nowMs: number): void {
    this.#lastFailure = { failure, atMs: nowMs };
    this.#failed.add(nowMs);
  }

  /** The upstream has shown that it works. */
  #isWell(startedMs: number): Turn {
    if (startedMs <= this.#openedAtMs) return undefined;
    this.#failures = 0;
    if (this.#probeAfterMs === null) return undefined;
    this.#probeAfterMs = null;
    this.#isProbing = false;
    this.#breaks = 0;
    return "closed";
  }

  #open(nowMs: number): Turn {
    if (!this.#opens) return undefined;
    this.#reopen(nowMs, PROBE_AFTER_MS / 2);
    return "opened";
  }

  #reopen(nowMs: number, lastMs: number): void {
    this.#probeAfterMs = Math.min(lastMs * 2, PROBE_AFTER_MS_MAX);
    this.#openedAtMs = nowMs;
    this.#nextProbeAtMs = nowMs + this.#probeAfterMs;
    this.#isProbing = false;
    this.#failures = 0;
    this.#breaks = 0;
  }
}
