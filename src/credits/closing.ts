import type { CLOSING, CLOSING_PART } from "../stores/schema.ts";
import type { RowOf } from "../stores/table.ts";
import type { MicroCredits } from "./amount.ts";
import type { BudgetRow, RequestRow } from "./books.ts";
import { type Counter, countersIn } from "./budget-uses.ts";
import { windowEnd } from "./budgets.ts";
import { decodeLines } from "./charge-lines.ts";
import type { BudgetUse } from "./facts.ts";
import { amountDue, priceOf } from "./price.ts";

export type ClosingRow = RowOf<typeof CLOSING>;
export type ClosingPartRow = RowOf<typeof CLOSING_PART>;

interface BudgetSpent extends BudgetUse {
  spent: MicroCredits;
}

/** Adds an amount to the sum of an id. */
export function addAmount(sums: Map<string, MicroCredits>, id: string, amount: MicroCredits): void {
  sums.set(id, (sums.get(id) ?? 0n) + amount);
}

/** Sums of charges: by the token that made them, the grants that they draw on, and the counters that they recorded. */
export class ChargeSums {
  cost = 0n;
  readonly byToken = new Map<string, MicroCredits>();
  readonly byGrant = new Map<string, MicroCredits>();
  readonly byUse = new Map<string, BudgetSpent>();

  /** `counters` are those that count, all by default. */
  add(
    { tokenId, cost, draws, budgets }: Pick<RequestRow, "tokenId" | "cost" | "draws" | "budgets">,
    counters: readonly Counter[] = countersIn(budgets),
  ): void {
    this.cost += cost;
    addAmount(this.byToken, tokenId, cost);
    for (const { grantId, amount } of draws) addAmount(this.byGrant, grantId, amount);
    for (const { id, ...use } of counters) {
      this.byUse.set(id, { ...use, spent: (this.byUse.get(id)?.spent ?? 0n) + cost });
    }
  }
}

/** The sum of requests that are being closed: those that an earlier closing does not include. */
export class ClosingTally {
  readonly organizationId: string;
  readonly beforeMs: number;
  readonly earlier: ClosingRow | undefined;
  /** The last id of the requests that are added up. */
  after = "";
  requests = 0;
  shortfall = 0n;
  price = 0n;
  readonly #sums = new ChargeSums();
  readonly #windows: ReadonlyMap<string, BudgetRow["window"]>;

  /** `earlier` and `budgets`, those of the organization, are read before the sum is begun. */
  constructor(
    organizationId: string,
    beforeMs: number,
    earlier: ClosingRow | undefined,
    budgets: readonly Pick<BudgetRow, "id" | "window">[],
  ) {
    this.organizationId = organizationId;
    this.beforeMs = beforeMs;
    this.earlier = earlier;
    this.#windows = new Map(budgets.map(({ id, window }) => [id, window]));
  }

  add(request: RequestRow): void {
    const { tokens, prices } = decodeLines(request.charge);
    this.requests += 1;
    this.shortfall += request.shortfall;
    this.price += amountDue(priceOf(tokens, prices), request.retry);
    // Counters that do not stay are left out at once: those of each user and day may be millions.
    const kept = countersIn(request.budgets).filter((use) => this.#isKept(use));
    this.#sums.add(request, kept);
  }

  /** Counters of windows that have ended are removed, and those of deleted budgets are gone. */
  #isKept({ budgetId, windowAtMs }: BudgetUse): boolean {
    const window = this.#windows.get(budgetId);
    return window !== undefined && (windowEnd(window, windowAtMs) ?? Number.POSITIVE_INFINITY) > this.beforeMs;
  }

  /** Returns what these requests spent, by the counters of budgets that stay. */
  budgets(): BudgetSpent[] {
    return [...this.#sums.byUse.values()].filter(({ spent }) => spent > 0n);
  }

  parts(): ClosingPartRow[] {
    const { organizationId } = this;
    const { byToken, byGrant } = this.#sums;
    const partsOf = (dimension: ClosingPartRow["dimension"], sums: ReadonlyMap<string, MicroCredits>) =>
      [...sums].flatMap(([name, amount]) => (amount > 0n ? [{ organizationId, dimension, name, amount }] : []));
    return [...partsOf("token", byToken), ...partsOf("grant", byGrant)];
  }

  /** Returns the sum of these requests and of those that were closed before. */
  total(): ClosingRow {
    const { organizationId, beforeMs: beforeAtMs, earlier, requests, shortfall, price } = this;
    return {
      organizationId,
      beforeAtMs,
      requests: requests + (earlier?.requests ?? 0),
      cost: this.#sums.cost + (earlier?.cost ?? 0n),
      shortfall: shortfall + (earlier?.shortfall ?? 0n),
      price: price + (earlier?.price ?? 0n),
    };
  }
}
