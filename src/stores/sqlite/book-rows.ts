import type { SQLInputValue, SQLOutputValue } from "node:sqlite";
import type { Selectable } from "kysely";
import type { AdjustmentRow, BookRows, BookWrites, GrantRow, HoldRow, Transition } from "../../credits/books.ts";
import {
  budgetsOf,
  grantsOf,
  holdsOf,
  keysOf,
  type Name,
  type Names,
  nameKey,
  namesOf,
  tokensOf,
} from "../../credits/names.ts";
import {
  adjustmentFromTable,
  adjustmentToTable,
  balanceFromTable,
  balanceToTable,
  eventToTable,
  grantFromTable,
  grantToTable,
  holdFromTable,
  holdToTable,
  keyFromTable,
  keyToTable,
  tokenBalanceFromTable,
  tokenBalanceToTable,
} from "../rows.ts";
import type {
  AdjustmentTable,
  BalanceTable,
  CreditGrantTable,
  HoldTable,
  IdempotencyKeyTable,
  TokenBalanceTable,
  UsageEventTable,
} from "../tables.ts";
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

const TOKEN_BALANCE_CHANGES = [
  "held",
  "spent",
  "organization_id",
  "token_id",
] as const satisfies (keyof TokenBalanceTable)[];
const TOKEN_BALANCE_COLUMNS = ["budget_id", "cap", ...TOKEN_BALANCE_CHANGES] as const;

/** What can change of a grant, and its key. */
const GRANT_CHANGES = [
  "remaining",
  "revoked",
  "state",
  "organization_id",
  "id",
] as const satisfies (keyof CreditGrantTable)[];
const GRANT_COLUMNS = [
  "source",
  "amount",
  "effective_at",
  "expires_at",
  "priority",
  "reference",
  "created_at",
  ...GRANT_CHANGES,
] as const satisfies (keyof CreditGrantTable)[];

/** What can change of a hold and stands in its events too. */
const ROUTE_COLUMNS = [
  "upstream",
  "input_price",
  "cached_input_price",
  "cache_write_price",
  "output_price",
  "reasoning_price",
  "input_tokens",
  "cached_input_tokens",
  "cache_write_tokens",
  "output_tokens",
  "reasoning_tokens",
] as const satisfies (keyof HoldTable & keyof UsageEventTable)[];
const USAGE_COLUMNS = [
  "token_id",
  "request_id",
  "model",
  "metadata",
  "made_at",
  ...ROUTE_COLUMNS,
] as const satisfies (keyof HoldTable & keyof UsageEventTable)[];

const HOLD_KEY = ["organization_id", "id"] as const satisfies (keyof HoldTable)[];
const HOLD_RENEWAL = [...ROUTE_COLUMNS, "expires_at", ...HOLD_KEY] as const satisfies (keyof HoldTable)[];
const HOLD_END = [
  "draws",
  "state",
  "charged",
  "shortfall",
  "credited",
  "is_streamed",
  "first_token_ms",
  "attempts",
  "failure",
  ...HOLD_RENEWAL,
] as const satisfies (keyof HoldTable)[];
const HOLD_COLUMNS = [
  "token_id",
  "request_id",
  "model",
  "metadata",
  "made_at",
  "amount",
  "idempotency_key",
  ...HOLD_END,
] as const satisfies (keyof HoldTable)[];

const EVENT_COLUMNS = [
  ...USAGE_COLUMNS,
  "shortfall",
  "cost",
  "basis",
  "ending",
  "charged_at",
  "organization_id",
  "hold_id",
  "sequence",
] as const satisfies (keyof UsageEventTable)[];

const KEY_COLUMNS = [
  "fingerprint",
  "hold_id",
  "answer",
  "created_at",
  "expires_at",
  "organization_id",
  "key",
] as const satisfies (keyof IdempotencyKeyTable)[];

const ADJUSTMENT_COLUMNS = [
  "kind",
  "amount",
  "draws",
  "is_all",
  "grant_id",
  "expires_at",
  "hold_id",
  "token_id",
  "reference",
  "note",
  "made_at",
  "organization_id",
  "id",
] as const satisfies (keyof AdjustmentTable)[];

const SELECT_BALANCE = `SELECT ${BALANCE_COLUMNS.join(", ")} FROM balance WHERE organization_id = ?`;
const UPDATE_BALANCE = update("balance", BALANCE_COLUMNS, 1);

const SELECT_TOKEN_BALANCE = `SELECT ${TOKEN_BALANCE_COLUMNS.join(", ")} FROM token_balance
  WHERE organization_id = ? AND token_id = ?`;
const UPDATE_TOKEN_BALANCE = update("token_balance", TOKEN_BALANCE_CHANGES, 2);

const SELECT_GRANTS = `SELECT ${GRANT_COLUMNS.join(", ")} FROM credit_grant`;
/** SQLite would rather read every grant of the organization than the index of those that are live. */
const SELECT_LIVE_GRANTS = `${SELECT_GRANTS} INDEXED BY credit_grant_live
  WHERE organization_id = ? AND (state = 'pending' OR remaining > 0)`;
const SELECT_GRANT = `${SELECT_GRANTS} WHERE organization_id = ? AND id = ?`;
const SELECT_GRANT_BY_REFERENCE = `${SELECT_GRANTS} WHERE organization_id = ? AND reference = ?`;
const INSERT_GRANT = insert("credit_grant", GRANT_COLUMNS);
const UPDATE_GRANT = update("credit_grant", GRANT_CHANGES, 2);

const SELECT_HOLD = `SELECT ${HOLD_COLUMNS.join(", ")} FROM hold WHERE organization_id = ? AND id = ?`;
const INSERT_HOLD = insert("hold", HOLD_COLUMNS);
const RENEW_HOLD = update("hold", HOLD_RENEWAL, 2);
const END_HOLD = update("hold", HOLD_END, 2);

const INSERT_EVENT = insert("usage_event", EVENT_COLUMNS);

const SELECT_KEY = `SELECT ${KEY_COLUMNS.join(", ")} FROM idempotency_key WHERE organization_id = ? AND key = ?`;
const PUT_KEY = insert("idempotency_key", KEY_COLUMNS, "INSERT OR REPLACE");
const DELETE_KEY = "DELETE FROM idempotency_key WHERE organization_id = ? AND key = ?";

const SELECT_ADJUSTMENTS = `SELECT ${ADJUSTMENT_COLUMNS.join(", ")} FROM adjustment`;
const SELECT_ADJUSTMENT = `${SELECT_ADJUSTMENTS} WHERE organization_id = ? AND id = ?`;
const SELECT_ADJUSTMENT_BY_REFERENCE = `${SELECT_ADJUSTMENTS} WHERE organization_id = ? AND kind = ? AND reference = ?`;
const INSERT_ADJUSTMENT = insert("adjustment", ADJUSTMENT_COLUMNS);

function insert(table: string, columns: readonly string[], verb = "INSERT"): string {
  return `${verb} INTO ${table} (${columns.join(", ")}) VALUES (${columns.map(() => "?").join(", ")})`;
}

function update(table: string, columns: readonly string[], keyLength: number): string {
  const assign = (column: string) => `${column} = ?`;
  const values = columns.slice(0, -keyLength).map(assign).join(", ");
  return `UPDATE ${table} SET ${values} WHERE ${columns.slice(-keyLength).map(assign).join(" AND ")}`;
}

/**
 * The rows that a batch concerns: balances first, in the order of their ids. What rows name in their turn (a hold its
 * grants, its token and its key, a key its hold) is read with them.
 */
export function readRows(connection: Connection, transitions: readonly Transition[], nowMs: number): BookRows {
  const names = namesOf(transitions);
  const balances = names.organizationIds.flatMap((id) => {
    const row = connection.prepare(SELECT_BALANCE).get(id);
    return row === undefined ? [] : [balanceFromTable(row as unknown as Selectable<BalanceTable>)];
  });
  const holds = readHolds(connection, names.holds);
  const keys = readEach(connection, SELECT_KEY, names.keys, keyFromTable);
  holds.push(...readHolds(connection, without(holdsOf(keys), names.holds)));
  keys.push(...readEach(connection, SELECT_KEY, without(keysOf(holds), names.keys), keyFromTable));
  const tokens = without([...names.tokens, ...tokensOf(holds)], []);
  const tokenBalances = readEach(connection, SELECT_TOKEN_BALANCE, tokens, tokenBalanceFromTable);
  const shared = without(budgetsOf(tokenBalances), tokens);
  tokenBalances.push(...readEach(connection, SELECT_TOKEN_BALANCE, shared, tokenBalanceFromTable));
  return {
    nowMs,
    balances,
    tokenBalances,
    holds,
    keys,
    grants: readGrants(connection, names, holds),
    adjustments: readAdjustments(connection, names),
  };
}

function readGrants(connection: Connection, names: Names, holds: readonly HoldRow[]): GrantRow[] {
  const live = names.organizationIds.flatMap((id) =>
    connection
      .prepare(SELECT_LIVE_GRANTS)
      .all(id)
      .map((row) => grantFromTable(row as unknown as Selectable<CreditGrantTable>)),
  );
  const found = new Map(live.map((grant) => [nameKey(grant.organizationId, grant.id), grant]));
  const add = (sql: string, of: Name[]) => {
    for (const grant of readEach(connection, sql, of, grantFromTable)) {
      found.set(nameKey(grant.organizationId, grant.id), grant);
    }
  };
  const isMissing = ({ organizationId, id }: Name) => !found.has(nameKey(organizationId, id));
  add(SELECT_GRANT, without([...names.grants, ...grantsOf(holds)].filter(isMissing), []));
  add(SELECT_GRANT_BY_REFERENCE, names.grantReferences);
  return [...found.values()];
}

function readAdjustments(connection: Connection, { adjustments, adjustmentReferences }: Names): AdjustmentRow[] {
  const rows = readEach(connection, SELECT_ADJUSTMENT, adjustments, adjustmentFromTable);
  const found = new Map(rows.map((row) => [nameKey(row.organizationId, row.id), row]));
  for (const { organizationId, kind, id } of adjustmentReferences) {
    const row = connection.prepare(SELECT_ADJUSTMENT_BY_REFERENCE).get(organizationId, kind, id);
    if (row === undefined) continue;
    const adjustment = adjustmentFromTable(row as unknown as Selectable<AdjustmentTable>);
    found.set(nameKey(organizationId, adjustment.id), adjustment);
  }
  return [...found.values()];
}

function readEach<Table, Row>(
  connection: Connection,
  sql: string,
  names: readonly Name[],
  fromTable: (row: Table) => Row,
): Row[] {
  const rows: Row[] = [];
  if (names.length === 0) return rows;
  const statement = connection.prepare(sql);
  for (const { organizationId, id } of names) {
    const row = statement.get(organizationId, id);
    if (row !== undefined) rows.push(fromTable(row as Table));
  }
  return rows;
}

/**
 * Every settlement reads one, of thirty columns: node:sqlite makes objects that are hash tables, and what is read as an
 * array and given its names here costs half.
 */
function readHolds(connection: Connection, names: readonly Name[]): HoldRow[] {
  const rows: HoldRow[] = [];
  if (names.length === 0) return rows;
  const statement = connection.prepare(SELECT_HOLD, "arrays");
  for (const { organizationId, id } of names) {
    const values = statement.get(organizationId, id) as unknown as SQLOutputValue[] | undefined;
    if (values !== undefined) rows.push(holdFromTable(holdFromValues(values)));
  }
  return rows;
}

/** Each name once, without those that were read before. */
function without(names: readonly Name[], read: readonly Name[]): Name[] {
  if (names.length === 0) return [];
  const seen = new Set(read.map(({ organizationId, id }) => nameKey(organizationId, id)));
  return names.filter(({ organizationId, id }) => {
    const key = nameKey(organizationId, id);
    const isNew = !seen.has(key);
    seen.add(key);
    return isNew;
  });
}

const HOLD_AT = Object.fromEntries(HOLD_COLUMNS.map((column, index) => [column, index])) as Record<
  (typeof HOLD_COLUMNS)[number],
  number
>;

function holdFromValues(values: readonly SQLOutputValue[]): Selectable<HoldTable> {
  const at = (column: keyof typeof HOLD_AT) => values[HOLD_AT[column]] as never;
  return {
    organization_id: at("organization_id"),
    id: at("id"),
    token_id: at("token_id"),
    request_id: at("request_id"),
    model: at("model"),
    upstream: at("upstream"),
    input_price: at("input_price"),
    cached_input_price: at("cached_input_price"),
    cache_write_price: at("cache_write_price"),
    output_price: at("output_price"),
    reasoning_price: at("reasoning_price"),
    metadata: at("metadata"),
    amount: at("amount"),
    input_tokens: at("input_tokens"),
    cached_input_tokens: at("cached_input_tokens"),
    cache_write_tokens: at("cache_write_tokens"),
    output_tokens: at("output_tokens"),
    reasoning_tokens: at("reasoning_tokens"),
    idempotency_key: at("idempotency_key"),
    made_at: at("made_at"),
    expires_at: at("expires_at"),
    draws: at("draws"),
    state: at("state"),
    charged: at("charged"),
    shortfall: at("shortfall"),
    credited: at("credited"),
    is_streamed: at("is_streamed"),
    first_token_ms: at("first_token_ms"),
    attempts: at("attempts"),
    failure: at("failure"),
  };
}

export function writeRows(connection: Connection, writes: BookWrites): void {
  const { removedKeys } = writes;
  each(connection, UPDATE_BALANCE, BALANCE_COLUMNS, writes.balances, balanceToTable);
  each(connection, UPDATE_TOKEN_BALANCE, TOKEN_BALANCE_CHANGES, writes.tokenBalances, tokenBalanceToTable);
  each(connection, INSERT_GRANT, GRANT_COLUMNS, writes.newGrants, grantToTable);
  each(connection, UPDATE_GRANT, GRANT_CHANGES, writes.changedGrants, grantToTable);
  each(connection, INSERT_HOLD, HOLD_COLUMNS, writes.newHolds, holdToTable);
  each(connection, RENEW_HOLD, HOLD_RENEWAL, writes.renewedHolds, holdToTable);
  each(connection, END_HOLD, HOLD_END, writes.endedHolds, holdToTable);
  each(connection, INSERT_EVENT, EVENT_COLUMNS, writes.events, eventToTable);
  each(connection, PUT_KEY, KEY_COLUMNS, writes.keys, keyToTable);
  for (const { organizationId, key } of removedKeys) connection.prepare(DELETE_KEY).run(organizationId, key);
  each(connection, INSERT_ADJUSTMENT, ADJUSTMENT_COLUMNS, writes.newAdjustments, adjustmentToTable);
}

function each<Row, Column extends string>(
  connection: Connection,
  sql: string,
  columns: readonly Column[],
  rows: readonly Row[],
  toTable: (row: Row) => Record<Column, SQLInputValue>,
): void {
  if (rows.length === 0) return;
  const statement = connection.prepare(sql);
  const values = new Array<SQLInputValue>(columns.length);
  for (const row of rows) {
    const columnsOfRow = toTable(row);
    let index = 0;
    for (const column of columns) values[index++] = columnsOfRow[column];
    statement.run(...values);
  }
}
