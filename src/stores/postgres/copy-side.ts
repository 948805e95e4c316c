import pg from "pg";
import { idAt } from "../../credits/request-id.ts";
import { OperatorError } from "../../errors.ts";
import type { CopySide } from "../copy.ts";
import type { Cell } from "../fields.ts";
import type { TableShape } from "../table.ts";
import { connectFailure, openingFailure, sqlStateOf, statementFailure } from "./failure.ts";
import { LOCK_REQUESTS, partitionOf } from "./partitions.ts";
import { placeOf, types } from "./pools.ts";
import { openPostgresDriver, toStatement } from "./postgres.ts";
import { arrayText } from "./writes.ts";

const CONNECT_TIMEOUT_MS = 5_000;
/** The database may have limits that suit a service. */
const NO_TIME_LIMITS = "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0";
const MONTHS_MAX = 600;
/** SQLSTATE of a partition whose rows are in the default partition. */
const CHECK_VIOLATION = "23514";
/** Exists while a copy into the database is incomplete: a row for each table that was copied beside a running service. */
const MARK_INCOMPLETE = "CREATE TABLE IF NOT EXISTS incomplete_copy (name text PRIMARY KEY, copied_at bigint NOT NULL)";
const NOTE_TABLE = `
  INSERT INTO incomplete_copy VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET copied_at = excluded.copied_at`;
const OCCUPIED = `
  SELECT EXISTS (SELECT 1 FROM organization WHERE id <> 'org_playground') OR EXISTS (SELECT 1 FROM operator) AS occupied`;

/** The destination of a copy. */
export interface PostgresDestination extends CopySide {
  /** The times at which tables were copied by an earlier, interrupted copy. */
  readonly copiedAtMs: Map<string, number>;
  noteCopied(table: string, copiedAtMs: number): Promise<void>;
  /** Creates the missing partitions of the months between two times, at most those of 50 years. */
  makePartitions(fromMs: number, toMs: number): Promise<void>;
  /** Collects statistics: without them, PostgreSQL plans for small tables. */
  analyze(): Promise<void>;
  /** Lets services start on the copy. Resolves when all of it is on the disk. */
  markComplete(): Promise<void>;
}

/**
 * Opens a database to read it as one side of a copy, over a connection of its own without time limits. Rejects with
 * OperatorError if it cannot be used.
 */
export async function openPostgresSide(url: string): Promise<CopySide> {
  return sideOver(await connect(url, "default_transaction_read_only=on"));
}

/**
 * Prepares a database as the destination of a copy: creates the tables, and marks it as incomplete, so that no service
 * starts on it. An incomplete copy is continued. Rejects with OperatorError if it cannot be used, or contains anything else.
 */
export async function openPostgresDestination(url: string): Promise<PostgresDestination> {
  const driver = await openPostgresDriver({ url, role: "command", isCopyTarget: true });
  await driver.close();
  const client = await connect(url, "synchronous_commit=off");
  try {
    const { rows } = await client.query("SELECT to_regclass('incomplete_copy') IS NOT NULL AS incomplete");
    if (rows[0]?.incomplete !== true) {
      const found = await client.query(OCCUPIED);
      if (found.rows[0]?.occupied === true)
        throw new OperatorError(`The database at ${placeOf(url)} contains a store; name an empty database.`);
      await client.query(MARK_INCOMPLETE);
    }
    const copied = await client.query<{ name: string; copied_at: bigint }>(
      "SELECT name, copied_at FROM incomplete_copy",
    );
    return destinationOver(client, new Map(copied.rows.map(({ name, copied_at }) => [name, Number(copied_at)])));
  } catch (error) {
    await client.end();
    throw openingFailure(placeOf(url), error);
  }
}

async function connect(url: string, setting: string): Promise<pg.Client> {
  const place = placeOf(url);
  const client = new pg.Client({
    connectionString: url,
    types,
    application_name: "tollgate copy",
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
  });
  // A connection that breaks makes its query reject.
  client.on("error", () => {});
  try {
    await client.connect();
    await client.query(`${NO_TIME_LIMITS}; SET ${setting}`);
    return client;
  } catch (error) {
    await client.end().catch(() => {});
    throw openingFailure(place, connectFailure(error));
  }
}

function destinationOver(client: pg.Client, copiedAtMs: Map<string, number>): PostgresDestination {
  const run = (text: string, values: unknown[] = []) => guarded(() => client.query(text, values));
  return {
    ...sideOver(client),
    copiedAtMs,
    noteCopied: async (table, atMs) => void (await run(NOTE_TABLE, [table, atMs])),
    makePartitions: (fromMs, toMs) => guarded(() => makePartitions(client, fromMs, toMs)),
    analyze: async () => void (await run("ANALYZE")),
    markComplete: async () => {
      await run("SET synchronous_commit = on");
      await run("DROP TABLE incomplete_copy");
    },
  };
}

async function makePartitions(client: pg.Client, fromMs: number, toMs: number): Promise<void> {
  for (let ahead = 0; ahead < MONTHS_MAX; ahead += 1) {
    const { name, ...month } = partitionOf(new Date(fromMs), ahead);
    if (month.fromMs > toMs) return;
    const [from, to] = [idAt(month.fromMs), idAt(month.toMs)];
    const text = `CREATE TABLE IF NOT EXISTS ${name} PARTITION OF request FOR VALUES FROM ('${from}') TO ('${to}')`;
    await client.query(text).catch((error: unknown) => {
      // Requests of the month that were copied earlier stay in the default partition.
      if (sqlStateOf(error) !== CHECK_VIOLATION) throw error;
    });
  }
}

function sideOver(client: pg.Client): CopySide {
  return {
    beginSnapshot: async () => {
      await guarded(() => client.query(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; ${LOCK_REQUESTS}`));
    },
    read: async (query) => {
      const { sql: text, parameters } = toStatement(query);
      const result = await guarded(() => client.query<Cell[]>({ text, values: [...parameters], rowMode: "array" }));
      return result.rows;
    },
    run: async (query) => {
      const { sql: text, parameters } = toStatement(query);
      await guarded(() => client.query(text, [...parameters]));
    },
    insert: async (table, rows) => {
      const values = table.columns.map((_, index) => arrayText(rows.map((row) => textOfBytes(row[index] ?? null))));
      await guarded(() => client.query(insertion(table), values));
    },
    close: () => client.end(),
  };
}

async function guarded<T>(work: () => Promise<T>): Promise<T> {
  return work().catch((error: unknown) => {
    throw statementFailure(error, undefined);
  });
}

function insertion({ name, columns, kinds }: TableShape): string {
  const arrays = columns.map((column, index) => `$${index + 1}::${kinds[column]}[]`);
  return `INSERT INTO ${name} (${columns.join(", ")}) SELECT * FROM unnest(${arrays.join(", ")}) ON CONFLICT DO NOTHING`;
}

/** Bytes in the input syntax of bytea. */
function textOfBytes(cell: Cell): Exclude<Cell, Uint8Array> {
  return cell instanceof Uint8Array ? `\\x${Buffer.from(cell).toString("hex")}` : cell;
}
