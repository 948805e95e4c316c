import type { ExpireTransition, HoldFacts } from "../credits/books.ts";
import type { Outcomes } from "../credits/outcomes.ts";
import { NO_TOKENS, type TokenCounts } from "../credits/price.ts";
import { OrganizationsLockedError, StoreUnavailableError } from "../errors.ts";
import type { Books, SeenHold } from "../stores/queries/books.ts";
import type { Log } from "../telemetry/logger.ts";
import { type AllowanceOptions, grantAllowances } from "./allowances.ts";
import { type CommitQueue, DURABLE, HOLDS, ONCE } from "./commit-queue.ts";
import { Lease, type Moment } from "./lease.ts";
import type { Recovery } from "./recovery.ts";
import type { Spool } from "./spool.ts";

/** Small, so that new holds, which share the queue with renewals, wait for one chunk at most. */
const RENEWAL_CHUNK = 500;
const SWEEP_PAGE = 500;
/** Small, so that no request waits long for one. All chunks of a sweep remove more keys than a busy service creates. */
const KEY_CHUNK = 200;
const KEY_CHUNKS_MAX = 50;
const FAILURE_LOGGED_EVERY_MS = 60_000;

export interface HoldRenewalOptions {
  books: Pick<Books, "recoverableHolds" | "dueOrganizations" | "removeOldKeys">;
  /** Name of this process as the owner of holds. */
  owner: string;
  allowances: AllowanceOptions["allowances"];
  queue: CommitQueue;
  holdLifeMs: number;
  /** Time for which a request may run without a renewal of its hold; infinite if no other process can end the hold. */
  leaseMs: number;
  /** The present moment. */
  now: () => Moment;
  renewEveryMs: number;
  sweepEveryMs: number;
  recovery: Recovery;
  /** Settlements and releases that wait for the store. Their holds must not expire before they are booked. */
  spool: Pick<Spool, "replay" | "endedOwners" | "forgetOwner">;
  clock: () => number;
  log: Log;
}

/** Returns the tokens delivered so far and the prices of the current route: an expiry would charge them. */
export type Checkpoint = () => { facts: HoldFacts; tokens: TokenCounts };

interface OpenHold {
  facts: HoldFacts;
  amount: bigint;
  lease: Lease;
  /** Undefined until something has been delivered. */
  checkpoint: Checkpoint | undefined;
}

/** Renews the open holds of this process, and expires holds that are no longer renewed. */
export class HoldRenewal {
  readonly #options: HoldRenewalOptions;
  readonly #open = new Map<string, OpenHold>();
  #timers: NodeJS.Timeout[] = [];
  #renewal: Promise<boolean> | undefined;
  #sweep: Promise<void> | undefined;
  #again: NodeJS.Timeout | undefined;
  #failureLoggedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: HoldRenewalOptions) {
    this.#options = options;
  }

  /**
   * Renews a hold from now on, until `forget`. `queuedAt` is when the hold was queued. Nothing counts as delivered until a
   * checkpoint is set.
   */
  track(facts: HoldFacts, amount: bigint, queuedAt: Moment): Lease {
    const { leaseMs, now } = this.#options;
    const lease = new Lease(leaseMs, now, queuedAt);
    this.#open.set(facts.holdId, { facts, amount, lease, checkpoint: undefined });
    return lease;
  }

  /** Sets the checkpoint that each later renewal stores. */
  checkpoint(holdId: string, checkpoint: Checkpoint): void {
    const hold = this.#open.get(holdId);
    if (hold !== undefined) hold.checkpoint = checkpoint;
  }

  forget(holdId: string): void {
    const hold = this.#open.get(holdId);
    if (hold === undefined) return;
    this.#open.delete(holdId);
    // The map's discarded tables keep old entries alive until the next major garbage collection.
    hold.checkpoint = undefined;
    hold.lease.close();
  }

  /** Starts with a sweep, because an earlier process may have left holds open. */
  start(): void {
    const { renewEveryMs, sweepEveryMs } = this.#options;
    this.#timers = [
      setInterval(() => this.#checkAndRenew(), renewEveryMs).unref(),
      setInterval(() => void this.sweep(), sweepEveryMs).unref(),
    ];
    void this.sweep();
  }

  /** Resolves when a running renewal or sweep has ended. */
  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    this.#timers = [];
    clearTimeout(this.#again);
    await Promise.all([this.#renewal, this.#sweep]);
  }

  #checkAndRenew(): void {
    for (const { lease } of this.#open.values()) lease.check();
    void this.renew();
  }

  /** Renews all open holds of this process. Resolves to false if some could not be renewed; never rejects. */
  renew(): Promise<boolean> {
    this.#renewal ??= this.#guard(() => this.#renewAll()).finally(() => {
      this.#renewal = undefined;
    });
    return this.#renewal;
  }

  /**
   * Removes old idempotency keys, grants due allowances, applies due grants, books the spool, and expires holds that are no
   * longer renewed. Never rejects.
   */
  sweep(): Promise<void> {
    this.#sweep ??= this.#sweepAll().finally(() => {
      this.#sweep = undefined;
    });
    return this.#sweep;
  }

  async #sweepAll(): Promise<void> {
    const { spool, recovery } = this.#options;
    await this.#guard(() => this.#removeOldKeys());
    await this.#guard(() => this.#grantAllowances());
    await this.#guard(() => this.#applyDue());
    if (!(await spool.replay())) return;
    for (const owner of spool.endedOwners) recovery.endOwner(owner);
    await this.#guard(() => this.#recoverHolds());
    await this.#guard(() => this.#forgetOwners());
    this.#sweepAgain();
  }

  /** Sweeps again as soon as holds of an ended process can be expired. */
  #sweepAgain(): void {
    const waitMs = this.#options.recovery.nextClaimMs;
    clearTimeout(this.#again);
    if (waitMs === undefined || this.#timers.length === 0) return;
    this.#again = setTimeout(() => void this.sweep(), waitMs).unref();
  }

  async #forgetOwners(): Promise<void> {
    const { spool, recovery } = this.#options;
    for (const owner of spool.endedOwners) if (!recovery.awaits(owner)) await spool.forgetOwner(owner);
  }

  #grantAllowances(): Promise<void> {
    const { allowances, queue } = this.#options;
    return grantAllowances({ allowances, grant: (grant) => queue.push(grant, DURABLE) });
  }

  /** Applies grants when they take effect or expire, without waiting for their organization to be used. */
  async #applyDue(): Promise<void> {
    const { books, queue } = this.#options;
    for (let after: string | null = null; ; ) {
      const due: string[] = await books.dueOrganizations({ after, limit: SWEEP_PAGE });
      const applied = await Promise.allSettled(
        due.map((organizationId) => queue.push({ kind: "refresh", organizationId }, ONCE)),
      );
      throwFirst(applied);
      if (due.length < SWEEP_PAGE) return;
      after = due.at(-1) ?? null;
    }
  }

  async #removeOldKeys(): Promise<void> {
    const { books } = this.#options;
    for (let chunk = 0; chunk < KEY_CHUNKS_MAX; chunk += 1) {
      if ((await books.removeOldKeys(KEY_CHUNK)) < KEY_CHUNK) return;
    }
  }

  async #renewAll(): Promise<void> {
    const open = [...this.#open.values()];
    const renewed: PromiseSettledResult<void>[] = [];
    for (let start = 0; start < open.length; start += RENEWAL_CHUNK) {
      const chunk = open.slice(start, start + RENEWAL_CHUNK);
      // A renewal that fails does not prevent the others.
      renewed.push(...(await Promise.allSettled(chunk.map((hold) => this.#renewOne(hold)))));
    }
    throwFirst(renewed);
  }

  async #renewOne(hold: OpenHold): Promise<void> {
    const { queue, holdLifeMs: lifeMs, owner, log, now } = this.#options;
    const queuedAt = now();
    const { facts, tokens } = hold.checkpoint?.() ?? { facts: hold.facts, tokens: NO_TOKENS };
    const { holdId, organizationId } = facts;
    const renewal = await queue.push({ kind: "renew", facts, amount: hold.amount, tokens, lifeMs, owner }, HOLDS);
    if (renewal.outcome === "renewed") {
      hold.lease.renew(queuedAt);
      // A store that crashes can lose the newest holds.
      if (renewal.remade) log.warn({ organizationId, holdId }, "hold was lost by the store and created again");
      return;
    }
    if (!this.#isOpen(hold)) return;
    this.forget(holdId);
    // Charged or released: this process did that itself a moment ago.
    if (renewal.outcome === "ended" && renewal.state !== "recovered") return;
    hold.lease.end();
    log.warn({ organizationId, holdId }, "hold ended while its request was running");
  }

  async #recoverHolds(): Promise<void> {
    const { recovery, queue } = this.#options;
    const { nowMs, holds } = await this.#recoverableHolds();
    const claims = recovery.claims(holds, nowMs);
    const failed: PromiseSettledResult<unknown>[] = [];
    for (let start = 0; start < claims.length; start += SWEEP_PAGE) {
      const page = claims.slice(start, start + SWEEP_PAGE);
      const expired = await Promise.allSettled(page.map((claim) => queue.push(claim, DURABLE)));
      for (const [index, result] of expired.entries()) {
        if (result.status === "fulfilled") this.#report(page[index], result.value);
        else failed.push(result);
      }
    }
    // A hold that cannot be expired does not prevent the others.
    throwFirst(failed);
  }

  async #recoverableHolds(): Promise<{ nowMs: number; holds: SeenHold[] }> {
    const { books, recovery, holdLifeMs: lifeMs } = this.#options;
    const holds: SeenHold[] = [];
    const search = { lifeMs, owners: recovery.owners, limit: SWEEP_PAGE };
    for (let afterHoldId: string | null = null; ; afterHoldId = holds.at(-1)?.holdId ?? null) {
      const page = await books.recoverableHolds({ ...search, afterHoldId });
      holds.push(...page.holds);
      if (page.holds.length < SWEEP_PAGE) return { nowMs: page.nowMs, holds };
    }
  }

  #report(claim: ExpireTransition | undefined, outcome: Outcomes["expire"]): void {
    const { log } = this.#options;
    if (claim === undefined || outcome.outcome !== "expired") return;
    const { organizationId, holdId } = claim;
    const fields = { organizationId, holdId, owner: claim.claim?.owner };
    log.warn(fields, "hold expired: its request was never settled");
    if (outcome.shortfall > 0n) log.error(fields, "credits did not cover an expired hold: the shortfall is recorded");
  }

  #isOpen({ facts }: OpenHold): boolean {
    return this.#open.has(facts.holdId);
  }

  async #guard(work: () => Promise<void>): Promise<boolean> {
    try {
      await work();
      return true;
    } catch (error) {
      const { clock, log, recovery } = this.#options;
      if (error instanceof StoreUnavailableError && !(error instanceof OrganizationsLockedError)) recovery.lost();
      if (clock() - this.#failureLoggedAtMs >= FAILURE_LOGGED_EVERY_MS) {
        this.#failureLoggedAtMs = clock();
        log.error({ err: error }, "renewing or sweeping holds failed: it is retried");
      }
      return false;
    }
  }
}

function throwFirst(results: PromiseSettledResult<unknown>[]): void {
  const failure = results.find((result) => result.status === "rejected");
  if (failure !== undefined) throw failure.reason;
}
