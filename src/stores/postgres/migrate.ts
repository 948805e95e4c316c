import type pg from "pg";
import { OperatorError } from "../../errors.ts";
import { type Migration, schemaRefusal } from "../migrations.ts";
import { LOCK_NOT_AVAILABLE, sqlStateOf } from "./failure.ts";
import type { Pools } from "./pools.ts";
import { query, type Transaction, transact } from "./transact.ts";

const SCHEMA_MIGRATION = `
  CREATE TABLE IF NOT EXISTS schema_migration (
    version    bigint NOT NULL PRIMARY KEY,
    name       text   NOT NULL,
    checksum   text   NOT NULL,
    applied_at bigint NOT NULL
  )`;
/** A migration locks this row, so that processes that start together take turns. */
const TURN = "INSERT INTO schema_migration VALUES (0, 'turn', '', 0) ON CONFLICT (version) DO NOTHING";
const TAKE_TURN = "SELECT version FROM schema_migration WHERE version = 0 FOR UPDATE";
const IS_THERE = "SELECT to_regclass('schema_migration') IS NOT NULL AS made";
const DONE_BEFORE = "SELECT version, checksum FROM schema_migration WHERE version > 0";
const DONE = `
  INSERT INTO schema_migration (version, name, checksum, applied_at)
  VALUES ($1, $2, $3, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)`;
/** Two processes that find no table may both try to create it; the second one fails with one of these. */
const MADE_BY_ANOTHER = new Set(["23505", "42710", "42P07"]);
const TURN_TIMEOUT_MS = 60_000;
const MIGRATION_TIMEOUT_MS = 3_600_000;

interface DoneRow {
  version: bigint;
  checksum: string;
}

/** Migrates the schema in one transaction. Rejects with OperatorError for a newer or an altered schema. */
export async function migrate(pool: pg.Pool, migrations: Migration[]): Promise<void> {
  if (await isUpToDate(pool, migrations)) return;
  for (const text of [SCHEMA_MIGRATION, TURN]) {
    await query(pool, { text, isRepeatable: true }).catch((error: unknown) => {
      if (!MADE_BY_ANOTHER.has(sqlStateOf(error))) throw error;
    });
  }
  await transact(pool, { kind: "booking", isRepeatable: true }, async (transaction) => {
    await takeTurn(transaction);
    const { rows } = await transaction.query<DoneRow>(DONE_BEFORE);
    for (const { version, name, sql, checksum } of missingOf(rows, migrations)) {
      await transaction.query(patient(sql, MIGRATION_TIMEOUT_MS));
      await transaction.query(DONE, [version, name, checksum]);
    }
  });
}

/** Most starts find nothing to do: they neither write nor wait, and need no privilege to create tables. */
async function isUpToDate(pool: pg.Pool, migrations: Migration[]): Promise<boolean> {
  const found = await query<{ made: boolean }>(pool, { text: IS_THERE, isRepeatable: true });
  if (found.rows[0]?.made !== true) return false;
  const { rows } = await query<DoneRow>(pool, { text: DONE_BEFORE, isRepeatable: true });
  return missingOf(rows, migrations).length === 0;
}

/** Rejects with OperatorError unless the schema is current. Changes nothing. */
export async function expectSchema({ durable, place }: Pools, migrations: Migration[]): Promise<void> {
  const found = await query<{ made: boolean }>(durable, { text: IS_THERE, isRepeatable: true });
  const rows = found.rows[0]?.made
    ? (await query<DoneRow>(durable, { text: DONE_BEFORE, isRepeatable: true })).rows
    : [];
  const newest = rows.length === 0 ? undefined : Math.max(...rows.map(({ version }) => Number(version)));
  const refusal = schemaRefusal(`the database at ${place}`, newest, migrations);
  if (refusal !== undefined) throw new OperatorError(refusal[0]?.toUpperCase() + refusal.slice(1));
}

async function takeTurn(transaction: Transaction): Promise<void> {
  await transaction.query(`SET LOCAL lock_timeout = ${TURN_TIMEOUT_MS}`);
  await transaction.query(`SET LOCAL statement_timeout = ${MIGRATION_TIMEOUT_MS}`);
  await transaction.query(`SET LOCAL idle_in_transaction_session_timeout = ${TURN_TIMEOUT_MS}`);
  try {
    await transaction.query(patient(TAKE_TURN, 2 * TURN_TIMEOUT_MS));
  } catch (error) {
    if (sqlStateOf(error) !== LOCK_NOT_AVAILABLE) throw error;
    throw new OperatorError("Another process has been changing the database's schema for a minute; try again later.");
  }
}

/** Returns a statement for which the client also waits longer than for others. */
function patient(text: string, timeoutMs: number): pg.QueryConfig {
  const config: pg.QueryConfig & { query_timeout: number } = { text, query_timeout: timeoutMs };
  return config;
}

function missingOf(rows: DoneRow[], migrations: Migration[]): Migration[] {
  const checksums = new Map(rows.map(({ version, checksum }) => [Number(version), checksum]));
  const [found, known] = [Math.max(0, ...checksums.keys()), migrations.at(-1)?.version ?? 0];
  if (found > known) {
    throw new OperatorError(
      `The database was written by a newer Tollgate: its schema is ${found}, this one knows up to ${known}.`,
    );
  }
  return migrations.filter(({ version, name, checksum }) => {
    const earlier = checksums.get(version);
    if (earlier !== undefined && earlier !== checksum) {
      throw new OperatorError(`The database was made with another text of the migration ${name}.`);
    }
    return earlier === undefined;
  });
}
