import { OperatorError } from "../../errors.ts";
import {
  type Migration,
  missingMigrations,
  readMigrations,
  type SchemaVersions,
  schemaRefusal,
  versionsOf,
} from "../migrations.ts";
import type { Connection } from "./connection.ts";

const DIRECTORY = new URL("./migrations/", import.meta.url);
const SCHEMA_MIGRATION = `
  CREATE TABLE IF NOT EXISTS schema_migration (
    version    INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    checksum   TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
  ) STRICT`;

/** Returns all migrations, in order. */
export const sqliteMigrations = () => readMigrations(DIRECTORY);

/** Migrates the schema in one transaction; processes that start together take turns. */
export function migrate(
  connection: Connection,
  databasePath: string,
  migrations: Migration[],
  nowMs: number,
): SchemaVersions {
  refuseForeign(connection, databasePath);
  connection.enterWalMode();
  return connection.transaction("BEGIN IMMEDIATE", true, () => {
    connection.script(SCHEMA_MIGRATION);
    const applied = connection.step({ sql: "SELECT version, checksum FROM schema_migration", parameters: [] }).rows;
    const rows = applied.map(({ version, checksum }) => ({ version: Number(version), checksum: String(checksum) }));
    const missing = missingMigrations(`The database ${databasePath}`, rows, migrations);
    for (const { version, name, sql, checksum } of missing) {
      connection.script(sql);
      connection.step({
        sql: "INSERT INTO schema_migration (version, name, checksum, applied_at) VALUES (?, ?, ?, ?)",
        parameters: [version, name, checksum, nowMs],
      });
    }
    return versionsOf(migrations, missing);
  });
}

/** Throws OperatorError unless the schema is current. Changes nothing. */
export function expectSchema(connection: Connection, databasePath: string, migrations: Migration[]): SchemaVersions {
  refuseForeign(connection, databasePath);
  const isMade = "SELECT count(*) AS made FROM sqlite_schema WHERE name = 'schema_migration'";
  const [table] = connection.run({ sql: isMade, parameters: [] }, false).rows;
  const newest = "SELECT max(version) AS version FROM schema_migration";
  const [row] = table?.made === 0n ? [] : connection.run({ sql: newest, parameters: [] }, false).rows;
  const version = row?.version;
  const refusal = schemaRefusal(databasePath, typeof version === "bigint" ? Number(version) : undefined, migrations);
  if (refusal !== undefined) throw new OperatorError(refusal);
  return versionsOf(migrations, []);
}

/** Throws OperatorError for the file of another program, before anything is changed. */
function refuseForeign(connection: Connection, databasePath: string): void {
  const own = "coalesce(sum(name = 'schema_migration'), 0)";
  const sql = `SELECT count(*) AS tables, ${own} AS own FROM sqlite_schema WHERE type = 'table'`;
  const [row] = connection.run({ sql, parameters: [] }, false).rows;
  if (row?.own === 0n && row.tables !== 0n) {
    throw new OperatorError(`The file ${databasePath} is a database of another program.`);
  }
}
