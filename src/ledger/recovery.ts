import type { ExpireTransition, HoldClaim } from "../credits/books.ts";
import type { Owners, SeenHold } from "../stores/queries/books.ts";

export interface RecoveryOptions {
  /** This process. */
  owner: string;
  /** True where other processes work on the same store. */
  isShared: boolean;
  holdLifeMs: number;
  /** How long after its life a hold of another process is left alone. */
  recoveryMs: number;
  renewEveryMs: number;
  /** Tells whether a request of this process still runs. */
  isRunning(holdId: string): boolean;
  monotonicMs: () => number;
}

interface Sighting {
  owner: string;
  expiresAtMs: number;
  /** Since when it has been seen unchanged. */
  sinceMs: number;
}

/** Renewals that a process gets before its holds are ended, although its spool's lock was free. */
const RENEWALS_AWAITED = 2;

/**
 * Decides which holds nobody will end but this process: its own that no request needs, those of processes whose spool it
 * took over, and, only long after their life, those of processes that it knows nothing of. The store's clock may jump, so
 * a hold of another process must also have been seen unchanged for a life by the monotonic clock of this one.
 */
export class Recovery {
  readonly #options: RecoveryOptions;
  #seen = new Map<string, Sighting>();
  /** Processes that have ended, and when that was found. */
  readonly #ended = new Map<string, number>();
  /** Since when the store could be reached without interruption; null while it cannot. */
  #reachedSinceMs: number | null = null;
  #nextClaimMs: number | undefined;

  constructor(options: RecoveryOptions) {
    this.#options = options;
  }

  /** Processes of which all holds are to be looked for, also those that have not expired. */
  get owners(): Owners {
    return this.#options.isShared ? { only: [...this.#ended.keys()] } : { allBut: this.#options.owner };
  }

  /** Tells whether a process that has ended may still have holds. */
  awaits(owner: string): boolean {
    return this.#ended.has(owner);
  }

  /** Milliseconds after the last look at which more holds of ended processes can be claimed; undefined where none wait. */
  get nextClaimMs(): number | undefined {
    return this.#nextClaimMs;
  }

  /** Notes that a process has ended, because the lock of its spool was free and its spool is booked. */
  endOwner(owner: string): void {
    if (!this.#ended.has(owner)) this.#ended.set(owner, this.#options.monotonicMs());
  }

  /** Notes that the store could not be reached. */
  lost(): void {
    this.#reachedSinceMs = null;
  }

  /**
   * Returns the holds to be ended, of all that are overdue, expire later than a life from now, or belong to processes that
   * have ended, as one look at the store found them. `nowMs` is the store's time.
   */
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
    this.#forgetOwners(holds, monotonicMs);
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

  /** An ended process has no transaction under way where no other process works on the store. */
  get #awaitedMs(): number {
    const { isShared, renewEveryMs } = this.#options;
    return isShared ? RENEWALS_AWAITED * renewEveryMs : 0;
  }

  /** Returns how long the hold must be past its expiry, null where it need not be, undefined where it is left alone. */
  #afterExpiryMs(
    holdId: string,
    { owner, expiresAtMs, sinceMs }: Sighting,
    { nowMs, monotonicMs }: { nowMs: number; monotonicMs: number },
  ): number | null | undefined {
    const { owner: own, isShared, holdLifeMs, recoveryMs, isRunning } = this.#options;
    if (owner === own) return expiresAtMs <= nowMs && !isRunning(holdId) ? 0 : undefined;
    // The owner of the only data directory is the only process.
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

  /** A process that has ended makes no new holds. */
  #forgetOwners(holds: readonly SeenHold[], monotonicMs: number): void {
    const owners = new Set(holds.map(({ owner }) => owner));
    for (const [owner, endedAtMs] of this.#ended) {
      const isAwaited = monotonicMs - endedAtMs < this.#awaitedMs;
      if (!owners.has(owner) && !isAwaited) this.#ended.delete(owner);
    }
  }
}
