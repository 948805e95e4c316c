/**
 * `npm run bench:ledger`: how many holds and settlements a second the books take, in batches as the ledger sends them, on
 * one organization and on many, on SQLite and on a PostgreSQL of its own, and how many bytes each request takes on the
 * disk; prints a table. Options: --batches of a round, --rounds, --size of a batch, --store sqlite or postgres, --before
 * FOLDER: another checkout of Tollgate, with its packages, whose rounds alternate with those of this one.
 */
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import pg from "pg";
import type { HoldFacts, HoldTransition, SettleTransition } from "../src/credits/books.ts";
import { FREE, NO_TOKENS } from "../src/credits/price.ts";
import { uuidV7 } from "../src/internals/ids.ts";
import type { openPostgresStore } from "../src/stores/postgres/postgres.ts";
import type { openSqliteStore } from "../src/stores/sqlite/sqlite.ts";
import type { Books, Store } from "../src/stores/store.ts";
import { makePostgresServer } from "../test/support/postgres-server.ts";
import { median } from "./report.ts";

const ORGANIZATIONS = [1, 1_000];
const PRICES = { ...FREE, input: 1_000_000n, output: 1_000_000n };
const HELD = 1_000n;
const OUTPUT_TOKENS = 400;

const { values } = parseArgs({
  options: {
    batches: { type: "string", default: "40" },
    rounds: { type: "string", default: "5" },
    size: { type: "string", default: "1000" },
    store: { type: "string" },
    before: { type: "string" },
  },
});
const plan = { batches: Number(values.batches), rounds: Number(values.rounds), size: Number(values.size) };

/** A checkout's store that takes part, and its rates in each round. */
interface Contender {
  name: string;
  store: Store;
  /** Bytes on the disk by now. */
  size: () => Promise<number>;
  remove: () => Promise<void>;
  holds: number[];
  pairs: number[];
}

async function makeOrganizations({ accounts, books }: Store, count: number): Promise<string[]> {
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
  return ids;
}

/** A batch names its organizations in turn. */
function makeBatch(organizationIds: readonly string[], size: number): HoldTransition[] {
  return Array.from({ length: size }, (_, index) => {
    const facts: HoldFacts = {
      holdId: uuidV7(Date.now()),
      organizationId: organizationIds[index % organizationIds.length] ?? "",
      tokenId: "tok_bench",
      requestId: "req_bench",
      model: "sandbox/echo",
      upstream: "sandbox/echo",
      prices: PRICES,
      metadata: null,
      idempotencyKey: null,
    };
    return { kind: "hold", facts, least: HELD, most: HELD, lifeMs: 120_000, owner: "bench" };
  });
}

function settlementOf({ facts }: HoldTransition): SettleTransition {
  const provider = { providerResponseId: "chatcmpl-CZ3mDpN6v5sDfJtKqfBqvGkK8yQ3x", providerCost: null };
  const trace = { isStreamed: true, firstTokenMs: 250, attempts: null, failure: null, ...provider };
  return {
    kind: "settle",
    facts,
    tokens: { ...NO_TOKENS, input: 20, output: OUTPUT_TOKENS },
    basis: "reported",
    end: "complete",
    trace,
  };
}

async function book(books: Books, lane: "holds" | "durable", batch: (HoldTransition | SettleTransition)[]) {
  const expected = lane === "holds" ? "held" : "charged";
  const outcomes = await books.apply(lane, batch);
  if (outcomes.some(({ outcome }) => outcome !== expected)) throw new Error(`not everything was ${expected}`);
}

async function perSecond(count: number, work: () => Promise<void>): Promise<number> {
  const startedAtMs = performance.now();
  await work();
  return (count * 1_000) / (performance.now() - startedAtMs);
}

/** Holds alone; then holds and settlements as two lanes send them, one batch in flight in each. */
async function measure(books: Books, organizationIds: readonly string[]): Promise<{ holds: number; pairs: number }> {
  const { batches, size } = plan;
  const alone = Array.from({ length: batches }, () => makeBatch(organizationIds, size));
  const paired = Array.from({ length: batches }, () => makeBatch(organizationIds, size));
  const holds = await perSecond(batches * size, async () => {
    for (const batch of alone) await book(books, "holds", batch);
  });
  const pairs = await perSecond(batches * size, async () => {
    let settling: Promise<void> = Promise.resolve();
    for (const batch of paired) {
      await book(books, "holds", batch);
      await settling;
      settling = book(books, "durable", batch.map(settlementOf));
    }
    await settling;
  });
  for (const batch of alone) await book(books, "durable", batch.map(settlementOf));
  return { holds, pairs };
}

/** Requests that a round books, those of its holds alone included. */
const requestsOfRound = 2 * plan.batches * plan.size;

async function measureStores(kind: string, contenders: readonly Contender[]): Promise<void> {
  for (const count of ORGANIZATIONS) {
    const ids: string[][] = [];
    const sizes: number[] = [];
    for (const { store, size } of contenders) {
      const own = await makeOrganizations(store, count);
      const warmUp = makeBatch(own, plan.size);
      await book(store.books, "holds", warmUp);
      await book(store.books, "durable", warmUp.map(settlementOf));
      ids.push(own);
      sizes.push(await size());
    }
    for (let round = 0; round < plan.rounds; round += 1) {
      const order = contenders.map((_, index) => index);
      for (const index of round % 2 === 0 ? order : order.reverse()) {
        const contender = contenders[index];
        if (contender === undefined) continue;
        const { holds, pairs } = await measure(contender.store.books, ids[index] ?? []);
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
}

async function startSqlite({ name, folder }: Checkout): Promise<Contender> {
  const module: { openSqliteStore: typeof openSqliteStore } = await import(join(folder, "src/stores/sqlite/sqlite.ts"));
  const dataDir = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const store = await module.openSqliteStore({ dataDir, role: "service" });
  const remove = async () => {
    await store.close();
    rmSync(dataDir, { recursive: true });
  };
  const size = async () => statSync(join(dataDir, "tollgate.db")).size;
  return { name, store, size, remove, holds: [], pairs: [] };
}

async function startPostgres({ name, folder }: Checkout): Promise<Contender> {
  const path = join(folder, "src/stores/postgres/postgres.ts");
  const module: { openPostgresStore: typeof openPostgresStore } = await import(path);
  const server = await makePostgresServer();
  const store = await module.openPostgresStore({ url: server.url, role: "service" });
  const remove = async () => {
    await store.close();
    await server.remove();
  };
  const size = async () => {
    const client = new pg.Client(server.url);
    await client.connect();
    try {
      const { rows } = await client.query("SELECT pg_database_size(current_database()) AS bytes");
      return Number(rows[0].bytes);
    } finally {
      await client.end();
    }
  };
  return { name, store, size, remove, holds: [], pairs: [] };
}

const spread = (rates: readonly number[]) =>
  `${Math.round(median(rates))} (${Math.round(Math.min(...rates))} to ${Math.round(Math.max(...rates))})`;

const checkouts: Checkout[] = [{ name: "", folder: resolve(import.meta.dirname, "..") }];
if (values.before !== undefined) checkouts.push({ name: ", before", folder: resolve(values.before) });
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
