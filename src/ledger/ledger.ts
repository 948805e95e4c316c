import type { MicroCredits } from "../credits/amount.ts";
import type {
  BalanceRow,
  CreditTransition,
  GrantTransition,
  HoldFacts,
  HoldTransition,
  Outcomes,
  ReleaseTransition,
  RevokeTransition,
  SettleTransition,
} from "../credits/books.ts";
import { priceOf } from "../credits/price.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { AllowanceRows } from "../stores/queries/allowances.ts";
import type { Books } from "../stores/queries/books.ts";
import type { Log } from "../telemetry/logger.ts";
import { CommitQueue } from "./commit-queue.ts";
import type { DeadLetters } from "./dead-letter.ts";
import { type Checkpoint, HoldRenewal } from "./hold-renewal.ts";
import type { Lease, Moment } from "./lease.ts";
import { Recovery } from "./recovery.ts";
import type { Spool } from "./spool.ts";
import type { SpooledTransition } from "./spool-file.ts";

/** Running requests, and transitions in the spool: whoever runs is sure of a place in it. */
const RUNNING_AND_SPOOLED_MAX = 10_000;
/** Not longer: whoever asks whether the service is ready may send it no request that could show it is. */
const REFUSING_MS = 5_000;

export interface LedgerOptions {
  books: Books;
  allowances: AllowanceRows;
  spool: Spool;
  deadLetters: DeadLetters;
  /** How long a hold lives that is not renewed. */
  holdLifeMs: number;
  /** How long after its life a hold is left alone whose owner this process knows nothing of. */
  recoveryMs: number;
  /** True where other processes work on the same store, and may end a hold that this one cannot renew. */
  isShared: boolean;
  renewEveryMs: number;
  sweepEveryMs: number;
  /** How long the store is asked again before the spool takes what must be durable. */
  settleRetryMs?: number;
  /**
   * What part of the transitions that wait goes into one batch; all where it is not stated. Less suits a store whose thread
   * is busy for as long as the batch is long: it works on the second part while the answers to the first are made use of.
   */
  batchShare?: number;
  clock: () => number;
  /** The present moment, for the age of holds. */
  now: () => Moment;
  /** Numbers from 0 up to 1. */
  random: () => number;
  log: Log;
}

/** The outcome of a hold; `lease` limits how long the request may run. */
export type Held = Exclude<Outcomes["hold"], { outcome: "held" }> | (HoldTaken & { lease: Lease });
type HoldTaken = Extract<Outcomes["hold"], { outcome: "held" }>;

/** On the disk of this process, to be booked when the store takes it; what is available then, only the store knows. */
export interface Spooled {
  outcome: "spooled";
  /** What the settlement comes to; 0 for a release. */
  charged: MicroCredits;
}

/** How the ledger stands, for whoever operates the service. */
export interface LedgerStatus {
  spool: { entries: number };
  quarantine: { entries: number };
}

/**
 * Credits in motion, in front of a store: transitions are gathered into batches, open holds are renewed until they are
 * settled or released, and holds that are no longer renewed are expired. What ends a hold goes to the spool while the store
 * cannot be reached; every other verb rejects with StoreUnavailableError then.
 */
export class Ledger {
  readonly #options: LedgerOptions;
  readonly #holds: CommitQueue;
  readonly #durable: CommitQueue;
  readonly #replays: CommitQueue;
  readonly #renewal: HoldRenewal;
  readonly #spool: Spool;
  /** When the store last could not take a hold; null since it took one. */
  #refusedAtMs: number | null = null;
  /** Holds that were asked for and have not ended. */
  readonly #running = new Set<string>();
  readonly #ending = new Set<Promise<unknown>>();

  constructor(options: LedgerOptions) {
    const { books, spool, clock, random, log, settleRetryMs = 1_000, batchShare = 1 } = options;
    const common = { books, batchShare, clock, random, log };
    this.#options = options;
    this.#spool = spool;
    // A hold is refused at once while the store is away: a request that nobody can admit is not kept waiting.
    this.#holds = new CommitQueue({ ...common, durability: "holds", retryMs: 0 });
    this.#durable = new CommitQueue({ ...common, durability: "durable", retryMs: settleRetryMs });
    this.#replays = new CommitQueue({ ...common, durability: "durable", retryMs: 0 });
    const { name: owner } = spool;
    const leaseMs = options.isShared ? options.holdLifeMs : Number.POSITIVE_INFINITY;
    const recovery = new Recovery({
      ...options,
      owner,
      isRunning: (holdId) => this.#running.has(holdId),
      monotonicMs: () => options.now().monotonicMs,
    });
    this.#renewal = new HoldRenewal({
      ...options,
      leaseMs,
      owner,
      holds: this.#holds,
      durable: this.#durable,
      recovery,
    });
  }

  /** Sets aside what is available between `least` and `most`, and keeps it aside until it is settled or released. */
  async hold(request: Pick<HoldTransition, "facts" | "least" | "most" | "idempotency">): Promise<Held> {
    const { holdId } = request.facts;
    if (this.#running.size + this.#spool.entries >= RUNNING_AND_SPOOLED_MAX) {
      throw new StoreUnavailableError("The spool has no place for another request.");
    }
    this.#running.add(holdId);
    const queuedAt = this.#options.now();
    try {
      // The answer to a key may be asked for after any crash.
      const queue = request.idempotency ? this.#durable : this.#holds;
      const owner = this.#spool.name;
      const outcome = await queue.push({ kind: "hold", lifeMs: this.#options.holdLifeMs, owner, ...request });
      this.#refusedAtMs = null;
      // The store is back: nothing that waits for it has to wait longer.
      if (this.#spool.isStoreAway) void this.#spool.replay();
      if (outcome.outcome === "held") {
        return { ...outcome, lease: this.#renewal.track(request.facts, outcome.amount, queuedAt) };
      }
      this.#running.delete(holdId);
      return outcome;
    } catch (error) {
      const isAway = error instanceof StoreUnavailableError;
      if (isAway) this.#refusedAtMs = this.#options.clock();
      if (isAway && error.mayBeBooked) this.#releaseLater(request.facts);
      else this.#running.delete(holdId);
      throw error;
    }
  }

  /** Releases a hold that may have been booked, so that neither its credits nor its idempotency key stay taken. */
  #releaseLater(facts: HoldFacts): void {
    const { organizationId, holdId } = facts;
    this.release({ facts, trace: null }).catch((error: unknown) => {
      this.#options.log.warn(
        { organizationId, holdId, err: error },
        "a hold that may have been booked was not released",
      );
    });
  }

  /**
   * Whether the store could not take a hold a moment ago, and has taken none since: it may be read and yet not be
   * written, on a disk that is full.
   */
  get isRefusing(): boolean {
    return this.#refusedAtMs !== null && this.#options.clock() - this.#refusedAtMs < REFUSING_MS;
  }

  /**
   * Charges what was used at `facts.prices`, those of the route that was taken; it is durable once this resolves, in the
   * store or in the spool. Where it rejects, the hold is left to the sweeper.
   */
  settle(request: Omit<SettleTransition, "kind">): Promise<Outcomes["settle"] | Spooled> {
    return this.#end({ kind: "settle", ...request }, request.facts.holdId);
  }

  /** From now on the hold's renewals leave behind what was delivered: what an expiry would charge. */
  checkpoint(holdId: string, checkpoint: Checkpoint): void {
    this.#renewal.checkpoint(holdId, checkpoint);
  }

  /** Gives back everything that was set aside. */
  release(request: Omit<ReleaseTransition, "kind">): Promise<Outcomes["release"] | Spooled> {
    return this.#end({ kind: "release", ...request }, request.facts.holdId);
  }

  /** Grants credits; the same reference of an organization grants once. */
  grant(request: Omit<GrantTransition, "kind">): Promise<Outcomes["grant"]> {
    return this.#durable.push({ kind: "grant", ...request });
  }

  /** Takes back credits that are neither spent nor held; the same reference of an organization revokes once. */
  revoke(request: Omit<RevokeTransition, "kind">): Promise<Outcomes["revoke"]> {
    return this.#durable.push({ kind: "revoke", ...request });
  }

  /** Gives back credits that were spent; the same reference of an organization credits once. */
  credit(request: Omit<CreditTransition, "kind">): Promise<Outcomes["credit"]> {
    return this.#durable.push({ kind: "credit", ...request });
  }

  /** The balance with every grant applied that has taken effect or lapsed; undefined for an unknown organization. */
  async balance(organizationId: string): Promise<BalanceRow | undefined> {
    const balance = await this.#options.books.balance(organizationId);
    if (balance === undefined || balance.nextChangeAtMs === null) return balance;
    if (balance.nextChangeAtMs > this.#options.clock()) return balance;
    const outcome = await this.#durable.push({ kind: "refresh", organizationId });
    return outcome.outcome === "refreshed" ? outcome.balance : undefined;
  }

  async status(): Promise<LedgerStatus> {
    return {
      spool: { entries: this.#spool.entries },
      quarantine: { entries: await this.#options.deadLetters.count() },
    };
  }

  /** Begins to renew, to sweep, and to book what waits in the spool. */
  start(): void {
    const { deadLetters } = this.#options;
    this.#spool.start({
      book: (transition) => this.#bookSpooled(transition),
      keep: (line) => deadLetters.addLine(line),
    });
    this.#renewal.start();
  }

  /** Ends renewing and sweeping, and resolves when everything handed in has been booked, spooled or refused. */
  async stop(): Promise<void> {
    await this.#renewal.stop();
    await Promise.all([this.#holds.idle(), this.#durable.idle()]);
    await Promise.allSettled(this.#ending);
    await this.#spool.stop();
  }

  async #end<T extends SpooledTransition>(transition: T, holdId: string): Promise<Outcomes[T["kind"]] | Spooled> {
    const ended = this.#bookOrSpool(transition);
    this.#ending.add(ended);
    try {
      return await ended;
    } finally {
      this.#ending.delete(ended);
      this.#running.delete(holdId);
      this.#renewal.forget(holdId);
    }
  }

  async #bookOrSpool<T extends SpooledTransition>(transition: T): Promise<Outcomes[T["kind"]] | Spooled> {
    // While the store is known to be away, nobody waits to find it so again.
    const isAway = this.#spool.isStoreAway;
    try {
      return await (isAway ? this.#toSpool(transition) : this.#bookOrDeadLetter(transition));
    } catch (error) {
      if (!(error instanceof StoreUnavailableError)) throw error;
      return await (isAway ? this.#bookOrDeadLetter(transition) : this.#toSpool(transition));
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
      return this.#noted(transition, await this.#durable.push(transition));
    } catch (error) {
      if (error instanceof StoreUnavailableError) throw error;
      await deadLetters.add(transition, error).catch((failure: unknown) => {
        log.error({ err: failure }, "the quarantine cannot be written: a transition that was not booked is lost");
      });
      throw error;
    }
  }

  /** For the spool: rejects where the transition has to stay in it. */
  async #bookSpooled(transition: SpooledTransition): Promise<void> {
    const refusal = await this.#bookOrRefuse(transition);
    if (refusal !== undefined) await this.#options.deadLetters.add(transition, refusal);
  }

  /** Gives why it can never be booked; rejects with StoreUnavailableError where it may be later. */
  async #bookOrRefuse(transition: SpooledTransition): Promise<unknown> {
    try {
      const { outcome } = this.#noted(transition, await this.#replays.push(transition));
      // A release may find its hold expired meanwhile, or lost: nothing is left to give back.
      if (transition.kind === "settle" ? outcome === "charged" : outcome !== "unknown_organization") return undefined;
      return `it was answered with ${outcome}`;
    } catch (error) {
      if (error instanceof StoreUnavailableError) throw error;
      return error;
    }
  }

  #noted<T extends SpooledTransition>(transition: T, outcome: Outcomes[T["kind"]]): Outcomes[T["kind"]] {
    if (transition.kind === "settle" && "shortfall" in outcome && outcome.shortfall > 0n) {
      const { organizationId, holdId } = transition.facts;
      this.#options.log.error({ organizationId, holdId }, "credits did not cover a settlement: shortfall recorded");
    }
    return outcome;
  }
}
