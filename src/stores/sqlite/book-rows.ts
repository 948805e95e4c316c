import type { SQLInputValue } from "node:sqlite";
import type { BookRows, BookWrites } from "../../credits/batch.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  BudgetUseRow,
  GrantRow,
  HoldRow,
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
import { BOOK_WRITES, sqlOf } from "../book-writes.ts";
import type { BudgetCache } from "../budget-cache.ts";
import { ADJUSTMENT, BALANCE, BUDGET, BUDGET_USE, GRANT, HOLD, KEY, REQUEST } from "../schema.ts";
import type { Table } from "../table.ts";
import type { Connection } from "./connection.ts";

const SELECT_BALANCE = select(BALANCE, "organization_id = ?");
const SELECT_BUDGETS = select(BUDGET, "organization_id = ? ORDER BY id");
const SELECT_BUDGET_USE = select(BUDGET_USE, "organization_id = ? AND budget_id = ? AND window_at = ? AND value = ?");
/** Names the index of live grants: SQLite would read every grant of the organization instead. */
const SELECT_LIVE_GRANTS = select(
  GRANT,
  "organization_id = ? AND (state = 'pending' OR is_used_up = 0)",
  "INDEXED BY credit_grant_live",
);
const SELECT_GRANT = select(GRANT, "organization_id = ? AND id = ?");
const SELECT_GRANT_BY_REFERENCE = select(GRANT, "organization_id = ? AND reference = ?");
const SELECT_HOLD = select(HOLD, "organization_id = ? AND id = ?");
const SELECT_REQUEST = select(REQUEST, "organization_id = ? AND id = ?");
const SELECT_KEY = select(KEY, "organization_id = ? AND caller_id = ? AND key = ?");
const SELECT_ADJUSTMENT = select(ADJUSTMENT, "organization_id = ? AND id = ?");
const SELECT_ADJUSTMENTS_OF_REQUEST = select(ADJUSTMENT, "organization_id = ? AND hold_id = ?");
const SELECT_ADJUSTMENT_BY_REFERENCE = select(ADJUSTMENT, "organization_id = ? AND kind = ? AND reference = ?");

function select<Row extends object>({ name, columns }: Table<Row>, where: string, index = ""): string {
  return `SELECT ${columns.join(", ")} FROM ${name} ${index} WHERE ${where}`;
}

/**
 * Reads the rows that a batch needs, balances first, in the order of their ids, and the rows that these name (a hold its
 * grants, budgets and key; a key its hold). `request` is read only for ids without a hold.
 */
export function readRows(
  connection: Connection,
  cache: BudgetCache,
  transitions: readonly Transition[],
  nowMs: number,
): BookRows {
  const names = namesOf(transitions);
  const reader = new Reader(connection);
  const balances = names.organizationIds.flatMap((id) => reader.all(BALANCE, SELECT_BALANCE, [id]));
  const keys = readKeys(reader, names.keys);
  const ids = keys.length === 0 ? names.holds : without([...names.holds, ...holdNamesOf(keys)], []);
  const holds = reader.each(HOLD, SELECT_HOLD, ids);
  // Most batches find a hold for every id, or for none.
  const isEachFound = holds.length === ids.length;
  const ended = isEachFound ? [] : without(ids, holdNamesOf(holds));
  const requests = reader.each(REQUEST, SELECT_REQUEST, ended);
  keys.push(...readKeys(reader, without(keysOf(holds, requests), names.keys)));
  const budgets = readBudgets(reader, cache, balances);
  const budgetUses = readBudgetUses(reader, budgetUsesOf({ nowMs, budgets, holds, requests }, transitions));
  const grants = readGrants(reader, names, [...holds, ...requests]);
  const adjustments = readAdjustments(reader, names, requests);
  return { nowMs, balances, budgets, budgetUses, holds, requests, keys, grants, adjustments };
}

/** Reads rows as arrays: the objects of node:sqlite cost twice as much. */
class Reader {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  all<Row extends object>(table: Table<Row>, sql: string, parameters: SQLInputValue[]): Row[] {
    const rows = this.#connection.prepare(sql, "arrays").all(...parameters) as unknown as unknown[][];
    return rows.map((cells) => table.fromCells(cells));
  }

  /** Reads at most one row per name. */
  each<Row extends object>(table: Table<Row>, sql: string, names: readonly RowName[]): Row[] {
    const rows: Row[] = [];
    if (names.length === 0) return rows;
    const statement = this.#connection.prepare(sql, "arrays");
    for (const { organizationId, id } of names) {
      const cells = statement.get(organizationId, id) as unknown as unknown[] | undefined;
      if (cells !== undefined) rows.push(table.fromCells(cells));
    }
    return rows;
  }
}

function readBudgets(reader: Reader, cache: BudgetCache, balances: readonly BalanceRow[]): BookRows["budgets"] {
  const outdated = cache.outdated(balances);
  const rows = outdated.flatMap((id) => reader.all(BUDGET, SELECT_BUDGETS, [id]));
  if (outdated.length > 0) cache.set(balances, outdated, rows);
  return cache.of(balances);
}

function readBudgetUses(reader: Reader, names: readonly BudgetUseName[]): BudgetUseRow[] {
  return names.flatMap(({ organizationId, budgetId, windowAtMs, value }) =>
    reader.all(BUDGET_USE, SELECT_BUDGET_USE, [organizationId, budgetId, windowAtMs, value]),
  );
}

function readKeys(reader: Reader, names: readonly KeyName[]): IdempotencyKeyRow[] {
  return names.flatMap(({ organizationId, callerId, key }) =>
    reader.all(KEY, SELECT_KEY, [organizationId, callerId, key]),
  );
}

function readGrants(reader: Reader, names: Names, drawing: readonly (HoldRow | RequestRow)[]): GrantRow[] {
  const live = names.organizationIds.flatMap((id) => reader.all(GRANT, SELECT_LIVE_GRANTS, [id]));
  const named = reader.each(GRANT, SELECT_GRANT, without([...names.grants, ...grantsOf(drawing)], live));
  const referred = reader.each(GRANT, SELECT_GRANT_BY_REFERENCE, names.grantReferences);
  return without([...live, ...named, ...referred], []);
}

function readAdjustments(reader: Reader, names: Names, requests: readonly RequestRow[]): AdjustmentRow[] {
  const found = reader.each(ADJUSTMENT, SELECT_ADJUSTMENT, names.adjustments);
  for (const { organizationId, kind, id } of names.adjustmentReferences) {
    found.push(...reader.all(ADJUSTMENT, SELECT_ADJUSTMENT_BY_REFERENCE, [organizationId, kind, id]));
  }
  for (const { organizationId, id } of holdNamesOf(requests)) {
    found.push(...reader.all(ADJUSTMENT, SELECT_ADJUSTMENTS_OF_REQUEST, [organizationId, id]));
  }
  return without(found, []);
}

const WRITES = BOOK_WRITES.map(([name, write]) => ({ name, write, sql: sqlOf(write, () => "?") }));

/** Writes the decision over a batch. Throws the errors of SQLite; the caller rolls back. */
export function writeRows(connection: Connection, writes: BookWrites): void {
  for (const { name, write, sql } of WRITES) {
    if (writes[name].length === 0) continue;
    const statement = connection.prepare(sql);
    for (const row of writes[name]) statement.run(...write.toCells(row));
  }
}
