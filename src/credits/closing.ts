import type { MicroCredits } from "./amount.ts";
import type { RequestRow } from "./books.ts";
import { addTokens, NO_TOKENS, priceOf, type TokenCounts } from "./price.ts";

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
  tokens: TokenCounts;
}

/** The cost of closed requests by the token that made them, or by the grant that it was drawn from. */
export interface ClosingPartRow {
  organizationId: string;
  dimension: "token" | "grant";
  name: string;
  amount: MicroCredits;
}

/** The sum of requests that are being closed. */
export class ClosingTally {
  readonly organizationId: string;
  readonly beforeMs: number;
  after = "";
  requests = 0;
  cost = 0n;
  shortfall = 0n;
  price = 0n;
  tokens = NO_TOKENS;
  readonly #parts = new Map<string, ClosingPartRow>();

  constructor(organizationId: string, beforeMs: number) {
    this.organizationId = organizationId;
    this.beforeMs = beforeMs;
  }

  add({ holdId, tokenId, cost, shortfall, tokens, prices, draws }: RequestRow): void {
    this.after = holdId;
    this.requests += 1;
    this.cost += cost;
    this.shortfall += shortfall;
    this.price += priceOf(tokens, prices);
    this.tokens = addTokens(this.tokens, tokens);
    if (cost > 0n) this.#addPart("token", tokenId, cost);
    for (const { grantId, amount } of draws) this.#addPart("grant", grantId, amount);
  }

  parts(): ClosingPartRow[] {
    return [...this.#parts.values()];
  }

  /** Returns the sum of these requests and of those that were closed before. */
  withEarlier(earlier: ClosingRow | undefined): ClosingRow {
    const { organizationId, beforeMs: beforeAtMs, requests, cost, shortfall, price, tokens } = this;
    return {
      organizationId,
      beforeAtMs,
      requests: requests + (earlier?.requests ?? 0),
      cost: cost + (earlier?.cost ?? 0n),
      shortfall: shortfall + (earlier?.shortfall ?? 0n),
      price: price + (earlier?.price ?? 0n),
      tokens: addTokens(tokens, earlier?.tokens ?? NO_TOKENS),
    };
  }

  #addPart(dimension: ClosingPartRow["dimension"], name: string, amount: MicroCredits): void {
    const key = `${dimension} ${name}`;
    const { organizationId } = this;
    const part = this.#parts.get(key) ?? { organizationId, dimension, name, amount: 0n };
    this.#parts.set(key, { ...part, amount: part.amount + amount });
  }
}
