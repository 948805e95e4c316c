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

/** The sum of requests of one token that were all drawn from one grant, or cost nothing. */
export interface ClosingGroup {
  tokenId: string;
  /** Null: they cost nothing. */
  grantId: string | null;
  requests: number;
  cost: MicroCredits;
  shortfall: MicroCredits;
  price: MicroCredits;
  tokens: TokenCounts;
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
  tokens = NO_TOKENS;
  readonly #parts = new Map<string, ClosingPartRow>();

  /** `earlier` is the closing that was read before the sum is begun. */
  constructor(organizationId: string, beforeMs: number, earlier: ClosingRow | undefined) {
    this.organizationId = organizationId;
    this.beforeMs = beforeMs;
    this.earlier = earlier;
  }

  add({ tokenId, cost, shortfall, tokens, prices, draws }: RequestRow): void {
    this.#add({ tokenId, requests: 1, cost, shortfall, price: priceOf(tokens, prices), tokens });
    for (const { grantId, amount } of draws) this.#addPart("grant", grantId, amount);
  }

  addGroup(group: ClosingGroup): void {
    this.#add(group);
    if (group.grantId !== null) this.#addPart("grant", group.grantId, group.cost);
  }

  parts(): ClosingPartRow[] {
    return [...this.#parts.values()];
  }

  /** Returns the sum of these requests and of those that were closed before. */
  total(): ClosingRow {
    const { organizationId, beforeMs: beforeAtMs, earlier, requests, cost, shortfall, price, tokens } = this;
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

  #add({ tokenId, requests, cost, shortfall, price, tokens }: Omit<ClosingGroup, "grantId">): void {
    this.requests += requests;
    this.cost += cost;
    this.shortfall += shortfall;
    this.price += price;
    this.tokens = addTokens(this.tokens, tokens);
    if (cost > 0n) this.#addPart("token", tokenId, cost);
  }

  #addPart(dimension: ClosingPartRow["dimension"], name: string, amount: MicroCredits): void {
    const key = `${dimension} ${name}`;
    const { organizationId } = this;
    const part = this.#parts.get(key) ?? { organizationId, dimension, name, amount: 0n };
    this.#parts.set(key, { ...part, amount: part.amount + amount });
  }
}
