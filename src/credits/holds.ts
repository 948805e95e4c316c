import { assertAmount, type MicroCredits, minimum } from "./amount.ts";
import {
  type Batch,
  creditedOf,
  endRequest,
  holdOf,
  lateSettlementOf,
  putHold,
  requestOf,
  wholeChargeOf,
} from "./batch.ts";
import {
  type AdjustmentRow,
  type ExpireTransition,
  endedStateOf,
  type HoldClaim,
  type HoldRow,
  type HoldTransition,
  type IdempotencyClaim,
  type ReleaseTransition,
  type RenewTransition,
  type RequestRow,
  type SettleTransition,
} from "./books.ts";
import { countInBudgets, recordedUses, statesOf, warnOfUsedBudget } from "./budget-counters.ts";
import { type BudgetState, reachWithin, tightest } from "./budgets.ts";
import { decodeLines, encodeLines } from "./charge-lines.ts";
import type { CallerKey, Draw, EventBasis, EventEnd, HoldFacts, Trace } from "./facts.ts";
import { type Funds, mergeDraws, returnDraws, splitDraws, sumOfDraws, take } from "./funds.ts";
import { keyIdOf } from "./names.ts";
import type { KeyOutcome, Outcomes } from "./outcomes.ts";
import {
  addTokens,
  assertCounts,
  NO_TOKENS,
  priceOf,
  type TokenCounts,
  tokenTotals,
  type UnitPrices,
} from "./price.ts";
import { isBookedLate } from "./request-id.ts";
import { warnOfRefusal, warnOfShortfall } from "./warnings.ts";

/** Reserves credits for a request, unless it has a hold, has ended, or its key was used before. */
export function makeHold(batch: Batch, funds: Funds, transition: HoldTransition): Outcomes["hold"] {
  const { facts, least, most, lifeMs, owner, idempotency } = transition;
  const earlier = holdOf(batch, facts);
  if (earlier !== undefined) return held(batch, funds, earlier);
  const ended = requestOf(batch, facts);
  if (ended !== undefined) return { outcome: "ended", state: endedStateOf(ended.end) };
  const answered = idempotency && earlierAnswer(batch, idempotency, facts, funds.balance.available);
  if (answered) return answered;
  assertAmount(least);
  assertAmount(most);
  const budgets = recordedUses(batch, transition);
  const covering = statesOf(batch, { ...facts, budgets });
  const reach = reachWithin(funds.balance.available, covering);
  if (reach < least) return shortage(batch, funds, covering, { least, reach });
  const idempotencyKey = idempotency ? callerKeyOf(idempotency) : facts.idempotencyKey;
  const amount = minimum(most, reach);
  const row = reserve(batch, funds, { ...facts, idempotencyKey, budgets }, amount);
  putHold(batch, { ...row, owner, expiresAtMs: batch.nowMs + lifeMs });
  if (idempotency) claimKey(batch, idempotency, facts);
  return held(batch, funds, row);
}

function held(batch: Batch, { balance }: Funds, row: HoldRow): Outcomes["hold"] {
  const { amount, budgets } = row;
  const outcome = { outcome: "held", amount, available: balance.available } as const;
  if (budgets === null) return outcome;
  const least = tightest(statesOf(batch, row));
  return { ...outcome, covered: { budgets, ...(least && { tightest: least }) } };
}

/** Extends a hold and stores its checkpoint. A hold that the store lost is created again, as far as credits are available. */
export function renewHold(batch: Batch, funds: Funds, transition: RenewTransition): Outcomes["renew"] {
  const { facts, amount, tokens, lifeMs, owner } = transition;
  const earlier = holdOf(batch, facts);
  const ended = earlier === undefined ? requestOf(batch, facts) : undefined;
  if (ended !== undefined) return { outcome: "ended", state: endedStateOf(ended.end) };
  assertAmount(amount);
  assertCounts(tokens);
  const row = earlier ?? reserve(batch, funds, facts, minimum(amount, remadeReach(batch, funds, facts)));
  const { upstream, prices } = facts;
  const details = { ...row.details, upstream, charge: encodeLines(tokens, prices) };
  const renewed = { ...row, owner, details, expiresAtMs: batch.nowMs + lifeMs };
  if (earlier === undefined || isChange(row, renewed)) putHold(batch, renewed);
  return { outcome: "renewed", remade: earlier === undefined };
}

/** Returns the held amount to its grants. Without a hold, the request is recorded as released, so that a hold that arrives later is refused. */
export function releaseHold(batch: Batch, funds: Funds, transition: ReleaseTransition): Outcomes["release"] {
  const { facts, trace = null } = transition;
  const row = holdOf(batch, facts);
  const ended = row === undefined ? requestOf(batch, facts) : undefined;
  const state = ended === undefined ? "released" : endedStateOf(ended.end);
  if (state !== "released") return { outcome: state };
  if (ended === undefined) {
    if (row !== undefined) {
      unreserve(batch, funds, row);
      returnDraws(funds, row.draws, batch.nowMs);
    }
    const open = row ?? emptyHold(facts, batch.nowMs);
    const { upstream, charge } = open.details;
    const { prices } = decodeLines(charge);
    const nothing = { upstream, ...chargedTokens(NO_TOKENS, prices), cost: 0n, shortfall: 0n, draws: [] };
    const request = endedRequest(batch, open, { ...nothing, basis: null, end: "released", trace });
    endRequest(batch, request);
    freeKey(batch, facts, request.idempotencyKey);
  }
  return { outcome: "released", available: funds.balance.available };
}

/** Makes a hold that reserves nothing, for a request whose hold is missing. */
function emptyHold(facts: HoldFacts, nowMs: number): HoldRow {
  const { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey } = facts;
  const { budgets = null } = facts;
  const charge = encodeLines(NO_TOKENS, prices);
  const details = { requestId, model, upstream, metadata, idempotencyKey, charge };
  const nothing = { amount: 0n, draws: [], owner: "", madeAtMs: nowMs, expiresAtMs: nowMs };
  return { organizationId, holdId, tokenId, budgets, ...nothing, details };
}

type EndOfRequest = Pick<RequestRow, "charge" | "inputTokens" | "outputTokens" | "cost" | "shortfall" | "draws"> &
  Pick<RequestRow, "upstream" | "basis" | "end" | "trace">;

/** Makes the row of a request that ends now. */
function endedRequest({ nowMs }: Batch, row: HoldRow, end: EndOfRequest): RequestRow {
  const { organizationId, holdId, tokenId, budgets, amount, madeAtMs, details } = row;
  const { requestId, model, metadata, idempotencyKey } = details;
  const facts = { holdId, organizationId, tokenId, budgets, requestId, model, metadata, idempotencyKey };
  // The store's clock may have been set back.
  const endedAtMs = Math.max(nowMs, madeAtMs);
  return { ...facts, amount, ...end, madeAtMs, endedAtMs, isLate: isBookedLate(holdId, endedAtMs) };
}

/** Returns the tokens of a charge, or of a late settlement, as a row stores them. */
function chargedTokens(tokens: TokenCounts, prices: UnitPrices) {
  const { input, output } = tokenTotals(tokens);
  return { charge: encodeLines(tokens, prices), inputTokens: input, outputTokens: output };
}

/** Subtracts an open hold's amount from the amounts held. The caller books the amount elsewhere. */
function unreserve(batch: Batch, funds: Funds, row: HoldRow): void {
  funds.balance.held -= row.amount;
  countInBudgets(batch, row, { held: -row.amount }, "existing");
}

function reserve(batch: Batch, funds: Funds, facts: HoldFacts, amount: MicroCredits): HoldRow {
  const row = { ...emptyHold(facts, batch.nowMs), amount, draws: take(funds, amount) };
  funds.balance.held += amount;
  countInBudgets(batch, row, { held: amount }, "new");
  return row;
}

/** Returns what a hold that the store lost can hold again: the available credits, at most what is left of its budgets. */
function remadeReach(batch: Batch, { balance }: Funds, facts: HoldFacts): MicroCredits {
  return reachWithin(balance.available, statesOf(batch, facts));
}

/** Refuses a hold. `insufficient` takes precedence over `busy`, because waiting would not help. */
function shortage(
  batch: Batch,
  { balance }: Funds,
  covering: readonly BudgetState[],
  { least, reach }: { least: MicroCredits; reach: MicroCredits },
): Outcomes["hold"] {
  const { organizationId, available, held } = balance;
  if (available + held < least) {
    warnOfRefusal(batch, balance);
    return { outcome: "insufficient", available, reach };
  }
  const unspent = tightest(covering, ({ limit, spent }) => limit - spent);
  if (unspent !== undefined && unspent.limit - unspent.spent < least) {
    warnOfUsedBudget(batch, organizationId, unspent);
    return { outcome: "insufficient", budget: unspent, available, reach };
  }
  const budget = available < least ? undefined : tightest(covering);
  if (budget === undefined) return { outcome: "busy", available, reach, held };
  return { outcome: "busy", budget, available, reach, held: budget.held };
}

function isChange(before: HoldRow, after: HoldRow): boolean {
  if (before.expiresAtMs !== after.expiresAtMs || before.owner !== after.owner) return true;
  return before.details.upstream !== after.details.upstream || before.details.charge !== after.details.charge;
}

/** Charges a request. Never refused: the part that the credits do not cover is recorded as shortfall. */
export function settleHold(batch: Batch, funds: Funds, transition: SettleTransition): Outcomes["settle"] {
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
  return { outcome: "charged", ...wholeChargeOf(batch, request), available: funds.balance.available };
}

/** Charges an expired open hold at its checkpoint. */
export function expireHold(batch: Batch, funds: Funds, transition: ExpireTransition): Outcomes["expire"] {
  const open = holdOf(batch, transition);
  if (open !== undefined) {
    if (!isEnded(open, transition.claim, batch.nowMs)) return { outcome: "kept", state: "open" };
    const { upstream, charge: checkpoint } = open.details;
    const end = { basis: "counted", end: "recovered", trace: null } as const;
    charge(batch, funds, open, { upstream, ...decodeLines(checkpoint), ...end });
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
  const cost = row.amount + sumOfDraws(taken) - sumOfDraws(returned);
  const ended = { upstream, ...chargedTokens(tokens, prices), cost, shortfall: price - cost, draws };
  const request = endedRequest(batch, row, { ...ended, basis, end, trace });
  funds.balance.spent += cost;
  warnOfShortfall(batch, row.organizationId, price - cost);
  // The crash that lost a hold may have lost the counter that it began.
  countInBudgets(batch, request, { spent: cost }, "new");
  endRequest(batch, request);
}

/** Books the difference between the price of a recovered request and its charge at its checkpoint. */
function settleLate(batch: Batch, funds: Funds, request: RequestRow, transition: SettleTransition): void {
  const { facts, tokens, basis, end, trace = null } = transition;
  const { organizationId, holdId, tokenId, budgets } = request;
  const { upstream, prices } = facts;
  const price = atLeast(priceOf(assertCounts(tokens), prices), refunded(batch, funds, request));
  const { taken, returned } = redraw(batch, funds, request.draws, price);
  const amount = sumOfDraws(taken) - sumOfDraws(returned);
  const shortfall = price - request.cost - amount - request.shortfall;
  const more = addTokens(tokens, decodeLines(request.charge).tokens, -1);
  const adjustment: AdjustmentRow = {
    organizationId,
    id: `late_${holdId}`,
    kind: "late_settlement",
    amount,
    draws: [...taken, ...returned.map((draw) => ({ ...draw, amount: -draw.amount }))],
    ...{ isAll: false, grantId: null, expiresAtMs: null, holdId, tokenId, budgets, reference: null, note: null },
    madeAtMs: batch.nowMs,
    settlement: { upstream, ...chargedTokens(more, prices), shortfall, basis, end, trace },
  };
  funds.balance.spent += amount;
  warnOfShortfall(batch, organizationId, shortfall);
  countInBudgets(batch, request, { spent: amount }, "existing");
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
  const taken = take(funds, minimum(cost - sumOfDraws(front), funds.balance.available));
  return { taken, returned };
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

/** Returns the outcome of the earlier request with the key; undefined if there was none, or the key has expired. */
function earlierAnswer(
  batch: Batch,
  { fingerprint, ...name }: IdempotencyClaim,
  { organizationId }: HoldTransition["facts"],
  available: bigint,
): KeyOutcome | undefined {
  const row = batch.keys.get(organizationId, keyIdOf(name));
  if (row === undefined || row.expiresAtMs <= batch.nowMs) return undefined;
  if (row.fingerprint !== fingerprint) return { outcome: "mismatch" };
  const request = requestOf(batch, row);
  if (row.answer !== null) {
    const charged = request === undefined ? 0n : wholeChargeOf(batch, request).charged;
    return { outcome: "replayed", answer: row.answer, charged, available };
  }
  return { outcome: holdOf(batch, row) === undefined ? "interrupted" : "in_progress" };
}

interface Named {
  organizationId: string;
  holdId: string;
}

/** Claims the key for a hold; replaces an expired key. */
function claimKey(batch: Batch, claim: IdempotencyClaim, { organizationId, holdId }: Named): void {
  const { fingerprint, keepMs } = claim;
  const times = { createdAtMs: batch.nowMs, expiresAtMs: batch.nowMs + keepMs };
  const row = { organizationId, ...callerKeyOf(claim), fingerprint, holdId, answer: null, ...times };
  batch.keys.set(organizationId, keyIdOf(claim), row);
}

function callerKeyOf({ callerId, key }: CallerKey): CallerKey {
  return { callerId, key };
}

/** Stores the answer of a request under its key. */
function storeAnswer(batch: Batch, request: Named, key: CallerKey | null, answer: string): void {
  const row = keyOf(batch, request, key);
  if (row !== undefined) batch.keys.set(row.organizationId, keyIdOf(row), { ...row, answer });
}

/** Removes the key of a request that was released. */
function freeKey(batch: Batch, request: Named, key: CallerKey | null): void {
  const row = keyOf(batch, request, key);
  if (row !== undefined) batch.keys.delete(row.organizationId, keyIdOf(row));
}

/** Returns the key while it names this request: after its expiry it may belong to another one. */
function keyOf(batch: Batch, { organizationId, holdId }: Named, key: CallerKey | null) {
  if (key === null) return undefined;
  const row = batch.keys.get(organizationId, keyIdOf(key));
  return row?.holdId === holdId ? row : undefined;
}
