import { assertAmount, type MicroCredits, minimum } from "./amount.ts";
import { type Batch, chargeOf, endRequest, holdOf, putHold, requestOf, tokenBalanceOf } from "./batch.ts";
import {
  endedStateOf,
  type HoldFacts,
  type HoldRow,
  type HoldTransition,
  type IdempotencyClaim,
  type KeyOutcome,
  type Outcomes,
  type ReleaseTransition,
  type RenewTransition,
  type RequestRow,
} from "./books.ts";
import { type Funds, returnDraws, take } from "./funds.ts";
import { assertCounts, NO_TOKENS } from "./price.ts";
import { isBookedLate } from "./request-id.ts";

/** Reserves credits for a request, unless it has a hold, has ended, or its key was used before. */
export function hold(batch: Batch, funds: Funds, transition: HoldTransition): Outcomes["hold"] {
  const { facts, least, most, lifeMs, owner, idempotency } = transition;
  const earlier = holdOf(batch, facts);
  if (earlier !== undefined) return { outcome: "held", amount: earlier.amount, available: funds.balance.available };
  const ended = requestOf(batch, facts);
  if (ended !== undefined) return { outcome: "ended", state: endedStateOf(ended.end) };
  const answered = idempotency && earlierAnswer(batch, idempotency, facts, funds.balance.available);
  if (answered) return answered;
  assertAmount(least);
  assertAmount(most);
  const reach = reachOf(batch, funds, facts);
  if (reach < least) return shortage(batch, funds, transition, reach);
  const idempotencyKey = idempotency?.key ?? facts.idempotencyKey;
  const amount = minimum(most, reach);
  const row = reserve(batch, funds, { ...facts, idempotencyKey }, amount);
  putHold(batch, { ...row, owner, expiresAtMs: batch.nowMs + lifeMs });
  if (idempotency) claimKey(batch, idempotency, facts);
  return { outcome: "held", amount, available: funds.balance.available };
}

/** Extends a hold and stores its checkpoint. A hold that the store lost is made again, as far as credits reach. */
export function renew(batch: Batch, funds: Funds, transition: RenewTransition): Outcomes["renew"] {
  const { facts, amount, tokens, lifeMs, owner } = transition;
  const earlier = holdOf(batch, facts);
  const ended = earlier === undefined ? requestOf(batch, facts) : undefined;
  if (ended !== undefined) return { outcome: "ended", state: endedStateOf(ended.end) };
  assertAmount(amount);
  assertCounts(tokens);
  const row = earlier ?? reserve(batch, funds, facts, minimum(amount, reachOf(batch, funds, facts)));
  const { upstream, prices } = facts;
  const details = { ...row.details, upstream, prices, tokens: { ...tokens } };
  const renewed = { ...row, owner, details, expiresAtMs: batch.nowMs + lifeMs };
  if (earlier === undefined || isChange(row, renewed)) putHold(batch, renewed);
  return { outcome: "renewed", remade: earlier === undefined };
}

/** Returns what was held. Without a hold the request is recorded as released, so that a hold that arrives later is refused. */
export function release(batch: Batch, funds: Funds, transition: ReleaseTransition): Outcomes["release"] {
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
    const nothing = { tokens: NO_TOKENS, cost: 0n, shortfall: 0n, draws: [] };
    const end = { ...nothing, basis: null, end: "released", trace } as const;
    const request = endedRequest(batch, row ?? emptyHold(facts, batch.nowMs), end);
    endRequest(batch, request);
    freeKey(batch, facts, request.idempotencyKey);
  }
  return { outcome: "released", available: funds.balance.available };
}

/** Makes a hold that reserves nothing, for a request whose hold is missing. */
export function emptyHold(facts: HoldFacts, nowMs: number): HoldRow {
  const { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey } = facts;
  const details = { tokenId, requestId, model, upstream, prices, metadata, idempotencyKey, tokens: NO_TOKENS };
  return { organizationId, holdId, amount: 0n, draws: [], owner: "", madeAtMs: nowMs, expiresAtMs: nowMs, details };
}

type EndOfRequest = Pick<RequestRow, "tokens" | "cost" | "shortfall" | "basis" | "end" | "trace"> & {
  draws: RequestRow["draws"];
  /** The route that was taken, where it differs from that of the hold. */
  route?: Pick<RequestRow, "upstream" | "prices">;
};

/** Makes the row of a request that ends now. */
export function endedRequest({ nowMs }: Batch, row: HoldRow, { route, ...end }: EndOfRequest): RequestRow {
  const { organizationId, holdId, amount, madeAtMs, details } = row;
  const { tokenId, requestId, model, metadata, idempotencyKey } = details;
  const { upstream, prices } = route ?? details;
  const facts = { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey };
  return { ...facts, amount, ...end, madeAtMs, endedAtMs: nowMs, isLate: isBookedLate(holdId, nowMs) };
}

/** Subtracts an open hold's amount from the amounts held. The caller books the amount elsewhere. */
export function unreserve(batch: Batch, funds: Funds, row: HoldRow): void {
  funds.balance.held -= row.amount;
  const { organizationId, details } = row;
  const tokenBalance = tokenBalanceOf(batch, { organizationId, tokenId: details.tokenId });
  if (tokenBalance !== undefined) tokenBalance.held -= row.amount;
}

function reserve(batch: Batch, funds: Funds, facts: HoldFacts, amount: MicroCredits): HoldRow {
  const row = { ...emptyHold(facts, batch.nowMs), amount, draws: take(funds, amount) };
  funds.balance.held += amount;
  const tokenBalance = tokenBalanceOf(batch, facts);
  if (tokenBalance !== undefined) tokenBalance.held += amount;
  return row;
}

/** Returns the credits that a request of the token can hold: the available ones, at most the rest of the token's cap. */
function reachOf(batch: Batch, { balance }: Funds, facts: HoldFacts): MicroCredits {
  const token = tokenBalanceOf(batch, facts);
  if (token === undefined) return balance.available;
  const left = token.cap - token.held - token.spent;
  return left < 0n ? 0n : minimum(left, balance.available);
}

/** Refuses a hold. `insufficient` takes precedence over `busy`, because waiting would not help. */
function shortage(
  batch: Batch,
  { balance: { available, held } }: Funds,
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

/** Returns the outcome of the earlier request with the key; undefined where there was none, or the key has expired. */
export function earlierAnswer(
  batch: Batch,
  { key, fingerprint }: IdempotencyClaim,
  { organizationId }: HoldTransition["facts"],
  available: bigint,
): KeyOutcome | undefined {
  const row = batch.keys.get(organizationId, key);
  if (row === undefined || row.expiresAtMs <= batch.nowMs) return undefined;
  if (row.fingerprint !== fingerprint) return { outcome: "mismatch" };
  const request = requestOf(batch, row);
  if (row.answer !== null) {
    const charged = request === undefined ? 0n : chargeOf(batch, request).charged;
    return { outcome: "replayed", answer: row.answer, charged, available };
  }
  return { outcome: holdOf(batch, row) === undefined ? "interrupted" : "in_progress" };
}

interface Named {
  organizationId: string;
  holdId: string;
}

/** Claims the key for a hold; replaces an expired key. */
export function claimKey(batch: Batch, { key, fingerprint, keepMs }: IdempotencyClaim, hold: Named): void {
  const { organizationId, holdId } = hold;
  const times = { createdAtMs: batch.nowMs, expiresAtMs: batch.nowMs + keepMs };
  batch.keys.set(organizationId, key, { organizationId, key, fingerprint, holdId, answer: null, ...times });
}

/** Stores the answer of a request under its key. */
export function storeAnswer(batch: Batch, request: Named, key: string | null, answer: string): void {
  const row = keyOf(batch, request, key);
  if (row !== undefined) batch.keys.set(row.organizationId, row.key, { ...row, answer });
}

/** Removes the key of a request that was released. */
export function freeKey(batch: Batch, request: Named, key: string | null): void {
  const row = keyOf(batch, request, key);
  if (row !== undefined) batch.keys.delete(row.organizationId, row.key);
}

/** Returns the key while it names this request: after its expiry it may belong to another one. */
function keyOf(batch: Batch, { organizationId, holdId }: Named, key: string | null) {
  if (key === null) return undefined;
  const row = batch.keys.get(organizationId, key);
  return row?.holdId === holdId ? row : undefined;
}
