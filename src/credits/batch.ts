import type { MicroCredits } from "./amount.ts";
import { type AuditRow, auditRowOf } from "./audit.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  BudgetUseRow,
  CreditTransition,
  GrantRow,
  GrantTransition,
  HoldRow,
  IdempotencyKeyRow,
  RequestRow,
  RevokeTransition,
} from "./books.ts";
import { counterIdOf } from "./budget-uses.ts";
import type { BudgetIndex } from "./budgets.ts";
import { type Funds, openFunds } from "./funds.ts";
import { keyIdOf, NameMap } from "./names.ts";
import type { Outcome } from "./outcomes.ts";
import { creditsLeft, type EventRow, warnOfCredits } from "./warnings.ts";

/** The rows that a batch needs, read under the locks of its balances. `names.ts` lists the rows that it names. */
export interface BookRows {
  nowMs: number;
  balances: BalanceRow[];
  /** All budgets of each organization that has some. */
  budgets: ReadonlyMap<string, BudgetIndex>;
  /** The counters that its holds will use, and those that its transitions, holds and requests recorded. */
  budgetUses: BudgetUseRow[];
  /** Grants of those organizations that are pending or have credits remaining, that holds and requests draw on, or whose id or reference the batch names. */
  grants: GrantRow[];
  /** The open holds that the batch names, and those of the keys that it names. */
  holds: HoldRow[];
  /** The ended requests among those names. */
  requests: RequestRow[];
  /** The keys that the batch names, and those of its holds. */
  keys: IdempotencyKeyRow[];
  /** Adjustments whose id, or kind and reference, the batch names, and all adjustments of the requests above. */
  adjustments: AdjustmentRow[];
}

/** The rows to write: each whole, in its new state, and at most once. */
export interface BookWrites {
  balances: BalanceRow[];
  newBudgetUses: BudgetUseRow[];
  /** `held`, `spent` and the last warning have changed. */
  changedBudgetUses: BudgetUseRow[];
  newGrants: GrantRow[];
  /** `remaining`, `revoked` and `state` have changed. */
  changedGrants: GrantRow[];
  newHolds: HoldRow[];
  /** Expiry, owner and details have changed. */
  renewedHolds: HoldRow[];
  /** Holds that ended. */
  removedHolds: { organizationId: string; holdId: string }[];
  newRequests: RequestRow[];
  /** Keys to insert, or to replace. */
  keys: IdempotencyKeyRow[];
  removedKeys: Pick<IdempotencyKeyRow, "organizationId" | "callerId" | "key">[];
  newAdjustments: AdjustmentRow[];
  /** Records of the bookings that this batch made first. */
  newAuditEntries: AuditRow[];
  /** Warnings; those whose key is known are not written again. */
  newEvents: EventRow[];
}

export interface Decision {
  /** One outcome for each transition, in their order. */
  outcomes: Outcome[];
  writes: BookWrites;
}

/** State of a batch while it is decided, by organization and id. */
export interface Batch {
  nowMs: number;
  balances: Map<string, BalanceRow>;
  budgets: BookRows["budgets"];
  /** By `counterIdOf`. A counter is replaced, never changed in place. */
  budgetUses: NameMap<BudgetUseRow>;
  grants: Map<string, GrantRow[]>;
  /** Funds of the organizations of the transitions so far. */
  funds: Map<string, Funds>;
  /** Open holds. */
  holds: NameMap<HoldRow>;
  /** Ended requests. */
  requests: NameMap<RequestRow>;
  /** Requests that this batch ended. */
  newRequests: RequestRow[];
  /** By `keyIdOf`. */
  keys: NameMap<IdempotencyKeyRow>;
  adjustments: AdjustmentRow[];
  newAuditEntries: AuditRow[];
  newEvents: EventRow[];
}

/** Opens a batch on copies of the rows that it may change. */
export function openBatch(rows: BookRows): Batch {
  const batch: Batch = {
    nowMs: rows.nowMs,
    balances: new Map(rows.balances.map((balance) => [balance.organizationId, balance])),
    budgets: rows.budgets,
    budgetUses: new NameMap(),
    grants: Map.groupBy(rows.grants, (grant) => grant.organizationId),
    funds: new Map(),
    holds: new NameMap(),
    requests: new NameMap(),
    newRequests: [],
    keys: new NameMap(),
    adjustments: [...rows.adjustments],
    newAuditEntries: [],
    newEvents: [],
  };
  for (const row of rows.budgetUses) batch.budgetUses.set(row.organizationId, counterIdOf(row), row);
  for (const row of rows.holds) batch.holds.set(row.organizationId, row.holdId, row);
  for (const row of rows.requests) batch.requests.set(row.organizationId, row.holdId, row);
  for (const row of rows.keys) batch.keys.set(row.organizationId, keyIdOf(row), row);
  return batch;
}

/** Returns the funds of an organization; undefined if it does not exist. */
export function fundsOf(batch: Batch, organizationId: string): Funds | undefined {
  const open = batch.funds.get(organizationId);
  if (open !== undefined) return open;
  const balance = batch.balances.get(organizationId);
  if (balance === undefined) return undefined;
  const funds = openFunds(balance, batch.grants.get(organizationId) ?? [], batch.nowMs);
  batch.funds.set(organizationId, funds);
  // Grants have expired.
  if (creditsLeft(funds.balance) < creditsLeft(balance)) warnOfCredits(batch, funds.balance);
  return funds;
}

/** Returns an open hold. */
export function holdOf(batch: Batch, name: { organizationId: string; holdId: string }): HoldRow | undefined {
  return batch.holds.get(name.organizationId, name.holdId);
}

/** Adds a hold, or replaces the one with the same id. */
export function putHold(batch: Batch, row: HoldRow): void {
  batch.holds.set(row.organizationId, row.holdId, row);
}

/** Ends a request and removes its hold, if any. */
export function endRequest(batch: Batch, row: RequestRow): void {
  batch.holds.delete(row.organizationId, row.holdId);
  batch.requests.set(row.organizationId, row.holdId, row);
  batch.newRequests.push(row);
}

/** Returns a request that has ended. */
export function requestOf(batch: Batch, name: { organizationId: string; holdId: string }): RequestRow | undefined {
  return batch.requests.get(name.organizationId, name.holdId);
}

/** Returns the late settlement of a recovered request. */
export function lateSettlementOf(batch: Batch, request: RequestRow): AdjustmentRow | undefined {
  return adjustmentsOf(batch, request).find(({ kind }) => kind === "late_settlement");
}

/** Returns the whole charge of a request, including its late settlement. */
export function wholeChargeOf(batch: Batch, request: RequestRow): { charged: MicroCredits; shortfall: MicroCredits } {
  const late = lateSettlementOf(batch, request);
  const charged = request.cost + (late?.amount ?? 0n);
  return { charged, shortfall: request.shortfall + (late?.settlement?.shortfall ?? 0n) };
}

/** Returns the sum of the credits that correct a request. */
export function creditedOf(batch: Batch, request: RequestRow): MicroCredits {
  const credits = adjustmentsOf(batch, request).filter(({ kind }) => kind === "credit");
  return credits.reduce((sum, { amount }) => sum + amount, 0n);
}

function adjustmentsOf({ adjustments }: Batch, { organizationId, holdId }: RequestRow): AdjustmentRow[] {
  return adjustments.filter((row) => row.holdId === holdId && row.organizationId === organizationId);
}

/** Adds the audit record of a transition, if any. */
export function recordBooking(
  batch: Batch,
  { organizationId, audit }: GrantTransition | RevokeTransition | CreditTransition,
  { id: subjectId, amount }: { id: string; amount: MicroCredits },
): void {
  if (audit === undefined || audit === null) return;
  batch.newAuditEntries.push(auditRowOf(audit, { organizationId, subjectId, amount, madeAtMs: batch.nowMs }));
}

/** Returns the rows that have changed since they were read. */
export function writesOf(batch: Batch, rows: BookRows): BookWrites {
  return {
    ...writesOfFunds(batch),
    ...writesOfBudgets(batch, rows.budgetUses),
    ...writesOfHolds(batch, rows.holds),
    newRequests: batch.newRequests,
    ...writesOfKeys(batch, rows.keys),
    newAdjustments: [...batch.adjustments.slice(rows.adjustments.length), ...expiriesOf(batch)],
    newAuditEntries: batch.newAuditEntries,
    newEvents: batch.newEvents,
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

/** The expired amount of an organization only grows, so it makes a unique id. */
function expiriesOf({ funds, nowMs }: Batch): AdjustmentRow[] {
  const terms = { isAll: false, grantId: null, holdId: null, tokenId: null, budgets: null, settlement: null };
  const noted = { ...terms, reference: null, note: null, madeAtMs: nowMs };
  return [...funds].flatMap(([organizationId, { expiries }]) =>
    expiries.map(({ grantId, amount, expired, dueAtMs }) => {
      const draws = [{ grantId, amount }];
      return { organizationId, id: `lapse_${expired}`, kind: "lapse", amount, draws, expiresAtMs: dueAtMs, ...noted };
    }),
  );
}

function writesOfFunds(batch: Batch): Pick<BookWrites, "balances" | "newGrants" | "changedGrants"> {
  const writes: ReturnType<typeof writesOfFunds> = { balances: [], newGrants: [], changedGrants: [] };
  for (const [organizationId, funds] of batch.funds) {
    assertBalanced(funds.balance);
    const before = batch.balances.get(organizationId);
    if (before === undefined || differs(before, funds.balance)) writes.balances.push(funds.balance);
    const grantsBefore = new Map(batch.grants.get(organizationId)?.map((grant) => [grant.id, grant]));
    for (const grant of funds.grants.values()) {
      const grantBefore = grantsBefore.get(grant.id);
      if (grantBefore === undefined) writes.newGrants.push(grant);
      else if (differs(grantBefore, grant)) writes.changedGrants.push(grant);
    }
  }
  return writes;
}

function writesOfKeys(batch: Batch, before: IdempotencyKeyRow[]): Pick<BookWrites, "keys" | "removedKeys"> {
  return {
    keys: batch.keys.values().filter((row) => !before.includes(row)),
    removedKeys: before.filter((row) => !batch.keys.has(row.organizationId, keyIdOf(row))),
  };
}

/** A row whose amounts are as they were read is not written, though it may have been replaced. */
function writesOfBudgets(
  { budgetUses }: Batch,
  before: readonly BudgetUseRow[],
): Pick<BookWrites, "newBudgetUses" | "changedBudgetUses"> {
  const writes: ReturnType<typeof writesOfBudgets> = { newBudgetUses: [], changedBudgetUses: [] };
  if (budgetUses.size === 0) return writes;
  const known = new NameMap<BudgetUseRow>();
  for (const row of before) known.set(row.organizationId, counterIdOf(row), row);
  for (const row of budgetUses.values()) {
    const earlier = known.get(row.organizationId, counterIdOf(row));
    if (earlier === undefined) writes.newBudgetUses.push(row);
    else if (differs(earlier, row)) writes.changedBudgetUses.push(row);
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
  throw new Error(`the batch would leave the balance of ${organizationId} inconsistent`);
}
