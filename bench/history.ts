/**
 * `node bench/history.ts --store sqlite --rows 10000000 --months 24`: what one organization's ended requests of so many months
 * cost those who read and sweep the books: the service's start, a sweep, a page of the statement of any month, and one
 * request by its id. `--store postgres` makes a PostgreSQL of its own. With `--books DIR` the filled store is kept in that
 * folder, and a later run starts from a copy of it. With `--load 10` requests are booked, too, 200 a second: in turns of so many
 * seconds on an empty store and on this one, and while retention closes its first two months.
 */
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, statSync, utimesSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";
import pg from "pg";
import { DAY_MS, dayStart } from "../src/api/time.ts";
import { idAt } from "../src/credits/request-id.ts";
import { Overviews } from "../src/reports/overview.ts";
import { Statements } from "../src/reports/statement.ts";
import { UsageDays } from "../src/reports/usage-days.ts";
import { openPostgresStore } from "../src/stores/postgres/postgres.ts";
import { openSqliteStore } from "../src/stores/sqlite/sqlite.ts";
import type { Store } from "../src/stores/store.ts";
import { bulkStatements, pastPartitions } from "../test/support/bulk.ts";
import { makePostgresServer } from "../test/support/postgres-server.ts";
import { startProcess } from "../test/support/service.ts";
import { measureAged } from "./beside.ts";
import { closeMonths } from "./retention.ts";

const ORGANIZATION = "org_bench";
const GRANT = "grant_bench";
const ROWS_AT_ONCE = 500_000;
const MONTH_MS = 30 * 86_400_000;
const LIFE_MS = 120_000;
const LOOKS = 100;
const TERMS = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
/** Credits for the requests that are booked beside. */
const SPARE = 1_000_000_000_000n;

const { values } = parseArgs({
  options: {
    store: { type: "string", default: "sqlite" },
    rows: { type: "string", default: "10000000" },
    months: { type: "string", default: "24" },
    books: { type: "string" },
    load: { type: "string" },
  },
});
const rows = Number(values.rows);
/** Folder of a store that an earlier run has filled. */
const kept = values.books !== undefined && existsSync(values.books) ? values.books : undefined;
const stepMs = Math.floor((Number(values.months) * MONTH_MS) / rows);
const endMs = kept === undefined ? Date.now() : statSync(kept).mtimeMs;
const fromMs = Math.round(endMs) - rows * stepMs;

interface Place {
  store: Store;
  run(statement: string): Promise<void>;
  dataDir: string;
  databaseUrl?: string;
  /** A database without tables. */
  emptyUrl?: string;
}

async function fill({ store, run }: Place): Promise<void> {
  await store.accounts.insertOrganization({
    id: ORGANIZATION,
    name: "Bench",
    kind: "standard",
    createdAtMs: fromMs - 1_000,
  });
  const amount = 1_000n * BigInt(rows);
  await store.books.apply("durable", [
    { kind: "grant", organizationId: ORGANIZATION, grantId: GRANT, amount, ...TERMS },
  ]);
  for (let start = 0; start < rows; start += ROWS_AT_ONCE) {
    const count = Math.min(ROWS_AT_ONCE, rows - start);
    const bulk = { organizationId: ORGANIZATION, grantId: GRANT, count, stepMs, fromMs: fromMs + start * stepMs };
    for (const statement of bulkStatements(store.kind, bulk)) await run(statement);
  }
  const startedAtMs = performance.now();
  await new UsageDays({ rows: store.usage, books: store.books, clock: Date.now, log: console }).sumUp();
  const seconds = Math.round((performance.now() - startedAtMs) / 1_000);
  console.log(`balances recorded and days summed up: ${seconds} s, which a service does by the day`);
}

/** Runs something again and again. Returns the 50th and the 95th percentile and the longest time in milliseconds. */
async function timed(work: (look: number) => Promise<unknown>): Promise<string> {
  const times: number[] = [];
  for (let look = 0; look < LOOKS; look += 1) {
    const startedAtMs = performance.now();
    await work(look);
    times.push(performance.now() - startedAtMs);
  }
  times.sort((a, b) => a - b);
  const at = (share: number) => (times[Math.ceil(share * LOOKS) - 1] ?? 0).toFixed(1);
  return `${at(0.5)} | ${at(0.95)} | ${at(1)}`;
}

/** A time in the history, the same ones in each run. */
const momentOf = (look: number) => fromMs + Math.floor((((look * 37) % LOOKS) / LOOKS) * rows) * stepMs;

/** Books requests on the history and on an empty store, in turns, and while retention closes the oldest months. */
async function measureLoad(store: Store, { dataDir, databaseUrl, emptyUrl }: Place, turnMs: number): Promise<void> {
  const emptyDir = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const empty =
    emptyUrl === undefined
      ? await openSqliteStore({ dataDir: emptyDir, role: "service" })
      : await openPostgresStore({ url: emptyUrl, role: "service" });
  const grant = { kind: "grant" as const, organizationId: ORGANIZATION, amount: SPARE, ...TERMS };
  await empty.accounts.insertOrganization({ id: ORGANIZATION, name: "Bench", kind: "standard", createdAtMs: 1 });
  for (const { books } of [store, empty]) await books.apply("durable", [{ ...grant, grantId: "grant_load" }]);
  // The first month of the history is incomplete.
  const months = Math.floor((Number(values.months) * MONTH_MS) / (30.44 * 86_400_000));
  const closings = [1, 2].map((later) => () => closeMonths(store, ORGANIZATION, months - later));
  const load = { organizationId: ORGANIZATION, turnMs, turns: 3, clients: 16, rate: 200 };
  const aged = { store, dataDir };
  console.log(databaseUrl === undefined ? "SQLite" : "PostgreSQL");
  await measureAged({ ...load, empty: { store: empty, dataDir: emptyDir }, aged, closings });
  const [violation] = (await store.books.verify(ORGANIZATION)).violations;
  if (violation !== undefined) throw new Error(violation.message);
  await empty.close();
  rmSync(emptyDir, { recursive: true });
}

async function measure(place: Place): Promise<void> {
  const { store, dataDir, databaseUrl } = place;
  const { books, requests } = store;
  const statements = new Statements(books);
  const search = { lifeMs: LIFE_MS, afterHoldId: null, limit: 500 };
  console.log("| look | p50 ms | p95 ms | longest ms |\n| --- | --: | --: | --: |");
  const sweep = await timed(async () => {
    await books.removeOldKeys(200);
    await books.dueOrganizations({ after: null, limit: 500 });
    await books.recoverableHolds({ ...search, owners: { allBut: "bench" } });
  });
  console.log(`| sweep | ${sweep} |`);
  const page = (look: number) => books.statement(ORGANIZATION, { after: null, fromMs: momentOf(look), limit: 100 });
  console.log(`| entries of a statement page | ${await timed(page)} |`);
  const byId = async (look: number) => {
    const number = Math.round((momentOf(look) - fromMs) / stepMs) % ROWS_AT_ONCE;
    const id = `${idAt(momentOf(look))}-7000-8000-${number.toString(16).padStart(12, "0")}`;
    if ((await requests.request(id)) === undefined) throw new Error(`${id} is not there`);
  };
  console.log(`| request by id | ${await timed(byId)} |`);
  const whole = (look: number) => {
    const period = { fromMs: momentOf(look), toMs: undefined };
    return statements.page({ organizationId: ORGANIZATION, kind: null, cursor: null, limit: 100, ...period });
  };
  console.log(`| statement page with its opening balance | ${await timed(whole)} |`);
  const toDay = dayStart(Date.now());
  const days = new UsageDays({ rows: store.usage, books, clock: Date.now, log: console });
  const overviews = new Overviews({
    rows: store.usage,
    refusals: store.refusals,
    days,
    clock: Date.now,
    perDollar: () => "1",
  });
  const range = { forOperator: true, fromDay: toDay - 29 * DAY_MS, toDay };
  const overview = () => overviews.overview({ organizationId: ORGANIZATION, ...range });
  console.log(`| overview of 30 days | ${await timed(overview)} |`);
  if (values.load !== undefined) await measureLoad(store, place, Number(values.load) * 1_000);
  await store.close();
  // `npm start` keeps the compiled modules, too: the second start finds them.
  const environment = { NODE_COMPILE_CACHE: join(dataDir, "compile-cache") };
  const options = { dataDir, environment, ...(databaseUrl !== undefined && { databaseUrl }) };
  for (const which of ["first", "second", "third"]) {
    const startedAtMs = performance.now();
    const service = await startProcess({ ...options, awaits: "/readyz" });
    console.log(`${which} start to ready: ${Math.round(performance.now() - startedAtMs)} ms`);
    await service.end("SIGTERM");
  }
}

/** Keeps a copy of the files of a filled store. Their time is that of the last request. */
function keep(data: string, names?: readonly string[]): void {
  if (values.books === undefined || kept !== undefined) return;
  mkdirSync(values.books, { recursive: true });
  for (const name of names ?? [""]) cpSync(join(data, name), join(values.books, name), { recursive: true });
  utimesSync(values.books, endMs / 1_000, endMs / 1_000);
}

async function onSqlite(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const path = join(dataDir, "tollgate.db");
  const run = async (statement: string) => {
    const beside = new DatabaseSync(path, { timeout: 60_000 });
    beside.exec(`PRAGMA synchronous = OFF; ${statement}; PRAGMA wal_checkpoint(TRUNCATE)`);
    beside.close();
  };
  try {
    if (kept !== undefined) cpSync(kept, dataDir, { recursive: true });
    else {
      const filled = await openSqliteStore({ dataDir, role: "service" });
      await fill({ store: filled, run, dataDir });
      await filled.close();
      keep(dataDir, ["tollgate.db"]);
    }
    const store = await openSqliteStore({ dataDir, role: "service" });
    console.log(`SQLite: ${rows} requests, ${Math.round(statSync(path).size / rows)} bytes each`);
    await measure({ store, run, dataDir });
  } finally {
    rmSync(dataDir, { recursive: true });
  }
}

async function onPostgres(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const copied = kept;
  const server = await makePostgresServer(
    copied === undefined ? {} : { fill: async (data) => cpSync(copied, data, { recursive: true }) },
  );
  try {
    const client = new pg.Client({ connectionString: server.url });
    await client.connect();
    const run = async (statement: string) => void (await client.query(statement));
    if (kept === undefined) {
      const filled = await openPostgresStore({ url: server.url, role: "service" });
      await run("SET synchronous_commit = off");
      for (const statement of pastPartitions(fromMs)) await run(statement);
      await fill({ store: filled, run, dataDir });
      await run("VACUUM ANALYZE");
      await filled.close();
    }
    const { rows: sizes } = await client.query("SELECT pg_database_size(current_database()) AS bytes");
    // A filled store that was kept has it already.
    await run("DROP DATABASE IF EXISTS empty");
    await run("CREATE DATABASE empty");
    await client.end();
    if (kept === undefined && values.books !== undefined) {
      await server.stop();
      keep(server.data);
      await server.start();
    }
    console.log(`PostgreSQL: ${rows} requests, ${Math.round(Number(sizes[0].bytes) / rows)} bytes each`);
    const store = await openPostgresStore({ url: server.url, role: "service" });
    const emptyUrl = server.url.replace(/postgres$/, "empty");
    await measure({ store, run, dataDir, databaseUrl: server.url, emptyUrl });
  } finally {
    await server.remove();
    rmSync(dataDir, { recursive: true });
  }
}

await (values.store === "postgres" ? onPostgres() : onSqlite());
