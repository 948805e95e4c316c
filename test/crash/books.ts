import { execFile } from "node:child_process";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import pg from "pg";

/** The books as the tables hold them, read in one snapshot. Amounts are micro-credits, times milliseconds since 1970. */
export interface Books {
  now: number;
  balances: Balance[];
  grants: Grant[];
  holds: Hold[];
  events: Event[];
}

export interface Balance {
  organization_id: string;
  granted: bigint;
  available: bigint;
  held: bigint;
  spent: bigint;
  expired: bigint;
}

export interface Grant {
  organization_id: string;
  id: string;
  amount: bigint;
  reference: string | null;
}

export interface Tokens {
  input_tokens: bigint;
  cached_input_tokens: bigint;
  cache_write_tokens: bigint;
  output_tokens: bigint;
  reasoning_tokens: bigint;
}

export interface Hold extends Tokens {
  organization_id: string;
  id: string;
  metadata: string | null;
  amount: bigint;
  made_at: bigint;
  expires_at: bigint;
  state: string;
  charged: bigint;
  shortfall: bigint;
}

export interface Event extends Tokens {
  organization_id: string;
  hold_id: string;
  sequence: bigint;
  metadata: string | null;
  cost: bigint;
  shortfall: bigint;
  basis: string;
  ending: string;
  input_price: bigint;
  cached_input_price: bigint;
  output_price: bigint;
  charged_at: bigint;
}

/** A store as the checker reads it, beside the service. */
export type Source =
  /** `launcher`: a command that runs another one where the file can be seen. */
  { kind: "sqlite"; path: string; launcher: string[] | undefined } | { kind: "postgres"; url: string };

const READER = fileURLToPath(new URL("read-books-process.ts", import.meta.url));

const OUTPUT_BYTES_MAX = 1 << 30;
const TOKENS = "input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens";
const SELECTS = {
  balances: "SELECT organization_id, granted, available, held, spent, expired FROM balance",
  grants: "SELECT organization_id, id, amount, reference FROM credit_grant",
  holds: `SELECT organization_id, id, metadata, amount, made_at, expires_at, state, charged, shortfall, ${TOKENS} FROM hold`,
  events: `SELECT organization_id, hold_id, sequence, metadata, cost, shortfall, basis, ending, input_price,
    cached_input_price, output_price, charged_at, ${TOKENS} FROM usage_event`,
};
type Table = keyof typeof SELECTS;
const TABLES = Object.keys(SELECTS) as Table[];

/** Reads what belongs to these organizations. Only while a service has the store open: a reader must not repair it. */
export async function readBooks(source: Source, organizationIds: string[]): Promise<Books> {
  if (source.kind === "postgres") return readServer(source.url, organizationIds);
  const { path, launcher } = source;
  if (launcher === undefined) return readFile(path, organizationIds);
  const [program = "", ...before] = launcher;
  const words = [...before, process.execPath, READER, path, ...organizationIds];
  const { stdout } = await promisify(execFile)(program, words, { maxBuffer: OUTPUT_BYTES_MAX });
  return JSON.parse(stdout, (_key, value) => {
    return typeof value === "string" && /^-?\d+n$/.test(value) ? BigInt(value.slice(0, -1)) : value;
  });
}

/** As JSON, which knows no large integers: `12n`. */
export function toText(books: Books): string {
  return JSON.stringify(books, (_key, value) => (typeof value === "bigint" ? `${value}n` : value));
}

/** Reads a file that this process can see. */
export function readFile(path: string, organizationIds: string[]): Books {
  const database = new DatabaseSync(path, { readOnly: true, readBigInts: true, timeout: 60_000 });
  try {
    database.exec("BEGIN");
    const marks = organizationIds.map(() => "?").join(", ");
    const read = (table: Table) =>
      database.prepare(`${SELECTS[table]} WHERE organization_id IN (${marks})`).all(...organizationIds);
    const tables = Object.fromEntries(TABLES.map((table) => [table, read(table)]));
    return { now: Date.now(), ...tables } as unknown as Books;
  } finally {
    database.close();
  }
}

const INT8 = 20;
const types = {
  getTypeParser: (oid: number) => (oid === INT8 ? BigInt : pg.types.getTypeParser(oid, "text")),
} as pg.CustomTypesConfig;

async function readServer(url: string, organizationIds: string[]): Promise<Books> {
  const client = new pg.Client({ connectionString: url, types });
  client.on("error", () => {});
  await client.connect();
  try {
    await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    const tables: Record<string, unknown[]> = {};
    for (const table of TABLES) {
      const text = `${SELECTS[table]} WHERE organization_id = ANY ($1)`;
      tables[table] = (await client.query(text, [organizationIds])).rows;
    }
    return { now: Date.now(), ...tables } as unknown as Books;
  } finally {
    await client.end();
  }
}
