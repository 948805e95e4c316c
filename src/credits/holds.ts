import { assertAmount, type MicroCredits, maximum, minimum } from "./amount.ts";
import type { Account } from "./batch.ts";
import {
  type AdjustmentRow,
  type ExpireTransition,
  endedStateOf,
  type HoldClaim,
  type HoldRow,
  type HoldTransition,
  type IdempotencyClaim,
  type IdempotencyKeyRow,
  type ReleaseTransition,
  type RenewTransition,
  type RequestRow,
  type SettleTransition,
} from "./books.ts";
import { countInBudgets, countNewValue, newValueIn, statesOf, warnOfUsedBudget } from "./budget-counters.ts";
import { type BudgetState, reachWithin, tightest } from "./budgets.ts";
import { decodeLines, encodeLines } from "./charge-lines.ts";
import type { CallerKey, Draw, EventBasis, EventEnd, HoldFacts, Intent, RequestEnd, Retry, Trace } from "./facts.ts";
import { mergeDraws, NO_TERMS, returnDraws, splitDraws, sumOfDraws, take } from "./funds.ts";
import { keyIdOf } from "./names.ts";
import type { KeyOutcome, Outcomes } from "./outcomes.ts";
import {
  addTokens,
  amountDue,
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
export function makeHold(account: Account, transition: HoldTransition): Outcomes["hold"] {
  const { facts, callerId, least, most, lifeMs, owner, idempotency } = transition;
  const { newValuesMost = Number.POSITIVE_INFINITY } = transition;
  const earlier = account.holds.get(facts.holdId);
  if (earlier !== undefined) return held(account, earlier, statesOf(account, earlier.budgets));
  const ended = account.requests.get(facts.holdId);
  if (ended !== undefined) return { outcome: "ended", state: endedStateOf(ended.end) };
  const answered = idempotency && earlierAnswer(account, idempotency);
  if (answered) return answered;
  assertAmount(least);
  assertAmount(most);
  const budgets = account.budgets?.recordFor(transition, account.nowMs) ?? null;
  const covering = statesOf(account, budgets);
  const reach = reachWithin(account.balance.available, covering);
  if (reach < least) return shortage(account, covering, { least, reach });
  const budget = newValueIn(account, covering);
  const waitMs = budget === undefined ? 0 : countNewValue(account, callerId, newValuesMost);
  if (budget !== undefined && waitMs > 0) return { outcome: "too_many_values", budget, most: newValuesMost, waitMs };
  const idempotencyKey = idempotency ? callerKeyOf(idempotency) : facts.idempotencyKey;
  const row = reserve(account, { ...facts, idempotencyKey, budgets }, minimum(most, reach));
  const details = { ...row.details, retry: facts.intent ? takeBrokenAttempt(account, facts.intent) : null };
  account.holds.set(row.holdId, { ...row, owner, details, expiresAtMs: account.nowMs + lifeMs });
  if (idempotency) claimKey(account, idempotency, row.holdId);
  for (const state of covering) state.held += row.amount;
  return held(account, row, covering);
}

function held(account: Account, { amount, budgets }: HoldRow, covering: readonly BudgetState[]): Outcomes["hold"] {
  const outcome = { outcome: "held", amount, available: account.balance.available } as const;
  if (budgets === null) return outcome;
  const least = tightest(covering);
  return { ...outcome, covered: { budgets, ...(least && { tightest: least }) } };
}

/** Extends a hold and stores its checkpoint. A hold that the store lost is created again, as far as credits are available. */
export function renewHold(account: Account, transition: RenewTransition): Outcomes["renew"] {
  const { facts, amount, tokens, lifeMs, owner } = transition;
  const earlier = account.holds.get(facts.holdId);
  const ended = earlier === undefined ? account.requests.get(facts.holdId) : undefined;
  if (ended !== undefined) return { outcome: "ended", state: endedStateOf(ended.end) };
  assertAmount(amount);
  assertCounts(tokens);
  const reach = () => reachWithin(account.balance.available, statesOf(account, facts.budgets));
  const row = earlier ?? reserve(account, facts, minimum(amount, reach()));
  const charge = encodeLines(tokens, facts.prices);
  const { upstream } = facts;
  const isSame = row.details.upstream === upstream && row.details.charge === charge;
  const intent = row.details.intent ?? facts.intent ?? null;
  const details = isSame && row.details.intent === intent ? row.details : { ...row.details, upstream, charge, intent };
  account.holds.set(row.holdId, { ...row, owner, details, expiresAtMs: account.nowMs + lifeMs });
  return { outcome: "renewed", remade: earlier === undefined };
}

/** Returns the held amount to its grants. Without a hold, the request is recorded as released, so that a hold that arrives later is refused. */
export function releaseHold(account: Account, transition: ReleaseTransition): Outcomes["release"] {
  const { facts, trace = null } = transition;
  const row = account.holds.get(facts.holdId);
  const ended = row === undefined ? account.requests.get(facts.holdId) : undefined;
  const state = ended === undefined ? "released" : endedStateOf(ended.end);
  if (state !== "released") return { outcome: state };
  if (ended === undefined) {
    if (row !== undefined) {
      account.balance.held -= row.amount;
      countInBudgets(account, row.budgets, { held: -row.amount }, "existing");
      returnDraws(account, row.draws);
    }
    const open = row ?? emptyHold(facts, account.nowMs);
    const { upstream, charge } = open.details;
    const { prices } = decodeLines(charge);
    const nothing = { ...chargedTokens(NO_TOKENS, prices), upstream, cost: 0n, shortfall: 0n, draws: [] };
    const request = endRequest(account, open, { ...nothing, basis: null, end: "released", trace });
    offerToRetry(account, request, open.details.intent);
    const key = keyOf(account, request);
    if (key !== undefined) account.keys.set(keyIdOf(key), undefined);
  }
  return { outcome: "released", available: account.balance.available };
}

/** Makes a hold that reserves nothing, for a request whose hold is missing. */
function emptyHold(facts: HoldFacts, nowMs: number): HoldRow {
  const { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey } = facts;
  const { budgets = null, intent = null } = facts;
  const charge = encodeLines(NO_TOKENS, prices);
  const details = { requestId, model, upstream, metadata, idempotencyKey, charge, intent, retry: null };
  const nothing = { amount: 0n, draws: [], owner: "", madeAtMs: nowMs, expiresAtMs: nowMs };
  return { ...nothing, organizationId, holdId, tokenId, budgets, details };
}

type EndOfRequest = Pick<RequestRow, "charge" | "inputTokens" | "outputTokens" | "cost" | "shortfall" | "draws"> &
  Pick<RequestRow, "upstream" | "basis" | "end" | "trace">;

function endRequest({ nowMs, holds, requests }: Account, row: HoldRow, end: EndOfRequest): RequestRow {
  const { organizationId, holdId, tokenId, budgets, amount, madeAtMs, details } = row;
  const { requestId, model, metadata, idempotencyKey, retry } = details;
  // The store's clock may have been set back.
  const endedAtMs = Math.max(nowMs, madeAtMs);
  // V8 copies quickly only what a literal begins with.
  const booked = { ...end, holdId, organizationId, tokenId, budgets, amount, madeAtMs, endedAtMs };
  const isLate = isBookedLate(holdId, endedAtMs);
  const request = { ...booked, requestId, model, metadata, idempotencyKey, retry, isLate };
  holds.set(holdId, undefined);
  requests.insert(holdId, request);
  return request;
}

/** Returns the tokens of a charge, or of a late settlement, as a row stores them. */
function chargedTokens(tokens: TokenCounts, prices: UnitPrices) {
  const { input, output } = tokenTotals(tokens);
  return { charge: encodeLines(tokens, prices), inputTokens: input, outputTokens: output };
}

function reserve(account: Account, facts: HoldFacts, amount: MicroCredits): HoldRow {
  const row = { ...emptyHold(facts, account.nowMs), amount, draws: take(account, amount) };
  account.balance.held += amount;
  countInBudgets(account, row.budgets, { held: amount }, "new");
  return row;
}

/** Refuses a hold. `insufficient` takes precedence over `busy`, because waiting would not help. */
function shortage(
  account: Account,
  covering: readonly BudgetState[],
  { least, reach }: { least: MicroCredits; reach: MicroCredits },
): Outcomes["hold"] {
  const { available, held } = account.balance;
  if (available + held < least) {
    warnOfRefusal(account, account.balance);
    return { outcome: "insufficient", available, reach };
  }
  const unspent = tightest(covering, ({ limit, spent }) => limit - spent);
  if (unspent !== undefined && unspent.limit - unspent.spent < least) {
    warnOfUsedBudget(account, unspent);
    return { outcome: "insufficient", budget: unspent, available, reach };
  }
  const budget = available < least ? undefined : tightest(covering);
  if (budget === undefined) return { outcome: "busy", available, reach, held };
  return { outcome: "busy", budget, available, reach, held: budget.held };
}

/** Charges a request. Never refused: the part that the credits do not cover is recorded as shortfall. */
export function settleHold(account: Account, transition: SettleTransition): Outcomes["settle"] {
  const { facts, answer, trace = null } = transition;
  const open = account.holds.get(facts.holdId);
  const earlier = open === undefined ? account.requests.get(facts.holdId) : undefined;
  if (earlier?.end === "released") return { outcome: "released" };
  const isLate = earlier?.end === "recovered" && lateSettlementOf(account, earlier) === undefined;
  if (isLate) settleLate(account, earlier, transition);
  const { upstream, prices, intent = null } = facts;
  const end = { ...transition, upstream, prices, intent, trace };
  // A hold that the store lost is charged like one that reserved nothing.
  const request = earlier ?? charge(account, open ?? emptyHold(facts, account.nowMs), end);
  const key = earlier === undefined || isLate ? keyOf(account, request) : undefined;
  if (key !== undefined && typeof answer === "string") account.keys.set(keyIdOf(key), { ...key, answer });
  return { ...wholeChargeOf(account, request), outcome: "charged", available: account.balance.available };
}

/** Charges an expired open hold at its checkpoint. */
export function expireHold(account: Account, transition: ExpireTransition): Outcomes["expire"] {
  const open = account.holds.get(transition.holdId);
  if (open !== undefined) {
    if (!isEnded(open, transition.claim, account.nowMs)) return { outcome: "kept", state: "open" };
    const { upstream, charge: checkpoint } = open.details;
    const end = { basis: "counted", end: "recovered", trace: null } as const;
    charge(account, open, { upstream, ...decodeLines(checkpoint), ...end, intent: open.details.intent });
  }
  const request = account.requests.get(transition.holdId);
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

type Charge = Pick<HoldFacts, "upstream" | "prices"> & {
  /** Set if a retry may repeat the request. */
  intent?: Intent | null;
  tokens: TokenCounts;
  basis: EventBasis;
  end: EventEnd;
  trace: Trace | null;
};

/**
 * Ends a request with a charge. The held amount covers the cost first, and its rest returns to its grants, the last one
 * drawn first. A missing amount is drawn from the available credits; the part that they do not cover is the shortfall.
 */
function charge(account: Account, row: HoldRow, charge: Charge): RequestRow {
  const { upstream, prices, tokens, basis, end, trace, intent = null } = charge;
  const due = amountDue(priceOf(assertCounts(tokens), prices), row.details.retry);
  const { kept, taken, difference } = redraw(account, row.draws, due);
  const draws = mergeDraws(kept, taken);
  const cost = row.amount + difference;
  account.balance.held -= row.amount;
  account.balance.spent += cost;
  warnOfShortfall(account, row.organizationId, due - cost);
  // The crash that lost a hold may have lost the counter that it began.
  countInBudgets(account, row.budgets, { held: -row.amount, spent: cost }, "new");
  const ended = { ...chargedTokens(tokens, prices), upstream, cost, shortfall: due - cost, draws };
  const request = endRequest(account, row, { ...ended, basis, end, trace });
  offerToRetry(account, request, intent);
  return request;
}

/** Books the difference between the price of a recovered request and its charge at its checkpoint. */
function settleLate(account: Account, request: RequestRow, transition: SettleTransition): void {
  const { facts, tokens, basis, end, trace = null } = transition;
  const { organizationId, holdId, tokenId, budgets } = request;
  const { upstream, prices } = facts;
  // A part that credits have refunded must not be refunded again, or an organization could receive more than it paid.
  const refunded = maximum(creditedOf(account, request), request.cost - account.balance.spent);
  const price = maximum(amountDue(priceOf(assertCounts(tokens), prices), request.retry), refunded);
  const { taken, returned, difference: amount } = redraw(account, request.draws, price);
  const shortfall = price - request.cost - amount - request.shortfall;
  const more = addTokens(tokens, decodeLines(request.charge).tokens, -1);
  account.balance.spent += amount;
  warnOfShortfall(account, organizationId, shortfall);
  countInBudgets(account, budgets, { spent: amount }, "existing");
  const id = `late_${holdId}`;
  account.adjustments.insert(id, {
    ...NO_TERMS,
    ...{ organizationId, id, kind: "late_settlement", holdId, tokenId, budgets, amount },
    draws: [...taken, ...returned.map((draw) => ({ ...draw, amount: -draw.amount }))],
    madeAtMs: account.nowMs,
    settlement: { upstream, ...chargedTokens(more, prices), shortfall, basis, end, trace },
  });
}

/**
 * Returns the excess of draws over a cost, or draws the missing amount as far as credits are available. `difference` is the amount
 * taken less the amount returned.
 */
function redraw(account: Account, draws: readonly Draw[], cost: MicroCredits) {
  const { front: kept, rest: returned } = splitDraws(draws, cost);
  returnDraws(account, returned);
  const taken = take(account, minimum(cost - sumOfDraws(kept), account.balance.available));
  return { kept, taken, returned, difference: sumOfDraws(taken) - sumOfDraws(returned) };
}

function lateSettlementOf({ adjustments }: Account, { holdId }: RequestRow): AdjustmentRow | undefined {
  return adjustments.values().find((row) => row.holdId === holdId && row.kind === "late_settlement");
}

/** Returns the whole charge of a request, including its late settlement. */
export function wholeChargeOf(
  account: Account,
  request: RequestRow,
): { charged: MicroCredits; shortfall: MicroCredits } {
  const late = lateSettlementOf(account, request);
  const charged = request.cost + (late?.amount ?? 0n);
  return { charged, shortfall: request.shortfall + (late?.settlement?.shortfall ?? 0n) };
}

/** Returns the sum of the credits that correct a request. */
export function creditedOf({ adjustments }: Account, { holdId }: RequestRow): MicroCredits {
  const credits = adjustments.values().filter((row) => row.holdId === holdId && row.kind === "credit");
  return credits.reduce((sum, { amount }) => sum + amount, 0n);
}

/** Returns the outcome of the earlier request with the key; undefined if there was none, or the key has expired. */
function earlierAnswer(account: Account, { fingerprint, ...name }: IdempotencyClaim): KeyOutcome | undefined {
  const row = account.keys.get(keyIdOf(name));
  if (row === undefined || row.expiresAtMs <= account.nowMs) return undefined;
  if (row.fingerprint !== fingerprint) return { outcome: "mismatch" };
  const request = account.requests.get(row.holdId);
  if (row.answer !== null) {
    const charged = request === undefined ? 0n : wholeChargeOf(account, request).charged;
    return { outcome: "replayed", answer: row.answer, charged, available: account.balance.available };
  }
  return { outcome: account.holds.get(row.holdId) === undefined ? "interrupted" : "in_progress" };
}

function claimKey({ organizationId, nowMs, keys }: Account, claim: IdempotencyClaim, holdId: string): void {
  const { fingerprint, keepMs } = claim;
  const times = { createdAtMs: nowMs, expiresAtMs: nowMs + keepMs };
  const row = { organizationId, ...callerKeyOf(claim), fingerprint, holdId, answer: null, ...times };
  keys.set(keyIdOf(claim), row);
}

function callerKeyOf({ callerId, key }: CallerKey): CallerKey {
  return { callerId, key };
}

/** Returns the key while it names this request: after its expiry it may belong to another one. */
function keyOf({ keys }: Account, { holdId, idempotencyKey }: RequestRow): IdempotencyKeyRow | undefined {
  const row = idempotencyKey === null ? undefined : keys.get(keyIdOf(idempotencyKey));
  return row?.holdId === holdId ? row : undefined;
}

/** Time after its end in which a retry can repeat a request. */
export const REPEATABLE_MS = 120_000;
/** Ends of a request whose answer broke without its client's doing. */
const BROKEN: ReadonlySet<RequestEnd> = new Set(["upstream_failed", "timed_out", "service_failed", "recovered"]);

/**
 * Lets one retry repeat a request that broke, if it or the attempts before it were charged. A released one was not, whoever ended
 * it. One that its client left is never repeated, so that leaving and repeating costs no less than staying.
 */
function offerToRetry(
  { organizationId, nowMs, brokenAttempts }: Account,
  { holdId, cost, end, retry }: RequestRow,
  intent: Intent | null,
): void {
  const wasCharged = cost > 0n || retry !== null;
  if (intent === null || !wasCharged || !(end === "released" || BROKEN.has(end))) return;
  brokenAttempts.set(holdId, { organizationId, ...intent, holdId, expiresAtMs: nowMs + REPEATABLE_MS });
}

/** Takes the oldest broken attempt of an intent, which no other retry can then repeat. Null: there is none. */
function takeBrokenAttempt(account: Account, { callerId, fingerprint }: Intent): Retry | null {
  const attempts = account.brokenAttempts
    .values()
    .filter((row) => row.callerId === callerId && row.fingerprint === fingerprint && row.expiresAtMs > account.nowMs)
    .sort((one, other) => (one.holdId < other.holdId ? -1 : 1));
  for (const { holdId: of } of attempts) {
    account.brokenAttempts.set(of, undefined);
    const request = account.requests.get(of);
    const end = request && (lateSettlementOf(account, request)?.settlement?.end ?? request.end);
    if (request === undefined || end === "complete" || end === "client_disconnected") continue;
    // A refund is not credited again.
    const charged = wholeChargeOf(account, request).charged - creditedOf(account, request);
    const paid = (request.retry?.paid ?? 0n) + charged;
    if (paid > 0n) return { of, paid };
  }
  return null;
}
