/**
 * `node bench/verify.ts --store sqlite --rows 2000000`: how long the check of the books takes for one organization with so
 * many holds and events, and the memory that it needs. `--store postgres` makes a PostgreSQL of its own. With
 * `--beside 15` also what a ledger's holds and settlements lose to a check beside them: in turns of so many seconds,
 * `--turns` without it and with it, by `--clients` at once, at `--rate` requests a second or as many as it takes. With
 * `--close` also how long retention takes to close all of these requests, and its steps.
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
import { bulkStatements, pastPartitions } from "../test/support/bulk.ts";
import { makePostgresServer } from "../test/support/postgres-server.ts";
import { measureBeside } from "./beside.ts";
import { closeMonths } from "./retention.ts";

const ORGANIZATION = "org_bench";
const GRANT = "grant_bench";

const { values } = parseArgs({
  options: {
    store: { type: "string", default: "sqlite" },
    rows: { type: "string", default: "2000000" },
    beside: { type: "string" },
    turns: { type: "string", default: "3" },
    clients: { type: "string", default: "32" },
    rate: { type: "string" },
    close: { type: "boolean", default: false },
  },
});
const rows = Number(values.rows);
/** Organization of the holds and charges that run during the check. */
const SPARE = 1_000_000_000_000n;

/** Older than the months that retention keeps. */
const CLOSED_AGE_MS = 70 * 86_400_000;

interface Place {
  store: Store;
  dataDir: string;
  databaseUrl: string | null;
  run: (statements: string[]) => Promise<void>;
}

async function check({ store, dataDir, databaseUrl, run }: Place): Promise<void> {
  const createdAtMs = Date.now();
  await store.accounts.insertOrganization({ id: ORGANIZATION, name: "Bench", kind: "standard", createdAtMs });
  const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
  const grant = { kind: "grant" as const, organizationId: ORGANIZATION, grantId: GRANT, ...terms };
  await store.books.apply("durable", [{ ...grant, amount: 1_000n * BigInt(rows) + SPARE }]);
  const fromMs = createdAtMs - (values.close ? CLOSED_AGE_MS : 0) - 1_000 * (rows + 100);
  if (store.kind === "postgres") await run(pastPartitions(fromMs));
  await run(bulkStatements(store.kind, { organizationId: ORGANIZATION, grantId: GRANT, count: rows, fromMs }));
  const startedAtMs = performance.now();
  const { holds, events, violations } = await store.books.verify(ORGANIZATION);
  const seconds = (performance.now() - startedAtMs) / 1_000;
  const mebibytes = Math.round(process.resourceUsage().maxRSS / 1_024);
  console.log(`${store.kind}: ${holds} holds, ${events} events, ${violations.length} violations`);
  console.log(`${seconds.toFixed(1)} s, ${Math.round(holds / seconds)} holds/s, at most ${mebibytes} MiB resident`);
  if (values.close) {
    await closeMonths(store, ORGANIZATION, 1);
    const [violation] = (await store.books.verify(ORGANIZATION)).violations;
    if (violation !== undefined) throw new Error(violation.message);
  }
  if (values.beside === undefined) return;
  await measureBeside(store, {
    organizationId: ORGANIZATION,
    dataDir,
    databaseUrl,
    turnMs: Number(values.beside) * 1_000,
    turns: Number(values.turns),
    clients: Number(values.clients),
    rate: values.rate === undefined ? null : Number(values.rate),
  });
  const [violation] = (await store.books.verify(ORGANIZATION)).violations;
  if (violation !== undefined) throw new Error(violation.message);
}

async function onSqlite(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const store = await openSqliteStore({ dataDir, role: "service" });
  const run = async (statements: string[]) => {
    const beside = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 5_000 });
    for (const statement of statements) beside.exec(statement);
    beside.close();
  };
  await check({ store, dataDir, databaseUrl: null, run });
  await store.close();
  rmSync(dataDir, { recursive: true });
}

async function onPostgres(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const server = await makePostgresServer();
  const store = await openPostgresStore({ url: server.url, role: "service" });
  const run = async (statements: string[]) => {
    const beside = new pg.Client({ connectionString: server.url });
    await beside.connect();
    for (const statement of statements) await beside.query(statement);
    await beside.end();
  };
  await check({ store, dataDir, databaseUrl: server.url, run });
  await store.close();
  await server.remove();
  rmSync(dataDir, { recursive: true });
}

await (values.store === "postgres" ? onPostgres() : onSqlite());
