import { pricesAt, upstreamOf } from "../catalog/model.ts";
import type { MicroCredits } from "../credits/amount.ts";
import type { EventEnd } from "../credits/books.ts";
import { FREE, TOKEN_CLASSES, type TokenCounts } from "../credits/price.ts";
import type { Admission } from "./admit.ts";
import type { Course } from "./attempt.ts";
import type { Gateway } from "./gateway.ts";
import type { Meter } from "./meter.ts";

/** How an answer ended, and how far it had come. */
export interface Ending extends Course {
  end: Exclude<EventEnd, "recovered">;
  /** Whether pieces of the answer were sent to the client as they came. */
  isStreamed: boolean;
}

export interface Settlement {
  tokens: TokenCounts;
  charged: MicroCredits;
  available: MicroCredits;
}

/**
 * The one rule of what is charged. A client that leaves pays the input and what was produced for it, once an upstream was
 * called. A failure of ours or the upstream's is charged only where it cut a stream: the input, and what was sent. A
 * complete answer is charged always.
 */
export function isCharged({ end, isCalled, isStreamed }: Pick<Ending, "end" | "isCalled" | "isStreamed">): boolean {
  if (end === "complete") return true;
  return end === "client_left" ? isCalled : isStreamed;
}

/**
 * Charges what was delivered, at the prices of the route that was taken, and releases the rest; or releases all. Rejects
 * with StoreUnavailableError where neither the store nor the spool takes it.
 */
export async function settle(
  { ledger }: Gateway,
  { facts, available, isFree }: Admission,
  meter: Meter,
  ending: Ending,
): Promise<Settlement> {
  const { tokens, basis } = meter.reading();
  if (!isCharged(ending)) {
    await ledger.release({ organizationId: facts.organizationId, holdId: facts.holdId });
    return { tokens, charged: 0n, available };
  }
  const { route } = ending;
  const prices = isFree ? FREE : pricesAt(route, tokens.input + tokens.cachedInput + tokens.cacheWrite);
  const outcome = await ledger.settle({
    facts: { ...facts, upstream: upstreamOf(route), prices },
    tokens,
    basis,
    end: ending.end,
  });
  // What is available then only the store knows: the caller is told what was when the request was admitted.
  if (outcome.outcome === "spooled") return { tokens, charged: outcome.charged, available };
  if (outcome.outcome !== "charged") throw new Error(`The settlement of an open hold was answered ${outcome.outcome}`);
  return { tokens, charged: outcome.charged, available: outcome.available };
}

/** All tokens, of every class. */
export function totalTokens(tokens: TokenCounts): number {
  return TOKEN_CLASSES.reduce((sum, tokenClass) => sum + tokens[tokenClass], 0);
}
