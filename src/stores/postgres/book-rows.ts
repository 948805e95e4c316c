import type { BookRows, BookWrites } from "../../credits/batch.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  BudgetUseRow,
  GrantRow,
  IdempotencyKeyRow,
  RequestRow,
  Transition,
} from "../../credits/books.ts";
import { budgetUsesOf } from "../../credits/budget-counters.ts";
import {
  type BudgetUseName,
  grantsOf,
  holdNamesOf,
  type KeyName,
  keysOf,
  type Names,
  namesOf,
  type RowName,
  without,
} from "../../credits/names.ts";
import { BOOK_WRITES } from "../book-writes.ts";
import type { BudgetCache } from "../budget-cache.ts";
import { ADJUSTMENT, BALANCE, BUDGET, BUDGET_USE, GRANT, HOLD, KEY, REQUEST } from "../schema.ts";
import type { Table } from "../table.ts";
import type { Transaction } from "./transact.ts";
import { arrayText, writeStatement } from "./writes.ts";

const LOCK_BALANCES = `
  SELECT ${columnsIn(BALANCE)} FROM balance WHERE organization_id = ANY ($1) ORDER BY organization_id FOR UPDATE`;
const CLOCK = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";
const BUDGETS = `SELECT ${columnsIn(BUDGET)} FROM budget WHERE organization_id = ANY ($1) ORDER BY id`;
/** Locked after the balances, in the order of their keys. */
const LOCK_BUDGET_USES = `
  SELECT ${columnsIn(BUDGET_USE)} FROM budget_use
  WHERE (organization_id, budget_id, window_at, value) IN (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[]))
  ORDER BY organization_id, budget_id, window_at, value FOR UPDATE`;
const LIVE_GRANTS = `
  SELECT ${columnsIn(GRANT)} FROM credit_grant
  WHERE organization_id = ANY ($1) AND (state = 'pending' OR is_used_up = 0)`;
const HOLDS = namedRows(HOLD, "id");
/** The bounds are for the server, which would otherwise search every partition. */
const REQUESTS = `${namedRows(REQUEST, "id")} AND request.id >= $3 AND request.id <= $4`;
const KEYS = `
  SELECT ${columnsIn(KEY)}
  FROM unnest($1::text[], $2::text[], $3::text[]) AS named (organization_id, caller_id, key)
  JOIN idempotency_key ON idempotency_key.organization_id = named.organization_id
    AND idempotency_key.caller_id = named.caller_id AND idempotency_key.key = named.key`;
const NAMED_GRANTS = namedRows(GRANT, "id");
const REFERRED_GRANTS = namedRows(GRANT, "reference");
const NAMED_ADJUSTMENTS = namedRows(ADJUSTMENT, "id");
const ADJUSTMENTS_OF_REQUESTS = namedRows(ADJUSTMENT, "hold_id");
const REFERRED_ADJUSTMENTS = `
  SELECT ${columnsIn(ADJUSTMENT)}
  FROM unnest($1::text[], $2::text[], $3::text[]) AS named (organization_id, reference, kind)
  JOIN adjustment ON adjustment.organization_id = named.organization_id
    AND adjustment.kind = named.kind AND adjustment.reference = named.reference`;
function namedRows<Row extends object>(table: Table<Row>, column: string): string {
  const { name } = table;
  return `SELECT ${columnsIn(table)} FROM unnest($1::text[], $2::text[]) AS named (organization_id, name)
  JOIN ${name} ON ${name}.organization_id = named.organization_id AND ${name}.${column} = named.name`;
}

function columnsIn<Row extends object>({ name, columns }: Table<Row>): string {
  return columns.map((column) => `${name}.${column}`).join(", ");
}

/**
 * Reads the rows that a batch needs. The first statement locks the balances, in the order of their ids; later statements,
 * whose snapshots are newer than the locks, read everything else. All are sent at once, without waiting in between. Only
 * rows that other rows name, which few batches need, and the counters of budgets are read after them.
 */
export async function readRows(
  transaction: Transaction,
  cache: BudgetCache,
  transitions: readonly Transition[],
): Promise<BookRows> {
  const names = namesOf(transitions);
  const reader = new Reader(transaction);
  const [balances, clock, holds, requests, keys, grants, adjustments] = await Promise.all([
    reader.rows(BALANCE, LOCK_BALANCES, [arrayText(names.organizationIds)]),
    transaction.planned(CLOCK, []),
    reader.named(HOLD, HOLDS, names.holds),
    reader.requests(names.newHolds),
    readKeys(reader, names.keys),
    readGrants(reader, names),
    readAdjustments(reader, names),
  ]);
  const nowMs = Number(clock.rows[0]?.[0]);
  const budgets = await readBudgets(reader, cache, balances);
  const rows: BookRows = { nowMs, balances, budgets, budgetUses: [], holds, requests, keys, grants, adjustments };
  await addNamedByRows(reader, names, rows);
  rows.budgetUses = await readBudgetUses(reader, budgetUsesOf(rows, transitions));
  return { ...rows, grants: without(grants, []), adjustments: without(adjustments, []) };
}

class Reader {
  readonly #transaction: Transaction;

  constructor(transaction: Transaction) {
    this.#transaction = transaction;
  }

  async rows<Row extends object>(table: Table<Row>, text: string, values: unknown[]): Promise<Row[]> {
    const { rows } = await this.#transaction.planned(text, values);
    return rows.map((cells) => table.fromCells(cells));
  }

  async named<Row extends object>(table: Table<Row>, text: string, names: readonly RowName[]): Promise<Row[]> {
    return names.length === 0 ? [] : this.rows(table, text, columnsOf(names));
  }

  async requests(names: readonly RowName[]): Promise<RequestRow[]> {
    // The order of the column, whose collation is "C".
    const ids = names.map(({ id }) => id).sort();
    return names.length === 0 ? [] : this.rows(REQUEST, REQUESTS, [...columnsOf(names), ids[0], ids.at(-1)]);
  }
}

/** Returns an array of the organizations and one of the ids, in PostgreSQL's input syntax. */
function columnsOf(names: readonly RowName[]): [string, string] {
  return [arrayText(names.map(({ organizationId }) => organizationId)), arrayText(names.map(({ id }) => id))];
}

async function readKeys(reader: Reader, names: readonly KeyName[]): Promise<IdempotencyKeyRow[]> {
  if (names.length === 0) return [];
  const columns = ["organizationId", "callerId", "key"] as const;
  return reader.rows(
    KEY,
    KEYS,
    columns.map((column) => arrayText(names.map((name) => name[column]))),
  );
}

async function readBudgets(
  reader: Reader,
  cache: BudgetCache,
  balances: readonly BalanceRow[],
): Promise<BookRows["budgets"]> {
  const outdated = cache.outdated(balances);
  if (outdated.length > 0) {
    cache.set(balances, outdated, await reader.rows(BUDGET, BUDGETS, [arrayText(outdated)]));
  }
  return cache.of(balances);
}

async function readBudgetUses(reader: Reader, names: readonly BudgetUseName[]): Promise<BudgetUseRow[]> {
  if (names.length === 0) return [];
  const columns = ["organizationId", "budgetId", "windowAtMs", "value"] as const;
  return reader.rows(
    BUDGET_USE,
    LOCK_BUDGET_USES,
    columns.map((column) => arrayText(names.map((name) => name[column]))),
  );
}

/** Reads the grants that are pending or not used up, and those that the batch names. */
async function readGrants(reader: Reader, names: Names): Promise<GrantRow[]> {
  const found = await Promise.all([
    reader.rows(GRANT, LIVE_GRANTS, [arrayText(names.organizationIds)]),
    reader.named(GRANT, NAMED_GRANTS, names.grants),
    reader.named(GRANT, REFERRED_GRANTS, names.grantReferences),
  ]);
  return found.flat();
}

async function readAdjustments(reader: Reader, { adjustments, adjustmentReferences }: Names): Promise<AdjustmentRow[]> {
  if (adjustments.length === 0) return [];
  const kinds = adjustmentReferences.map(({ kind }) => kind);
  const [named, referred] = await Promise.all([
    reader.named(ADJUSTMENT, NAMED_ADJUSTMENTS, adjustments),
    reader.rows(ADJUSTMENT, REFERRED_ADJUSTMENTS, [...columnsOf(adjustmentReferences), arrayText(kinds)]),
  ]);
  return [...named, ...referred];
}

/** Adds the rows that other rows name: the request of a key; the key, grants and adjustments of a request. */
async function addNamedByRows(reader: Reader, names: Names, rows: BookRows): Promise<void> {
  const { holds, requests, keys, grants, adjustments } = rows;
  const open = holdNamesOf(holds);
  // Usually every request that ends now has an open hold.
  requests.push(...(await reader.requests(without(names.holds, [...names.newHolds, ...open]))));
  const ofKeys = without(holdNamesOf(keys), [...holdNamesOf(requests), ...open, ...names.holds]);
  const drawnOn = without([...grantsOf(holds), ...grantsOf(requests)], grants);
  const [keyedHolds, keyedRequests, ownKeys, drawn] = await Promise.all([
    reader.named(HOLD, HOLDS, ofKeys),
    reader.requests(ofKeys),
    readKeys(reader, without(keysOf(holds, requests), names.keys)),
    reader.named(GRANT, NAMED_GRANTS, drawnOn),
  ]);
  holds.push(...keyedHolds);
  requests.push(...keyedRequests);
  keys.push(...ownKeys);
  grants.push(...drawn);
  adjustments.push(...(await reader.named(ADJUSTMENT, ADJUSTMENTS_OF_REQUESTS, holdNamesOf(requests))));
}

/** Writes the decision over a batch: one statement per table and kind of write, all sent at once. */
export async function writeRows(transaction: Transaction, writes: BookWrites): Promise<void> {
  await Promise.all(
    BOOK_WRITES.map(async ([name, write]) => {
      const rows = writes[name];
      if (rows.length === 0) return;
      const { text, values } = writeStatement(write, rows);
      const { rowCount } = await transaction.planned(text, values);
      // No row can disappear under the lock of its balance. If one has, nothing of the batch may be booked.
      if (rowCount === rows.length || write.mayBeMissing) return;
      throw new Error(`${rowCount} of ${rows.length} rows of ${write.table.name} were written`);
    }),
  );
}
