import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { runTollgate } from "./support/command-line.ts";
import { createTestDatabase, hasPostgres } from "./support/postgres.ts";
import { makeOrganization, type RunningService, send, startService } from "./support/service.ts";

let directory: string;
const cleanups: (() => unknown)[] = [];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "tollgate-upgrade-"));
  cleanups.push(() => rmSync(directory, { recursive: true }));
});
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

interface Schema {
  environment: Record<string, string>;
  /** Runs SQL behind the service. */
  execute(sql: string): Promise<void>;
  tables(): Promise<string[]>;
}

const migrationOf = (store: string, name: string) =>
  readFileSync(new URL(`../src/stores/${store}/migrations/${name}`, import.meta.url), "utf8");

async function postgres(): Promise<Schema> {
  const database = await createTestDatabase();
  cleanups.push(() => database.drop());
  mkdirSync(join(directory, "data"));
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  cleanups.push(() => client.end());
  return {
    environment: { DATABASE_URL: database.url },
    execute: async (sql) => void (await client.query(sql)),
    tables: async () => {
      const { rows } = await client.query(
        `SELECT relname AS name FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
         WHERE nspname = 'public' AND relkind IN ('r', 'p') AND NOT relispartition`,
      );
      return rows.map(({ name }) => name as string);
    },
  };
}

async function sqlite(): Promise<Schema> {
  const dataDir = join(directory, "data");
  mkdirSync(dataDir, { mode: 0o700 });
  const open = <T>(work: (database: DatabaseSync) => T): T => {
    const database = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 5_000 });
    try {
      return work(database);
    } finally {
      database.close();
    }
  };
  return {
    environment: {},
    execute: async (sql) => open((database) => database.exec(sql)),
    tables: async () =>
      open((database) => database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").all()).map(
        ({ name }) => name as string,
      ),
  };
}

const echo = { model: "sandbox/echo", messages: [{ role: "user", content: "Hello" }] };

/** Uses everything that writes or reads tables. */
async function use(service: RunningService): Promise<void> {
  const { id, token } = await makeOrganization(service, "10");
  for (const stream of [true, false]) {
    const answer = await send(service, "/v1/chat/completions", token, { ...echo, stream });
    expect(answer.status).toBe(200);
    expect(await answer.text()).not.toContain('"error"');
  }
  const usage = (await (await send(service, "/v1/usage", token)).json()) as object;
  expect(usage).toMatchObject({ object: "usage" });
  const admin = readFileSync(join(service.dataDir, "admin-token"), "utf8").trim();
  for (const path of [`/organizations/${id}/statement`, "/requests", "/organizations", "/tokens", "/audit"]) {
    expect([path, (await send(service, `/admin/v1${path}`, admin)).status]).toEqual([path, 200]);
  }
  expect((await send(service, "/readyz", null)).status).toBe(200);
}

describe.each([
  { store: "sqlite", open: sqlite, isThere: true },
  { store: "postgres", open: postgres, isThere: hasPostgres },
])("on $store", ({ store, open, isThere }) => {
  test.skipIf(!isThere)(
    "a running service works on while the schema becomes a newer one, on which no start of it is possible",
    async () => {
      const { environment, execute, tables } = await open();
      const dataDir = join(directory, "data");
      const service = await startService({ dataDir, environment });
      cleanups.push(() => service.end("SIGKILL"));
      await use(service);
      const changed = (await tables()).filter((name) => name !== "schema_migration");
      expect(changed.length).toBeGreaterThan(8);
      for (const table of changed) {
        await execute(`ALTER TABLE ${table} ADD COLUMN later_text TEXT`);
        await execute(`ALTER TABLE ${table} ADD COLUMN later_count INTEGER NOT NULL DEFAULT 7`);
      }
      await execute("CREATE TABLE later (id TEXT NOT NULL PRIMARY KEY)");
      await execute("INSERT INTO schema_migration VALUES (9999, '9999_later.sql', 'x', 1)");
      await use(service);
      const refusal = async (command: string, at = dataDir) => {
        const { code, stderr } = await runTollgate([...command.split(" "), "--data-dir", at], directory, environment);
        expect(code).toBe(1);
        return stderr;
      };
      const newer = /^tollgate: .* was written by a newer Tollgate: its schema is 9999, this one knows up to \d+\.\n$/;
      expect(await refusal("ledger verify")).toMatch(newer);
      expect(await refusal("store migrate")).toMatch(newer);
      if (store === "postgres") expect(await refusal("serve --port 0", join(directory, "node-2"))).toMatch(newer);
      await use(service);
      expect(await service.end()).toBe(0);
      expect(await refusal("serve --port 0")).toMatch(newer);
    },
  );

  test.skipIf(!isThere)("tollgate store migrate creates a store, and migrates that of an earlier version", async () => {
    const { environment, execute } = await open();
    const run = (...words: string[]) =>
      runTollgate([...words, "--data-dir", join(directory, "data")], directory, environment);
    const created = JSON.parse((await run("store", "migrate", "--json")).stdout);
    expect(created).toEqual({ ok: true, from: null, to: expect.any(Number) });
    expect((await run("store", "migrate")).stdout).toBe(`schema  ${created.to}, nothing to do\n`);
    const [, column = ""] = /ALTER TABLE adjustment ADD COLUMN (\w+)/.exec(
      migrationOf(store, "0002_further_classes.sql"),
    ) as string[];
    // The schema of the first version.
    await execute(`ALTER TABLE adjustment DROP COLUMN ${column}`);
    for (const name of ["further_prices", "further_tokens"]) await execute(`ALTER TABLE request DROP COLUMN ${name}`);
    await execute("ALTER TABLE balance DROP COLUMN closed_before");
    for (const name of ["closing", "closing_part", "account_version"]) await execute(`DROP TABLE ${name}`);
    const triggers = migrationOf(store, "0004_account_version.sql").matchAll(/TRIGGER (\w+)\s+AFTER [^;]*? ON (\w+)/g);
    for (const [, name, table] of triggers) {
      await execute(`DROP TRIGGER ${name}${store === "postgres" ? ` ON ${table}` : ""}`);
    }
    if (store === "postgres") await execute("DROP FUNCTION replace_account_version");
    await execute("DELETE FROM schema_migration WHERE version > 1");
    expect((await run("ledger", "verify")).stderr).toMatch(
      /was written by an older Tollgate: its schema is 1, this one needs \d+\./,
    );
    expect((await run("store", "migrate")).stdout).toBe(`schema  ${created.to}, migrated from 1\n`);
    expect(JSON.parse((await run("ledger", "verify", "--json")).stdout)).toMatchObject({ ok: true });
  });
});
