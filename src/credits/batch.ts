import type {
  AdjustmentRow,
  BalanceRow,
  BookRows,
  BookWrites,
  GrantRow,
  HoldRow,
  IdempotencyKeyRow,
  TokenBalanceRow,
  UsageEventRow,
} from "./books.ts";
import { nameKey } from "./names.ts";
import { openPurse, type Purse } from "./purse.ts";

/** The state that a batch moves, by organization and id. */
export interface Batch {
  nowMs: number;
  balances: Map<string, BalanceRow>;
  tokenBalances: Map<string, TokenBalanceRow>;
  grants: Map<string, GrantRow[]>;
  /** Of the organizations that a transition has named so far. */
  purses: Map<string, Purse>;
  holds: Map<string, HoldRow>;
  newHolds: Set<HoldRow>;
  changedHolds: Set<HoldRow>;
  events: UsageEventRow[];
  keys: Map<string, IdempotencyKeyRow>;
  adjustments: AdjustmentRow[];
}

/** Takes copies of what it may change. */
export function openBatch(rows: BookRows): Batch {
  return {
    nowMs: rows.nowMs,
    balances: new Map(rows.balances.map((balance) => [balance.organizationId, balance])),
    tokenBalances: new Map(rows.tokenBalances.map((row) => [nameKey(row.organizationId, row.tokenId), { ...row }])),
    grants: Map.groupBy(rows.grants, (grant) => grant.organizationId),
    purses: new Map(),
    holds: new Map(rows.holds.map((hold) => [nameKey(hold.organizationId, hold.holdId), { ...hold }])),
    newHolds: new Set(),
    changedHolds: new Set(),
    events: [],
    keys: new Map(rows.keys.map((row) => [nameKey(row.organizationId, row.key), row])),
    adjustments: [...rows.adjustments],
  };
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
  return batch.holds.get(nameKey(name.organizationId, name.holdId));
}

export function insertHold(batch: Batch, row: HoldRow): HoldRow {
  batch.holds.set(nameKey(row.organizationId, row.holdId), row);
  batch.newHolds.add(row);
  return row;
}

/** Of a token with a cap: where the cap is that it may share with other tokens. */
export function tokenBalanceOf(
  batch: Batch,
  { organizationId, tokenId }: { organizationId: string; tokenId: string },
): TokenBalanceRow | undefined {
  if (batch.tokenBalances.size === 0) return undefined;
  const row = batch.tokenBalances.get(nameKey(organizationId, tokenId));
  if (row === undefined || row.budgetId === null) return row;
  const shared = batch.tokenBalances.get(nameKey(organizationId, row.budgetId));
  if (shared === undefined) throw new Error(`the rows lack the cap that the token ${tokenId} shares`);
  return shared;
}

/** What has become of the rows that were read. */
export function writesOf(batch: Batch, rows: BookRows): BookWrites {
  const changedHolds = [...batch.changedHolds].filter((row) => !batch.newHolds.has(row));
  return {
    ...writesOfPurses(batch),
    tokenBalances: changed(rows.tokenBalances, (row) =>
      batch.tokenBalances.get(nameKey(row.organizationId, row.tokenId)),
    ),
    newHolds: [...batch.newHolds],
    renewedHolds: changedHolds.filter(({ state }) => state === "open"),
    endedHolds: changedHolds.filter(({ state }) => state !== "open"),
    events: batch.events,
    ...writesOfKeys(batch, rows.keys),
    newAdjustments: [...batch.adjustments.slice(rows.adjustments.length), ...lapsesOf(batch)],
  };
}

/** What has expired only grows, so that it makes an id. */
function lapsesOf({ purses, nowMs }: Batch): AdjustmentRow[] {
  const terms = { isAll: false, grantId: null, expiresAtMs: null, holdId: null, tokenId: null };
  const noted = { ...terms, reference: null, note: null, madeAtMs: nowMs };
  return [...purses].flatMap(([organizationId, { lapses }]) =>
    lapses.map(({ grantId, amount, expired }) => {
      return { organizationId, id: `lapse_${expired}`, kind: "lapse", amount, draws: [{ grantId, amount }], ...noted };
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
  const removed = before.filter(({ organizationId, key }) => !batch.keys.has(nameKey(organizationId, key)));
  return {
    keys: batch.keys.size === 0 ? [] : [...batch.keys.values()].filter((row) => !before.includes(row)),
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
