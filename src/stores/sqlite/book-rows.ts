import type { SQLInputValue } from "node:sqlite";
import type { BookRows, BookWrites } from "../../credits/batch.ts";
import type {
  AdjustmentRow,
  GrantRow,
  HoldRow,
  IdempotencyKeyRow,
  RequestRow,
  Transition,
} from "../../credits/books.ts";
import {
  budgetsOf,
  grantsOf,
  holdNamesOf,
  type KeyName,
  keysOf,
  type Name,
  type Names,
  namesOf,
  tokensOf,
  without,
} from "../../credits/names.ts";
import { ADJUSTMENT, AUDIT_ENTRY, BALANCE, GRANT, HOLD, KEY, REQUEST, TOKEN_BALANCE, WRITES } from "../schema.ts";
import type { Table, TablePart } from "../table.ts";
import type { Connection } from "./connection.ts";

const SELECT_BALANCE = select(BALANCE, "organization_id = ?");
const SELECT_TOKEN_BALANCE = select(TOKEN_BALANCE, "organization_id = ? AND token_id = ?");
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

const UPDATE_BALANCE = update(BALANCE, WRITES.balance);
const UPDATE_TOKEN_BALANCE = update(TOKEN_BALANCE, WRITES.tokenBalance);
const INSERT_GRANT = insert(GRANT, WRITES.newGrant);
const UPDATE_GRANT = update(GRANT, WRITES.changedGrant);
const INSERT_HOLD = insert(HOLD, WRITES.newHold);
const RENEW_HOLD = update(HOLD, WRITES.renewedHold);
const DELETE_HOLD = "DELETE FROM hold WHERE organization_id = ? AND id = ?";
const INSERT_REQUEST = insert(REQUEST, WRITES.newRequest);
const UPSERT_KEY = insert(KEY, WRITES.key, "INSERT OR REPLACE");
const DELETE_KEY = "DELETE FROM idempotency_key WHERE organization_id = ? AND caller_id = ? AND key = ?";
const INSERT_ADJUSTMENT = insert(ADJUSTMENT, WRITES.newAdjustment);
const INSERT_AUDIT_ENTRY = insert(AUDIT_ENTRY, WRITES.newAuditEntry);

function select<Row extends object>({ name, columns }: Table<Row>, where: string, index = ""): string {
  return `SELECT ${columns.join(", ")} FROM ${name} ${index} WHERE ${where}`;
}

function insert<Row extends object>({ name }: Table<Row>, { columns }: TablePart<Row>, verb = "INSERT"): string {
  return `${verb} INTO ${name} (${columns.join(", ")}) VALUES (${columns.map(() => "?").join(", ")})`;
}

function update<Row extends object>({ name, key }: Table<Row>, { columns }: TablePart<Row>): string {
  const assign = (column: string) => `${column} = ?`;
  const values = columns.slice(0, -key.length).map(assign).join(", ");
  return `UPDATE ${name} SET ${values} WHERE ${columns.slice(-key.length).map(assign).join(" AND ")}`;
}

/**
 * Reads the rows that a batch needs, balances first, in the order of their ids, and the rows that these name (a hold its
 * grants, token and key; a key its hold). `request` is read only for ids without a hold.
 */
export function readRows(connection: Connection, transitions: readonly Transition[], nowMs: number): BookRows {
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
  const tokens = without([...names.tokens, ...tokensOf(holds, requests)], []);
  const tokenBalances = reader.each(TOKEN_BALANCE, SELECT_TOKEN_BALANCE, tokens);
  const shared = without(budgetsOf(tokenBalances), tokens);
  tokenBalances.push(...reader.each(TOKEN_BALANCE, SELECT_TOKEN_BALANCE, shared));
  const grants = readGrants(reader, names, [...holds, ...requests]);
  const adjustments = readAdjustments(reader, names, requests);
  return { nowMs, balances, tokenBalances, holds, requests, keys, grants, adjustments };
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
  each<Row extends object>(table: Table<Row>, sql: string, names: readonly Name[]): Row[] {
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

/** Writes the decision over a batch. Throws the errors of SQLite; the caller rolls back. */
export function writeRows(connection: Connection, writes: BookWrites): void {
  each(connection, UPDATE_BALANCE, WRITES.balance, writes.balances);
  each(connection, UPDATE_TOKEN_BALANCE, WRITES.tokenBalance, writes.tokenBalances);
  each(connection, INSERT_GRANT, WRITES.newGrant, writes.newGrants);
  each(connection, UPDATE_GRANT, WRITES.changedGrant, writes.changedGrants);
  each(connection, INSERT_HOLD, WRITES.newHold, writes.newHolds);
  each(connection, RENEW_HOLD, WRITES.renewedHold, writes.renewedHolds);
  const deletion = connection.prepare(DELETE_HOLD);
  for (const { organizationId, holdId } of writes.removedHolds) deletion.run(organizationId, holdId);
  each(connection, INSERT_REQUEST, WRITES.newRequest, writes.newRequests);
  each(connection, UPSERT_KEY, WRITES.key, writes.keys);
  for (const { organizationId, callerId, key } of writes.removedKeys) {
    connection.prepare(DELETE_KEY).run(organizationId, callerId, key);
  }
  each(connection, INSERT_ADJUSTMENT, WRITES.newAdjustment, writes.newAdjustments);
  each(connection, INSERT_AUDIT_ENTRY, WRITES.newAuditEntry, writes.newAuditEntries);
}

function each<Row>(connection: Connection, sql: string, part: TablePart<Row>, rows: readonly Row[]): void {
  if (rows.length === 0) return;
  const statement = connection.prepare(sql);
  for (const row of rows) statement.run(...part.toCells(row));
}
