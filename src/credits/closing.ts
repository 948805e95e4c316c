import type { MicroCredits } from "./amount.ts";
import type { BudgetRow, BudgetUse, RequestRow } from "./books.ts";
import { windowEnd } from "./budgets.ts";
import { decodeLines } from "./charge-lines.ts";
import { budgetUseId } from "./names.ts";
import { priceOf } from "./price.ts";

/** The sum of the closed requests of an organization, whose rows are removed. */
export interface ClosingRow {
  organizationId: string;
  /** They began, and all that was booked for them was booked, before this time. */
  beforeAtMs: number;
  requests: number;
  cost: MicroCredits;
  shortfall: MicroCredits;
  /** Their tokens at their prices. */
  price: MicroCredits;
}

/** The cost of closed requests by the token that made them, or by the grant that it was drawn from. */
export interface ClosingPartRow {
  organizationId: string;
  dimension: "token" | "grant";
  name: string;
  amount: MicroCredits;
}

interface BudgetSpent extends BudgetUse {
  spent: MicroCredits;
}

/** The sum of requests that are being closed: those that an earlier closing does not include. */
export class ClosingTally {
  readonly organizationId: string;
  readonly beforeMs: number;
  readonly earlier: ClosingRow | undefined;
  /** The last id of the requests that are added up. */
  after = "";
  requests = 0;
  cost = 0n;
  shortfall = 0n;
  price = 0n;
  readonly #parts = new Map<string, ClosingPartRow>();
  readonly #windows: ReadonlyMap<string, BudgetRow["window"]>;
  readonly #spent = new Map<string, BudgetSpent>();

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

  add({ tokenId, cost, shortfall, charge, draws, budgets }: RequestRow): void {
    const { tokens, prices } = decodeLines(charge);
    this.requests += 1;
    this.cost += cost;
    this.shortfall += shortfall;
    this.price += priceOf(tokens, prices);
    if (cost > 0n) this.#addPart("token", tokenId, cost);
    for (const { grantId, amount } of draws) this.#addPart("grant", grantId, amount);
    for (const use of budgets) if (cost > 0n && this.#isKept(use)) this.#addSpent(use, cost);
  }

  /** Counters of windows that have ended are removed, and those of deleted budgets are gone. */
  #isKept({ budgetId, windowAtMs }: BudgetUse): boolean {
    const window = this.#windows.get(budgetId);
    return window !== undefined && (windowEnd(window, windowAtMs) ?? Number.POSITIVE_INFINITY) > this.beforeMs;
  }

  #addSpent(use: BudgetUse, cost: MicroCredits): void {
    const id = budgetUseId(use);
    this.#spent.set(id, { ...use, spent: (this.#spent.get(id)?.spent ?? 0n) + cost });
  }

  /** Returns what these requests spent, by the counters of budgets that stay. */
  budgets(): BudgetSpent[] {
    return [...this.#spent.values()];
  }

  parts(): ClosingPartRow[] {
    return [...this.#parts.values()];
  }

  /** Returns the sum of these requests and of those that were closed before. */
  total(): ClosingRow {
    const { organizationId, beforeMs: beforeAtMs, earlier, requests, cost, shortfall, price } = this;
    return {
      organizationId,
      beforeAtMs,
      requests: requests + (earlier?.requests ?? 0),
      cost: cost + (earlier?.cost ?? 0n),
      shortfall: shortfall + (earlier?.shortfall ?? 0n),
      price: price + (earlier?.price ?? 0n),
    };
  }

  #addPart(dimension: ClosingPartRow["dimension"], name: string, amount: MicroCredits): void {
    const key = `${dimension} ${name}`;
    const { organizationId } = this;
    const part = this.#parts.get(key) ?? { organizationId, dimension, name, amount: 0n };
    this.#parts.set(key, { ...part, amount: part.amount + amount });
  }
}
