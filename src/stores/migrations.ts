import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { OperatorError } from "../errors.ts";
import { type ProgramVersion, programVersion } from "../version.ts";
import type { StoreDriver } from "./driver.ts";

export interface Migration {
  version: number;
  name: string;
  sql: string;
  /** Tells states of a migration apart, which changes from commit to commit until it is released. */
  checksum: string;
}

/** A migration that was applied to a store, and the program that did it. */
export interface AppliedMigration {
  version: number;
  checksum: string;
  writer: ProgramVersion;
}

/** Version of a schema before and after it was opened; 0: there was none. */
export interface SchemaVersions {
  from: number;
  to: number;
}

/** Options of opening any store. */
export interface OpenOptions {
  /** A data directory has one service at a time; commands work meanwhile. */
  role: "service" | "command";
  /** Creates a store that does not exist, and migrates an older schema. Absent: yes. */
  creates?: boolean;
}

export interface MigratedDriver extends StoreDriver {
  readonly schema: SchemaVersions;
}

const FILE_NAME = /^(\d{4})_\w+\.sql$/;
const DIGEST_DIGITS = 8;
/** Creates the table of the migrations that were applied, in both databases. */
export const SCHEMA_MIGRATION = `
  CREATE TABLE IF NOT EXISTS schema_migration (
    version      bigint NOT NULL PRIMARY KEY,
    name         text   NOT NULL,
    checksum     text   NOT NULL,
    applied_at   bigint NOT NULL,
    program      text   NOT NULL,
    committed_at bigint
  )`;
/** The table of another commit may have other columns. */
export const APPLIED = "SELECT * FROM schema_migration";

/** Returns the migrations in a directory, in order. */
export function readMigrations(directory: URL): Migration[] {
  const names = readdirSync(directory).filter((name) => FILE_NAME.test(name));
  return names.sort().map((name) => {
    const sql = readFileSync(new URL(name, directory), "utf8");
    return { version: Number(name.slice(0, 4)), name, sql, checksum: createHash("sha256").update(sql).digest("hex") };
  });
}

/** Reads rows of `schema_migration`, in order. */
export function appliedFrom(rows: readonly Record<string, unknown>[]): AppliedMigration[] {
  const applied = rows.map(({ version, checksum, program, committed_at: committedAt }) => ({
    version: Number(version),
    checksum: String(checksum),
    writer: { name: String(program), committedAtMs: committedAt === null ? null : Number(committedAt) },
  }));
  return applied.sort((a, b) => a.version - b.version);
}

/** Returns the versions before and after migrations that `missingMigrations` has returned. */
export function versionsOf(migrations: readonly Migration[], missing: readonly Migration[]): SchemaVersions {
  const applied = migrations.filter((migration) => !missing.includes(migration));
  return { from: newestOf(applied), to: newestOf(migrations) };
}

/** Returns the migrations that a store lacks. Throws OperatorError if its schema is newer, or that of another commit. */
export function missingMigrations(
  store: string,
  applied: readonly AppliedMigration[],
  migrations: readonly Migration[],
): Migration[] {
  const other = applied.flatMap((found) => {
    const own = migrations.find(({ version }) => version === found.version);
    return own === undefined || own.checksum === found.checksum ? [] : [otherCommit(store, found, own)];
  });
  if (other[0] !== undefined) throw new OperatorError(other[0]);
  const newest = applied.at(-1);
  if (newest !== undefined && newest.version > newestOf(migrations)) {
    throw new OperatorError(newer(store, newest, newestOf(migrations)));
  }
  const versions = new Set(applied.map(({ version }) => version));
  return migrations.filter(({ version }) => !versions.has(version));
}

/** Returns the versions of a store for a command that may not migrate it. Throws OperatorError unless its schema is current. */
export function expectCurrent(store: string, applied: readonly AppliedMigration[], migrations: readonly Migration[]) {
  if (missingMigrations(store, applied, migrations).length === 0) return versionsOf(migrations, []);
  const [found, needed] = [applied.at(-1)?.version, newestOf(migrations)];
  throw new OperatorError(
    `${store} was written by an older Tollgate: its schema is ${found}, this one needs ${needed}. To migrate it, start the service or run tollgate store migrate.`,
  );
}

/** Returns the error of a command that may not create a store. */
export function missingStore(place: string): OperatorError {
  return new OperatorError(
    `There is no store in ${place}. To name another place, use --data-dir, --config or, for PostgreSQL, DATABASE_URL; tollgate serve, org create, store migrate and store restore make a store.`,
  );
}

function newestOf(migrations: readonly Migration[]): number {
  return migrations.at(-1)?.version ?? 0;
}

function newer(store: string, { version, writer }: AppliedMigration, known: number): string {
  const names = `was written by a newer Tollgate, ${writer.name}: its schema is ${version}, `;
  return `${store} ${names}this one, ${programVersion().name}, knows up to ${known}. Use the newer one.`;
}

/** Describes a store with another text of a migration: one was made between two releases. */
function otherCommit(store: string, { version, checksum, writer }: AppliedMigration, own: Migration): string {
  const program = programVersion();
  const [found, needed] = [checksum, own.checksum].map((digest) => digest.slice(0, DIGEST_DIGITS));
  const schemas = `its schema ${version} is ${found}, that of this one, ${program.name}, is ${needed}`;
  const remedy = "There are no migrations between commits: use that commit for this store, or begin with a new store.";
  return `${store} was written by ${ageOf(writer, program)} Tollgate, ${writer.name}: ${schemas}. ${remedy}`;
}

function ageOf({ committedAtMs }: ProgramVersion, program: ProgramVersion): "an older" | "a newer" | "another" {
  if (committedAtMs === null || program.committedAtMs === null || committedAtMs === program.committedAtMs)
    return "another";
  return committedAtMs < program.committedAtMs ? "an older" : "a newer";
}
