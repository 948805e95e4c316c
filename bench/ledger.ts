/**
 * `npm run bench:ledger`: how many holds and settlements a second the ledger books for clients that make one request after
 * the other, on one organization and on many, on SQLite and on a PostgreSQL of its own, and how many bytes each request
 * takes on the disk; prints a table. Options: --clients, --requests of each client in a round, --rounds, --store sqlite or
 * postgres, --before FOLDER: another checkout of Tollgate, with its packages, whose rounds alternate with those of this one.
 * --budgets N: stores take part in which each organization has N budgets for every user. The table has a row for each number of
 * users in --users (with commas), whose counters one organization has before the first round.
 */
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import pg from "pg";
import type { AuditRow } from "../src/credits/audit.ts";
import type { BudgetRow } from "../src/credits/books.ts";
import type { HoldFacts } from "../src/credits/facts.ts";
import { FREE, NO_TOKENS } from "../src/credits/price.ts";
import { uuidV7 } from "../src/internals/ids.ts";
import type { Ledger } from "../src/ledger/ledger.ts";
import type { openPostgresStore } from "../src/stores/postgres/postgres.ts";
import type { openSqliteStore } from "../src/stores/sqlite/sqlite.ts";
import type { Store } from "../src/stores/store.ts";
import { keepLog } from "../test/support/log.ts";
import type { openLedger } from "../test/support/open-ledger.ts";
import { makePostgresServer } from "../test/support/postgres-server.ts";
import { median } from "./report.ts";

const ORGANIZATIONS = [1, 1_000];
const PRICES = { ...FREE, input: 1_000_000n, output: 1_000_000n };
const HELD = 1_000n;
const OUTPUT_TOKENS = 400;
const ANSWER_MS_MAX = 20;

const { values } = parseArgs({
  options: {
    clients: { type: "string", default: "1000" },
    requests: { type: "string", default: "40" },
    rounds: { type: "string", default: "5" },
    store: { type: "string" },
    before: { type: "string" },
    budgets: { type: "string", default: "0" },
    users: { type: "string", default: "1000000" },
  },
});
const plan = { clients: Number(values.clients), requests: Number(values.requests), rounds: Number(values.rounds) };
const budgetCount = Number(values.budgets);

/** Budgets of each organization, and the users that its requests name. */
interface Budgets {
  count: number;
  users: number;
}

/** A checkout's store that takes part, and its rates in each round. */
interface Contender {
  name: string;
  store: Store;
  ledger: Ledger;
  /** Bytes on the disk by now. */
  size: () => Promise<number>;
  /** Runs a statement on its database. */
  write: (sql: string) => Promise<void>;
  remove: () => Promise<void>;
  budgets: Budgets;
  holds: number[];
  pairs: number[];
}

async function makeOrganizations(
  { store: { accounts, books, budgets }, ...own }: Contender,
  count: number,
): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, index) => `org_${count}_${index}`);
  for (const id of ids) {
    await accounts.insertOrganization({ id, name: "Bench", kind: "standard", createdAtMs: Date.now() });
  }
  const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
  await books.apply(
    "durable",
    ids.map((organizationId) => {
      const grantId = `grant_${organizationId}`;
      return { kind: "grant" as const, organizationId, grantId, amount: 1_000_000_000_000n, ...terms };
    }),
  );
  for (const organizationId of ids) {
    for (let number = 0; number < own.budgets.count; number += 1) {
      const id = `bud_${number}_${organizationId}`;
      const all = { callerIds: null, models: null, metadata: null, capOf: null };
      const terms = { limits: null, each: "metadata.user", window: "lifetime", amount: 1_000_000_000_000n } as const;
      const row = { organizationId, id, name: id, ...all, ...terms, createdAtMs: Date.now() };
      await budgets.insertBudget(row, createdBudget(row));
      if (count === 1) await own.write(countersOf(row, own.budgets.users));
    }
  }
  return ids;
}

function createdBudget({ organizationId, id: subjectId, createdAtMs: madeAtMs }: BudgetRow): AuditRow {
  const who = { actorKind: "command", actorId: null, actorName: null, address: null, requestId: null } as const;
  const change = { action: "bench", organizationId, subjectId, before: null, after: null };
  return { id: uuidV7(madeAtMs), madeAtMs, ...who, ...change };
}

/** Makes the counters of all users, who have spent nothing yet. */
const countersOf = ({ organizationId, id }: BudgetRow, userCount: number) => `
  INSERT INTO budget_use (organization_id, budget_id, window_at, value, held, spent, opening, raised)
  WITH RECURSIVE series (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM series WHERE n + 1 < ${userCount})
  SELECT '${organizationId}', '${id}', 0, 'user_' || n, 0, 0, 0, 0 FROM series`;

/** Requests of each client, which belongs to one of the organizations. */
function makeRequests(organizationIds: readonly string[], count: number, { users }: Budgets): HoldFacts[][] {
  return Array.from({ length: plan.clients }, (_, client) =>
    Array.from({ length: count }, () => ({
      holdId: uuidV7(Date.now()),
      organizationId: organizationIds[client % organizationIds.length] ?? "",
      tokenId: "tok_bench",
      requestId: "req_bench",
      model: "sandbox/echo",
      upstream: "sandbox/echo",
      prices: PRICES,
      metadata: users === 0 ? null : { user: `user_${Math.floor(Math.random() * users)}` },
      idempotencyKey: null,
    })),
  );
}

async function hold(ledger: Ledger, facts: HoldFacts): Promise<void> {
  const { outcome } = await ledger.hold({ facts, callerId: facts.tokenId, least: HELD, most: HELD });
  if (outcome !== "held") throw new Error(`a hold was answered with ${outcome}`);
}

async function settle(ledger: Ledger, facts: HoldFacts): Promise<void> {
  // The ids of providers are random.
  const provider = { providerResponseId: `chatcmpl-${randomBytes(21).toString("base64url")}`, providerCost: null };
  const trace = { isStreamed: true, firstTokenMs: 250, attempts: null, failure: null, ...provider };
  const tokens = { ...NO_TOKENS, input: 20, output: OUTPUT_TOKENS };
  const { outcome } = await ledger.settle({ facts, tokens, basis: "reported", end: "complete", trace });
  if (outcome !== "charged") throw new Error(`a settlement was answered with ${outcome}`);
}

/** Books requests one after the other for each client. Answers take different times, so that holds and settlements mix. */
async function bookPairs(ledger: Ledger, requests: readonly HoldFacts[][]): Promise<void> {
  await Promise.all(
    requests.map(async (own, client) => {
      for (const facts of own) {
        await hold(ledger, facts);
        await sleep(client % ANSWER_MS_MAX);
        await settle(ledger, facts);
      }
    }),
  );
}

/** Returns the rates of holds alone, one of each client at once, and of pairs of a hold and its settlement. */
async function measure(
  { ledger, budgets }: Contender,
  organizationIds: readonly string[],
): Promise<{ holds: number; pairs: number }> {
  const count = plan.clients * plan.requests;
  const alone = makeRequests(organizationIds, plan.requests, budgets);
  const paired = makeRequests(organizationIds, plan.requests, budgets);
  let holdsMs = 0;
  for (let index = 0; index < plan.requests; index += 1) {
    const batch = alone.flatMap((own) => own[index] ?? []);
    const startedAtMs = performance.now();
    await Promise.all(batch.map((facts) => hold(ledger, facts)));
    holdsMs += performance.now() - startedAtMs;
    await Promise.all(batch.map((facts) => settle(ledger, facts)));
  }
  const startedAtMs = performance.now();
  await bookPairs(ledger, paired);
  return { holds: (count * 1_000) / holdsMs, pairs: (count * 1_000) / (performance.now() - startedAtMs) };
}

/** Requests that a round books, those of its holds alone included. */
const requestsOfRound = 2 * plan.clients * plan.requests;

async function measureStores(kind: string, contenders: readonly Contender[]): Promise<void> {
  for (const count of ORGANIZATIONS) {
    const ids: string[][] = [];
    const sizes: number[] = [];
    for (const contender of contenders) {
      const own = await makeOrganizations(contender, count);
      await bookPairs(contender.ledger, makeRequests(own, 1, contender.budgets));
      ids.push(own);
      sizes.push(await contender.size());
    }
    for (let round = 0; round < plan.rounds; round += 1) {
      const order = contenders.map((_, index) => index);
      for (const index of round % 2 === 0 ? order : order.reverse()) {
        const contender = contenders[index];
        if (contender === undefined) continue;
        const { holds, pairs } = await measure(contender, ids[index] ?? []);
        contender.holds.push(holds);
        contender.pairs.push(pairs);
      }
    }
    for (const [index, contender] of contenders.entries()) {
      const { name, store, size, holds, pairs } = contender;
      for (const id of ids[index] ?? []) {
        const [violation] = (await store.books.verify(id)).violations;
        if (violation !== undefined) throw new Error(violation.message);
      }
      const grown = (await size()) - (sizes[index] ?? 0);
      const bytes = Math.round(grown / (requestsOfRound * plan.rounds));
      const last = contenders.at(-1);
      const ratio = median(pairs.map((rate, round) => rate / (last?.pairs[round] ?? rate))).toFixed(2);
      console.log(`| ${kind}${name} | ${count} | ${spread(holds)} | ${spread(pairs)} | ${ratio} | ${bytes} |`);
    }
    for (const contender of contenders) {
      contender.holds = [];
      contender.pairs = [];
    }
  }
  for (const { remove } of contenders) await remove();
}

interface Checkout {
  name: string;
  folder: string;
  budgets: Budgets;
}

/** Starts the ledger of a checkout. Holds live long enough to need no renewal. */
async function startLedger(folder: string, { books }: Store, dataDir: string): Promise<Ledger> {
  const module: { openLedger: typeof openLedger } = await import(join(folder, "test/support/open-ledger.ts"));
  return module.openLedger({ books, dataDir, log: keepLog(), clock: Date.now, holdLifeMs: 600_000 });
}

async function startSqlite({ name, folder, budgets }: Checkout): Promise<Contender> {
  const module: { openSqliteStore: typeof openSqliteStore } = await import(join(folder, "src/stores/sqlite/sqlite.ts"));
  const dataDir = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const store = await module.openSqliteStore({ dataDir, role: "service" });
  const ledger = await startLedger(folder, store, dataDir);
  const remove = async () => {
    await ledger.stop();
    await store.close();
    rmSync(dataDir, { recursive: true });
  };
  const file = join(dataDir, "tollgate.db");
  const size = async () => statSync(file).size;
  const write = async (sql: string) => {
    const database = new DatabaseSync(file);
    database.exec(sql);
    database.close();
  };
  return { name, store, ledger, size, write, remove, budgets, holds: [], pairs: [] };
}

async function startPostgres({ name, folder, budgets }: Checkout): Promise<Contender> {
  const path = join(folder, "src/stores/postgres/postgres.ts");
  const module: { openPostgresStore: typeof openPostgresStore } = await import(path);
  const server = await makePostgresServer();
  const store = await module.openPostgresStore({ url: server.url, role: "service" });
  const dataDir = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const ledger = await startLedger(folder, store, dataDir);
  const remove = async () => {
    await ledger.stop();
    await store.close();
    rmSync(dataDir, { recursive: true });
    await server.remove();
  };
  const query = async (sql: string) => {
    const client = new pg.Client(server.url);
    await client.connect();
    try {
      return (await client.query(sql)).rows;
    } finally {
      await client.end();
    }
  };
  const size = async () => Number((await query("SELECT pg_database_size(current_database()) AS bytes"))[0].bytes);
  const write = async (sql: string) => void (await query(sql));
  return { name, store, ledger, size, write, remove, budgets, holds: [], pairs: [] };
}

const spread = (rates: readonly number[]) =>
  `${Math.round(median(rates))} (${Math.round(Math.min(...rates))} to ${Math.round(Math.max(...rates))})`;

const [folder, none] = [resolve(import.meta.dirname, ".."), { count: 0, users: 0 }];
const checkouts: Checkout[] = [{ name: "", folder, budgets: none }];
if (budgetCount > 0) {
  for (const users of values.users.split(",").map(Number)) {
    checkouts.unshift({
      name: `, ${budgetCount} budgets of ${users} users`,
      folder,
      budgets: { count: budgetCount, users },
    });
  }
}
if (values.before !== undefined) checkouts.push({ name: ", before", folder: resolve(values.before), budgets: none });
const kinds = [
  { kind: "SQLite", option: "sqlite", start: startSqlite },
  { kind: "PostgreSQL", option: "postgres", start: startPostgres },
].filter(({ option }) => values.store === undefined || values.store === option);
console.log("| store | organizations | holds/s | hold and settlement pairs/s | ratio | bytes a request |");
console.log("| --- | --: | --: | --: | --: | --: |");
for (const { kind, start } of kinds) {
  const contenders: Contender[] = [];
  for (const checkout of checkouts) contenders.push(await start(checkout));
  await measureStores(kind, contenders);
}
