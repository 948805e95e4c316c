import { type Route, upstreamOf } from "../catalog/model.ts";
import { UpstreamError, type UpstreamFailure } from "../errors.ts";
import type { Provider } from "../providers/provider.ts";
import { CONSEQUENCES } from "./failures.ts";
import { RollingCount } from "./retry-budget.ts";

/** Failures in a row that open a circuit. */
const FAILURES_MAX = 5;
/** Time until the first probe of an open circuit; doubled after each probe that fails. */
const PROBE_AFTER_MS = 1_000;
const PROBE_AFTER_MS_MAX = 30_000;
const RECENT_MINUTES = 5;
/** Weight of the newest answer in the mean of the time to the first byte. */
const NEWEST_WEIGHT = 0.2;

/** Health of an upstream, as its requests have shown it. Times are milliseconds since 1970. */
export interface RouteHealth {
  provider: string;
  /** The upstream's own name of the model. */
  model: string;
  /** Open: only probes call the upstream. Half open: a probe is running. */
  state: "closed" | "open" | "half_open";
  /** Time of the next probe of an open circuit. */
  nextProbeAtMs: number | null;
  /** End of the pause that the upstream asked for by Retry-After. */
  limitedUntilMs: number | null;
  lastFailure: { failure: UpstreamFailure; atMs: number } | null;
  lastSuccessAtMs: number | null;
  /** Counts of the last five minutes. */
  recent: { successes: number; failures: number };
  /** Moving average of the time until an answer begins; null before the first answer. */
  firstByteMs: number | null;
}

/** Change of a circuit by a call, for the log. */
export type CircuitChange = "opened" | "closed" | undefined;

/**
 * Circuit breaker for one upstream. Closed, it admits every request. After five failures in a row it opens and admits only
 * probes: one after a second, then after two, four, up to 30 s, until one is answered. Probes are separated by time and not
 * by a lock, so that a probe that hangs, or whose client disconnects, does not block the next one. Calls that began before
 * the circuit opened do not change it. It also records the pause that the upstream asked for, and its health.
 */
export class Circuit {
  readonly #route: { providerId: string; model: string };
  readonly #opens: boolean;
  #failures = 0;
  /** Streams in a row that failed after they had begun. */
  #brokenStreams = 0;
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

  /** `opens` is false for an upstream whose failures do not predict the next one. */
  constructor(route: { providerId: string; model: string }, opens: boolean) {
    this.#route = route;
    this.#opens = opens;
  }

  get providerId(): string {
    return this.#route.providerId;
  }

  /** Tells whether the upstream may be called now. An open circuit then counts the call as its probe. */
  admits(nowMs: number): boolean {
    this.#followClock(nowMs);
    if (nowMs < this.#limitedUntilMs) return false;
    if (this.#probeAfterMs === null) return true;
    if (nowMs < this.#nextProbeAtMs) return false;
    this.#nextProbeAtMs = nowMs + this.#probeAfterMs;
    this.#isProbing = true;
    return true;
  }

  /** Returns the error for a call that is not admitted: the upstream's last failure, with the time of the next call. */
  refusal(nowMs: number): UpstreamError {
    const { providerId, model } = this.#route;
    const isLimited = nowMs < this.#limitedUntilMs;
    const untilMs = isLimited ? this.#limitedUntilMs : this.#nextProbeAtMs;
    const retryAfterSeconds = Math.max(1, Math.ceil((untilMs - nowMs) / 1000));
    const name = `${providerId}/${model}`;
    if (isLimited) {
      return new UpstreamError("overloaded", `${name} asked for a pause`, { retryAfterSeconds });
    }
    const failure = this.#lastFailure?.failure ?? "unavailable";
    return new UpstreamError(failure, `${name} failed repeatedly and is not called now`, { retryAfterSeconds });
  }

  /** Notes that an answer has begun. */
  answered(startedMs: number, nowMs: number): CircuitChange {
    const tookMs = nowMs - startedMs;
    this.#firstByteMs =
      this.#firstByteMs === null ? tookMs : this.#firstByteMs + NEWEST_WEIGHT * (tookMs - this.#firstByteMs);
    this.#lastSuccessAtMs = nowMs;
    this.#successes.add(nowMs);
    return this.#noteSuccess(startedMs);
  }

  /** Notes that an answer is complete. */
  completed(): void {
    this.#brokenStreams = 0;
  }

  /** Notes that an answer failed after it had begun. */
  broke(failure: UpstreamFailure, nowMs: number): CircuitChange {
    if (!CONSEQUENCES[failure].isUpstreams) return undefined;
    this.#noteFailure(failure, nowMs);
    this.#brokenStreams += 1;
    return this.#brokenStreams >= FAILURES_MAX && this.#probeAfterMs === null ? this.#open(nowMs) : undefined;
  }

  /** Notes that a call failed before an answer began. */
  failed({ failure, retryAfterSeconds = 0 }: UpstreamError, startedMs: number, nowMs: number): CircuitChange {
    // The upstream was not called.
    if (failure === "unsupported") return undefined;
    if (!CONSEQUENCES[failure].isUpstreams) return this.#noteSuccess(startedMs);
    this.#noteFailure(failure, nowMs);
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

  /** Restarts a pause, with the same length, where the clock was set back to before its beginning. */
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

  #noteFailure(failure: UpstreamFailure, nowMs: number): void {
    this.#lastFailure = { failure, atMs: nowMs };
    this.#failed.add(nowMs);
  }

  /** Notes that the upstream works; closes an open circuit. */
  #noteSuccess(startedMs: number): CircuitChange {
    if (startedMs <= this.#openedAtMs) return undefined;
    this.#failures = 0;
    if (this.#probeAfterMs === null) return undefined;
    this.#probeAfterMs = null;
    this.#isProbing = false;
    this.#brokenStreams = 0;
    return "closed";
  }

  #open(nowMs: number): CircuitChange {
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
    this.#brokenStreams = 0;
  }
}

/** The circuits of all upstreams that were called. Models that share an upstream share its circuit. */
export class Circuits {
  readonly #circuits = new Map<string, Circuit>();

  of(route: Route, provider: Pick<Provider, "isScripted">): Circuit {
    const upstream = upstreamOf(route);
    const known = this.#circuits.get(upstream);
    if (known !== undefined) return known;
    const circuit = new Circuit(route, provider.isScripted !== true);
    this.#circuits.set(upstream, circuit);
    return circuit;
  }

  /** Removes the circuits of a provider that was removed or has another address now. */
  forget(providerId: string): void {
    for (const [upstream, circuit] of this.#circuits) {
      if (circuit.providerId === providerId) this.#circuits.delete(upstream);
    }
  }

  /** Returns the health of every upstream that was called since the start. */
  health(nowMs: number): RouteHealth[] {
    return [...this.#circuits.values()].map((circuit) => circuit.health(nowMs));
  }
}
