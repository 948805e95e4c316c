import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { runTollgate } from "./support/command-line.ts";
import { createTestDatabase, hasPostgres } from "./support/postgres.ts";
import { makeOrganization, type ServiceProcess, send, startProcess } from "./support/service.ts";

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
    const database = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 60_000 });
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
async function use(service: ServiceProcess): Promise<void> {
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
      const service = await startProcess({ dataDir, environment });
      cleanups.push(() => service.end("SIGKILL"));
      await use(service);
      const changed = (await tables()).filter((name) => name !== "schema_migration");
      expect(changed.length).toBeGreaterThan(8);
      for (const table of changed) {
        await execute(`ALTER TABLE ${table} ADD COLUMN later_text TEXT`);
        await execute(`ALTER TABLE ${table} ADD COLUMN later_count INTEGER NOT NULL DEFAULT 7`);
      }
      await execute("CREATE TABLE later (id TEXT NOT NULL PRIMARY KEY)");
      await execute("INSERT INTO schema_migration VALUES (9999, '9999_later.sql', 'x', 1, '2.0.0', NULL)");
      await use(service);
      const refusal = async (command: string, at = dataDir) => {
        const { code, stderr } = await runTollgate([...command.split(" "), "--data-dir", at], directory, environment);
        expect(code).toBe(1);
        return stderr;
      };
      const newer =
        /^tollgate: .* was written by a newer Tollgate, 2\.0\.0: its schema is 9999, this one, \S+, knows up to 1\. Use the newer one\.\n$/;
      expect(await refusal("ledger verify")).toMatch(newer);
      expect(await refusal("store migrate")).toMatch(newer);
      if (store === "postgres") expect(await refusal("serve --port 0", join(directory, "node-2"))).toMatch(newer);
      await use(service);
      expect(await service.end()).toBe(0);
      expect(await refusal("serve --port 0")).toMatch(newer);
    },
  );

  test.skipIf(!isThere)("tollgate store migrate creates a store, and refuses that of another commit", async () => {
    const { environment, execute } = await open();
    const run = (...words: string[]) =>
      runTollgate([...words, "--data-dir", join(directory, "data")], directory, environment);
    const created = JSON.parse((await run("store", "migrate", "--json")).stdout);
    expect(created).toEqual({ ok: true, from: null, to: 1 });
    expect((await run("store", "migrate")).stdout).toBe("schema  1, nothing to do\n");
    const version = (await run("--version")).stdout.trim();
    expect(version).toMatch(/^\d+\.\d+\.\d+\+[0-9a-f]{7}$/);
    const states = { older: 0, newer: Date.now() + 86_400_000 };
    for (const [age, committedAt] of Object.entries(states)) {
      await execute(
        `UPDATE schema_migration SET checksum = '${"ab".repeat(32)}', program = '0.1.0+1234567', committed_at = ${committedAt}
         WHERE version = 1`,
      );
      for (const command of [
        ["ledger", "verify"],
        ["store", "migrate"],
        ["serve", "--port", "0"],
      ]) {
        const { code, stderr } = await run(...command);
        expect([command, code]).toEqual([command, 1]);
        expect(stderr).toContain(
          ` was written by a${age === "older" ? "n" : ""} ${age} Tollgate, 0.1.0+1234567: its schema 1 is abababab, that of this one, ${version}, is `,
        );
        expect(stderr).toMatch(
          /\. There are no migrations between commits: use that commit for this store, or begin with a new store\.\n$/,
        );
      }
    }
  });
});
