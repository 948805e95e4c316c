/**
 * `node bench/verify.ts --store sqlite --rows 2000000`: how long the check of the books takes for one organization with so
 * many holds and events, and the memory that it needs. `--store postgres` makes a PostgreSQL of its own.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";
import pg from "pg";
import { openPostgresStore } from "../src/stores/postgres/postgres.ts";
import { openSqliteStore } from "../src/stores/sqlite/sqlite.ts";
import type { Store } from "../src/stores/store.ts";
import { bulkStatements } from "../test/support/bulk.ts";
import { makePostgresServer } from "../test/support/postgres-server.ts";

const ORGANIZATION = "org_bench";
const GRANT = "grant_bench";

const { values } = parseArgs({
  options: { store: { type: "string", default: "sqlite" }, rows: { type: "string", default: "2000000" } },
});
const rows = Number(values.rows);

async function check(store: Store, run: (statements: string[]) => Promise<void>): Promise<void> {
  const createdAtMs = Date.now();
  await store.accounts.insertOrganization({ id: ORGANIZATION, name: "Bench", kind: "standard", createdAtMs });
  const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
  const grant = { kind: "grant" as const, organizationId: ORGANIZATION, grantId: GRANT, ...terms };
  await store.books.apply("durable", [{ ...grant, amount: 1_000n * BigInt(rows) }]);
  const fromMs = createdAtMs - 1_000 * (rows + 100);
  await run(bulkStatements(store.kind, { organizationId: ORGANIZATION, grantId: GRANT, count: rows, fromMs }));
  const startedAtMs = performance.now();
  const { holds, events, violations } = await store.books.verify(ORGANIZATION);
  const seconds = (performance.now() - startedAtMs) / 1_000;
  const mebibytes = Math.round(process.resourceUsage().maxRSS / 1_024);
  console.log(`${store.kind}: ${holds} holds, ${events} events, ${violations.length} violations`);
  console.log(`${seconds.toFixed(1)} s, ${Math.round(holds / seconds)} holds/s, at most ${mebibytes} MiB resident`);
}

async function onSqlite(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const store = await openSqliteStore({ dataDir, role: "service" });
  await check(store, async (statements) => {
    const beside = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 5_000 });
    for (const statement of statements) beside.exec(statement);
    beside.close();
  });
  await store.close();
  rmSync(dataDir, { recursive: true });
}

async function onPostgres(): Promise<void> {
  const server = await makePostgresServer();
  const store = await openPostgresStore({ url: server.url, role: "service" });
  await check(store, async (statements) => {
    const beside = new pg.Client({ connectionString: server.url });
    await beside.connect();
    for (const statement of statements) await beside.query(statement);
    await beside.end();
  });
  await store.close();
  await server.remove();
}

await (values.store === "postgres" ? onPostgres() : onSqlite());
