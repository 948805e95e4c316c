import { OperatorError } from "../../errors.ts";
import { programVersion } from "../../version.ts";
import {
  APPLIED,
  appliedFrom,
  expectCurrent,
  type Migration,
  missingMigrations,
  missingStore,
  readMigrations,
  SCHEMA_MIGRATION,
  type SchemaVersions,
  versionsOf,
} from "../migrations.ts";
import type { Connection } from "./connection.ts";

const DIRECTORY = new URL("./migrations/", import.meta.url);
const APPLY = `
  INSERT INTO schema_migration (version, name, checksum, applied_at, program, committed_at) VALUES (?, ?, ?, ?, ?, ?)`;

/** Returns all migrations, in order. */
export const sqliteMigrations = () => readMigrations(DIRECTORY);

/** Migrates the schema in one transaction; processes that start together take turns. */
export function migrate(connection: Connection, databasePath: string, migrations: Migration[], nowMs: number) {
  hasSchema(connection, databasePath);
  connection.enterWalMode();
  return connection.transaction("BEGIN IMMEDIATE", true, () => {
    connection.script(SCHEMA_MIGRATION);
    const missing = missingMigrations(nameOf(databasePath), appliedRows(connection), migrations);
    const program = programVersion();
    for (const { version, name, sql, checksum } of missing) {
      connection.script(sql);
      connection.change({
        sql: APPLY,
        parameters: [version, name, checksum, nowMs, program.name, program.committedAtMs],
      });
    }
    return versionsOf(migrations, missing);
  });
}

/** Throws OperatorError unless the schema is current. Changes nothing. */
export function expectSchema(connection: Connection, databasePath: string, migrations: Migration[]): SchemaVersions {
  const applied = hasSchema(connection, databasePath) ? appliedRows(connection) : [];
  if (applied.length === 0) throw missingStore(databasePath);
  return expectCurrent(nameOf(databasePath), applied, migrations);
}

function appliedRows(connection: Connection) {
  return appliedFrom(connection.read({ sql: APPLIED, parameters: [] }));
}

function nameOf(databasePath: string): string {
  return `The database ${databasePath}`;
}

/** Returns false for an empty file. Throws OperatorError for that of another program, before anything is changed. */
function hasSchema(connection: Connection, databasePath: string): boolean {
  const tables = connection.read({ sql: "SELECT name FROM sqlite_schema WHERE type = 'table'", parameters: [] });
  const isOwn = tables.some(({ name }) => name === "schema_migration");
  if (isOwn || tables.length === 0) return isOwn;
  throw new OperatorError(`The file ${databasePath} is a database of another program.`);
}
