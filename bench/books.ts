/**
 * `node bench/books.ts`: what the thread of SQLite's books takes for a hold and its settlement, and how many pages a batch writes
 * to the log, without the queues in front of it. Checks the books, and prints a table, or with `--json` one JSON document.
 * Options: --pairs in a batch, --batches in a round, --rounds; --budgets N: a store takes part of which N budgets cover each
 * request; --values 1000,1000000: and one for each number of values that a budget has a counter for, each request with a random
 * one; --before FOLDER: the stores of another checkout of Tollgate, with its packages, take part in turns.
 */
import { randomBytes } from "node:crypto";
import { subscribe } from "node:diagnostics_channel";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { parseArgs } from "node:util";
import type { Worker } from "node:worker_threads";
import type { BudgetRow, HoldTransition, SettleTransition, Transition } from "../src/credits/books.ts";
import type { Outcome } from "../src/credits/outcomes.ts";
import { FREE, NO_TOKENS } from "../src/credits/price.ts";
import { uuidV7 } from "../src/internals/ids.ts";
import type { openSqliteStore } from "../src/stores/sqlite/sqlite.ts";
import type { Store } from "../src/stores/store.ts";
import { machineFacts } from "./contenders.ts";
import { median } from "./report.ts";

const OWNER = { organizationId: "org_bench" };
const PRICES = { ...FREE, input: 1_000_000n, output: 1_000_000n };
const GRANTED = 1_000_000_000_000n;
const HELD = 1_000n;
/** Rounds before the first one that counts: V8 optimizes the functions of a batch. */
const WARM_UP_ROUNDS = 3;
const LOG_HEADER_BYTES = 32;
const LOG_PAGE_BYTES = 4_096 + 24;

const { values: given } = parseArgs({
  options: {
    pairs: { type: "string", default: "14" },
    batches: { type: "string", default: "200" },
    rounds: { type: "string", default: "11" },
    budgets: { type: "string", default: "0" },
    values: { type: "string" },
    before: { type: "string" },
    json: { type: "boolean", default: false },
  },
});
const plan = { pairs: Number(given.pairs), batches: Number(given.batches), rounds: Number(given.rounds) };

/** The budgets that the requests of a store are counted in. */
interface Variant {
  name: string;
  budgets: number;
  /** Counters of each budget at the start; 0: all requests share one. */
  values: number;
  /** The variant whose times its own are divided by. */
  base: string;
}

/** A store of a checkout, and what was measured of it in each round. */
interface Contender {
  checkout: string;
  variant: Variant;
  store: Store;
  /** The thread of its books. */
  worker: Worker;
  databasePath: string;
  rounds: Round[];
  close: () => Promise<void>;
}

interface Round {
  microsecondsAPair: number;
  pagesOfHolds: number;
  pagesOfSettlements: number;
}

function readVariants(): Variant[] {
  const none = { name: "no budget", budgets: 0, values: 0, base: "no budget" };
  const budgets = Number(given.budgets);
  const shared = { ...none, name: `${budgets} budgets`, budgets };
  const nameOf = (values: number) => `1 budget, ${values} values`;
  const counts = given.values?.split(",").map(Number) ?? [];
  const base = nameOf(counts[0] ?? 0);
  const each = counts.map((values) => ({ name: nameOf(values), budgets: 1, values, base }));
  return [none, ...(budgets > 0 ? [shared] : []), ...each];
}

/** The threads that were started since the list was emptied. */
const workers: Worker[] = [];
subscribe("worker_threads", (message) => void workers.push((message as { worker: Worker }).worker));

/** Opens a store of a checkout. Undefined for budgets if the checkout has none. */
async function open(checkout: string, folder: string, variant: Variant): Promise<Contender | undefined> {
  const path = join(folder, "src/stores/sqlite/sqlite.ts");
  const module: { openSqliteStore: typeof openSqliteStore } = await import(path);
  const dataDir = mkdtempSync(join(tmpdir(), "tollgate-bench-"));
  const databasePath = join(dataDir, "tollgate.db");
  workers.length = 0;
  // The store of a command does not copy its log: the log has all pages that were written.
  const store = await module.openSqliteStore({ dataDir, role: "command" });
  const close = async () => {
    await store.close();
    rmSync(dataDir, { recursive: true });
  };
  const [worker] = workers;
  if (worker === undefined) throw new Error(`the store of ${folder} started no thread`);
  const contender = { checkout, variant, store, worker, databasePath, rounds: [], close };
  if (variant.budgets === 0 || store.budgets !== undefined) {
    await fill(contender);
    return contender;
  }
  await close();
  return undefined;
}

async function fill({ store, variant, databasePath }: Contender): Promise<void> {
  const madeAtMs = Date.now();
  const organization = { id: OWNER.organizationId, name: "Bench", kind: "standard" } as const;
  await store.accounts.insertOrganization({ ...organization, createdAtMs: madeAtMs });
  const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
  await store.books.apply("durable", [
    { kind: "grant", ...OWNER, grantId: uuidV7(madeAtMs), amount: GRANTED, ...terms },
  ]);
  for (let number = 0; number < variant.budgets; number += 1) {
    const id = `bud_${uuidV7(madeAtMs)}`;
    const row = budgetRow(id, variant.values === 0 ? null : "metadata.user");
    const who = { actorKind: "command", actorId: null, actorName: null, address: null, requestId: null } as const;
    const audit = { action: "bench", ...OWNER, subjectId: id, before: null, after: null };
    await store.budgets.insertBudget(row, { id: uuidV7(madeAtMs), madeAtMs, ...who, ...audit });
    if (variant.values > 0) makeCounters(databasePath, id, variant.values);
  }
}

function budgetRow(id: string, each: string | null): BudgetRow {
  const all = { callerIds: null, models: null, metadata: null, capOf: null, limits: null };
  return { ...OWNER, id, name: id, ...all, each, window: "lifetime", amount: GRANTED, createdAtMs: Date.now() };
}

/** Makes the counters of all values, which have spent nothing yet. */
function makeCounters(databasePath: string, budgetId: string, count: number): void {
  using database = new DatabaseSync(databasePath);
  database.exec(`
    INSERT INTO budget_use (organization_id, budget_id, window_at, value, held, spent, opening, raised)
    WITH RECURSIVE series (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM series WHERE n + 1 < ${count})
    SELECT '${OWNER.organizationId}', '${budgetId}', 0, 'user_' || n, 0, 0, 0, 0 FROM series`);
}

function makeHold({ values }: Variant): HoldTransition {
  const metadata = values === 0 ? null : { user: `user_${Math.floor(Math.random() * values)}` };
  const names = { holdId: uuidV7(Date.now()), ...OWNER, tokenId: "tok_bench", requestId: uuidV7(Date.now()) };
  const route = { model: "sandbox/echo", upstream: "sandbox/echo", prices: PRICES };
  const facts = { ...names, ...route, metadata, idempotencyKey: null };
  const terms = { callerId: "tok_bench", least: HELD, most: HELD, lifeMs: 120_000, owner: "bench", idempotency: null };
  return { kind: "hold", facts, ...terms };
}

/** Settles a request that was held; `covered` has the counters that its hold recorded. */
function settlementOf({ facts }: HoldTransition, outcome: Outcome | undefined): SettleTransition {
  const budgets = outcome?.outcome === "held" ? outcome.covered?.budgets : undefined;
  // The ids of providers are random.
  const providerResponseId = `chatcmpl-${randomBytes(21).toString("base64url")}`;
  const sent = { isStreamed: true, firstTokenMs: 250, attempts: null, failure: null };
  return {
    ...{ kind: "settle", basis: "reported", end: "complete" },
    facts: budgets === undefined ? facts : { ...facts, budgets },
    tokens: { ...NO_TOKENS, input: 20, output: 400 },
    trace: { ...sent, providerResponseId, providerCost: null },
  };
}

async function apply<Made extends Transition>(
  { store }: Contender,
  durability: "holds" | "durable",
  batch: Made[],
): Promise<Outcome[]> {
  const outcomes: Outcome[] = await store.books.apply(durability, batch);
  const expected = durability === "holds" ? "held" : "charged";
  const other = outcomes.find(({ outcome }) => outcome !== expected);
  if (other !== undefined) throw new Error(`a transition was answered with ${other.outcome}`);
  return outcomes;
}

/** Copies the log into the database and empties it. */
function emptyLog({ databasePath }: Contender): void {
  using database = new DatabaseSync(databasePath);
  database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
}

function pagesIn({ databasePath }: Contender): number {
  const { size } = statSync(`${databasePath}-wal`);
  return size === 0 ? 0 : (size - LOG_HEADER_BYTES) / LOG_PAGE_BYTES;
}

async function processorMicroseconds({ worker }: Contender): Promise<number> {
  const { user, system } = await worker.cpuUsage();
  return user + system;
}

/** Books pairs: the holds of a batch, then the settlements of the batch before, as two queues do. */
async function measure(contender: Contender): Promise<Round> {
  emptyLog(contender);
  let open = await bookHolds(contender);
  const startedAt = await processorMicroseconds(contender);
  let [pagesOfHolds, pagesOfSettlements, pages] = [0, 0, pagesIn(contender)];
  for (let batch = 0; batch < plan.batches; batch += 1) {
    const next = await bookHolds(contender);
    const held = pagesIn(contender);
    await apply(contender, "durable", open);
    const settled = pagesIn(contender);
    pagesOfHolds += held - pages;
    pagesOfSettlements += settled - held;
    [open, pages] = [next, settled];
  }
  const tookMicroseconds = (await processorMicroseconds(contender)) - startedAt;
  await apply(contender, "durable", open);
  return {
    microsecondsAPair: tookMicroseconds / (plan.batches * plan.pairs),
    pagesOfHolds: pagesOfHolds / plan.batches,
    pagesOfSettlements: pagesOfSettlements / plan.batches,
  };
}

async function bookHolds(contender: Contender): Promise<SettleTransition[]> {
  const holds = Array.from({ length: plan.pairs }, () => makeHold(contender.variant));
  const outcomes = await apply(contender, "holds", holds);
  return holds.map((hold, index) => settlementOf(hold, outcomes[index]));
}

async function check({ checkout, variant, store }: Contender): Promise<void> {
  const { violations } = await store.books.verify(OWNER.organizationId);
  if (violations.length > 0) throw new Error(`${checkout}, ${variant.name}: ${JSON.stringify(violations[0])}`);
}

/** Formats the median with the quartiles. */
function spread(figures: readonly number[], digits: number): string {
  const sorted = figures.toSorted((a, b) => a - b);
  const quartile = (share: number) => (sorted[Math.round((sorted.length - 1) * share)] ?? Number.NaN).toFixed(digits);
  return `${median(sorted).toFixed(digits)} (${quartile(0.25)} to ${quartile(0.75)})`;
}

/** Returns the processor time of a contender in each round, divided by that of another. */
function ratios({ rounds }: Contender, other: Contender | undefined): number[] {
  return rounds.map(
    (round, index) => round.microsecondsAPair / (other?.rounds[index]?.microsecondsAPair ?? Number.NaN),
  );
}

function print(contenders: readonly Contender[]): void {
  const find = (checkout: string, name: string) =>
    contenders.find((one) => one.checkout === checkout && one.variant.name === name);
  const results = contenders.map((contender) => {
    const { checkout, variant, rounds } = contender;
    const ofBase = ratios(contender, find(checkout, variant.base));
    const before = checkout === "before" ? undefined : find("before", variant.name);
    return { checkout, variant, rounds, ofBase, ofBefore: before && ratios(contender, before) };
  });
  const machine = `${machineFacts()}; load average ${loadavg()[0]?.toFixed(1)}`;
  if (given.json) {
    console.log(JSON.stringify({ ...plan, machine, results }));
    return;
  }
  console.log(
    "| checkout | requests | µs a pair | / base | base | / before | pages a batch of holds | of settlements |",
  );
  console.log("| --- | --- | --: | --: | --- | --: | --: | --: |");
  for (const { checkout, variant, rounds, ofBase, ofBefore } of results) {
    const time = spread(
      rounds.map(({ microsecondsAPair }) => microsecondsAPair),
      1,
    );
    const pages = (["pagesOfHolds", "pagesOfSettlements"] as const).map((name) =>
      median(rounds.map((round) => round[name])).toFixed(1),
    );
    const cells = [checkout, variant.name, time, spread(ofBase, 3), variant.base];
    console.log(`| ${[...cells, ofBefore ? spread(ofBefore, 3) : "", ...pages].join(" | ")} |`);
  }
  console.log(
    `\n${plan.pairs} pairs in a batch, ${plan.batches} batches in a round, ${plan.rounds} rounds; ${machine}.`,
  );
  console.log("The median of the rounds, with the quartiles.");
}

const checkouts = [{ checkout: "this", folder: resolve(import.meta.dirname, "..") }];
if (given.before !== undefined) checkouts.push({ checkout: "before", folder: resolve(given.before) });
const contenders: Contender[] = [];
for (const variant of readVariants()) {
  for (const { checkout, folder } of checkouts) {
    const contender = await open(checkout, folder, variant);
    if (contender !== undefined) contenders.push(contender);
  }
}
for (let round = -WARM_UP_ROUNDS; round < plan.rounds; round += 1) {
  for (const contender of round % 2 === 0 ? contenders : contenders.toReversed()) {
    const measured = await measure(contender);
    if (round >= 0) contender.rounds.push(measured);
  }
}
for (const contender of contenders) await check(contender);
print(contenders);
for (const { close } of contenders) await close();
