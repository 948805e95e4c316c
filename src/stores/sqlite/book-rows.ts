import type { SQLInputValue } from "node:sqlite";
import type { Selectable } from "kysely";
import type { BalanceRow, BookRows, BookWrites, GrantRow, HoldRow, Transition } from "../../credits/books.ts";
import {
  balanceFromTable,
  balanceToTable,
  eventToTable,
  grantFromTable,
  grantToTable,
  holdFromTable,
  holdToTable,
} from "../rows.ts";
import type { BalanceTable, CreditGrantTable, HoldTable, UsageEventTable } from "../tables.ts";
import type { Connection } from "./connection.ts";

/** The key's columns come last: one order of parameters for both INSERT and UPDATE. */
const BALANCE_COLUMNS = [
  "granted",
  "available",
  "held",
  "spent",
  "expired",
  "next_change_at",
  "organization_id",
] as const satisfies (keyof BalanceTable)[];

const GRANT_COLUMNS = [
  "amount",
  "remaining",
  "state",
  "effective_at",
  "expires_at",
  "priority",
  "reference",
  "created_at",
  "organization_id",
  "id",
] as const satisfies (keyof CreditGrantTable)[];

const USAGE_COLUMNS = [
  "token_id",
  "request_id",
  "model",
  "upstream",
  "input_price",
  "cached_input_price",
  "cache_write_price",
  "output_price",
  "reasoning_price",
  "metadata",
  "input_tokens",
  "cached_input_tokens",
  "cache_write_tokens",
  "output_tokens",
  "reasoning_tokens",
  "shortfall",
  "made_at",
] as const satisfies (keyof HoldTable & keyof UsageEventTable)[];

const HOLD_COLUMNS = [
  ...USAGE_COLUMNS,
  "amount",
  "idempotency_key",
  "expires_at",
  "draws",
  "state",
  "charged",
  "organization_id",
  "id",
] as const satisfies (keyof HoldTable)[];

const EVENT_COLUMNS = [
  ...USAGE_COLUMNS,
  "cost",
  "basis",
  "ending",
  "charged_at",
  "organization_id",
  "hold_id",
  "sequence",
] as const satisfies (keyof UsageEventTable)[];

const SELECT_BALANCE = `SELECT ${BALANCE_COLUMNS.join(", ")} FROM balance WHERE organization_id = ?`;
const UPDATE_BALANCE = update("balance", BALANCE_COLUMNS, 1);

const SELECT_GRANTS = `SELECT ${GRANT_COLUMNS.join(", ")} FROM credit_grant`;
/** SQLite would rather read every grant of the organization than the index of those that are live. */
const SELECT_LIVE_GRANTS = `${SELECT_GRANTS} INDEXED BY credit_grant_live
  WHERE organization_id = ? AND (state = 'pending' OR remaining > 0)`;
const SELECT_GRANT = `${SELECT_GRANTS} WHERE organization_id = ? AND id = ?`;
const SELECT_GRANT_BY_REFERENCE = `${SELECT_GRANTS} WHERE organization_id = ? AND reference = ?`;
const INSERT_GRANT = insert("credit_grant", GRANT_COLUMNS);
const UPDATE_GRANT = update("credit_grant", GRANT_COLUMNS, 2);

const SELECT_HOLD = `SELECT ${HOLD_COLUMNS.join(", ")} FROM hold WHERE organization_id = ? AND id = ?`;
const INSERT_HOLD = insert("hold", HOLD_COLUMNS);
const UPDATE_HOLD = update("hold", HOLD_COLUMNS, 2);

const INSERT_EVENT = insert("usage_event", EVENT_COLUMNS);

function insert(table: string, columns: readonly string[]): string {
  return `INSERT INTO ${table} (${columns.join(", ")}) VALUES (${columns.map(() => "?").join(", ")})`;
}

function update(table: string, columns: readonly string[], keyLength: number): string {
  const assign = (column: string) => `${column} = ?`;
  const values = columns.slice(0, -keyLength).map(assign).join(", ");
  return `UPDATE ${table} SET ${values} WHERE ${columns.slice(-keyLength).map(assign).join(" AND ")}`;
}

/** The ids that a transition names. */
function namesOf(transition: Transition): { organizationId: string; holdId: string | undefined } {
  if (transition.kind === "hold" || transition.kind === "settle") return transition.facts;
  const { organizationId } = transition;
  return { organizationId, holdId: "holdId" in transition ? transition.holdId : undefined };
}

/** The rows that a batch concerns: balances first, in the order of their ids, then holds, then grants. */
export function readRows(connection: Connection, transitions: readonly Transition[], nowMs: number): BookRows {
  const organizationIds = new Set<string>();
  for (const transition of transitions) organizationIds.add(namesOf(transition).organizationId);
  const balances: BalanceRow[] = [];
  for (const organizationId of [...organizationIds].sort()) {
    const row = connection.prepare(SELECT_BALANCE).get(organizationId);
    if (row !== undefined) balances.push(balanceFromTable(row as unknown as Selectable<BalanceTable>));
  }
  const holds: HoldRow[] = [];
  for (const transition of transitions) {
    const { organizationId, holdId } = namesOf(transition);
    if (holdId === undefined) continue;
    const row = connection.prepare(SELECT_HOLD).get(organizationId, holdId);
    if (row !== undefined) holds.push(holdFromTable(row as unknown as Selectable<HoldTable>));
  }
  return { nowMs, balances, holds, grants: readGrants(connection, balances, holds, transitions) };
}

function readGrants(
  connection: Connection,
  balances: BalanceRow[],
  holds: HoldRow[],
  transitions: readonly Transition[],
): GrantRow[] {
  const grants = new Map<string, GrantRow>();
  const add = (row: Record<string, unknown> | undefined) => {
    if (row === undefined) return;
    const grant = grantFromTable(row as unknown as Selectable<CreditGrantTable>);
    grants.set(`${grant.organizationId} ${grant.id}`, grant);
  };
  for (const { organizationId } of balances) {
    for (const row of connection.prepare(SELECT_LIVE_GRANTS).all(organizationId)) add(row);
  }
  const addById = (organizationId: string, grantId: string) => {
    if (grants.has(`${organizationId} ${grantId}`)) return;
    add(connection.prepare(SELECT_GRANT).get(organizationId, grantId));
  };
  for (const hold of holds) for (const { grantId } of hold.draws) addById(hold.organizationId, grantId);
  for (const transition of transitions) {
    if (transition.kind !== "grant") continue;
    addById(transition.organizationId, transition.grantId);
    if (transition.reference === null) continue;
    add(connection.prepare(SELECT_GRANT_BY_REFERENCE).get(transition.organizationId, transition.reference));
  }
  return [...grants.values()];
}

export function writeRows(connection: Connection, writes: BookWrites): void {
  for (const row of writes.balances) run(connection, UPDATE_BALANCE, BALANCE_COLUMNS, balanceToTable(row));
  for (const row of writes.newGrants) run(connection, INSERT_GRANT, GRANT_COLUMNS, grantToTable(row));
  for (const row of writes.changedGrants) run(connection, UPDATE_GRANT, GRANT_COLUMNS, grantToTable(row));
  for (const row of writes.newHolds) run(connection, INSERT_HOLD, HOLD_COLUMNS, holdToTable(row));
  for (const row of writes.changedHolds) run(connection, UPDATE_HOLD, HOLD_COLUMNS, holdToTable(row));
  for (const row of writes.events) run(connection, INSERT_EVENT, EVENT_COLUMNS, eventToTable(row));
}

function run<Column extends string>(
  connection: Connection,
  sql: string,
  columns: readonly Column[],
  row: Record<Column, SQLInputValue>,
): void {
  const values = new Array<SQLInputValue>(columns.length);
  let index = 0;
  for (const column of columns) values[index++] = row[column];
  connection.prepare(sql).run(...values);
}
