import type { HoldTransition } from "../../src/credits/books.ts";
import { FREE } from "../../src/credits/price.ts";
import { GatedBooks } from "./gated-books.ts";

export const ORGANIZATION = "org_1";

/** Books with one organization, which has a million micro-credits. */
export function openBooks(): GatedBooks {
  const books = new GatedBooks();
  books.addOrganization(ORGANIZATION);
  const rest = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
  books.bookOne({ kind: "grant", organizationId: ORGANIZATION, grantId: "grant_1", amount: 1_000_000n, ...rest });
  return books;
}

/** A hold of an amount by its number. */
export function holding(number: number, amount = 1n, organizationId = ORGANIZATION): HoldTransition {
  const request = { tokenId: "tok_1", requestId: "req_1", model: "m", upstream: "p/m", metadata: null };
  const facts = { holdId: `hold_${number}`, organizationId, prices: FREE, idempotencyKey: null, ...request };
  return { kind: "hold", facts, callerId: facts.tokenId, least: amount, most: amount, lifeMs: 1_000, owner: "owner_1" };
}

export function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}
