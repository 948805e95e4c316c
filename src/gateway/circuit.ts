import { isoTime } from "../api/time.ts";
import { type Route, upstreamOf } from "../catalog/model.ts";
import { UpstreamError, type UpstreamFailure } from "../errors.ts";
import type { Provider } from "../providers/provider.ts";
import { CONSEQUENCES } from "./failures.ts";
import { RecentMap, RollingCount } from "./recent.ts";
import type { RouteHealth } from "./route-health.ts";

/** Failures of an organization in a row that open its circuit. */
const FAILURES_MAX = 5;
const PROBE_EVERY_MS = 1_000;
const PROBE_EVERY_MS_MAX = 10_000;
/** Longest pause that an upstream can ask for. */
const PAUSE_MS_MAX = 60_000;
/** Open circuits that, while no organization has a success, close an upstream to all organizations. */
const SEVERAL = 2;
/** Time for which a success of any organization keeps an upstream open to the others. */
const SUCCESS_COUNTS_MS = 10_000;
/** An organization that does not call for this long is forgotten, and its circuit with it. */
const REMEMBERED = { idleMs: 60_000, entriesMax: 10_000 };
const RECENT_MINUTES = 5;
/** Weight of the newest answer in the mean of the time to the first byte. */
const NEWEST_WEIGHT = 0.2;
const LONG_AGO = Number.NEGATIVE_INFINITY;

/** Change of an organization's circuit by a call, for the log. */
export type CircuitChange = "opened" | "closed" | undefined;

/** Circuit of one organization on one upstream. It opens after five failures in a row, until a probe is answered. */
class OrganizationCircuit {
  #failures = 0;
  /** Streams in a row that failed after they had begun. */
  #brokenStreams = 0;
  /** Probes in a row that failed. Null: the circuit is closed. */
  #failedProbes: number | null = null;
  /** Time when the circuit opened, or the last probe failed. Calls that began before do not change it. */
  #sinceMs = LONG_AGO;
  #probedAtMs = LONG_AGO;

  get isOpen(): boolean {
    return this.#failedProbes !== null;
  }

  /** Seconds between two probes of callers that have another route. */
  get backOffSeconds(): number {
    return 2 ** (this.#failedProbes ?? 0);
  }

  /** Returns the time of the next probe. A closed circuit needs probes while an upstream is closed to all, since that time. */
  nextProbeAtMs(everyMs: number, closedToAllSinceMs: number): number {
    const firstAtMs = this.isOpen ? this.#sinceMs + everyMs : closedToAllSinceMs + PROBE_EVERY_MS;
    return Math.max(firstAtMs, this.#probedAtMs + everyMs);
  }

  probe(nowMs: number): void {
    this.#probedAtMs = nowMs;
  }

  failed(startedMs: number, nowMs: number): CircuitChange {
    if (startedMs <= this.#sinceMs) return undefined;
    if (this.#failedProbes === null) {
      this.#failures += 1;
      return this.#failures < FAILURES_MAX ? undefined : this.#open(nowMs);
    }
    this.#failedProbes += 1;
    this.#sinceMs = nowMs;
    return undefined;
  }

  broke(nowMs: number): CircuitChange {
    if (this.isOpen) return undefined;
    this.#brokenStreams += 1;
    return this.#brokenStreams < FAILURES_MAX ? undefined : this.#open(nowMs);
  }

  answered(startedMs: number): CircuitChange {
    if (startedMs <= this.#sinceMs) return undefined;
    const wasOpen = this.isOpen;
    this.#failures = 0;
    this.#failedProbes = null;
    return wasOpen ? "closed" : undefined;
  }

  completed(): void {
    this.#brokenStreams = 0;
  }

  #open(nowMs: number): CircuitChange {
    this.#failures = 0;
    this.#brokenStreams = 0;
    this.#failedProbes = 0;
    this.#sinceMs = nowMs;
    return "opened";
  }
}

/** Circuit of any organization without a failure. */
const UNUSED = new OrganizationCircuit();

/**
 * Circuit breaker for one upstream, with a circuit for each organization. While the circuits of two organizations are open
 * and no organization had a success for ten seconds, the upstream is closed to all, and every one sends only probes. The
 * probes of one do not delay those of another. They are separated by time and not by a lock, so that a probe that hangs, or
 * whose client disconnects, does not block the next one. A pause that the upstream asks for is for everybody.
 */
export class Circuit {
  readonly #route: Pick<Route, "providerId" | "model">;
  readonly #opens: boolean;
  readonly #open = new RecentMap<OrganizationCircuit>(REMEMBERED);
  /** Closed circuits of organizations that had a failure. */
  readonly #closed = new RecentMap<OrganizationCircuit>(REMEMBERED);
  #lastFailure: { failure: UpstreamFailure; atMs: number } | null = null;
  #lastSuccessAtMs: number | null = null;
  #firstByteMs: number | null = null;
  readonly #successes = new RollingCount(RECENT_MINUTES, 60_000);
  readonly #failures = new RollingCount(RECENT_MINUTES, 60_000);
  /** Last sign that the upstream works: an answer, or the refusal of a wrong request. */
  #workedAtMs = LONG_AGO;
  /** Time when the circuits of several organizations were last open for the first time. */
  #severalOpenSinceMs = LONG_AGO;
  #pausedUntilMs = LONG_AGO;

  /** `opens` is false for an upstream whose failures do not predict the next one. */
  constructor(route: Pick<Route, "providerId" | "model">, opens: boolean) {
    this.#route = route;
    this.#opens = opens;
  }

  get providerId(): string {
    return this.#route.providerId;
  }

  /**
   * Tells whether an organization may call the upstream now. If its circuit is open, the call is its probe. `isOnlyRoute` is
   * true where the caller has no other route to use in the meantime.
   */
  admits(organizationId: string, nowMs: number, isOnlyRoute: boolean): boolean {
    const nextCallAtMs = this.#nextCallAtMs(organizationId, nowMs, isOnlyRoute);
    if (nextCallAtMs === null) return true;
    if (nowMs < nextCallAtMs) return false;
    this.#of(organizationId, nowMs).probe(nowMs);
    return true;
  }

  /** Returns the error for a call that is not admitted: the upstream's last failure, with the time of the next call. */
  refusal(organizationId: string, nowMs: number, isOnlyRoute: boolean): UpstreamError {
    const untilMs = this.#nextCallAtMs(organizationId, nowMs, isOnlyRoute) ?? nowMs;
    const retryAfterSeconds = Math.max(1, Math.ceil((untilMs - nowMs) / 1000));
    const failure = this.#isPaused(nowMs) ? "rate_limited" : (this.#lastFailure?.failure ?? "unavailable");
    const what = this.#isPaused(nowMs) ? "asked for a pause" : "failed repeatedly and is not called now";
    return new UpstreamError(failure, `${upstreamOf(this.#route)} ${what}`, { retryAfterSeconds });
  }

  answered(organizationId: string, startedMs: number, nowMs: number): CircuitChange {
    const tookMs = nowMs - startedMs;
    const averageMs = this.#firstByteMs ?? tookMs;
    this.#firstByteMs = averageMs + NEWEST_WEIGHT * (tookMs - averageMs);
    this.#lastSuccessAtMs = nowMs;
    this.#successes.add(nowMs);
    return this.#worked(organizationId, startedMs, nowMs);
  }

  completed(organizationId: string, nowMs: number): void {
    this.#find(organizationId, nowMs)?.completed();
  }

  /** Notes that an answer failed after it had begun. */
  broke(organizationId: string, failure: UpstreamFailure, nowMs: number): CircuitChange {
    const { circuit } = CONSEQUENCES[failure];
    if (circuit === "works" || circuit === "unchanged") return undefined;
    this.#countFailure(failure, nowMs);
    return this.#noteFailure(organizationId, nowMs, (own) => own.broke(nowMs));
  }

  /** Notes that a call failed before an answer began. */
  failed(organizationId: string, error: UpstreamError, startedMs: number, nowMs: number): CircuitChange {
    const { failure, retryAfterSeconds = 0 } = error;
    const { circuit } = CONSEQUENCES[failure];
    if (circuit === "unchanged") return undefined;
    if (circuit === "works") return this.#worked(organizationId, startedMs, nowMs);
    this.#countFailure(failure, nowMs);
    if (circuit === "failed" || retryAfterSeconds === 0) {
      return this.#noteFailure(organizationId, nowMs, (own) => own.failed(startedMs, nowMs));
    }
    const untilMs = nowMs + Math.min(retryAfterSeconds * 1000, PAUSE_MS_MAX);
    if (this.#opens) this.#pausedUntilMs = Math.max(this.#pausedUntilMs, untilMs);
    return undefined;
  }

  /** Ends a pause, and closes the circuits of all organizations. */
  resume(): void {
    this.#pausedUntilMs = LONG_AGO;
    for (const circuits of [this.#open, this.#closed]) circuits.clear();
  }

  health(nowMs: number): RouteHealth {
    const open = this.#open.values(nowMs);
    const probeTimes = open.map((circuit) => circuit.nextProbeAtMs(this.#probeEveryMs(circuit, false), nowMs));
    const openState = this.#hasWorkedLately(nowMs) ? "partly_open" : "open";
    const last = this.#lastFailure;
    const health: RouteHealth["health"] = {
      state: open.length === 0 ? "closed" : openState,
      failing_organizations: open.length,
      next_probe_at: open.length === 0 ? null : isoTime(Math.min(...probeTimes)),
      limited_until: this.#isPaused(nowMs) ? isoTime(this.#pausedUntilMs) : null,
      last_failure: last && { failure: last.failure, at: isoTime(last.atMs) },
      last_success_at: isoTime(this.#lastSuccessAtMs),
      recent: { successes: this.#successes.total(nowMs), failures: this.#failures.total(nowMs) },
      first_byte_ms: this.#firstByteMs === null ? null : Math.round(this.#firstByteMs),
    };
    return { provider: this.#route.providerId, route: upstreamOf(this.#route), health };
  }

  #find(organizationId: string, nowMs: number): OrganizationCircuit | undefined {
    return this.#open.get(organizationId, nowMs) ?? this.#closed.get(organizationId, nowMs);
  }

  #of(organizationId: string, nowMs: number): OrganizationCircuit {
    const known = this.#find(organizationId, nowMs);
    if (known !== undefined) return known;
    const created = new OrganizationCircuit();
    this.#closed.set(organizationId, created, nowMs);
    return created;
  }

  #countFailure(failure: UpstreamFailure, nowMs: number): void {
    this.#lastFailure = { failure, atMs: nowMs };
    this.#failures.add(nowMs);
  }

  #noteFailure(
    organizationId: string,
    nowMs: number,
    note: (own: OrganizationCircuit) => CircuitChange,
  ): CircuitChange {
    if (!this.#opens) return undefined;
    const own = this.#of(organizationId, nowMs);
    const change = note(own);
    if (change !== "opened") return change;
    this.#closed.delete(organizationId);
    this.#open.set(organizationId, own, nowMs);
    if (this.#open.size === SEVERAL) this.#severalOpenSinceMs = nowMs;
    return change;
  }

  /** Returns when an organization may send its next call; null where it may send any number. */
  #nextCallAtMs(organizationId: string, nowMs: number, isOnlyRoute: boolean): number | null {
    if (this.#isPaused(nowMs)) return this.#pausedUntilMs;
    const own = this.#find(organizationId, nowMs) ?? UNUSED;
    const isClosedToAll = this.#open.size >= SEVERAL && !this.#hasWorkedLately(nowMs);
    if (!isClosedToAll && !own.isOpen) return null;
    return own.nextProbeAtMs(this.#probeEveryMs(own, isOnlyRoute), this.#severalOpenSinceMs);
  }

  /** Open circuits share one probe per second, but each has at least one in ten seconds. */
  #probeEveryMs({ backOffSeconds }: OrganizationCircuit, isOnlyRoute: boolean): number {
    const factor = Math.max(1, this.#open.size, isOnlyRoute ? 1 : backOffSeconds);
    return Math.min(factor * PROBE_EVERY_MS, PROBE_EVERY_MS_MAX);
  }

  #hasWorkedLately(nowMs: number): boolean {
    return this.#workedAtMs <= nowMs && nowMs - this.#workedAtMs < SUCCESS_COUNTS_MS;
  }

  #isPaused(nowMs: number): boolean {
    // A clock that was set back would make the pause longer.
    this.#pausedUntilMs = Math.min(this.#pausedUntilMs, nowMs + PAUSE_MS_MAX);
    return nowMs < this.#pausedUntilMs;
  }

  #worked(organizationId: string, startedMs: number, nowMs: number): CircuitChange {
    this.#workedAtMs = nowMs;
    const change = this.#find(organizationId, nowMs)?.answered(startedMs);
    if (change === "closed") this.#open.delete(organizationId);
    return change;
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

  /** Ends the pause of a route, and closes its circuits. */
  resume(upstream: string): void {
    this.#circuits.get(upstream)?.resume();
  }

  /** Returns the health of every upstream that was called since the start. */
  health(nowMs: number): RouteHealth[] {
    return [...this.#circuits.values()].map((circuit) => circuit.health(nowMs));
  }
}
