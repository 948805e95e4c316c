import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { OperatorError } from "../../errors.ts";
import { programVersion } from "../../version.ts";
import {
  APPLIED,
  type AppliedMigration,
  appliedFrom,
  expectCurrent,
  type Migration,
  missingMigrations,
  missingStore,
  SCHEMA_MIGRATION,
  type SchemaVersions,
  versionsOf,
} from "../migrations.ts";
import { PostgresFailure } from "./failure.ts";
import type { Pools } from "./pools.ts";
import { query, runExclusively, transact } from "./transact.ts";

const SCHEMA_EXISTS = "SELECT to_regclass('schema_migration') IS NOT NULL AS exists";
const APPLY = `
  INSERT INTO schema_migration (version, name, checksum, applied_at, program, committed_at)
  VALUES ($1, $2, $3, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, $4, $5)`;
const MIGRATION_TIMEOUT_MS = 3_600_000;
/** Time for which a migration waits for a table. Statements of running nodes queue behind it; their lock timeout is longer. */
const TABLE_LOCK_TIMEOUT_MS = 50;
const TABLES_AGAIN_AFTER_MS = 300;
const TABLES_AWAITED_MS = 60_000;
const TABLES_IN_USE =
  "The database's tables have been in use for a minute, so that its schema could not be changed; try again later.";

/** Migrates the schema in one transaction, again while a table is in use, for a minute at most. Rejects with OperatorError. */
export async function migrate({ durable: pool, place }: Pools, migrations: Migration[]): Promise<SchemaVersions> {
  const missingOf = (applied: AppliedMigration[]) => missingMigrations(nameOf(place), applied, migrations);
  // Most starts find nothing to do: they neither write nor wait, and need no privilege to create tables.
  const before = await appliedRows(pool);
  if (before !== undefined && missingOf(before).length === 0) return versionsOf(migrations, []);
  const program = programVersion();
  const applyMissing = () =>
    transact(pool, { kind: "booking", isRepeatable: true }, async (transaction) => {
      await transaction.query(`SET LOCAL statement_timeout = ${MIGRATION_TIMEOUT_MS}`);
      await transaction.query(`SET LOCAL lock_timeout = ${TABLE_LOCK_TIMEOUT_MS}`);
      await transaction.query(SCHEMA_MIGRATION);
      const missing = missingOf(appliedFrom((await transaction.query(APPLIED)).rows));
      for (const { version, name, sql: text, checksum } of missing) {
        const config: pg.QueryConfig & { query_timeout: number } = { text, query_timeout: MIGRATION_TIMEOUT_MS };
        await transaction.query(config);
        await transaction.query(APPLY, [version, name, checksum, program.name, program.committedAtMs]);
      }
      return versionsOf(migrations, missing);
    });
  return runExclusively(pool, async () => {
    const until = performance.now() + TABLES_AWAITED_MS;
    for (;;) {
      try {
        return await applyMissing();
      } catch (error) {
        if (!(error instanceof PostgresFailure) || error.kind !== "locked") throw error;
        if (performance.now() > until) throw new OperatorError(TABLES_IN_USE);
        await sleep(TABLES_AGAIN_AFTER_MS);
      }
    }
  });
}

/** Returns the migrations that were applied; undefined if the database has no schema. */
async function appliedRows(pool: pg.Pool): Promise<AppliedMigration[] | undefined> {
  const [found] = await query<{ exists: boolean }>(pool, SCHEMA_EXISTS);
  return found?.exists === true ? appliedFrom(await query(pool, APPLIED)) : undefined;
}

/** Rejects with OperatorError unless the schema is current. Changes nothing. */
export async function expectSchema({ durable, place }: Pools, migrations: Migration[]): Promise<SchemaVersions> {
  const applied = (await appliedRows(durable)) ?? [];
  if (applied.length === 0) throw missingStore(`the database at ${place}`);
  return expectCurrent(nameOf(place), applied, migrations);
}

function nameOf(place: string): string {
  return `The database at ${place}`;
}
