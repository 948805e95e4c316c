import type pg from "pg";
import { OperatorError } from "../../errors.ts";
import type { Migration } from "../migrations.ts";
import { codeOf } from "./failure.ts";
import { transact } from "./pools.ts";

const SCHEMA_MIGRATION = `
  CREATE TABLE IF NOT EXISTS schema_migration (
    version    bigint NOT NULL PRIMARY KEY,
    name       text   NOT NULL,
    checksum   text   NOT NULL,
    applied_at bigint NOT NULL
  )`;
/** Whoever migrates holds this row, so that processes which start together take turns. */
const TURN = "INSERT INTO schema_migration VALUES (0, 'turn', '', 0) ON CONFLICT (version) DO NOTHING";
const TAKE_TURN = "SELECT version FROM schema_migration WHERE version = 0 FOR UPDATE";
const DONE = `
  INSERT INTO schema_migration (version, name, checksum, applied_at)
  VALUES ($1, $2, $3, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)`;
/** Two processes that both find no table may both try to make it; the loser finds it made. */
const MADE_BY_ANOTHER = new Set(["23505", "42P07"]);

/** Brings the schema up to date, all of it in one transaction. Rejects with OperatorError for a newer or an altered one. */
export async function migrate(pool: pg.Pool, migrations: Migration[]): Promise<void> {
  for (const statement of [SCHEMA_MIGRATION, TURN]) {
    await pool.query(statement).catch((error: unknown) => {
      if (!MADE_BY_ANOTHER.has(codeOf(error))) throw error;
    });
  }
  await transact(pool, "BEGIN", async (client) => {
    await client.query("SET LOCAL statement_timeout = 0");
    await client.query("SET LOCAL lock_timeout = 0");
    await client.query(TAKE_TURN);
    const { rows } = await client.query<{ version: bigint; checksum: string }>(
      "SELECT version, checksum FROM schema_migration WHERE version > 0",
    );
    const checksums = new Map(rows.map((row) => [Number(row.version), row.checksum]));
    refuseNewer(Math.max(0, ...checksums.keys()), migrations.at(-1)?.version ?? 0);
    for (const { version, name, sql, checksum } of migrations) {
      const earlier = checksums.get(version);
      if (earlier === checksum) continue;
      if (earlier !== undefined) {
        throw new OperatorError(`The database was made with another text of the migration ${name}.`);
      }
      await client.query(sql);
      await client.query(DONE, [version, name, checksum]);
    }
  });
}

function refuseNewer(found: number, known: number): void {
  if (found <= known) return;
  throw new OperatorError(
    `The database was written by a newer Tollgate: its schema is ${found}, this one knows up to ${known}.`,
  );
}
