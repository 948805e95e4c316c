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
import { type Funds, mergeDraws, returnDraws, splitDraws, sumOf, take } from "./funds.ts";
import { emptyHold, endedRequest, storeAnswer, unreserve } from "./holds.ts";
import { addTokens, assertCounts, priceOf, type TokenCounts, type UnitPrices } from "./price.ts";

/** Charges a request. Never refused: the part that the credits do not cover is recorded as shortfall. */
export function settle(batch: Batch, funds: Funds, transition: SettleTransition): SettleOutcome {
  const { facts, answer } = transition;
  const open = holdOf(batch, facts);
  const earlier = open === undefined ? requestOf(batch, facts) : undefined;
  if (earlier?.end === "released") return { outcome: "released" };
  let isNew = false;
  if (earlier === undefined) {
    // A hold that the store lost is charged like one that reserved nothing.
    charge(batch, funds, open ?? emptyHold(facts, batch.nowMs), { ...facts, trace: null, ...transition });
    isNew = true;
  } else if (earlier.end === "recovered" && lateSettlementOf(batch, earlier) === undefined) {
    settleLate(batch, funds, earlier, transition);
    isNew = true;
  }
  const request = requestOf(batch, facts);
  if (request === undefined) throw new Error("the settlement made no request");
  if (isNew && typeof answer === "string") storeAnswer(batch, facts, request.idempotencyKey, answer);
  return { outcome: "charged", ...chargeOf(batch, request), available: funds.balance.available };
}

/** Charges an expired open hold at its checkpoint. */
export function expire(batch: Batch, funds: Funds, transition: ExpireTransition): Outcomes["expire"] {
  const open = holdOf(batch, transition);
  if (open !== undefined) {
    if (!isEnded(open, transition.claim, batch.nowMs)) return { outcome: "kept", state: "open" };
    charge(batch, funds, open, { ...open.details, basis: "counted", end: "recovered", trace: null });
  }
  const request = requestOf(batch, transition);
  if (request === undefined) return { outcome: "missing" };
  const state = endedStateOf(request.end);
  if (state !== "recovered") return { outcome: "kept", state };
  return { outcome: "expired", charged: request.cost, shortfall: request.shortfall };
}

/** Tests a claim on the locked row: the hold may have been renewed since the claim was made. */
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
 * Ends a request with a charge. The held amount covers the cost first, and its rest returns to its grants, the last one
 * drawn first. A missing amount is drawn from the available credits; the part that they do not cover is the shortfall.
 */
function charge(batch: Batch, funds: Funds, row: HoldRow, charge: Charge): void {
  const { upstream, prices, tokens, basis, end, trace } = charge;
  const price = priceOf(assertCounts(tokens), prices);
  unreserve(batch, funds, row);
  const { taken, returned } = redraw(batch, funds, row.draws, price);
  const draws = mergeDraws(splitDraws(row.draws, price).front, taken);
  const cost = row.amount + sumOf(taken) - sumOf(returned);
  const ended = { route: { upstream, prices }, tokens: { ...tokens }, cost, shortfall: price - cost, draws };
  const request = endedRequest(batch, row, { ...ended, basis, end, trace });
  spend(batch, funds, request, cost);
  endRequest(batch, request);
}

/** Books the difference between the price of a recovered request and its charge at its checkpoint. */
function settleLate(batch: Batch, funds: Funds, request: RequestRow, transition: SettleTransition): void {
  const { facts, tokens, basis, end, trace = null } = transition;
  const { organizationId, holdId, tokenId } = request;
  const { upstream, prices } = facts;
  const price = atLeast(priceOf(assertCounts(tokens), prices), refunded(batch, funds, request));
  const { taken, returned } = redraw(batch, funds, request.draws, price);
  const amount = sumOf(taken) - sumOf(returned);
  const shortfall = price - request.cost - amount - request.shortfall;
  const differences = { tokens: addTokens(tokens, request.tokens, -1), shortfall };
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
  spend(batch, funds, request, amount);
  batch.adjustments.push(adjustment);
}

/** Returns the excess of draws over a cost, or draws the missing amount as far as credits are available. */
function redraw(
  batch: Batch,
  funds: Funds,
  draws: readonly Draw[],
  cost: MicroCredits,
): { taken: Draw[]; returned: Draw[] } {
  const { front, rest: returned } = splitDraws(draws, cost);
  returnDraws(funds, returned, batch.nowMs);
  const taken = take(funds, minimum(cost - sumOf(front), funds.balance.available));
  return { taken, returned };
}

function spend(batch: Batch, funds: Funds, request: RequestRow, amount: MicroCredits): void {
  funds.balance.spent += amount;
  const tokenBalance = tokenBalanceOf(batch, request);
  if (tokenBalance !== undefined) tokenBalance.spent += amount;
}

/**
 * Returns the part of a recovered request's charge that credits have refunded: its late settlement must not refund it again,
 * or an organization could receive more than it paid.
 */
function refunded(batch: Batch, { balance }: Funds, request: RequestRow): MicroCredits {
  return atLeast(creditedOf(batch, request), request.cost - balance.spent);
}

function atLeast(a: MicroCredits, b: MicroCredits): MicroCredits {
  return a > b ? a : b;
}
