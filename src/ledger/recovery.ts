import type { ExpireTransition, HoldClaim } from "../credits/books.ts";
import type { Owners, SeenHold } from "../stores/queries/books.ts";

/** Terms of holds: how long they last, and who may end them. */
export interface HoldTerms {
  /** Time after which a hold expires without a renewal. */
  holdLifeMs: number;
  /** Time past its expiry for which a hold is left open when its owner is unknown to this process. */
  recoveryMs: number;
  /** True if other processes use the same store and may end a hold that this one cannot renew. */
  isShared: boolean;
  renewEveryMs: number;
}

export interface RecoveryOptions extends HoldTerms {
  /** Name of this process as the owner of holds. */
  owner: string;
  /** Returns true if a request of this process is still running. */
  isRunning(holdId: string): boolean;
  monotonicMs: () => number;
}

interface Sighting {
  owner: string;
  expiresAtMs: number;
  /** When it was first seen with this owner and expiry. */
  sinceMs: number;
}

/** Renewal intervals to wait before the holds of an ended process are expired. */
const RENEWALS_AWAITED = 2;

/**
 * Decides which holds this process must expire: its own without a running request, those of ended processes whose spool it
 * took over, and, long after their expiry, others that stayed unchanged for a life on its own clock: the store's may jump.
 */
export class Recovery {
  readonly #options: RecoveryOptions;
  #seen = new Map<string, Sighting>();
  /** Processes that have ended, and when this was noticed. */
  readonly #ended = new Map<string, number>();
  /** Start of the period without a store failure; null after a failure. */
  #reachedSinceMs: number | null = null;
  #nextClaimMs: number | undefined;

  constructor(options: RecoveryOptions) {
    this.#options = options;
  }

  /** Owners whose holds are searched even before they expire. */
  get owners(): Owners {
    return this.#options.isShared ? { only: [...this.#ended.keys()] } : { allBut: this.#options.owner };
  }

  /** Returns true if an ended process may still have holds. */
  awaits(owner: string): boolean {
    return this.#ended.has(owner);
  }

  /** Milliseconds from the last search until more holds of ended processes can be expired; undefined if there are none. */
  get nextClaimMs(): number | undefined {
    return this.#nextClaimMs;
  }

  /** Records that a process has ended: the lock of its spool was free, and its spool has been booked. */
  endOwner(owner: string): void {
    if (!this.#ended.has(owner)) this.#ended.set(owner, this.#options.monotonicMs());
  }

  /** Records that the store was unavailable. */
  lost(): void {
    this.#reachedSinceMs = null;
  }

  /** Returns the expirations to book of holds that one search found: overdue, or of ended processes. `nowMs`: the store's time. */
  claims(holds: readonly SeenHold[], nowMs: number): ExpireTransition[] {
    const monotonicMs = this.#options.monotonicMs();
    this.#reachedSinceMs ??= monotonicMs;
    const seen = new Map<string, Sighting>();
    const claimed: ExpireTransition[] = [];
    for (const { organizationId, holdId, owner, expiresAtMs } of holds) {
      const before = this.#seen.get(holdId);
      const isSame = before?.owner === owner && before.expiresAtMs === expiresAtMs;
      const sighting = isSame ? before : { owner, expiresAtMs, sinceMs: monotonicMs };
      seen.set(holdId, sighting);
      const afterExpiryMs = this.#afterExpiryMs(holdId, sighting, { nowMs, monotonicMs });
      if (afterExpiryMs === undefined) continue;
      const claim: HoldClaim = { owner, expiresAtMs, afterExpiryMs };
      claimed.push({ kind: "expire", organizationId, holdId, claim });
    }
    this.#seen = seen;
    const owners = new Set(holds.map(({ owner }) => owner));
    for (const [owner, endedAtMs] of this.#ended) {
      const isAwaited = monotonicMs - endedAtMs < this.#awaitedMs;
      // An ended process without holds creates no new ones.
      if (!owners.has(owner) && !isAwaited) this.#ended.delete(owner);
    }
    this.#nextClaimMs = this.#nextClaim(monotonicMs);
    return claimed;
  }

  #nextClaim(monotonicMs: number): number | undefined {
    const waits = [...this.#ended].map(([owner, endedAtMs]) => {
      const sightings = [...this.#seen.values()].filter((sighting) => sighting.owner === owner);
      const sinceMs = Math.max(endedAtMs, ...sightings.map((sighting) => sighting.sinceMs));
      return sinceMs + this.#awaitedMs - monotonicMs;
    });
    const left = waits.filter((waitMs) => waitMs > 0);
    return left.length === 0 ? undefined : Math.min(...left);
  }

  /** Time for which a transaction of an ended process may be in flight; none if no other process uses the store. */
  get #awaitedMs(): number {
    const { isShared, renewEveryMs } = this.#options;
    return isShared ? RENEWALS_AWAITED * renewEveryMs : 0;
  }

  /** Returns how far past its expiry a hold must be to be ended, in milliseconds; null: at any time; undefined: it stays open. */
  #afterExpiryMs(
    holdId: string,
    { owner, expiresAtMs, sinceMs }: Sighting,
    { nowMs, monotonicMs }: { nowMs: number; monotonicMs: number },
  ): number | null | undefined {
    const { owner: own, isShared, holdLifeMs, recoveryMs, isRunning } = this.#options;
    if (owner === own) return expiresAtMs <= nowMs && !isRunning(holdId) ? 0 : undefined;
    // Without a shared store, this is the only process: any other owner has ended.
    if (!isShared) return null;
    const unchangedMs = monotonicMs - sinceMs;
    const endedAtMs = this.#ended.get(owner);
    const awaitedMs = this.#awaitedMs;
    if (endedAtMs !== undefined && monotonicMs - endedAtMs >= awaitedMs && unchangedMs >= awaitedMs) return null;
    const reachedMs = this.#reachedSinceMs === null ? 0 : monotonicMs - this.#reachedSinceMs;
    if (reachedMs < holdLifeMs || unchangedMs < holdLifeMs) return undefined;
    if (expiresAtMs + recoveryMs <= nowMs) return recoveryMs;
    const isFarAhead = expiresAtMs > nowMs + holdLifeMs;
    return isFarAhead && unchangedMs >= holdLifeMs + recoveryMs ? null : undefined;
  }
}
