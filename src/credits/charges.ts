import { type MicroCredits, minimum } from "./amount.ts";
import { type Batch, holdOf, insertHold, tokenBalanceOf } from "./batch.ts";
import type {
  EventBasis,
  EventEnd,
  ExpireTransition,
  HoldFacts,
  HoldRow,
  Outcomes,
  SettleOutcome,
  SettleTransition,
  Trace,
} from "./books.ts";
import { assertCounts } from "./checks.ts";
import { mergeDraws, splitDraws, sumOf } from "./draws.ts";
import { giveUp, newHold } from "./holds.ts";
import { keepAnswer } from "./keys.ts";
import { NO_TOKENS, priceOf, TOKEN_CLASSES, type TokenCounts, type UnitPrices } from "./price.ts";
import { type Purse, putBack, take } from "./purse.ts";

/** Never refused: what the credits do not cover is recorded as shortfall. */
export function settle(batch: Batch, purse: Purse, transition: SettleTransition): SettleOutcome {
  const { facts, tokens, basis, end, answer, trace = null } = transition;
  // A hold whose row was lost with its database is charged like one that had set nothing aside.
  const row = holdOf(batch, facts) ?? insertHold(batch, newHold(facts, batch.nowMs));
  if (row.state === "released") return { outcome: "released" };
  if (row.state !== "charged") {
    const { upstream, prices } = facts;
    charge(batch, purse, row, { upstream, prices, tokens, basis, end, state: "charged", trace });
    if (typeof answer === "string") keepAnswer(batch, row, answer);
  }
  const { charged, shortfall } = row;
  return { outcome: "charged", charged, shortfall, available: purse.balance.available };
}

export function expire(batch: Batch, purse: Purse, transition: ExpireTransition): Outcomes["expire"] {
  const row = holdOf(batch, transition);
  if (row === undefined) return { outcome: "missing" };
  if (row.state === "open" && row.expiresAtMs <= batch.nowMs) {
    const { upstream, prices, tokens } = row;
    const terms = { basis: "counted", end: "recovered", state: "expired", trace: null } as const;
    charge(batch, purse, row, { upstream, prices, tokens, ...terms });
  }
  if (row.state !== "expired") return { outcome: "kept", state: row.state };
  return { outcome: "expired", charged: row.charged, shortfall: row.shortfall };
}

interface Charge {
  upstream: string;
  prices: UnitPrices;
  tokens: TokenCounts;
  basis: EventBasis;
  end: EventEnd;
  state: "charged" | "expired";
  trace: Trace | null;
}

/**
 * Charges a hold that is open or expired. What an open hold set aside, or an expired one was charged, covers the cost
 * first; what is left of that goes back to its grants, the last one drawn first; what is missing is drawn from what is
 * available; what is not there either is the shortfall. The event is the difference to what was booked before.
 */
function charge(batch: Batch, purse: Purse, row: HoldRow, charge: Charge): void {
  const { balance } = purse;
  const { upstream, prices, tokens, basis, end, state, trace } = charge;
  const late = row.state === "expired";
  const before = late ? row : { charged: 0n, shortfall: 0n, tokens: NO_TOKENS };
  const price = priceOf(assertCounts(tokens), prices);
  const cost = late ? atLeast(price, givenBack(purse, row)) : price;
  if (row.state === "open") giveUp(batch, purse, row);
  const { front, rest } = splitDraws(row.draws, cost);
  putBack(purse, rest, batch.nowMs);
  const more = take(purse, minimum(cost - sumOf(front), balance.available));
  const draws = mergeDraws(front, more);
  const charged = sumOf(draws);
  const shortfall = cost - charged;
  const difference = charged - before.charged;
  balance.spent += difference;
  const tokenBalance = tokenBalanceOf(batch, row);
  if (tokenBalance !== undefined) tokenBalance.spent += difference;
  batch.events.push({
    ...factsOf(row),
    upstream,
    prices,
    sequence: late ? 1 : 0,
    tokens: differenceOf(tokens, before.tokens),
    cost: difference,
    shortfall: shortfall - before.shortfall,
    basis,
    end,
    madeAtMs: row.madeAtMs,
    chargedAtMs: batch.nowMs,
  });
  Object.assign(row, { upstream, prices, tokens: { ...tokens }, draws, charged, shortfall, state, trace });
  batch.changedHolds.add(row);
}

/**
 * What of an expired hold's charge a credit gave back before: its late settlement does not give that back again. Without
 * this an organization could be given more than it ever paid.
 */
function givenBack({ balance }: Purse, { charged, credited }: HoldRow): MicroCredits {
  return atLeast(credited, charged - balance.spent);
}

function atLeast(a: MicroCredits, b: MicroCredits): MicroCredits {
  return a > b ? a : b;
}

function factsOf(facts: HoldFacts): HoldFacts {
  const { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata } = facts;
  return { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata };
}

function differenceOf(tokens: TokenCounts, before: TokenCounts): TokenCounts {
  const difference = { ...NO_TOKENS };
  for (const tokenClass of TOKEN_CLASSES) difference[tokenClass] = tokens[tokenClass] - before[tokenClass];
  return difference;
}
