import type { MicroCredits } from "./amount.ts";
import { type AuditRow, auditRowOf } from "./audit.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  CreditTransition,
  GrantRow,
  GrantTransition,
  HoldRow,
  IdempotencyKeyRow,
  RequestRow,
  RevokeTransition,
  TokenBalanceRow,
} from "./books.ts";
import type { BookRows, BookWrites } from "./decision.ts";
import { NameMap } from "./names.ts";
import { openPurse, type Purse } from "./purse.ts";

/** The state that a batch moves, by organization and id. */
export interface Batch {
  nowMs: number;
  balances: Map<string, BalanceRow>;
  tokenBalances: NameMap<TokenBalanceRow>;
  grants: Map<string, GrantRow[]>;
  /** Of the organizations that a transition has named so far. */
  purses: Map<string, Purse>;
  /** Open holds. */
  holds: NameMap<HoldRow>;
  /** Ended requests. */
  requests: NameMap<RequestRow>;
  /** Those of them that this batch ended. */
  newRequests: RequestRow[];
  keys: NameMap<IdempotencyKeyRow>;
  adjustments: AdjustmentRow[];
  newAuditEntries: AuditRow[];
}

/** Takes copies of what it may change. */
export function openBatch(rows: BookRows): Batch {
  const batch: Batch = {
    nowMs: rows.nowMs,
    balances: new Map(rows.balances.map((balance) => [balance.organizationId, balance])),
    tokenBalances: new NameMap(),
    grants: Map.groupBy(rows.grants, (grant) => grant.organizationId),
    purses: new Map(),
    holds: new NameMap(),
    requests: new NameMap(),
    newRequests: [],
    keys: new NameMap(),
    adjustments: [...rows.adjustments],
    newAuditEntries: [],
  };
  for (const row of rows.tokenBalances) batch.tokenBalances.set(row.organizationId, row.tokenId, { ...row });
  for (const row of rows.holds) batch.holds.set(row.organizationId, row.holdId, row);
  for (const row of rows.requests) batch.requests.set(row.organizationId, row.holdId, row);
  for (const row of rows.keys) batch.keys.set(row.organizationId, row.key, row);
  return batch;
}

export function purseOf(batch: Batch, organizationId: string): Purse | undefined {
  const open = batch.purses.get(organizationId);
  if (open !== undefined) return open;
  const balance = batch.balances.get(organizationId);
  if (balance === undefined) return undefined;
  const purse = openPurse(balance, batch.grants.get(organizationId) ?? [], batch.nowMs);
  batch.purses.set(organizationId, purse);
  return purse;
}

export function holdOf(batch: Batch, name: { organizationId: string; holdId: string }): HoldRow | undefined {
  return batch.holds.get(name.organizationId, name.holdId);
}

/** Adds a hold, or takes the place of the one with the same id. */
export function putHold(batch: Batch, row: HoldRow): void {
  batch.holds.set(row.organizationId, row.holdId, row);
}

/** Ends a request: its hold, where there is one, is removed. */
export function endRequest(batch: Batch, row: RequestRow): void {
  batch.holds.delete(row.organizationId, row.holdId);
  batch.requests.set(row.organizationId, row.holdId, row);
  batch.newRequests.push(row);
}

export function requestOf(batch: Batch, name: { organizationId: string; holdId: string }): RequestRow | undefined {
  return batch.requests.get(name.organizationId, name.holdId);
}

/** The late settlement of a request that was recovered. */
export function lateSettlementOf(batch: Batch, request: RequestRow): AdjustmentRow | undefined {
  return adjustmentsOf(batch, request).find(({ kind }) => kind === "late_settlement");
}

/** The whole charge of a request, its late settlement included. */
export function chargeOf(batch: Batch, request: RequestRow): { charged: MicroCredits; shortfall: MicroCredits } {
  const late = lateSettlementOf(batch, request);
  const charged = request.cost + (late?.amount ?? 0n);
  return { charged, shortfall: request.shortfall + (late?.settlement?.shortfall ?? 0n) };
}

/** The sum of the credits that correct a request. */
export function creditedOf(batch: Batch, request: RequestRow): MicroCredits {
  const credits = adjustmentsOf(batch, request).filter(({ kind }) => kind === "credit");
  return credits.reduce((sum, { amount }) => sum + amount, 0n);
}

function adjustmentsOf({ adjustments }: Batch, { organizationId, holdId }: RequestRow): AdjustmentRow[] {
  return adjustments.filter((row) => row.holdId === holdId && row.organizationId === organizationId);
}

/** Adds the audit record of a booking that this batch makes first, where the transition carries one. */
export function recordBooking(
  batch: Batch,
  { organizationId, audit }: GrantTransition | RevokeTransition | CreditTransition,
  { id: subjectId, amount }: { id: string; amount: MicroCredits },
): void {
  if (audit === undefined || audit === null) return;
  batch.newAuditEntries.push(auditRowOf(audit, { organizationId, subjectId, amount, madeAtMs: batch.nowMs }));
}

/** Of a token with a cap: where the cap is that it may share with other tokens. */
export function tokenBalanceOf(
  batch: Batch,
  { organizationId, tokenId }: { organizationId: string; tokenId: string },
): TokenBalanceRow | undefined {
  if (batch.tokenBalances.size === 0) return undefined;
  const row = batch.tokenBalances.get(organizationId, tokenId);
  if (row === undefined || row.budgetId === null) return row;
  const shared = batch.tokenBalances.get(organizationId, row.budgetId);
  if (shared === undefined) throw new Error(`the rows lack the cap that the token ${tokenId} shares`);
  return shared;
}

/** The rows that have changed since they were read. */
export function writesOf(batch: Batch, rows: BookRows): BookWrites {
  return {
    ...writesOfPurses(batch),
    tokenBalances: changed(rows.tokenBalances, (row) => batch.tokenBalances.get(row.organizationId, row.tokenId)),
    ...writesOfHolds(batch, rows.holds),
    newRequests: batch.newRequests,
    ...writesOfKeys(batch, rows.keys),
    newAdjustments: [...batch.adjustments.slice(rows.adjustments.length), ...lapsesOf(batch)],
    newAuditEntries: batch.newAuditEntries,
  };
}

/** A hold is replaced, never changed in place. */
function writesOfHolds(
  batch: Batch,
  before: HoldRow[],
): Pick<BookWrites, "newHolds" | "renewedHolds" | "removedHolds"> {
  const writes: ReturnType<typeof writesOfHolds> = { newHolds: [], renewedHolds: [], removedHolds: [] };
  const known = new Set<HoldRow>();
  for (const row of before) {
    const { organizationId, holdId } = row;
    const after = batch.holds.get(organizationId, holdId);
    if (after === undefined) writes.removedHolds.push({ organizationId, holdId });
    else if (after !== row) writes.renewedHolds.push(after);
    if (after !== undefined) known.add(after);
  }
  writes.newHolds = batch.holds.values().filter((row) => !known.has(row));
  return writes;
}

/** The expired amount of an organization only grows, so that it makes a unique id. */
function lapsesOf({ purses, nowMs }: Batch): AdjustmentRow[] {
  const terms = { isAll: false, grantId: null, holdId: null, tokenId: null, settlement: null };
  const noted = { ...terms, reference: null, note: null, madeAtMs: nowMs };
  return [...purses].flatMap(([organizationId, { lapses }]) =>
    lapses.map(({ grantId, amount, expired, dueAtMs }) => {
      const draws = [{ grantId, amount }];
      return { organizationId, id: `lapse_${expired}`, kind: "lapse", amount, draws, expiresAtMs: dueAtMs, ...noted };
    }),
  );
}

function writesOfPurses(batch: Batch): Pick<BookWrites, "balances" | "newGrants" | "changedGrants"> {
  const writes: ReturnType<typeof writesOfPurses> = { balances: [], newGrants: [], changedGrants: [] };
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

function writesOfKeys(batch: Batch, before: IdempotencyKeyRow[]): Pick<BookWrites, "keys" | "removedKeys"> {
  const removed = before.filter(({ organizationId, key }) => !batch.keys.has(organizationId, key));
  return {
    keys: batch.keys.values().filter((row) => !before.includes(row)),
    removedKeys: removed.map(({ organizationId, key }) => ({ organizationId, key })),
  };
}

function changed<Row extends object>(before: Row[], afterOf: (row: Row) => Row | undefined): Row[] {
  return before.flatMap((row) => {
    const after = afterOf(row);
    return after !== undefined && differs(row, after) ? [after] : [];
  });
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
