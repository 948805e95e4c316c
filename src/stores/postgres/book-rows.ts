import type { Selectable } from "kysely";
import type { BookRows, BookWrites, GrantRow, HoldRow, Transition } from "../../credits/books.ts";
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
import type { Transaction } from "./transact.ts";

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

const GRANT_COLUMNS: Columns<CreditGrantTable> = {
  organization_id: "text",
  id: "text",
  amount: "bigint",
  remaining: "bigint",
  state: "text",
  effective_at: "bigint",
  expires_at: "bigint",
  priority: "bigint",
  reference: "text",
  created_at: "bigint",
};

const USAGE_COLUMNS = {
  organization_id: "text",
  token_id: "text",
  request_id: "text",
  model: "text",
  upstream: "text",
  input_price: "bigint",
  cached_input_price: "bigint",
  cache_write_price: "bigint",
  output_price: "bigint",
  reasoning_price: "bigint",
  metadata: "text",
  input_tokens: "bigint",
  cached_input_tokens: "bigint",
  cache_write_tokens: "bigint",
  output_tokens: "bigint",
  reasoning_tokens: "bigint",
} as const;

const HOLD_COLUMNS: Columns<HoldTable> = {
  ...USAGE_COLUMNS,
  id: "text",
  amount: "bigint",
  idempotency_key: "text",
  made_at: "bigint",
  expires_at: "bigint",
  draws: "text",
  state: "text",
  charged: "bigint",
  shortfall: "bigint",
};

const EVENT_COLUMNS: Columns<UsageEventTable> = {
  ...USAGE_COLUMNS,
  hold_id: "text",
  sequence: "bigint",
  cost: "bigint",
  shortfall: "bigint",
  basis: "text",
  ending: "text",
  made_at: "bigint",
  charged_at: "bigint",
};

const LOCK_BALANCES = "SELECT * FROM balance WHERE organization_id = ANY ($1) ORDER BY organization_id FOR UPDATE";
const CLOCK = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";
const HOLDS = `
  SELECT hold.* FROM unnest($1::text[], $2::text[]) AS named (organization_id, id)
  JOIN hold ON hold.organization_id = named.organization_id AND hold.id = named.id`;
const LIVE_GRANTS = `
  SELECT * FROM credit_grant WHERE organization_id = ANY ($1) AND (state = 'pending' OR remaining > 0)`;
const NAMED_GRANTS = `
  SELECT credit_grant.* FROM unnest($1::text[], $2::text[]) AS named (organization_id, id)
  JOIN credit_grant ON credit_grant.organization_id = named.organization_id AND credit_grant.id = named.id`;
const REFERRED_GRANTS = `
  SELECT credit_grant.* FROM unnest($1::text[], $2::text[]) AS named (organization_id, reference)
  JOIN credit_grant
    ON credit_grant.organization_id = named.organization_id AND credit_grant.reference = named.reference`;

/**
 * A statement that writes many rows. It is planned each time: a plan that was kept from when a table was small would read
 * all of it.
 */
interface Write {
  table: string;
  text: string;
  columns: string[];
}

const UPDATE_BALANCES = update("balance", BALANCE_COLUMNS, ["organization_id"]);
const INSERT_GRANTS = insert("credit_grant", GRANT_COLUMNS);
const UPDATE_GRANTS = update("credit_grant", GRANT_COLUMNS, ["organization_id", "id"]);
const INSERT_HOLDS = insert("hold", HOLD_COLUMNS);
const UPDATE_HOLDS = update("hold", HOLD_COLUMNS, ["organization_id", "id"]);
const INSERT_EVENTS = insert("usage_event", EVENT_COLUMNS);

/** One array a column, so that a batch of any size is one statement. */
function arrays(columns: Record<string, string>): string {
  return Object.values(columns)
    .map((type, index) => `$${index + 1}::${type}[]`)
    .join(", ");
}

function insert(table: string, columns: Record<string, string>): Write {
  const names = Object.keys(columns);
  const text = `INSERT INTO ${table} (${names.join(", ")}) SELECT * FROM unnest(${arrays(columns)})`;
  return { table, text, columns: names };
}

function update(table: string, columns: Record<string, string>, key: string[]): Write {
  const names = Object.keys(columns);
  const changed = names.filter((name) => !key.includes(name)).map((name) => `${name} = changed.${name}`);
  const matched = key.map((name) => `${table}.${name} = changed.${name}`).join(" AND ");
  const text = `UPDATE ${table} SET ${changed.join(", ")}
    FROM unnest(${arrays(columns)}) AS changed (${names.join(", ")}) WHERE ${matched}`;
  return { table, text, columns: names };
}

/**
 * The rows that a batch concerns. The balances are locked by the first statement, in the order of their ids; all else is
 * read by later ones, whose snapshots are younger than the locks. All are sent at once, without waiting in between.
 */
export async function readRows(transaction: Transaction, transitions: readonly Transition[]): Promise<BookRows> {
  const organizationIds = [...new Set(transitions.map(organizationOf))];
  const [balances, clock, holds, grants] = await Promise.all([
    transaction.query<Selectable<BalanceTable>>(LOCK_BALANCES, [organizationIds]),
    transaction.query<{ now: bigint }>(CLOCK),
    readHolds(transaction, transitions),
    readGrants(transaction, organizationIds, transitions),
  ]);
  await readDrawn(transaction, holds, grants);
  return {
    nowMs: Number(clock.rows[0]?.now),
    balances: balances.rows.map(balanceFromTable),
    holds,
    grants: [...grants.values()],
  };
}

function organizationOf(transition: Transition): string {
  return "facts" in transition ? transition.facts.organizationId : transition.organizationId;
}

async function readHolds(transaction: Transaction, transitions: readonly Transition[]): Promise<HoldRow[]> {
  const named = transitions.flatMap((transition) => {
    const names = "facts" in transition ? transition.facts : transition;
    return "holdId" in names ? [names] : [];
  });
  if (named.length === 0) return [];
  const columns = [named.map((one) => one.organizationId), named.map((one) => one.holdId)];
  const { rows } = await transaction.query<Selectable<HoldTable>>(HOLDS, columns);
  return rows.map(holdFromTable);
}

/** By organization and id. */
type Grants = Map<string, GrantRow>;

/** The grants that something remains of or that are pending, and those that the batch names. */
async function readGrants(
  transaction: Transaction,
  organizationIds: string[],
  transitions: readonly Transition[],
): Promise<Grants> {
  const granted = transitions.filter((transition) => transition.kind === "grant");
  const organizations = granted.map((grant) => grant.organizationId);
  const reads = [transaction.query<Selectable<CreditGrantTable>>(LIVE_GRANTS, [organizationIds])];
  if (granted.length > 0) {
    const ids = granted.map((grant) => grant.grantId);
    const references = granted.map((grant) => grant.reference);
    reads.push(transaction.query(NAMED_GRANTS, [organizations, ids]));
    reads.push(transaction.query(REFERRED_GRANTS, [organizations, references]));
  }
  const grants: Grants = new Map();
  for (const { rows } of await Promise.all(reads)) addGrants(grants, rows);
  return grants;
}

/** Adds the grants that holds draw on and that nothing remains of: few batches have any. */
async function readDrawn(transaction: Transaction, holds: readonly HoldRow[], grants: Grants): Promise<void> {
  const missing = new Map<string, [string, string]>();
  for (const { organizationId, draws } of holds) {
    for (const { grantId } of draws) {
      const key = grantKey(organizationId, grantId);
      if (!grants.has(key)) missing.set(key, [organizationId, grantId]);
    }
  }
  if (missing.size === 0) return;
  const pairs = [...missing.values()];
  const columns = [pairs.map(([organizationId]) => organizationId), pairs.map(([, grantId]) => grantId)];
  const { rows } = await transaction.query<Selectable<CreditGrantTable>>(NAMED_GRANTS, columns);
  addGrants(grants, rows);
}

function addGrants(grants: Grants, rows: Selectable<CreditGrantTable>[]): void {
  for (const row of rows) grants.set(grantKey(row.organization_id, row.id), grantFromTable(row));
}

function grantKey(organizationId: string, grantId: string): string {
  return `${organizationId} ${grantId}`;
}

/** Writes what a batch decided: one statement for each table and kind of write that it needs, all sent at once. */
export async function writeRows(transaction: Transaction, writes: BookWrites): Promise<void> {
  const write = async ({ table, text, columns }: Write, rows: Record<string, unknown>[]) => {
    if (rows.length === 0) return;
    const values = columns.map((column) => rows.map((row) => row[column]));
    const { rowCount } = await transaction.query(text, values);
    // Under the lock of its balance no row can have gone; if one has, nothing of the batch may be booked.
    if (rowCount !== rows.length) throw new Error(`${rowCount} of ${rows.length} rows of ${table} were written`);
  };
  await Promise.all([
    write(UPDATE_BALANCES, writes.balances.map(balanceToTable)),
    write(INSERT_GRANTS, writes.newGrants.map(grantToTable)),
    write(UPDATE_GRANTS, writes.changedGrants.map(grantToTable)),
    write(INSERT_HOLDS, writes.newHolds.map(holdToTable)),
    write(UPDATE_HOLDS, writes.changedHolds.map(holdToTable)),
    write(INSERT_EVENTS, writes.events.map(eventToTable)),
  ]);
}
