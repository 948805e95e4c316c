import { execFile } from "node:child_process";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import pg from "pg";
import { linesOf } from "./charge-lines.ts";

/** Contents of the tables, read in one snapshot. Amounts are micro-credits, times milliseconds since 1970. */
export interface Books {
  now: number;
  balances: Balance[];
  grants: Grant[];
  holds: Hold[];
  events: Event[];
  counted: Counted[];
}

/** A counter of a budget. */
export interface Counted {
  organization_id: string;
  budget_id: string;
  held: bigint;
  spent: bigint;
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
  /** Only of an open hold. */
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

/** A store that the checker reads while the service uses it. */
export type Source =
  /** `launcher`: a command that runs another one where the file can be seen. */
  { kind: "sqlite"; path: string; launcher: string[] | undefined } | { kind: "postgres"; url: string };

const READER = fileURLToPath(new URL("read-books-process.ts", import.meta.url));

const OUTPUT_BYTES_MAX = 1 << 30;
const SELECTS = {
  balances: "SELECT organization_id, granted, available, held, spent, expired FROM balance",
  grants: "SELECT organization_id, id, amount, reference FROM credit_grant",
  open: "SELECT organization_id, id, amount, made_at, expires_at, details FROM hold",
  requests: `SELECT organization_id, id, metadata, amount, made_at, cost, shortfall, basis, ending, charge, ended_at
    FROM request`,
  counted: "SELECT organization_id, budget_id, held, spent FROM budget_use",
  adjustments: "SELECT organization_id, hold_id, kind, amount, shortfall, settlement, made_at FROM adjustment",
};
type Table = keyof typeof SELECTS;
const TABLES = Object.keys(SELECTS) as Table[];

interface OpenRow {
  organization_id: string;
  id: string;
  amount: bigint;
  made_at: bigint;
  expires_at: bigint;
  details: string;
}
interface RequestRow extends Pick<Event, "organization_id" | "metadata" | "cost" | "shortfall" | "basis" | "ending"> {
  id: string;
  charge: string;
  amount: bigint;
  made_at: bigint;
  ended_at: bigint;
}
interface AdjustmentRow {
  organization_id: string;
  hold_id: string | null;
  kind: string;
  amount: bigint;
  shortfall: bigint;
  settlement: string | null;
  made_at: bigint;
}
type Tables = Pick<Books, "balances" | "grants" | "counted"> & {
  open: OpenRow[];
  requests: RequestRow[];
  adjustments: AdjustmentRow[];
};

/** Converts requests to holds with a state, and their charges to events, as the checker expects them. */
function toBooks({ balances, grants, counted, open, requests, adjustments }: Tables): Books {
  const late = new Map(
    adjustments.filter(({ kind }) => kind === "late_settlement").map((row) => [row.hold_id ?? "", row]),
  );
  const holds = open.map(openHold);
  const events: Event[] = [];
  for (const request of requests) {
    const settled = late.get(request.id);
    late.delete(request.id);
    const charges = request.ending === "released" ? [] : [eventOf(request)];
    if (settled !== undefined) charges.push(lateEventOf(request, settled));
    events.push(...charges);
    holds.push(endedHold(request, charges));
  }
  for (const id of late.keys()) throw new Error(`the late settlement of ${id} belongs to no request`);
  return { now: Date.now(), balances, grants, counted, holds, events };
}

function openHold({ details, ...row }: OpenRow): Hold {
  const list = JSON.parse(details);
  const metadata = list[3];
  const { input_price: _input, cached_input_price: _cached, output_price: _output, ...counts } = chargedIn(list[5]);
  const text = metadata === null ? null : JSON.stringify(metadata);
  return { ...row, ...counts, metadata: text, state: "open", charged: 0n, shortfall: 0n };
}

function endedHold(request: RequestRow, charges: Event[]): Hold {
  const { organization_id, id, metadata, amount, made_at, ending } = request;
  const sum = (column: keyof Tokens | "cost" | "shortfall") =>
    charges.reduce((total, charge) => total + charge[column], 0n);
  const isRecovered = ending === "recovered" && charges.length === 1;
  const state = ending === "released" ? "released" : isRecovered ? "expired" : "charged";
  return {
    ...{ organization_id, id, metadata, amount, made_at, expires_at: 0n, state },
    charged: sum("cost"),
    shortfall: sum("shortfall"),
    input_tokens: sum("input_tokens"),
    cached_input_tokens: sum("cached_input_tokens"),
    cache_write_tokens: sum("cache_write_tokens"),
    output_tokens: sum("output_tokens"),
    reasoning_tokens: sum("reasoning_tokens"),
  };
}

/** The tokens and prices of a stored charge by their names. */
function chargedIn(charge: string) {
  const { tokens, prices } = linesOf(charge);
  const [input = 0n, cached = 0n, written = 0n, output = 0n, reasoning = 0n] = tokens;
  const [inputPrice = 0n, cachedPrice = 0n, , outputPrice = 0n] = prices;
  return {
    ...{ input_tokens: input, cached_input_tokens: cached, cache_write_tokens: written },
    ...{ output_tokens: output, reasoning_tokens: reasoning },
    ...{ input_price: inputPrice, cached_input_price: cachedPrice, output_price: outputPrice },
  };
}

function eventOf({ id, amount: _amount, made_at: _madeAt, charge, ended_at, ...row }: RequestRow): Event {
  return { ...row, ...chargedIn(charge), hold_id: id, sequence: 0n, charged_at: ended_at };
}

function lateEventOf(request: RequestRow, late: AdjustmentRow): Event {
  const { organization_id, hold_id, kind: _kind, amount, settlement, made_at, ...row } = late;
  const { basis, end, charge } = JSON.parse(settlement ?? "");
  const rest = { metadata: request.metadata, basis, ending: end, cost: amount, charged_at: made_at };
  return { ...row, ...chargedIn(charge), ...rest, organization_id, hold_id: hold_id ?? "", sequence: 1n };
}

/** Reads the rows of these organizations. Only while a service has the store open, because a reader must not repair it. */
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

/** Serializes books as JSON, with large integers as `12n`. */
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
    return toBooks(tables as unknown as Tables);
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
    return toBooks(tables as unknown as Tables);
  } finally {
    await client.end();
  }
}
