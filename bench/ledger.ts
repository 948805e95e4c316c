/**
 * `npm run bench:ledger`: how many holds and settlements a second the books take, in batches as the ledger sends them, on
 * one organization and on many, on SQLite and on a PostgreSQL of its own; prints a table. Options: --batches of a round,
 * --rounds, --size of a batch.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { uuidV7 } from "../src/app/ids.ts";
import type { HoldFacts, HoldTransition, SettleTransition } from "../src/credits/books.ts";
import { FREE, NO_TOKENS } from "../src/credits/price.ts";
import { openPostgresStore } from "../src/stores/postgres/postgres.ts";
import { openSqliteStore } from "../src/stores/sqlite/sqlite.ts";
import type { Books, Store } from "../src/stores/store.ts";
import { makePostgresServer } from "../test/support/postgres-server.ts";
import { median } from "./report.ts";

const ORGANIZATIONS = [1, 1_000];
const PRICES = { ...FREE, input: 1_000_000n, output: 1_000_000n };
const HELD = 1_000n;
const OUTPUT_TOKENS = 400;

interface Plan {
  batches: number;
  rounds: number;
  size: number;
}

interface Row {
  store: string;
  organizations: number;
  holds: number[];
  pairs: number[];
}

const { values } = parseArgs({
  options: {
    batches: { type: "string", default: "40" },
    rounds: { type: "string", default: "5" },
    size: { type: "string", default: "1000" },
  },
});
const plan: Plan = { batches: Number(values.batches), rounds: Number(values.rounds), size: Number(values.size) };

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

async function measureStore(name: string, store: Store): Promise<Row[]> {
  const rows: Row[] = [];
  for (const count of ORGANIZATIONS) {
    const ids = await makeOrganizations(store, count);
    const row: Row = { store: name, organizations: count, holds: [], pairs: [] };
    const warmUp = makeBatch(ids, plan.size);
    await book(store.books, "holds", warmUp);
    await book(store.books, "durable", warmUp.map(settlementOf));
    for (let round = 0; round < plan.rounds; round += 1) {
      const { holds, pairs } = await measure(store.books, ids);
      row.holds.push(holds);
      row.pairs.push(pairs);
    }
    for (const id of ids) {
      const [violation] = (await store.books.verify(id)).violations;
      if (violation !== undefined) throw new Error(violation.message);
    }
    rows.push(row);
  }
  return rows;
}

async function onSqlite(): Promise<Row[]> {
  const dataDir = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const store = await openSqliteStore({ dataDir, role: "service" });
  try {
    return await measureStore("SQLite", store);
  } finally {
    await store.close();
    rmSync(dataDir, { recursive: true });
  }
}

async function onPostgres(): Promise<Row[]> {
  const server = await makePostgresServer();
  const store = await openPostgresStore({ url: server.url, role: "service" });
  try {
    return await measureStore("PostgreSQL", store);
  } finally {
    await store.close();
    await server.remove();
  }
}

const spread = (rates: readonly number[]) =>
  `${Math.round(median(rates))} (${Math.round(Math.min(...rates))} to ${Math.round(Math.max(...rates))})`;

const rows = [...(await onSqlite()), ...(await onPostgres())];
console.log("| store | organizations | holds/s | hold and settlement pairs/s |\n| --- | --: | --: | --: |");
for (const { store, organizations, holds, pairs } of rows) {
  console.log(`| ${store} | ${organizations} | ${spread(holds)} | ${spread(pairs)} |`);
}
