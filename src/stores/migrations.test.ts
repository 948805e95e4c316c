import { expect, test } from "vitest";
import { type Migration, readMigrations, schemaRefusal } from "./migrations.ts";

const upTo = (version: number): Migration[] =>
  Array.from({ length: version }, (_, index) => ({ version: index + 1, name: "", sql: "", checksum: "" }));

test.each([
  [undefined, 2, /^There is no store in \/data\. /],
  [1, 2, /^\/data was written by an older Tollgate: its schema is 1, this one needs 2\./],
  [3, 2, /^\/data was written by a newer Tollgate: its schema is 3, this one knows up to 2\./],
])("a store with schema %s is refused if schema %s is the newest known", (found, known, expected) => {
  expect(schemaRefusal("/data", found, upTo(known))).toMatch(expected);
});

test("a store with the newest known schema is accepted", () => {
  expect(schemaRefusal("/data", 2, upTo(2))).toBeUndefined();
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
    expect(later.length).toBeGreaterThan(0);
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
