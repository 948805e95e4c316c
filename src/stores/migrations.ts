import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { OperatorError } from "../errors.ts";
import type { StoreDriver } from "./driver.ts";

export interface Migration {
  version: number;
  name: string;
  sql: string;
  checksum: string;
}

/** Version of a schema before and after it was opened; 0: there was none. */
export interface SchemaVersions {
  from: number;
  to: number;
}

/** A driver of a store whose schema is current. */
export interface MigratedDriver extends StoreDriver {
  readonly schema: SchemaVersions;
}

const FILE_NAME = /^(\d{4})_\w+\.sql$/;

/** Returns the migrations in a directory, in order. */
export function readMigrations(directory: URL): Migration[] {
  const names = readdirSync(directory).filter((name) => FILE_NAME.test(name));
  return names.sort().map((name) => {
    const sql = readFileSync(new URL(name, directory), "utf8");
    return { version: Number(name.slice(0, 4)), name, sql, checksum: createHash("sha256").update(sql).digest("hex") };
  });
}

/** Returns the versions before and after migrations that `missingMigrations` has returned. */
export function versionsOf(migrations: readonly Migration[], missing: readonly Migration[]): SchemaVersions {
  const applied = migrations.filter((migration) => !missing.includes(migration));
  return { from: newestOf(applied), to: newestOf(migrations) };
}

/** Returns the migrations that a database lacks. Throws OperatorError if its schema is newer, or was altered. */
export function missingMigrations(
  database: string,
  applied: readonly { version: number; checksum: string }[],
  migrations: Migration[],
): Migration[] {
  const checksums = new Map(applied.map(({ version, checksum }) => [version, checksum]));
  const [found, known] = [Math.max(0, ...checksums.keys()), newestOf(migrations)];
  if (found > known) throw new OperatorError(newer(database, found, known));
  return migrations.filter(({ version, name, checksum }) => {
    const earlier = checksums.get(version);
    if (earlier !== undefined && earlier !== checksum) {
      throw new OperatorError(`${database} was created with another version of the migration ${name}.`);
    }
    return earlier === undefined;
  });
}

/** Returns why a command that may not create or migrate a store cannot open it; undefined if it can. */
export function schemaRefusal(place: string, found: number | undefined, migrations: Migration[]): string | undefined {
  const known = newestOf(migrations);
  if (found === undefined) {
    return `There is no store in ${place}. To name another place, use --data-dir or --config; tollgate serve and tollgate org create make a store.`;
  }
  if (found > known) return newer(place, found, known);
  if (found === known) return undefined;
  return `${place} was written by an older Tollgate: its schema is ${found}, this one needs ${known}. To migrate it, start the service or run tollgate store migrate.`;
}

function newestOf(migrations: readonly Migration[]): number {
  return migrations.at(-1)?.version ?? 0;
}

function newer(place: string, found: number, known: number): string {
  return `${place} was written by a newer Tollgate: its schema is ${found}, this one knows up to ${known}.`;
}
