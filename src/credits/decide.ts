import { type MicroCredits, minimum } from "./amount.ts";
import type {
  BalanceRow,
  BookRows,
  BookWrites,
  Decision,
  Draw,
  EventBasis,
  EventEnd,
  ExpireTransition,
  GrantRow,
  GrantTransition,
  HoldFacts,
  HoldRow,
  HoldTransition,
  Outcome,
  Outcomes,
  ReleaseTransition,
  RenewTransition,
  SettleOutcome,
  SettleTransition,
  Transition,
  UsageEventRow,
} from "./books.ts";
import { NO_TOKENS, priceOf, TOKEN_CLASSES, type TokenCounts } from "./price.ts";
import { addGrant, openPurse, type Purse, putBack, take } from "./purse.ts";

/**
 * Decides a batch: takes the rows that it concerns, read under the locks of its balances, and its transitions in their
 * order of arrival; gives an outcome for each and the rows to write, each in its last state. Pure: the rows are not
 * changed. Throws, and then nothing is to be booked, on an amount below 0, on a count of tokens that is no natural
 * number, and on rows that contradict each other.
 */
export function decide(rows: BookRows, transitions: readonly Transition[]): Decision {
  const batch = openBatch(rows);
  const outcomes = transitions.map((transition) => decideOne(batch, transition));
  return { outcomes, writes: writesOf(batch) };
}

/** The state that a batch moves. A hold is found by its organization's id and its own. */
interface Batch {
  nowMs: number;
  balances: Map<string, BalanceRow>;
  grants: Map<string, GrantRow[]>;
  /** Of the organizations that a transition has named so far. */
  purses: Map<string, Purse>;
  holds: Map<string, HoldRow>;
  newHolds: Set<HoldRow>;
  changedHolds: Set<HoldRow>;
  events: UsageEventRow[];
}

function openBatch(rows: BookRows): Batch {
  return {
    nowMs: rows.nowMs,
    balances: new Map(rows.balances.map((balance) => [balance.organizationId, balance])),
    grants: Map.groupBy(rows.grants, (grant) => grant.organizationId),
    purses: new Map(),
    holds: new Map(rows.holds.map((hold) => [holdKey(hold), { ...hold }])),
    newHolds: new Set(),
    changedHolds: new Set(),
    events: [],
  };
}

function decideOne(batch: Batch, transition: Transition): Outcome {
  const hasFacts = transition.kind === "hold" || transition.kind === "settle";
  const purse = purseOf(batch, hasFacts ? transition.facts.organizationId : transition.organizationId);
  if (purse === undefined) return { outcome: "unknown_organization" };
  switch (transition.kind) {
    case "hold":
      return hold(batch, purse, transition);
    case "renew":
      return renew(batch, transition);
    case "settle":
      return settle(batch, purse, transition);
    case "release":
      return release(batch, purse, transition);
    case "expire":
      return expire(batch, purse, transition);
    case "grant":
      return grant(batch, purse, transition);
    case "refresh":
      return { outcome: "refreshed", balance: { ...purse.balance } };
  }
}

function hold(batch: Batch, purse: Purse, { facts, least, most, lifeMs }: HoldTransition): Outcomes["hold"] {
  const earlier = batch.holds.get(holdKey(facts));
  if (earlier !== undefined) {
    if (earlier.state !== "open") return { outcome: "ended", state: earlier.state };
    return { outcome: "held", amount: earlier.amount, available: purse.balance.available };
  }
  assertAmount(least);
  assertAmount(most);
  const { available, held } = purse.balance;
  if (available < least) {
    if (available + held >= least) return { outcome: "busy", available, held };
    return { outcome: "insufficient", available };
  }
  const amount = minimum(most, available);
  const row: HoldRow = { ...newHold(facts, batch.nowMs), amount, draws: take(purse, amount) };
  row.expiresAtMs = batch.nowMs + lifeMs;
  purse.balance.held += amount;
  insertHold(batch, row);
  return { outcome: "held", amount, available: purse.balance.available };
}

function renew(batch: Batch, transition: RenewTransition): Outcomes["renew"] {
  const row = batch.holds.get(holdKey(transition));
  if (row === undefined) return { outcome: "missing" };
  if (row.state !== "open") return { outcome: "ended", state: row.state };
  const expiresAtMs = batch.nowMs + transition.lifeMs;
  if (row.expiresAtMs !== expiresAtMs) batch.changedHolds.add(row);
  row.expiresAtMs = expiresAtMs;
  return { outcome: "renewed" };
}

/** Never refused: what the credits do not cover is recorded as shortfall. */
function settle(batch: Batch, purse: Purse, { facts, tokens, basis, end }: SettleTransition): SettleOutcome {
  // A hold whose row was lost with its database is charged like one that had set nothing aside.
  const row = batch.holds.get(holdKey(facts)) ?? insertHold(batch, newHold(facts, batch.nowMs));
  if (row.state === "released") return { outcome: "released" };
  if (row.state !== "charged") charge(batch, purse, row, { facts, tokens, basis, end, state: "charged" });
  const { charged, shortfall } = row;
  return { outcome: "charged", charged, shortfall, available: purse.balance.available };
}

function release(batch: Batch, purse: Purse, transition: ReleaseTransition): Outcomes["release"] {
  const row = batch.holds.get(holdKey(transition));
  if (row === undefined) return { outcome: "missing" };
  if (row.state === "charged" || row.state === "expired") return { outcome: row.state };
  if (row.state === "open") {
    purse.balance.held -= row.amount;
    putBack(purse, row.draws, batch.nowMs);
    row.draws = [];
    row.state = "released";
    batch.changedHolds.add(row);
  }
  return { outcome: "released", available: purse.balance.available };
}

function expire(batch: Batch, purse: Purse, transition: ExpireTransition): Outcomes["expire"] {
  const row = batch.holds.get(holdKey(transition));
  if (row === undefined) return { outcome: "missing" };
  if (row.state === "open" && row.expiresAtMs <= batch.nowMs) {
    charge(batch, purse, row, {
      facts: row,
      tokens: row.tokens,
      basis: "counted",
      end: "recovered",
      state: "expired",
    });
  }
  if (row.state !== "expired") return { outcome: "kept", state: row.state };
  return { outcome: "expired", charged: row.charged, shortfall: row.shortfall };
}

function grant(batch: Batch, purse: Purse, transition: GrantTransition): Outcomes["grant"] {
  assertAmount(transition.amount);
  const { grant, first } = addGrant(purse, transition, batch.nowMs);
  return { outcome: "granted", grantId: grant.id, balance: { ...purse.balance }, repeated: !first };
}

interface Charge {
  facts: HoldFacts;
  tokens: TokenCounts;
  basis: EventBasis;
  end: EventEnd;
  state: "charged" | "expired";
}

/**
 * Charges a hold that is open or expired. What an open hold set aside, or an expired one was charged, covers the cost
 * first; what is left of that goes back to its grants, the last one drawn first; what is missing is drawn from what is
 * available; what is not there either is the shortfall. The event is the difference to what was booked before.
 */
function charge(batch: Batch, purse: Purse, row: HoldRow, { facts, tokens, basis, end, state }: Charge): void {
  const { balance } = purse;
  const late = row.state === "expired";
  const before = late ? row : { charged: 0n, shortfall: 0n, tokens: NO_TOKENS };
  const cost = priceOf(assertCounts(tokens), facts.prices);
  if (row.state === "open") balance.held -= row.amount;
  const { front, rest } = splitDraws(row.draws, cost);
  putBack(purse, rest, batch.nowMs);
  const missing = cost - sumOf(front);
  const more = take(purse, minimum(missing, balance.available));
  const draws = mergeDraws(front, more);
  const charged = sumOf(draws);
  const shortfall = cost - charged;
  balance.spent += charged - before.charged;
  const taken = factsOf(facts);
  batch.events.push({
    ...taken,
    sequence: late ? 1 : 0,
    tokens: differenceOf(tokens, before.tokens),
    cost: charged - before.charged,
    shortfall: shortfall - before.shortfall,
    basis,
    end,
    madeAtMs: row.madeAtMs,
    chargedAtMs: batch.nowMs,
  });
  Object.assign(row, { ...taken, tokens: { ...tokens }, draws, charged, shortfall, state });
  batch.changedHolds.add(row);
}

function purseOf(batch: Batch, organizationId: string): Purse | undefined {
  const open = batch.purses.get(organizationId);
  if (open !== undefined) return open;
  const balance = batch.balances.get(organizationId);
  if (balance === undefined) return undefined;
  const purse = openPurse(balance, batch.grants.get(organizationId) ?? [], batch.nowMs);
  batch.purses.set(organizationId, purse);
  return purse;
}

function newHold(facts: HoldFacts, nowMs: number): HoldRow {
  return {
    ...factsOf(facts),
    amount: 0n,
    tokens: NO_TOKENS,
    idempotencyKey: null,
    madeAtMs: nowMs,
    expiresAtMs: nowMs,
    draws: [],
    state: "open",
    charged: 0n,
    shortfall: 0n,
  };
}

function insertHold(batch: Batch, row: HoldRow): HoldRow {
  batch.holds.set(holdKey(row), row);
  batch.newHolds.add(row);
  return row;
}

function holdKey({ organizationId, holdId }: { organizationId: string; holdId: string }): string {
  return `${organizationId} ${holdId}`;
}

function factsOf(facts: HoldFacts): HoldFacts {
  const { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata } = facts;
  return { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata };
}

/** Parts draws after the first `amount` of them. */
function splitDraws(draws: readonly Draw[], amount: MicroCredits): { front: Draw[]; rest: Draw[] } {
  const front: Draw[] = [];
  const rest: Draw[] = [];
  let left = amount;
  for (const draw of draws) {
    const kept = minimum(draw.amount, left);
    left -= kept;
    if (kept > 0n) front.push({ grantId: draw.grantId, amount: kept });
    if (kept < draw.amount) rest.push({ grantId: draw.grantId, amount: draw.amount - kept });
  }
  return { front, rest };
}

/** Names every grant once, in the order of its first draw. */
function mergeDraws(draws: readonly Draw[], more: readonly Draw[]): Draw[] {
  if (more.length === 0) return [...draws];
  const amounts = new Map<string, MicroCredits>();
  for (const { grantId, amount } of [...draws, ...more]) amounts.set(grantId, (amounts.get(grantId) ?? 0n) + amount);
  return [...amounts].map(([grantId, amount]) => ({ grantId, amount }));
}

function sumOf(draws: readonly Draw[]): MicroCredits {
  return draws.reduce((sum, draw) => sum + draw.amount, 0n);
}

function differenceOf(tokens: TokenCounts, before: TokenCounts): TokenCounts {
  const difference = { ...NO_TOKENS };
  for (const tokenClass of TOKEN_CLASSES) difference[tokenClass] = tokens[tokenClass] - before[tokenClass];
  return difference;
}

function writesOf(batch: Batch): BookWrites {
  const writes: BookWrites = {
    balances: [],
    newGrants: [],
    changedGrants: [],
    newHolds: [...batch.newHolds],
    changedHolds: [...batch.changedHolds].filter((row) => !batch.newHolds.has(row)),
    events: batch.events,
  };
  for (const [organizationId, purse] of batch.purses) {
    assertBalanced(purse.balance);
    const before = batch.balances.get(organizationId);
    if (before === undefined || differs(before, purse.balance)) writes.balances.push(purse.balance);
    const grantsBefore = new Map(batch.grants.get(organizationId)?.map((grant) => [grant.id, grant]));
    for (const grant of purse.grants.values()) {
      const grantBefore = grantsBefore.get(grant.id);
      if (grantBefore === undefined) writes.newGrants.push(grant);
      else if (differs(grantBefore, grant)) writes.changedGrants.push(grant);
    }
  }
  return writes;
}

function differs<Row extends object>(before: Row, after: Row): boolean {
  return (Object.keys(after) as (keyof Row)[]).some((column) => before[column] !== after[column]);
}

function assertBalanced(balance: BalanceRow): void {
  const { organizationId, granted, available, held, spent, expired } = balance;
  const whole = granted === available + held + spent + expired;
  if (whole && [available, held, spent, expired].every((amount) => amount >= 0n)) return;
  throw new Error(`the batch would leave the balance of ${organizationId} broken`);
}

function assertAmount(amount: MicroCredits): void {
  if (amount < 0n) throw new RangeError("an amount of credits is below 0");
}

function assertCounts(tokens: TokenCounts): TokenCounts {
  const natural = TOKEN_CLASSES.every(
    (tokenClass) => Number.isSafeInteger(tokens[tokenClass]) && tokens[tokenClass] >= 0,
  );
  if (!natural) throw new RangeError("a count of tokens is not a natural number");
  return tokens;
}
