import type { MicroCredits } from "../credits/amount.ts";
import type { BalanceRow, HoldTransition, ReleaseTransition, SettleTransition } from "../credits/books.ts";
import type { Outcomes } from "../credits/outcomes.ts";
import { priceOf } from "../credits/price.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { Durability } from "../stores/driver.ts";
import type { Books } from "../stores/queries/books.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";
import { backgroundOf } from "./background-work.ts";
import { type BookCredits, type CommitOutcome, CommitQueue, DURABLE, HOLDS, ONCE } from "./commit-queue.ts";
import { type DeadLetters, refusalOf } from "./dead-letter.ts";
import { FairBudget } from "./fair-budget.ts";
import { type Checkpoint, HoldRenewal } from "./hold-renewal.ts";
import type { Lease, Moment } from "./lease.ts";
import { type HoldTerms, Recovery } from "./recovery.ts";
import type { Spool } from "./spool.ts";
import type { SpooledTransition } from "./spool-file.ts";
import { Sweeper } from "./sweeper.ts";

/** Running requests and spooled transitions at most, for which the spool has room. Half of them may be of one organization. */
const RUNNING_AND_SPOOLED_MAX = 20_000;
/** Short, because a service that reports itself as not ready gets no requests that could show that it is. */
const REFUSING_MS = 5_000;

export interface LedgerOptions extends HoldTerms {
  books: Books;
  allowances: Store["allowances"];
  spool: Spool;
  deadLetters: DeadLetters;
  /** Revokes credits that holds returned after their payment was refunded. */
  collectDebts: (book: BookCredits) => Promise<void>;
  sweepEveryMs: number;
  /** Time for which an unavailable store is retried before a transition goes to the spool. */
  settleRetryMs?: number;
  clock: () => number;
  /** The present moment, for the age of holds. */
  now: () => Moment;
  /** Numbers from 0 up to 1. */
  random: () => number;
  log: Log;
  observer?: LedgerObserver | undefined;
}

/** Observes the ledger, for metrics. */
export interface LedgerObserver {
  /** A batch is sent to the store. The function that it returns is called when the batch is booked or has failed. */
  sending(durability: Durability, size: number): (outcome: CommitOutcome) => void;
  /** A charge exceeded the credits by this amount. */
  shortfall(amount: MicroCredits): void;
}

/** The outcome of a hold; `lease` limits how long the request may run. */
export type Held = Exclude<Outcomes["hold"], { outcome: "held" }> | (HoldTaken & { lease: Lease });
type HoldTaken = Extract<Outcomes["hold"], { outcome: "held" }>;

/** The transition is in the spool and is booked later. The balance afterwards is unknown until then. */
export interface Spooled {
  outcome: "spooled";
  /** Cost of the settlement; 0 for a release. */
  charged: MicroCredits;
}

/** Transitions that wait in the spool, and those that could not be booked. */
export interface LedgerStatus {
  spool: { entries: number };
  deadLetters: { entries: number };
}

/**
 * Books transitions in a store, renews open holds until they end, and expires those that are no longer renewed. While the
 * store is unavailable, settlements and releases go to the spool; other methods reject with StoreUnavailableError.
 */
export class Ledger {
  readonly #options: LedgerOptions;
  readonly #queue: CommitQueue;
  readonly #renewal: HoldRenewal;
  readonly #sweeper: Sweeper;
  readonly #spool: Spool;
  /** When the store last failed to book a hold; null after it has booked one. */
  #refusedAtMs: number | null = null;
  /** Holds that were requested and have not ended, with their organizations. */
  readonly #running = new Map<string, string>();
  readonly #runningShares = new FairBudget(RUNNING_AND_SPOOLED_MAX);
  /** Settlements and releases that have not ended. */
  readonly #ending = new Map<SpooledTransition, Promise<unknown>>();

  constructor(options: LedgerOptions) {
    const { books, spool, clock, random, log, settleRetryMs: retryMs = 1_000 } = options;
    this.#options = options;
    this.#spool = spool;
    const onSend = options.observer?.sending;
    this.#queue = new CommitQueue({ books, clock, random, log, retryMs, onSend });
    const { name: owner } = spool;
    const recovery = new Recovery({
      ...options,
      owner,
      isRunning: (holdId) => this.#running.has(holdId),
      monotonicMs: () => options.now().monotonicMs,
    });
    const shared = { ...options, queue: this.#queue, runInBackground: backgroundOf({ recovery, clock, log }) };
    this.#renewal = new HoldRenewal({ ...shared, owner });
    this.#sweeper = new Sweeper({ ...shared, recovery });
  }

  /** Reserves from `least` to `most` micro-credits until they are settled or released. Rejects with StoreUnavailableError. */
  async hold(request: Omit<HoldTransition, "kind" | "lifeMs" | "owner">): Promise<Held> {
    const { facts, idempotency } = request;
    const { holdId, organizationId } = facts;
    const isFull = this.#running.size + this.#spool.entries >= RUNNING_AND_SPOOLED_MAX;
    if (isFull || !this.#runningShares.take(organizationId, 1)) {
      throw new StoreUnavailableError("The spool has no room for another request.");
    }
    this.#running.set(holdId, organizationId);
    const queuedAt = this.#options.now();
    try {
      // A hold with an idempotency key must survive a crash: the request may be repeated after it.
      const terms = idempotency ? DURABLE : HOLDS;
      const { holdLifeMs: lifeMs } = this.#options;
      const outcome = await this.#queue.push({ kind: "hold", ...request, lifeMs, owner: this.#spool.name }, terms);
      this.#refusedAtMs = null;
      // The store is available again: the spool can be booked now.
      if (this.#spool.isStoreUnavailable) void this.#spool.replay();
      if (outcome.outcome === "held") {
        const { amount, covered } = outcome;
        const tracked = covered === undefined ? facts : { ...facts, budgets: covered.budgets };
        return { ...outcome, lease: this.#renewal.track(tracked, amount, queuedAt) };
      }
      this.#endRunning(holdId);
      return outcome;
    } catch (error) {
      const isUnavailable = error instanceof StoreUnavailableError;
      if (isUnavailable) this.#refusedAtMs = this.#options.clock();
      if (!isUnavailable || !error.mayBeBooked) this.#endRunning(holdId);
      else {
        // So that its credits and its idempotency key become free.
        this.release({ facts, trace: null }).catch((err: unknown) => {
          this.#options.log.warn(
            { organizationId, holdId, err },
            "a hold that may have been booked could not be released: it stays open until it expires",
          );
        });
      }
      throw error;
    }
  }

  #endRunning(holdId: string): void {
    const organizationId = this.#running.get(holdId);
    if (organizationId === undefined) return;
    this.#running.delete(holdId);
    this.#runningShares.putBack(organizationId, 1);
  }

  /** True if the store failed to book the last hold, seconds ago. On a full disk a store can be read and not be written. */
  get isRefusing(): boolean {
    return this.#refusedAtMs !== null && this.#options.clock() - this.#refusedAtMs < REFUSING_MS;
  }

  /**
   * Charges the tokens used at `facts.prices`, the prices of the route that served the request. Resolves when the charge is
   * durable, in the store or in the spool. If it rejects, the sweeper expires the hold.
   */
  settle(request: Omit<SettleTransition, "kind">): Promise<Outcomes["settle"] | Spooled> {
    return this.#end({ kind: "settle", ...request });
  }

  /** Sets the checkpoint that each later renewal stores with the hold: an expiry would charge it. */
  checkpoint(holdId: string, checkpoint: Checkpoint): void {
    this.#renewal.checkpoint(holdId, checkpoint);
  }

  /** Returns all held credits to the balance. */
  release(request: Omit<ReleaseTransition, "kind">): Promise<Outcomes["release"] | Spooled> {
    return this.#end({ kind: "release", ...request });
  }

  book: BookCredits = (transition) => this.#queue.push(transition, DURABLE);

  /** Returns the balance, with all grants that are due activated or expired; undefined for an unknown organization. */
  async balance(organizationId: string): Promise<BalanceRow | undefined> {
    const balance = await this.#options.books.balance(organizationId);
    if (balance === undefined || balance.nextChangeAtMs === null) return balance;
    if (balance.nextChangeAtMs > this.#options.clock()) return balance;
    const outcome = await this.#queue.push({ kind: "refresh", organizationId }, ONCE);
    return outcome.outcome === "refreshed" ? outcome.balance : undefined;
  }

  async status(): Promise<LedgerStatus> {
    return {
      spool: { entries: this.#spool.entries },
      deadLetters: { entries: await this.#options.deadLetters.count() },
    };
  }

  /** Starts renewing, sweeping, and booking from the spool. */
  start(): void {
    const { deadLetters } = this.#options;
    this.#spool.start({
      book: (transition) => this.#bookSpooled(transition),
      storeDamaged: (line) => deadLetters.addLine(line),
    });
    this.#renewal.start();
    this.#sweeper.start();
  }

  /** Stops renewing and sweeping. Resolves when all transitions have been booked, spooled or refused. */
  async stop(): Promise<void> {
    await Promise.all([this.#renewal.stop(), this.#sweeper.stop()]);
    await this.#queue.idle();
    while (this.#ending.size > 0) await Promise.allSettled(this.#ending.values());
    await this.#spool.stop();
  }

  #end<T extends SpooledTransition>(transition: T): Promise<Outcomes[T["kind"]] | Spooled> {
    const end = this.#bookOrSpool(transition);
    this.#ending.set(transition, end);
    return end;
  }

  async #bookOrSpool<T extends SpooledTransition>(transition: T): Promise<Outcomes[T["kind"]] | Spooled> {
    // While the store is known to be unavailable, the spool is tried first.
    const isUnavailable = this.#spool.isStoreUnavailable;
    try {
      return await (isUnavailable ? this.#toSpool(transition) : this.#bookOrDeadLetter(transition));
    } catch (error) {
      if (!(error instanceof StoreUnavailableError)) throw error;
      return await (isUnavailable ? this.#bookOrDeadLetter(transition) : this.#toSpool(transition));
    } finally {
      const { holdId } = transition.facts;
      this.#endRunning(holdId);
      this.#renewal.forget(holdId);
      this.#ending.delete(transition);
    }
  }

  async #toSpool(transition: SpooledTransition): Promise<Spooled> {
    await this.#spool.append(transition);
    const charged = transition.kind === "settle" ? priceOf(transition.tokens, transition.facts.prices) : 0n;
    return { outcome: "spooled", charged };
  }

  async #bookOrDeadLetter<T extends SpooledTransition>(transition: T): Promise<Outcomes[T["kind"]]> {
    const { log, deadLetters } = this.#options;
    try {
      const outcome = await this.#queue.push(transition, DURABLE);
      if (outcome.outcome === "closed") throw new Error(refusalOf(transition, outcome));
      return this.#logShortfall(transition, outcome);
    } catch (error) {
      if (error instanceof StoreUnavailableError) throw error;
      await deadLetters.add(transition, error).catch((failure: unknown) => {
        log.error({ err: failure }, "the dead-letter file cannot be written: a transition that was not booked is lost");
      });
      throw error;
    }
  }

  /** Books a transition from the spool. What can never be booked becomes a dead letter. Rejects if it must stay in the spool. */
  async #bookSpooled(transition: SpooledTransition): Promise<void> {
    const refusal: unknown = await this.#queue.push(transition, ONCE).then(
      (outcome) => refusalOf(transition, this.#logShortfall(transition, outcome)),
      (error: unknown) => {
        if (error instanceof StoreUnavailableError) throw error;
        return error;
      },
    );
    if (refusal !== undefined) await this.#options.deadLetters.add(transition, refusal);
  }

  #logShortfall<T extends SpooledTransition>(transition: T, outcome: Outcomes[T["kind"]]): Outcomes[T["kind"]] {
    if (transition.kind === "settle" && "shortfall" in outcome && outcome.shortfall > 0n) {
      const { organizationId, holdId } = transition.facts;
      this.#options.observer?.shortfall(outcome.shortfall);
      this.#options.log.error(
        { organizationId, holdId },
        "credits did not cover a settlement: the shortfall is recorded",
      );
    }
    return outcome;
  }
}
