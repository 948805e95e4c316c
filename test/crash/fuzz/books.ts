import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { linesOf } from "../charge-lines.ts";

/** Cells as the databases give them: integers as bigint. */
type Row<Texts extends string, Numbers extends string> = { [N in Texts]: string } & { [N in Numbers]: bigint };

/** The counters of budgets that a request recorded, as JSON. */
interface Recorded {
  budgets: string | null;
}

export interface RequestRow
  extends Recorded,
    Row<"organization_id" | "id" | "token_id" | "request_id" | "model" | "draws" | "ending", "amount" | "cost"> {
  shortfall: bigint;
  made_at: bigint;
  ended_at: bigint;
  basis: string | null;
  idempotency_caller_id: string | null;
  idempotency_key: string | null;
  tokens: bigint[];
  prices: bigint[];
}

/** Contents of the tables that the judge knows. Amounts are micro-credits, times milliseconds since 1970. */
export interface FuzzBooks {
  organizations: Row<"id", never>[];
  balances: Row<"organization_id", "granted" | "available" | "held" | "spent" | "expired">[];
  /** Counters of budgets, each with the amount of its budget. */
  budgets: Row<
    "organization_id" | "budget_id" | "value",
    "window_at" | "held" | "spent" | "opening" | "raised" | "amount"
  >[];
  grants: Row<"organization_id" | "id" | "state", "amount" | "revoked" | "remaining">[];
  holds: (Row<"organization_id" | "id" | "draws", "amount" | "expires_at"> & Recorded)[];
  requests: RequestRow[];
  adjustments: (Row<"organization_id" | "id" | "kind" | "draws", "amount"> &
    Recorded & {
      hold_id: string;
      shortfall: bigint | null;
      tokens: bigint[];
    })[];
  keys: Row<"organization_id" | "caller_id" | "key" | "hold_id", never>[];
  closings: Row<"organization_id", "before_at" | "cost">[];
  parts: Row<"organization_id" | "dimension" | "name", "amount">[];
}

const SELECTS: { [Table in keyof FuzzBooks]: string } = {
  organizations: "SELECT id FROM organization",
  balances: "SELECT organization_id, granted, available, held, spent, expired FROM balance",
  budgets: `SELECT budget_use.organization_id, budget_id, value, window_at, held, spent, opening, raised, amount
    FROM budget_use JOIN budget ON budget.organization_id = budget_use.organization_id AND budget.id = budget_id`,
  grants: "SELECT organization_id, id, state, amount, revoked, remaining FROM credit_grant",
  holds: "SELECT organization_id, id, draws, budgets, amount, expires_at FROM hold",
  requests: `SELECT organization_id, id, token_id, request_id, model, draws, budgets, ending, amount, cost, shortfall, made_at,
    ended_at, basis, idempotency_caller_id, idempotency_key, charge FROM request`,
  adjustments:
    "SELECT organization_id, id, kind, draws, budgets, amount, hold_id, shortfall, settlement FROM adjustment",
  keys: "SELECT organization_id, caller_id, key, hold_id FROM idempotency_key",
  closings: "SELECT organization_id, before_at, cost FROM closing",
  parts: "SELECT organization_id, dimension, name, amount FROM closing_part",
};
const BUSY_MS = 60_000;

/** Reads a store in one snapshot: a SQLite file, or a database by its address. */
export async function readFuzzBooks(place: string): Promise<FuzzBooks> {
  const books = (await select(place, SELECTS)) as unknown as FuzzBooks;
  for (const row of books.requests) Object.assign(row, linesOf((row as unknown as { charge: string }).charge));
  for (const row of books.adjustments) {
    const { settlement } = row as unknown as { settlement: string | null };
    row.tokens = linesOf(settlement === null ? "" : JSON.parse(settlement).charge).tokens;
  }
  // Rows of before a closing count as absent, until they are removed.
  const closed = new Map(books.closings.map(({ organization_id, before_at }) => [organization_id, before_at]));
  books.requests = books.requests.filter((row) => row.ended_at >= (closed.get(row.organization_id) ?? 0n));
  return books;
}

/** Returns the number of rows of a table. */
export async function countRows(place: string, table: string): Promise<number> {
  const { rows = [] } = await select(place, { rows: `SELECT count(*) AS count FROM ${table}` });
  return Number((rows[0] as { count: bigint }).count);
}

/** Runs queries in one snapshot, and returns their rows by name. */
async function select(place: string, queries: Record<string, string>): Promise<Record<string, unknown[]>> {
  return place.startsWith("postgres") ? selectFromServer(place, queries) : selectFromFile(place, queries);
}

function selectFromFile(path: string, queries: Record<string, string>): Record<string, unknown[]> {
  const database = new DatabaseSync(path, { readOnly: true, timeout: BUSY_MS });
  try {
    database.exec("BEGIN");
    const read = ([name, query]: [string, string]) => {
      const statement = database.prepare(query);
      statement.setReadBigInts(true);
      return [name, statement.all()];
    };
    return Object.fromEntries(Object.entries(queries).map(read));
  } finally {
    database.close();
  }
}

const BIGINT_OID = 20;
const types = {
  getTypeParser: (oid: number) => (oid === BIGINT_OID ? BigInt : (value: string) => value),
} as pg.CustomTypesConfig;

async function selectFromServer(url: string, queries: Record<string, string>): Promise<Record<string, unknown[]>> {
  const client = new pg.Client({ connectionString: url, types });
  await client.connect();
  try {
    await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    const found: Record<string, unknown[]> = {};
    for (const [name, query] of Object.entries(queries)) found[name] = (await client.query(query)).rows;
    return found;
  } finally {
    await client.end();
  }
}

/** Returns the draws on grants in a cell. */
export function drawsOf({ draws }: { draws: string | null }): { grant: string; amount: bigint }[] {
  const list: [string, string][] = JSON.parse(draws ?? "[]");
  return list.map(([grant, amount]) => ({ grant, amount: BigInt(amount) }));
}

export function sumOf(amounts: readonly bigint[]): bigint {
  return amounts.reduce((sum, amount) => sum + amount, 0n);
}
