import { readFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { grantOf, one, randomId } from "../../../test/stores/fixture.ts";
import { ROOT } from "../../../test/support/documents.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../../test/support/postgres.ts";
import { freePort } from "../../../test/support/service.ts";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import { type Migration, readMigrations } from "../migrations.ts";
import { migrate } from "./migrate.ts";
import { closePools, openPools, usesOf } from "./pools.ts";
import { openPostgresStore } from "./postgres.ts";

const VERSIONS = readMigrations(new URL("./migrations/", import.meta.url)).map(({ version }) => version);
const PASSWORD = "correct-horse-battery";

test("the documentation states how many connections a process opens", async () => {
  const pools = openPools("postgres://user@127.0.0.1:1/db");
  const most = usesOf(pools).reduce((sum, { max }) => sum + max, 0);
  await closePools(pools);
  for (const page of ["guide.md", "operations.md"]) {
    const stated = readFileSync(join(ROOT, "docs", page), "utf8").match(/up to \d+ connections/g);
    expect(new Set(stated), page).toEqual(new Set([`up to ${most} connections`]));
  }
});

describe.skipIf(!hasPostgres)("opening a PostgreSQL database", () => {
  let database: TestDatabase;
  let beside: pg.Client;
  beforeEach(async () => {
    database = await createTestDatabase();
    beside = new pg.Client({ connectionString: database.url });
    await beside.connect();
  });
  afterEach(async () => {
    await beside.end();
    await database.drop();
  });

  const addressed = (change: (url: URL) => void) => {
    const url = new URL(database.url);
    change(url);
    return url.href;
  };
  async function refusal(url: string): Promise<string> {
    const error = await openPostgresStore({ url, role: "service" }).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(OperatorError);
    const { message } = error as OperatorError;
    expect(message).not.toContain("\n");
    expect(message).not.toContain(PASSWORD);
    return message;
  }

  test("an address without a server is refused", async () => {
    const port = await freePort();
    const url = addressed((address) => Object.assign(address, { port: String(port), password: PASSWORD }));
    const name = new URL(url).pathname.slice(1);
    expect(await refusal(url)).toBe(
      `The database at 127.0.0.1:${port}/${name} cannot be used: connect ECONNREFUSED 127.0.0.1:${port}`,
    );
  });

  test("a wrong password, an unknown database and another encoding are refused", async () => {
    const wrong = addressed((url) => Object.assign(url, { password: PASSWORD }));
    expect(await refusal(wrong)).toMatch(
      /^The database at 127\.0\.0\.1:\d+\/test_\w+ cannot be used: password authentication failed for user "postgres"$/,
    );
    const absent = addressed((url) => Object.assign(url, { pathname: "/nowhere" }));
    expect(await refusal(absent)).toMatch(/\/nowhere cannot be used: database "nowhere" does not exist$/);
    const name = `${new URL(database.url).pathname.slice(1)}_latin`;
    await beside.query(`CREATE DATABASE ${name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`);
    const latin = addressed((url) => Object.assign(url, { pathname: `/${name}` }));
    expect(await refusal(latin)).toMatch(/has the encoding LATIN1; UTF8 is required$/);
    await beside.query(`DROP DATABASE ${name} WITH (FORCE)`);
  });

  test("an invalid address is refused, and the message does not contain it", async () => {
    expect(await refusal(`postgres://user:${PASSWORD}@[half/db`)).toBe(
      "The database's address cannot be read; expected postgres://user:password@host:port/name",
    );
  });

  test("a user without the privilege to create tables can open an existing schema only", async () => {
    const role = randomId("role");
    await beside.query(`CREATE ROLE ${role} LOGIN PASSWORD '${PASSWORD}'`);
    const url = addressed((address) => Object.assign(address, { username: role, password: PASSWORD }));
    expect(await refusal(url)).toMatch(/cannot be used: permission denied for schema public$/);
    await (await openPostgresStore({ url: database.url, role: "service" })).close();
    await beside.query(`GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO ${role}`);
    const store = await openPostgresStore({ url, role: "command" });
    const id = randomId("org");
    await store.accounts.insertOrganization({ id, name: "Few rights", kind: "standard", createdAtMs: 1 });
    expect(await one(store.books, grantOf(id, 5n), "durable")).toMatchObject({ balance: { available: 5n } });
    await store.close();
    await beside.query(`DROP OWNED BY ${role}`);
    await beside.query(`DROP ROLE ${role}`);
  });

  test("processes that open it at once migrate it once", async () => {
    const stores = await Promise.all(
      Array.from({ length: 6 }, () => openPostgresStore({ url: database.url, role: "service" })),
    );
    for (const store of stores) await store.close();
    const { rows } = await beside.query("SELECT version FROM schema_migration WHERE version > 0 ORDER BY version");
    expect(rows.map(({ version }) => Number(version))).toEqual(VERSIONS);
    const made = await beside.query(
      "SELECT count(*)::integer AS months FROM pg_inherits WHERE inhparent = 'request'::regclass",
    );
    // This month, the next two, and the default partition; one more if a month has ended meanwhile.
    expect([4, 5]).toContain(made.rows[0].months);
  });

  test("a newer schema, or one from another text, is refused", async () => {
    await (await openPostgresStore({ url: database.url, role: "command" })).close();
    await beside.query("INSERT INTO schema_migration VALUES (9999, '9999_later.sql', '', 0, '2.0.0+aaaaaaa')");
    expect(await refusal(database.url)).toMatch(
      /^The database at \S+ was written by a newer Tollgate, 2\.0\.0\+aaaaaaa: its schema is 9999, this one, \S+, knows up to 1\./,
    );
    await beside.query("DELETE FROM schema_migration WHERE version = 9999");
    await beside.query("UPDATE schema_migration SET checksum = 'other', committed_at = 0 WHERE version = 1");
    const other =
      /^The database at \S+ was written by an older Tollgate, \S+: its schema 1 is other, that of this one, /;
    expect(await refusal(database.url)).toMatch(other);
    const { rows } = await beside.query("SELECT checksum FROM schema_migration WHERE version > 0");
    expect(rows).toEqual([{ checksum: "other" }]);
  });

  test("a migration that fails is rolled back with those before it", async () => {
    const [good, bad] = [
      migration(1, "CREATE TABLE one (id bigint)"),
      migration(2, "CREATE TABLE two (); SELECT 1 / 0"),
    ];
    const pools = openPools(database.url);
    await expect(migrate(pools, [good, bad])).rejects.toMatchObject({ code: "22012" });
    const tables = await beside.query("SELECT to_regclass('one') AS one, to_regclass('two') AS two");
    expect(tables.rows).toEqual([{ one: null, two: null }]);
    const mended = migration(2, "CREATE TABLE two ()");
    await Promise.all([migrate(pools, [good, mended]), migrate(pools, [good, mended])]);
    const { rows } = await beside.query("SELECT version FROM schema_migration WHERE version > 0 ORDER BY version");
    expect(rows.map(({ version }) => version)).toEqual(["1", "2"]);
    await closePools(pools);
  });

  test("a migration that waits for a table does not make running nodes wait longer than their lock timeout", async () => {
    const pools = openPools(database.url);
    const first = migration(1, "CREATE TABLE busy (id bigint)");
    await migrate(pools, [first]);
    await beside.query("BEGIN");
    await beside.query("SELECT FROM busy");
    const migrated = migrate(pools, [first, migration(2, "ALTER TABLE busy ADD COLUMN name text")]);
    // While the migration waits, and while it rests.
    for (let reads = 0; reads < 20; reads += 1) {
      await pools.holds.query("SELECT FROM busy");
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    await beside.query("COMMIT");
    expect(await migrated).toEqual({ from: 1, to: 2 });
    expect((await beside.query("SELECT name FROM busy")).rows).toEqual([]);
    await closePools(pools);
  });

  test("a closed store is unavailable", async () => {
    const store = await openPostgresStore({ url: database.url, role: "service" });
    await store.close();
    await store.close();
    await expect(store.ping()).rejects.toBeInstanceOf(StoreUnavailableError);
    await expect(store.books.apply("holds", [])).rejects.toBeInstanceOf(StoreUnavailableError);
  });
});

function migration(version: number, sql: string): Migration {
  return { version, name: `000${version}_test.sql`, sql, checksum: sql };
}
