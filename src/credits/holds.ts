import { type MicroCredits, minimum } from "./amount.ts";
import { type Batch, holdOf, insertHold, tokenBalanceOf } from "./batch.ts";
import type { HoldFacts, HoldRow, HoldTransition, Outcomes, ReleaseTransition, RenewTransition } from "./books.ts";
import { assertAmount, assertCounts } from "./checks.ts";
import { claimKey, earlierAnswer, freeKey } from "./keys.ts";
import { NO_TOKENS } from "./price.ts";
import { type Purse, putBack, take } from "./purse.ts";

export function hold(batch: Batch, purse: Purse, transition: HoldTransition): Outcomes["hold"] {
  const { facts, least, most, lifeMs, idempotency } = transition;
  const earlier = holdOf(batch, facts);
  if (earlier !== undefined) {
    if (earlier.state !== "open") return { outcome: "ended", state: earlier.state };
    return { outcome: "held", amount: earlier.amount, available: purse.balance.available };
  }
  const answered = idempotency && earlierAnswer(batch, idempotency, facts, purse.balance.available);
  if (answered) return answered;
  assertAmount(least);
  assertAmount(most);
  const reach = reachOf(batch, purse, facts);
  if (reach < least) return shortage(batch, purse, transition, reach);
  const row = setAside(batch, purse, facts, minimum(most, reach));
  row.expiresAtMs = batch.nowMs + lifeMs;
  if (idempotency) {
    row.idempotencyKey = idempotency.key;
    claimKey(batch, idempotency, row);
  }
  return { outcome: "held", amount: row.amount, available: purse.balance.available };
}

export function renew(batch: Batch, purse: Purse, transition: RenewTransition): Outcomes["renew"] {
  const { facts, amount, tokens, lifeMs } = transition;
  const earlier = holdOf(batch, facts);
  if (earlier !== undefined && earlier.state !== "open") return { outcome: "ended", state: earlier.state };
  assertAmount(amount);
  assertCounts(tokens);
  const reach = earlier === undefined ? reachOf(batch, purse, facts) : 0n;
  const row = earlier ?? setAside(batch, purse, facts, minimum(amount, reach));
  const { upstream, prices } = facts;
  const renewed = { upstream, prices, tokens: { ...tokens }, expiresAtMs: batch.nowMs + lifeMs };
  if (isChange(row, renewed)) batch.changedHolds.add(Object.assign(row, renewed));
  return { outcome: "renewed", remade: earlier === undefined };
}

export function release(batch: Batch, purse: Purse, transition: ReleaseTransition): Outcomes["release"] {
  const row = holdOf(batch, transition);
  if (row === undefined) return { outcome: "missing" };
  if (row.state === "charged" || row.state === "expired") return { outcome: row.state };
  if (row.state === "open") {
    giveUp(batch, purse, row);
    putBack(purse, row.draws, batch.nowMs);
    Object.assign(row, { draws: [], state: "released", trace: transition.trace ?? null });
    batch.changedHolds.add(row);
    freeKey(batch, row);
  }
  return { outcome: "released", available: purse.balance.available };
}

/** A hold that holds nothing yet. */
export function newHold(facts: HoldFacts, nowMs: number): HoldRow {
  const { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata } = facts;
  return {
    ...{ holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata },
    amount: 0n,
    tokens: NO_TOKENS,
    idempotencyKey: null,
    madeAtMs: nowMs,
    expiresAtMs: nowMs,
    draws: [],
    state: "open",
    charged: 0n,
    shortfall: 0n,
    credited: 0n,
    trace: null,
  };
}

/** Takes an open hold's amount off what is held. Where it goes is its caller's to say. */
export function giveUp(batch: Batch, purse: Purse, row: HoldRow): void {
  purse.balance.held -= row.amount;
  const tokenBalance = tokenBalanceOf(batch, row);
  if (tokenBalance !== undefined) tokenBalance.held -= row.amount;
}

function setAside(batch: Batch, purse: Purse, facts: HoldFacts, amount: MicroCredits): HoldRow {
  const row = { ...newHold(facts, batch.nowMs), amount, draws: take(purse, amount) };
  purse.balance.held += amount;
  const tokenBalance = tokenBalanceOf(batch, facts);
  if (tokenBalance !== undefined) tokenBalance.held += amount;
  return insertHold(batch, row);
}

/** What a request of the token could have: what is available, at most what the token's cap leaves. */
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

function isChange(row: HoldRow, { upstream, prices, tokens, expiresAtMs }: Partial<HoldRow>): boolean {
  if (row.expiresAtMs !== expiresAtMs || row.upstream !== upstream) return true;
  return !isSame(row.tokens, tokens) || !isSame(row.prices, prices);
}

function isSame<Counts extends object>(a: Counts, b: Counts | undefined): boolean {
  return b !== undefined && (Object.keys(a) as (keyof Counts)[]).every((name) => a[name] === b[name]);
}
