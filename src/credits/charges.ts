import { type MicroCredits, minimum } from "./amount.ts";
import {
  type Batch,
  chargeOf,
  creditedOf,
  endRequest,
  holdOf,
  lateSettlementOf,
  requestOf,
  tokenBalanceOf,
} from "./batch.ts";
import {
  type AdjustmentRow,
  type Draw,
  type EventBasis,
  type EventEnd,
  type ExpireTransition,
  endedStateOf,
  type HoldClaim,
  type HoldRow,
  type Outcomes,
  type RequestRow,
  type SettleOutcome,
  type SettleTransition,
  type Trace,
} from "./books.ts";
import { assertCounts } from "./checks.ts";
import { mergeDraws, splitDraws, sumOf } from "./draws.ts";
import { emptyHold, endedRequest, unreserve } from "./holds.ts";
import { keepAnswer } from "./keys.ts";
import { NO_TOKENS, priceOf, TOKEN_CLASSES, type TokenCounts, type UnitPrices } from "./price.ts";
import { type Purse, putBack, take } from "./purse.ts";

/** Charges a request. Never refused: what the credits do not cover is recorded as shortfall. */
export function settle(batch: Batch, purse: Purse, transition: SettleTransition): SettleOutcome {
  const { facts, answer } = transition;
  const open = holdOf(batch, facts);
  const earlier = open === undefined ? requestOf(batch, facts) : undefined;
  if (earlier?.end === "released") return { outcome: "released" };
  let isNew = false;
  if (earlier === undefined) {
    // A hold that was lost with its database is charged like one that reserved nothing.
    charge(batch, purse, open ?? emptyHold(facts, batch.nowMs), { ...facts, trace: null, ...transition });
    isNew = true;
  } else if (earlier.end === "recovered" && lateSettlementOf(batch, earlier) === undefined) {
    settleLate(batch, purse, earlier, transition);
    isNew = true;
  }
  const request = requestOf(batch, facts);
  if (request === undefined) throw new Error("a settlement left no request");
  if (isNew && typeof answer === "string") keepAnswer(batch, facts, request.idempotencyKey, answer);
  return { outcome: "charged", ...chargeOf(batch, request), available: purse.balance.available };
}

/** Charges an open hold that is past its life at its checkpoint. */
export function expire(batch: Batch, purse: Purse, transition: ExpireTransition): Outcomes["expire"] {
  const open = holdOf(batch, transition);
  if (open !== undefined) {
    if (!isEnded(open, transition.claim, batch.nowMs)) return { outcome: "kept", state: "open" };
    charge(batch, purse, open, { ...open.details, basis: "counted", end: "recovered", trace: null });
  }
  const request = requestOf(batch, transition);
  if (request === undefined) return { outcome: "missing" };
  const state = endedStateOf(request.end);
  if (state !== "recovered") return { outcome: "kept", state };
  return { outcome: "expired", charged: request.cost, shortfall: request.shortfall };
}

/** The claim is tested on the locked row: a renewal may have come since it was made. */
function isEnded(open: HoldRow, claim: HoldClaim | undefined, nowMs: number): boolean {
  if (claim === undefined) return open.expiresAtMs <= nowMs;
  if (open.owner !== claim.owner || open.expiresAtMs !== claim.expiresAtMs) return false;
  return claim.afterExpiryMs === null || open.expiresAtMs + claim.afterExpiryMs <= nowMs;
}

interface Charge {
  upstream: string;
  prices: UnitPrices;
  tokens: TokenCounts;
  basis: EventBasis;
  end: EventEnd;
  trace: Trace | null;
}

/**
 * Ends a request with a charge. The amount held covers the cost first; the rest of it returns to its grants, the last one
 * drawn first; what is missing is drawn from what is available; what is not available is the shortfall.
 */
function charge(batch: Batch, purse: Purse, row: HoldRow, charge: Charge): void {
  const { upstream, prices, tokens, basis, end, trace } = charge;
  const price = priceOf(assertCounts(tokens), prices);
  unreserve(batch, purse, row);
  const { taken, returned } = redraw(batch, purse, row.draws, price);
  const draws = mergeDraws(splitDraws(row.draws, price).front, taken);
  const cost = row.amount + sumOf(taken) - sumOf(returned);
  const ended = { route: { upstream, prices }, tokens: { ...tokens }, cost, shortfall: price - cost, draws };
  const request = endedRequest(batch, row, { ...ended, basis, end, trace });
  spend(batch, purse, request, cost);
  endRequest(batch, request);
}

/** Books the difference between what a recovered request used and what it was charged at its checkpoint. */
function settleLate(batch: Batch, purse: Purse, request: RequestRow, transition: SettleTransition): void {
  const { facts, tokens, basis, end, trace = null } = transition;
  const { organizationId, holdId, tokenId } = request;
  const { upstream, prices } = facts;
  const price = atLeast(priceOf(assertCounts(tokens), prices), refunded(batch, purse, request));
  const { taken, returned } = redraw(batch, purse, request.draws, price);
  const amount = sumOf(taken) - sumOf(returned);
  const shortfall = price - request.cost - amount - request.shortfall;
  const differences = { tokens: differenceOf(tokens, request.tokens), shortfall };
  const adjustment: AdjustmentRow = {
    organizationId,
    id: `late_${holdId}`,
    kind: "late_settlement",
    amount,
    draws: [...taken, ...returned.map((draw) => ({ ...draw, amount: -draw.amount }))],
    ...{ isAll: false, grantId: null, expiresAtMs: null, holdId, tokenId, reference: null, note: null },
    madeAtMs: batch.nowMs,
    settlement: { upstream, prices, ...differences, basis, end, trace },
  };
  spend(batch, purse, request, amount);
  batch.adjustments.push(adjustment);
}

/** Returns what draws exceed a cost by, or takes what they lack of it as far as credits are available. */
function redraw(
  batch: Batch,
  purse: Purse,
  draws: readonly Draw[],
  cost: MicroCredits,
): { taken: Draw[]; returned: Draw[] } {
  const { front, rest: returned } = splitDraws(draws, cost);
  putBack(purse, returned, batch.nowMs);
  const taken = take(purse, minimum(cost - sumOf(front), purse.balance.available));
  return { taken, returned };
}

function spend(batch: Batch, purse: Purse, request: RequestRow, amount: MicroCredits): void {
  purse.balance.spent += amount;
  const tokenBalance = tokenBalanceOf(batch, request);
  if (tokenBalance !== undefined) tokenBalance.spent += amount;
}

/**
 * The part of a recovered request's charge that credits returned already: its late settlement does not return it again.
 * Otherwise an organization could be given more than it ever paid.
 */
function refunded(batch: Batch, { balance }: Purse, request: RequestRow): MicroCredits {
  return atLeast(creditedOf(batch, request), request.cost - balance.spent);
}

function atLeast(a: MicroCredits, b: MicroCredits): MicroCredits {
  return a > b ? a : b;
}

function differenceOf(tokens: TokenCounts, before: TokenCounts): TokenCounts {
  const difference = { ...NO_TOKENS };
  for (const tokenClass of TOKEN_CLASSES) difference[tokenClass] = tokens[tokenClass] - before[tokenClass];
  return difference;
}
