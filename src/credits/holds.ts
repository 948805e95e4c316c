import { type MicroCredits, minimum } from "./amount.ts";
import { type Batch, endRequest, holdOf, putHold, requestOf, tokenBalanceOf } from "./batch.ts";
import {
  endedStateOf,
  type HoldFacts,
  type HoldRow,
  type HoldTransition,
  type Outcomes,
  type ReleaseTransition,
  type RenewTransition,
  type RequestRow,
} from "./books.ts";
import { assertAmount, assertCounts } from "./checks.ts";
import { claimKey, earlierAnswer, freeKey } from "./keys.ts";
import { NO_TOKENS } from "./price.ts";
import { type Purse, putBack, take } from "./purse.ts";
import { isBookedLate } from "./request-id.ts";

/** Reserves credits for a request, unless it is held already, has ended, or its key was used before. */
export function hold(batch: Batch, purse: Purse, transition: HoldTransition): Outcomes["hold"] {
  const { facts, least, most, lifeMs, owner, idempotency } = transition;
  const earlier = holdOf(batch, facts);
  if (earlier !== undefined) return { outcome: "held", amount: earlier.amount, available: purse.balance.available };
  const ended = requestOf(batch, facts);
  if (ended !== undefined) return { outcome: "ended", state: endedStateOf(ended.end) };
  const answered = idempotency && earlierAnswer(batch, idempotency, facts, purse.balance.available);
  if (answered) return answered;
  assertAmount(least);
  assertAmount(most);
  const reach = reachOf(batch, purse, facts);
  if (reach < least) return shortage(batch, purse, transition, reach);
  const idempotencyKey = idempotency?.key ?? facts.idempotencyKey;
  const amount = minimum(most, reach);
  const row = reserve(batch, purse, { ...facts, idempotencyKey }, amount);
  putHold(batch, { ...row, owner, expiresAtMs: batch.nowMs + lifeMs });
  if (idempotency) claimKey(batch, idempotency, facts);
  return { outcome: "held", amount, available: purse.balance.available };
}

/** Extends a hold and stores its checkpoint. A hold that the store lost is made again, as far as credits reach. */
export function renew(batch: Batch, purse: Purse, transition: RenewTransition): Outcomes["renew"] {
  const { facts, amount, tokens, lifeMs, owner } = transition;
  const earlier = holdOf(batch, facts);
  const ended = earlier === undefined ? requestOf(batch, facts) : undefined;
  if (ended !== undefined) return { outcome: "ended", state: endedStateOf(ended.end) };
  assertAmount(amount);
  assertCounts(tokens);
  const row = earlier ?? reserve(batch, purse, facts, minimum(amount, reachOf(batch, purse, facts)));
  const { upstream, prices } = facts;
  const details = { ...row.details, upstream, prices, tokens: { ...tokens } };
  const renewed = { ...row, owner, details, expiresAtMs: batch.nowMs + lifeMs };
  if (earlier === undefined || isChange(row, renewed)) putHold(batch, renewed);
  return { outcome: "renewed", remade: earlier === undefined };
}

/** Returns what was held. Without a hold the request is recorded as released, so that a hold that arrives later is refused. */
export function release(batch: Batch, purse: Purse, transition: ReleaseTransition): Outcomes["release"] {
  const { facts, trace = null } = transition;
  const row = holdOf(batch, facts);
  const ended = row === undefined ? requestOf(batch, facts) : undefined;
  const state = ended === undefined ? "released" : endedStateOf(ended.end);
  if (state !== "released") return { outcome: state };
  if (ended === undefined) {
    if (row !== undefined) {
      unreserve(batch, purse, row);
      putBack(purse, row.draws, batch.nowMs);
    }
    const nothing = { tokens: NO_TOKENS, cost: 0n, shortfall: 0n, draws: [] };
    const end = { ...nothing, basis: null, end: "released", trace } as const;
    const request = endedRequest(batch, row ?? emptyHold(facts, batch.nowMs), end);
    endRequest(batch, request);
    freeKey(batch, facts, request.idempotencyKey);
  }
  return { outcome: "released", available: purse.balance.available };
}

/** A hold that reserves nothing: of a request whose hold is not there. */
export function emptyHold(facts: HoldFacts, nowMs: number): HoldRow {
  const { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey } = facts;
  const details = { tokenId, requestId, model, upstream, prices, metadata, idempotencyKey, tokens: NO_TOKENS };
  return { organizationId, holdId, amount: 0n, draws: [], owner: "", madeAtMs: nowMs, expiresAtMs: nowMs, details };
}

type EndOfRequest = Pick<RequestRow, "tokens" | "cost" | "shortfall" | "basis" | "end" | "trace"> & {
  draws: RequestRow["draws"];
  /** The route that was taken, where it is not that of the hold. */
  route?: Pick<RequestRow, "upstream" | "prices">;
};

/** The row of a request that ends now. */
export function endedRequest({ nowMs }: Batch, row: HoldRow, { route, ...end }: EndOfRequest): RequestRow {
  const { organizationId, holdId, amount, madeAtMs, details } = row;
  const { tokenId, requestId, model, metadata, idempotencyKey } = details;
  const { upstream, prices } = route ?? details;
  const facts = { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey };
  return { ...facts, amount, ...end, madeAtMs, endedAtMs: nowMs, isLate: isBookedLate(holdId, nowMs) };
}

/** Subtracts an open hold's amount from the amount held. The caller books where it goes. */
export function unreserve(batch: Batch, purse: Purse, row: HoldRow): void {
  purse.balance.held -= row.amount;
  const { organizationId, details } = row;
  const tokenBalance = tokenBalanceOf(batch, { organizationId, tokenId: details.tokenId });
  if (tokenBalance !== undefined) tokenBalance.held -= row.amount;
}

function reserve(batch: Batch, purse: Purse, facts: HoldFacts, amount: MicroCredits): HoldRow {
  const row = { ...emptyHold(facts, batch.nowMs), amount, draws: take(purse, amount) };
  purse.balance.held += amount;
  const tokenBalance = tokenBalanceOf(batch, facts);
  if (tokenBalance !== undefined) tokenBalance.held += amount;
  return row;
}

/** Credits that a request of the token can hold: those available, at most those that the token's cap leaves. */
function reachOf(batch: Batch, { balance }: Purse, facts: HoldFacts): MicroCredits {
  const token = tokenBalanceOf(batch, facts);
  if (token === undefined) return balance.available;
  const left = token.cap - token.held - token.spent;
  return left < 0n ? 0n : minimum(left, balance.available);
}

/** Credits that are gone, of either, outweigh credits that are held: waiting would not help. */
function shortage(
  batch: Batch,
  { balance: { available, held } }: Purse,
  { facts, least }: HoldTransition,
  reach: MicroCredits,
): Outcomes["hold"] {
  const token = tokenBalanceOf(batch, facts);
  if (available + held < least) return { outcome: "insufficient", limitedBy: "organization", available, reach };
  if (token !== undefined && token.cap - token.spent < least) {
    return { outcome: "insufficient", limitedBy: "token", available, reach };
  }
  if (available < least || token === undefined) {
    return { outcome: "busy", limitedBy: "organization", available, reach, held };
  }
  return { outcome: "busy", limitedBy: "token", available, reach, held: token.held };
}

function isChange(before: HoldRow, after: HoldRow): boolean {
  if (before.expiresAtMs !== after.expiresAtMs || before.owner !== after.owner) return true;
  if (before.details.upstream !== after.details.upstream) return true;
  return !isSame(before.details.tokens, after.details.tokens) || !isSame(before.details.prices, after.details.prices);
}

function isSame<Counts extends object>(a: Counts, b: Counts): boolean {
  return (Object.keys(a) as (keyof Counts)[]).every((name) => a[name] === b[name]);
}
