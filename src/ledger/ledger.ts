import type { Log } from "../contract/log.ts";
import type { BalanceRow, GrantTransition, HoldTransition, Outcomes, SettleTransition } from "../credits/books.ts";
import type { Books } from "../stores/store.ts";
import { Lane } from "./lane.ts";
import { Upkeep } from "./upkeep.ts";

export interface LedgerOptions {
  books: Books;
  /** How long a hold lives that is not renewed. */
  holdLifeMs: number;
  renewEveryMs: number;
  sweepEveryMs: number;
  /** How long what must be durable is tried again while the store cannot be reached. */
  settleRetryMs?: number;
  clock: () => number;
  /** Numbers from 0 up to 1. */
  random: () => number;
  log: Log;
}

/**
 * Credits in motion, in front of a store: transitions are gathered into batches, open holds are renewed until they are
 * settled or released, and holds that nobody renews are expired. Every verb rejects with StoreUnavailableError while
 * the store cannot be reached.
 */
export class Ledger {
  readonly #options: LedgerOptions;
  readonly #holds: Lane;
  readonly #durable: Lane;
  readonly #upkeep: Upkeep;

  constructor(options: LedgerOptions) {
    const { books, clock, random, log, settleRetryMs = 5_000 } = options;
    this.#options = options;
    // A hold is refused at once while the store is away: a request that nobody can admit is not kept waiting.
    this.#holds = new Lane({ books, name: "holds", retryMs: 0, clock, random, log });
    this.#durable = new Lane({ books, name: "durable", retryMs: settleRetryMs, clock, random, log });
    this.#upkeep = new Upkeep({ ...options, holds: this.#holds, durable: this.#durable });
  }

  /** Sets aside what is available between `least` and `most`, and keeps it aside until it is settled or released. */
  async hold(request: Pick<HoldTransition, "facts" | "least" | "most">): Promise<Outcomes["hold"]> {
    const outcome = await this.#holds.push({ kind: "hold", lifeMs: this.#options.holdLifeMs, ...request });
    if (outcome.outcome === "held") this.#upkeep.track(request.facts, outcome.amount);
    return outcome;
  }

  /**
   * Charges what was used at `facts.prices`, those of the route that was taken; it is durable once this resolves. Where
   * it rejects, the hold is left to the sweeper.
   */
  async settle(request: Omit<SettleTransition, "kind">): Promise<Outcomes["settle"]> {
    const { organizationId, holdId } = request.facts;
    const outcome = await this.#end(holdId, this.#durable.push({ kind: "settle", ...request }));
    if (outcome.outcome === "charged" && outcome.shortfall > 0n) {
      this.#options.log.error({ organizationId, holdId }, "credits did not cover a settlement: shortfall recorded");
    }
    return outcome;
  }

  /** Gives back everything that was set aside. */
  release(organizationId: string, holdId: string): Promise<Outcomes["release"]> {
    return this.#end(holdId, this.#durable.push({ kind: "release", organizationId, holdId }));
  }

  /** Grants credits; the same reference of an organization grants once. */
  grant(request: Omit<GrantTransition, "kind">): Promise<Outcomes["grant"]> {
    return this.#durable.push({ kind: "grant", ...request });
  }

  /** The balance with every grant applied that has taken effect or lapsed; undefined for an unknown organization. */
  async balance(organizationId: string): Promise<BalanceRow | undefined> {
    const balance = await this.#options.books.balance(organizationId);
    if (balance === undefined || balance.nextChangeAtMs === null) return balance;
    if (balance.nextChangeAtMs > this.#options.clock()) return balance;
    const outcome = await this.#durable.push({ kind: "refresh", organizationId });
    return outcome.outcome === "refreshed" ? outcome.balance : undefined;
  }

  /** Begins to renew and to sweep. */
  start(): void {
    this.#upkeep.start();
  }

  /** Ends renewing and sweeping, and resolves when everything handed in has been booked or refused. */
  async stop(): Promise<void> {
    await this.#upkeep.stop();
    await Promise.all([this.#holds.idle(), this.#durable.idle()]);
  }

  async #end<Ended>(holdId: string, transition: Promise<Ended>): Promise<Ended> {
    try {
      return await transition;
    } finally {
      this.#upkeep.forget(holdId);
    }
  }
}
