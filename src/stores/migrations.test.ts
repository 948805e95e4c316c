import { expect, test } from "vitest";
import { programVersion } from "../version.ts";
import { appliedFrom, expectCurrent, type Migration, missingMigrations, readMigrations } from "./migrations.ts";

const program = programVersion();
const migrations: Migration[] = [1, 2].map((version) => {
  return { version, name: `000${version}_test.sql`, sql: "", checksum: `${version}`.repeat(64) };
});
const applied = (version: number, changes: object = {}) => {
  const checksum = `${version}`.repeat(64);
  return { version: BigInt(version), checksum, program: program.name, committed_at: program.committedAtMs, ...changes };
};
const committed = (differenceMs: number) => BigInt((program.committedAtMs ?? 0) + differenceMs);
const writtenBy = (committedAt: bigint | null) => ({ program: "0.1.0+aaaaaaa", committed_at: committedAt });
const otherText = { checksum: "abcdef0123456789" };

test.each([
  [
    "a migration that is not known",
    [1, 2, 3],
    {},
    "a newer Tollgate, 0.1.0+aaaaaaa: its schema is 3, this one, PROGRAM, knows up to 2. Use the newer one.",
  ],
  [
    "another text by a commit before",
    [1],
    { ...otherText, ...writtenBy(committed(-1000)) },
    "an older Tollgate, 0.1.0+aaaaaaa: its schema 1 is abcdef01, that of this one, PROGRAM, is 11111111. REMEDY",
  ],
  [
    "another text by a commit after",
    [1],
    { ...otherText, ...writtenBy(committed(1000)) },
    "a newer Tollgate, 0.1.0+aaaaaaa: its schema 1 is abcdef01, that of this one, PROGRAM, is 11111111. REMEDY",
  ],
  [
    "another text of the same commit",
    [1],
    { ...otherText, ...writtenBy(committed(0)) },
    "another Tollgate, 0.1.0+aaaaaaa: its schema 1 is abcdef01, that of this one, PROGRAM, is 11111111. REMEDY",
  ],
  [
    "another text of a program without a commit",
    [1],
    { ...otherText, ...writtenBy(null) },
    "another Tollgate, 0.1.0+aaaaaaa: its schema 1 is abcdef01, that of this one, PROGRAM, is 11111111. REMEDY",
  ],
])("a store with %s is refused, and the refusal tells which of the two is older", (_what, versions, last, expected) => {
  const rows = versions.map((version, index) =>
    applied(version, index === versions.length - 1 ? { ...writtenBy(null), ...last } : {}),
  );
  const text = `The store was written by ${expected}`
    .replace("PROGRAM", program.name)
    .replace(
      "REMEDY",
      "There are no migrations between commits: use that commit for this store, or begin with a new store.",
    );
  expect(() => missingMigrations("The store", appliedFrom(rows), migrations)).toThrow(text);
  expect(() => expectCurrent("The store", appliedFrom(rows), migrations)).toThrow(text);
});

test("a store that lacks a migration gets it, but not from a command that changes nothing", () => {
  const rows = appliedFrom([applied(1)]);
  expect(missingMigrations("The store", rows, migrations)).toEqual([migrations[1]]);
  expect(() => expectCurrent("The store", rows, migrations)).toThrow(
    "The store was written by an older Tollgate: its schema is 1, this one needs 2. To migrate it, start the service or run tollgate store migrate.",
  );
});

test("a store with every migration is accepted, in whatever order its rows are read", () => {
  const rows = appliedFrom([applied(2), applied(1)]);
  expect(missingMigrations("The store", rows, migrations)).toEqual([]);
  expect(() => expectCurrent("The store", rows, migrations)).not.toThrow();
});

/** Reasons why a service that does not know a migration could fail beside it. */
function hazardsOf(sql: string): string[] {
  const statements = sql
    .replaceAll(/--.*$/gm, "")
    // The bodies of functions and triggers.
    .replaceAll(/\$\$.*?\$\$/gs, "")
    .replaceAll(/(CREATE TRIGGER [^;]*?)\bBEGIN\b.*?\bEND;/gs, "$1;")
    .split(";")
    .map((text) => text.replaceAll(/\s+/g, " ").trim());
  const created = new Set(statements.flatMap((text) => /^CREATE TABLE (\w+)/i.exec(text)?.[1] ?? []));
  return statements.filter((text) => {
    if (text === "" || /^CREATE (TABLE|FUNCTION|TRIGGER) /i.test(text)) return false;
    const index = /^CREATE (UNIQUE )?INDEX \w+ ON (\w+)/i.exec(text);
    if (index !== null) return index[1] !== undefined && !created.has(index[2] ?? "");
    const [, table = "", change = ""] = /^ALTER TABLE (\w+) (.*)$/i.exec(text) ?? [];
    if (created.has(table)) return false;
    const columns = change.split(/,(?= (?:ADD|ALTER|DROP|RENAME) )/i);
    return !columns.every((column) => /^ ?ADD COLUMN /i.test(column) && isOptional(column));
  });
}

/** Tests whether an INSERT of a service that does not know the column still works. */
function isOptional(column: string): boolean {
  if (/\b(UNIQUE|PRIMARY KEY|REFERENCES|GENERATED)\b/i.test(column)) return false;
  return !/\bNOT NULL\b/i.test(column) || /\bDEFAULT\b/i.test(column);
}

test.each(["sqlite", "postgres"])(
  "every migration of %s is additive, so that older services work beside it",
  (store) => {
    const [, ...later] = readMigrations(new URL(`./${store}/migrations/`, import.meta.url));
    expect(later.flatMap(({ name, sql }) => hazardsOf(sql).map((text) => `${name}: ${text}`))).toEqual([]);
  },
);

test.each([
  "DROP TABLE request",
  "ALTER TABLE request DROP COLUMN model",
  "ALTER TABLE request RENAME COLUMN model TO name",
  "ALTER TABLE request ADD COLUMN model text NOT NULL",
  "ALTER TABLE request ADD COLUMN model text, ALTER COLUMN id TYPE text",
  "ALTER TABLE request ADD COLUMN model text UNIQUE",
  "ALTER TABLE request ADD CONSTRAINT model_known CHECK (model <> '')",
  "CREATE UNIQUE INDEX request_model ON request (model)",
  "UPDATE request SET model = ''",
  "BEGIN",
])("a migration that is not additive is found: %s", (sql) => {
  expect(hazardsOf(`-- A comment; with a semicolon.\n${sql};`)).toEqual([sql]);
});

test("a migration that adds tables, triggers, indexes and optional columns is additive", () => {
  const sql = `CREATE TABLE song (title text NOT NULL UNIQUE);
    CREATE TRIGGER song_removed AFTER DELETE ON song BEGIN UPDATE song SET title = title; END;
    CREATE FUNCTION sing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END; $$;
    CREATE UNIQUE INDEX song_title ON song (title);
    CREATE INDEX request_model ON request (model);
    ALTER TABLE request ADD COLUMN one text, ADD COLUMN two bigint NOT NULL DEFAULT 0;`;
  expect(hazardsOf(sql)).toEqual([]);
});
