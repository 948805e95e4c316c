import type { Selectable } from "kysely";
import type pg from "pg";
import type {
  AdjustmentRow,
  BookRows,
  BookWrites,
  GrantRow,
  HoldRow,
  IdempotencyKeyRow,
  TokenBalanceRow,
  Transition,
} from "../../credits/books.ts";
import { budgetsOf, grantsOf, keysOf, type Name, type Names, nameKey, namesOf } from "../../credits/names.ts";
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
import type { Transaction } from "./transact.ts";
import { give, insert, put, update, type Write } from "./writes.ts";

/** Column names with their types; what is left out is bigint. */
type Columns<Table> = { [Column in keyof Table]: "text" | "bigint" };

const BALANCE_COLUMNS: Columns<BalanceTable> = {
  organization_id: "text",
  granted: "bigint",
  available: "bigint",
  held: "bigint",
  spent: "bigint",
  expired: "bigint",
  next_change_at: "bigint",
};

/** What can change of a token's balance, and its key. */
const TOKEN_BALANCE_CHANGES = {
  organization_id: "text",
  token_id: "text",
  held: "bigint",
  spent: "bigint",
} as const;

/** What can change of a grant, and its key. */
const GRANT_CHANGES = {
  organization_id: "text",
  id: "text",
  remaining: "bigint",
  revoked: "bigint",
  state: "text",
} as const;
const GRANT_COLUMNS: Columns<CreditGrantTable> = {
  ...GRANT_CHANGES,
  source: "text",
  amount: "bigint",
  effective_at: "bigint",
  expires_at: "bigint",
  priority: "bigint",
  reference: "text",
  created_at: "bigint",
};

/** What can change of a hold and stands in its events too. */
const ROUTE_COLUMNS = {
  upstream: "text",
  input_price: "bigint",
  cached_input_price: "bigint",
  cache_write_price: "bigint",
  output_price: "bigint",
  reasoning_price: "bigint",
  input_tokens: "bigint",
  cached_input_tokens: "bigint",
  cache_write_tokens: "bigint",
  output_tokens: "bigint",
  reasoning_tokens: "bigint",
} as const;
const USAGE_COLUMNS = {
  ...ROUTE_COLUMNS,
  organization_id: "text",
  token_id: "text",
  request_id: "text",
  model: "text",
  metadata: "text",
  made_at: "bigint",
  shortfall: "bigint",
} as const;

const HOLD_RENEWAL = { organization_id: "text", id: "text", ...ROUTE_COLUMNS, expires_at: "bigint" } as const;
const HOLD_END = {
  ...HOLD_RENEWAL,
  draws: "text",
  state: "text",
  charged: "bigint",
  shortfall: "bigint",
  credited: "bigint",
  is_streamed: "bigint",
  first_token_ms: "bigint",
  attempts: "text",
  failure: "text",
} as const;
const HOLD_COLUMNS: Columns<HoldTable> = {
  ...USAGE_COLUMNS,
  ...HOLD_END,
  amount: "bigint",
  idempotency_key: "text",
};

const EVENT_COLUMNS: Columns<UsageEventTable> = {
  ...USAGE_COLUMNS,
  hold_id: "text",
  sequence: "bigint",
  cost: "bigint",
  basis: "text",
  ending: "text",
  charged_at: "bigint",
};

const KEY_COLUMNS: Columns<IdempotencyKeyTable> = {
  organization_id: "text",
  key: "text",
  fingerprint: "text",
  hold_id: "text",
  answer: "text",
  created_at: "bigint",
  expires_at: "bigint",
};

const ADJUSTMENT_COLUMNS: Columns<AdjustmentTable> = {
  organization_id: "text",
  id: "text",
  kind: "text",
  amount: "bigint",
  draws: "text",
  is_all: "bigint",
  grant_id: "text",
  expires_at: "bigint",
  hold_id: "text",
  token_id: "text",
  reference: "text",
  note: "text",
  made_at: "bigint",
};

const LOCK_BALANCES = "SELECT * FROM balance WHERE organization_id = ANY ($1) ORDER BY organization_id FOR UPDATE";
const CLOCK = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";
/** After the balances, in the order of their ids too. The second pair of arrays is of holds. */
const LOCK_TOKEN_BALANCES = `
  SELECT * FROM token_balance WHERE (organization_id, token_id) IN (
    SELECT * FROM unnest($1::text[], $2::text[])
    UNION ALL
    SELECT hold.organization_id, hold.token_id FROM unnest($3::text[], $4::text[]) AS named (organization_id, id)
    JOIN hold ON hold.organization_id = named.organization_id AND hold.id = named.id
  ) ORDER BY organization_id, token_id FOR UPDATE`;
const LIVE_GRANTS = `
  SELECT * FROM credit_grant WHERE organization_id = ANY ($1) AND (state = 'pending' OR remaining > 0)`;
const HOLDS = namedRows("hold", "id");
const KEYED_HOLDS = `
  SELECT hold.* FROM unnest($1::text[], $2::text[]) AS named (organization_id, id)
  JOIN idempotency_key ON idempotency_key.organization_id = named.organization_id AND idempotency_key.key = named.id
  JOIN hold ON hold.organization_id = named.organization_id AND hold.id = idempotency_key.hold_id`;
const KEYS = namedRows("idempotency_key", "key");
const NAMED_GRANTS = namedRows("credit_grant", "id");
const REFERRED_GRANTS = namedRows("credit_grant", "reference");
const NAMED_ADJUSTMENTS = namedRows("adjustment", "id");
const REFERRED_ADJUSTMENTS = `
  SELECT adjustment.* FROM unnest($1::text[], $2::text[], $3::text[]) AS named (organization_id, reference, kind)
  JOIN adjustment ON adjustment.organization_id = named.organization_id
    AND adjustment.kind = named.kind AND adjustment.reference = named.reference`;
const DELETE_KEYS = `
  DELETE FROM idempotency_key USING unnest($1::text[], $2::text[]) AS named (organization_id, key)
  WHERE idempotency_key.organization_id = named.organization_id AND idempotency_key.key = named.key`;

function namedRows(table: string, column: string): string {
  return `SELECT ${table}.* FROM unnest($1::text[], $2::text[]) AS named (organization_id, name)
  JOIN ${table} ON ${table}.organization_id = named.organization_id AND ${table}.${column} = named.name`;
}

const UPDATE_BALANCES = update("balance", BALANCE_COLUMNS, ["organization_id"]);
const UPDATE_TOKEN_BALANCES = update("token_balance", TOKEN_BALANCE_CHANGES, ["organization_id", "token_id"]);
const INSERT_GRANTS = insert("credit_grant", GRANT_COLUMNS);
const UPDATE_GRANTS = update("credit_grant", GRANT_CHANGES, ["organization_id", "id"]);
const INSERT_HOLDS = insert("hold", HOLD_COLUMNS);
const RENEW_HOLDS = update("hold", HOLD_RENEWAL, ["organization_id", "id"]);
const END_HOLDS = update("hold", HOLD_END, ["organization_id", "id"]);
const INSERT_EVENTS = insert("usage_event", EVENT_COLUMNS);
const PUT_KEYS = put("idempotency_key", KEY_COLUMNS, ["organization_id", "key"]);
const INSERT_ADJUSTMENTS = insert("adjustment", ADJUSTMENT_COLUMNS);

/**
 * The rows that a batch concerns. The balances are locked by the first statement, in the order of their ids; all else is
 * read by later ones, whose snapshots are younger than the locks. All are sent at once, without waiting in between; only
 * what rows name in their turn, and few do, is asked for after them.
 */
export async function readRows(transaction: Transaction, transitions: readonly Transition[]): Promise<BookRows> {
  const names = namesOf(transitions);
  const [balances, clock, holds, keys, tokenBalances, grants, adjustments] = await Promise.all([
    transaction.query<Selectable<BalanceTable>>(LOCK_BALANCES, [names.organizationIds]),
    transaction.query<{ now: bigint }>(CLOCK),
    readHolds(transaction, names),
    read(transaction, KEYS, keyFromTable, names.keys),
    readTokenBalances(transaction, names),
    readGrants(transaction, names),
    readAdjustments(transaction, names),
  ]);
  await Promise.all([readDrawn(transaction, holds, grants), readKeysOf(transaction, holds, keys)]);
  return {
    nowMs: Number(clock.rows[0]?.now),
    balances: balances.rows.map(balanceFromTable),
    tokenBalances,
    holds,
    keys,
    grants: [...grants.values()],
    adjustments,
  };
}

/** One array of organizations, and one of what is named of each. */
function columnsOf(names: readonly Name[]): [string[], string[]] {
  return [names.map(({ organizationId }) => organizationId), names.map(({ id }) => id)];
}

async function read<Table extends pg.QueryResultRow, Row>(
  transaction: Transaction,
  text: string,
  fromTable: (row: Table) => Row,
  names: readonly Name[],
): Promise<Row[]> {
  if (names.length === 0) return [];
  return (await transaction.query<Table>(text, columnsOf(names))).rows.map(fromTable);
}

/** The holds that are named, and those of the keys that are. */
async function readHolds(transaction: Transaction, { holds, keys }: Names): Promise<HoldRow[]> {
  const [named, keyed] = await Promise.all([
    read(transaction, HOLDS, holdFromTable, holds),
    read(transaction, KEYED_HOLDS, holdFromTable, keys),
  ]);
  const known = new Set(
    keyed.length === 0 ? [] : named.map(({ organizationId, holdId }) => nameKey(organizationId, holdId)),
  );
  return [...named, ...keyed.filter(({ organizationId, holdId }) => !known.has(nameKey(organizationId, holdId)))];
}

async function readTokenBalances(
  transaction: Transaction,
  { tokens, holdsOfUnknownToken }: Names,
): Promise<TokenBalanceRow[]> {
  if (tokens.length === 0 && holdsOfUnknownToken.length === 0) return [];
  const lock = async (names: readonly Name[], holds: readonly Name[]) => {
    const columns = [...columnsOf(names), ...columnsOf(holds)];
    const { rows } = await transaction.query<Selectable<TokenBalanceTable>>(LOCK_TOKEN_BALANCES, columns);
    return rows.map(tokenBalanceFromTable);
  };
  const rows = await lock(tokens, holdsOfUnknownToken);
  const known = new Set(rows.map(({ organizationId, tokenId }) => nameKey(organizationId, tokenId)));
  const shared = budgetsOf(rows).filter(({ organizationId, id }) => !known.has(nameKey(organizationId, id)));
  // Locked out of the order of ids, but under the lock of the balance that everybody who wants them takes first.
  return shared.length === 0 ? rows : [...rows, ...(await lock(shared, []))];
}

/** By organization and id. */
type Grants = Map<string, GrantRow>;

/** The grants that something remains of or that are pending, and those that the batch names. */
async function readGrants(transaction: Transaction, names: Names): Promise<Grants> {
  const [live, named, referred] = await Promise.all([
    transaction.query<Selectable<CreditGrantTable>>(LIVE_GRANTS, [names.organizationIds]),
    read(transaction, NAMED_GRANTS, grantFromTable, names.grants),
    read(transaction, REFERRED_GRANTS, grantFromTable, names.grantReferences),
  ]);
  const grants: Grants = new Map();
  addGrants(grants, [...live.rows.map(grantFromTable), ...named, ...referred]);
  return grants;
}

/** Adds the grants that holds draw on and that nothing remains of: few batches have any. */
async function readDrawn(transaction: Transaction, holds: readonly HoldRow[], grants: Grants): Promise<void> {
  const missing = grantsOf(holds).filter(({ organizationId, id }) => !grants.has(nameKey(organizationId, id)));
  const once = new Map(missing.map((name) => [nameKey(name.organizationId, name.id), name]));
  addGrants(grants, await read(transaction, NAMED_GRANTS, grantFromTable, [...once.values()]));
}

function addGrants(grants: Grants, rows: GrantRow[]): void {
  for (const row of rows) grants.set(nameKey(row.organizationId, row.id), row);
}

/** Adds the keys of the holds that were made with one. */
async function readKeysOf(
  transaction: Transaction,
  holds: readonly HoldRow[],
  keys: IdempotencyKeyRow[],
): Promise<void> {
  const known = new Set(keys.map(({ organizationId, key }) => nameKey(organizationId, key)));
  const missing = keysOf(holds).filter(({ organizationId, id }) => !known.has(nameKey(organizationId, id)));
  const once = new Map(missing.map((name) => [nameKey(name.organizationId, name.id), name]));
  keys.push(...(await read(transaction, KEYS, keyFromTable, [...once.values()])));
}

async function readAdjustments(
  transaction: Transaction,
  { adjustments, adjustmentReferences }: Names,
): Promise<AdjustmentRow[]> {
  if (adjustments.length === 0) return [];
  const kinds = adjustmentReferences.map(({ kind }) => kind);
  const [named, referred] = await Promise.all([
    read(transaction, NAMED_ADJUSTMENTS, adjustmentFromTable, adjustments),
    transaction.query<Selectable<AdjustmentTable>>(REFERRED_ADJUSTMENTS, [...columnsOf(adjustmentReferences), kinds]),
  ]);
  const rows = [...named, ...referred.rows.map(adjustmentFromTable)];
  return [...new Map(rows.map((row) => [nameKey(row.organizationId, row.id), row])).values()];
}

/** Writes what a batch decided: one statement for each table and kind of write that it needs, all sent at once. */
export async function writeRows(transaction: Transaction, writes: BookWrites): Promise<void> {
  const write = async ({ table, text, columns }: Write, rows: Record<string, unknown>[]) => {
    if (rows.length === 0) return;
    const given = give(columns, rows);
    const { rowCount } = await transaction.query(text(given), given.values);
    // Under the lock of its balance no row can have gone; if one has, nothing of the batch may be booked.
    if (rowCount !== rows.length) throw new Error(`${rowCount} of ${rows.length} rows of ${table} were written`);
  };
  const removedKeys = writes.removedKeys.map(({ organizationId, key }) => ({ organizationId, id: key }));
  await Promise.all([
    write(UPDATE_BALANCES, writes.balances.map(balanceToTable)),
    write(UPDATE_TOKEN_BALANCES, writes.tokenBalances.map(tokenBalanceToTable)),
    write(INSERT_GRANTS, writes.newGrants.map(grantToTable)),
    write(UPDATE_GRANTS, writes.changedGrants.map(grantToTable)),
    write(INSERT_HOLDS, writes.newHolds.map(holdToTable)),
    write(RENEW_HOLDS, writes.renewedHolds.map(holdToTable)),
    write(END_HOLDS, writes.endedHolds.map(holdToTable)),
    write(INSERT_EVENTS, writes.events.map(eventToTable)),
    write(PUT_KEYS, writes.keys.map(keyToTable)),
    // One past its time may be gone already.
    removedKeys.length > 0 && transaction.query(DELETE_KEYS, columnsOf(removedKeys)),
    write(INSERT_ADJUSTMENTS, writes.newAdjustments.map(adjustmentToTable)),
  ]);
}
