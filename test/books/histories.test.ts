import { createHash, randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import fc from "fast-check";
import pg from "pg";
import { v7 } from "uuid";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AuditRow } from "../../src/credits/audit.ts";
import type { BudgetRow, Transition } from "../../src/credits/books.ts";
import type { HoldFacts } from "../../src/credits/facts.ts";
import type { Outcome } from "../../src/credits/outcomes.ts";
import { openPostgresStore } from "../../src/stores/postgres/postgres.ts";
import type { TokenRow } from "../../src/stores/queries/accounts.ts";
import type { Books } from "../../src/stores/queries/books.ts";
import { BUDGET } from "../../src/stores/schema.ts";
import { openSqliteStore } from "../../src/stores/sqlite/sqlite.ts";
import type { Store } from "../../src/stores/store.ts";
import { CoinModel, type ComparedOutcome, comparable } from "../support/coin-model.ts";
import { startOf, UNWARNED } from "../support/coins.ts";
import { countOf, seedOfRun } from "../support/counts.ts";
import {
  type BudgetTarget,
  budgetRows,
  CAPPED_TOKEN,
  callerOf,
  HistoryBudgets,
  histories,
  ORGANIZATION_IDS,
  type Step,
  SUCCESSOR_TOKEN,
} from "../support/histories.ts";
import { createTestDatabase, hasPostgres } from "../support/postgres.ts";
import { AHEAD_MS, type Node, nodeOf, setClocks } from "./history-nodes.ts";
import { type Row, type Tables, tablesOfFile, tablesOfServer } from "./history-tables.ts";

/**
 * Runs the random histories against the real stores. A store's clock cannot be set, so the dates of a history are at least
 * an hour in the past or the future, and a hold expires immediately or never. The property test of `decide` covers the
 * passing of time. Each history runs on two nodes, of which the second one's clock is ahead.
 */
const RUNS = countOf("histories");
const SEED = seedOfRun();
/** On PostgreSQL a verification takes longer than its history: one history in so many is verified there. */
const VERIFIED_ONE_IN = { sqlite: 1, postgres: 4 };
/** Number of histories that run concurrently. */
const PLAYERS = 16;
const FAR_MS = 3_600_000;
const LONG_LIFE_MS = 30;
const LONGEST_MS = 600 * Math.max(1_000, RUNS);
let resetClocks: () => void;
beforeAll(() => {
  resetClocks = setClocks();
});
afterAll(() => resetClocks());

describe("a random history equals a heap of coins", () => {
  test(
    "on SQLite",
    async () => {
      const dataDir = await mkdtemp(join(tmpdir(), "tollgate-histories-"));
      const store = await openSqliteStore({ dataDir, role: "service" });
      const second = await openSqliteStore({ dataDir, role: "command" });
      const database = new DatabaseSync(join(dataDir, "tollgate.db"), { timeout: 60_000 });
      await playAll([store, second], new Accounts(store, tablesOfFile(database)));
      await Promise.all([store.close(), second.close()]);
      database.close();
      rmSync(dataDir, { recursive: true });
    },
    LONGEST_MS,
  );

  test.skipIf(!hasPostgres)(
    "on PostgreSQL",
    async () => {
      const database = await createTestDatabase();
      // All histories share the row that tells services of changed limits.
      const options = { url: database.url, role: "service", timeouts: { lockMs: 60_000 } } as const;
      const [store, second] = [await openPostgresStore(options), await openPostgresStore(options)];
      const client = new pg.Client({ connectionString: database.url });
      await client.connect();
      await playAll([store, second], new Accounts(store, tablesOfServer(client))).finally(() => client.end());
      await Promise.all([store.close(), second.close()]);
      await database.drop();
    },
    LONGEST_MS,
  );
});

/** Fails with the seed of the first player and the shortest failing history found. */
async function playAll([store, second]: [Store, Store], accounts: Accounts): Promise<void> {
  const numRuns = Math.ceil(RUNS / PLAYERS);
  const limits = { interruptAfterTimeLimit: LONGEST_MS / 2, markInterruptAsFailure: true };
  const nodes = [nodeOf(store.books, 0), nodeOf(second.books, AHEAD_MS)];
  let run = 0;
  let loser: number | undefined;
  const players = Array.from({ length: PLAYERS }, (_, player) => {
    const property = fc.asyncProperty(histories({ minMs: 0, maxMs: 0 }), async (steps) => {
      // The store is needed to shrink the failing history of another player.
      if (loser !== undefined && loser !== player) return;
      run += 1;
      await play({ store, accounts, nodes, run }, steps).catch((error: unknown) => {
        loser ??= player;
        if (loser === player) throw error;
      });
    });
    return fc.assert(property, { numRuns, seed: SEED + player, ...limits });
  });
  for (const outcome of await Promise.allSettled(players)) if (outcome.status === "rejected") throw outcome.reason;
}

/** Number of runs whose accounts are made at once. */
const RUNS_AT_ONCE = 250;
const ACCOUNT_TABLES = ["organization", "balance", "token"];
/** The run whose accounts are made through the store, and which is not played. */
const PATTERN = "_0";

/** The accounts of the runs. Those of one run are copied for all others: made one by one, they took longer than the histories. */
class Accounts {
  readonly #store: Store;
  readonly #tables: Tables;
  #made = 0;
  #making: Promise<void> | undefined;

  constructor(store: Store, tables: Tables) {
    this.#store = store;
    this.#tables = tables;
  }

  /** Resolves when the accounts of a run are there. */
  async ready(run: number): Promise<void> {
    while (run > this.#made) {
      this.#making ??= this.#makeMore().finally(() => {
        this.#making = undefined;
      });
      await this.#making;
    }
  }

  async #makeMore(): Promise<void> {
    if (this.#made === 0) for (const id of ORGANIZATION_IDS) await this.#makePattern(`${id}${PATTERN}`);
    const runs = Array.from({ length: RUNS_AT_ONCE }, (_, index) => this.#made + index + 1);
    for (const table of ACCOUNT_TABLES) {
      const pattern = (await this.#tables.read(table)).filter((row) => Object.values(row).some(isPattern));
      await this.#tables.add(
        table,
        runs.flatMap((run) => pattern.map((row) => copyOf(row, run))),
      );
    }
    const budgets = runs.flatMap((run) => ORGANIZATION_IDS.flatMap((id) => budgetsOf(`${id}_${run}`)));
    const { columns, toCells } = BUDGET.partOf();
    await this.#tables.add(
      "budget",
      budgets.map((row) => {
        const cells = toCells(row);
        return Object.fromEntries(columns.map((column, index) => [column, cells[index]]));
      }),
    );
    this.#made += RUNS_AT_ONCE;
  }

  async #makePattern(id: string): Promise<void> {
    const createdAtMs = Date.now();
    const capped = tokenOf(id, CAPPED_TOKEN);
    await this.#store.accounts.insertOrganization({ id, name: "Histories", kind: "standard", createdAtMs });
    // The version of its balance says that it has budgets; those of the runs are added with their accounts.
    await this.#store.accounts.insertToken(capped, budgetsOf(id)[0] ?? null);
    await this.#store.accounts.replaceToken({
      oldId: capped.id,
      oldExpiresAtMs: createdAtMs + FAR_MS,
      successor: tokenOf(id, SUCCESSOR_TOKEN),
    });
  }
}

function budgetsOf(organizationId: string): BudgetRow[] {
  const named = (id: string) => `${id}_${organizationId}`;
  return budgetRows(organizationId).map((row) => {
    const { callerIds, capOf } = row;
    return { ...row, callerIds: callerIds?.map(named) ?? null, capOf: capOf === null ? null : named(capOf) };
  });
}

/** Changes the budgets of a store as an operation does. */
class StoreBudgets implements BudgetTarget {
  readonly #store: Store;
  readonly #rows = new Map<string, BudgetRow>();

  constructor(store: Store, organizationIds: readonly string[]) {
    this.#store = store;
    for (const row of organizationIds.flatMap(budgetsOf)) this.#rows.set(`${row.organizationId} ${row.id}`, row);
  }

  async putBudget(row: BudgetRow): Promise<void> {
    const { budgets } = this.#store;
    const key = `${row.organizationId} ${row.id}`;
    const old = this.#rows.get(key);
    this.#rows.set(key, row);
    const audit = recordOf(row.organizationId, row.id);
    expect(await (old === undefined ? budgets.insertBudget(row, audit) : budgets.changeBudget(old, row, audit))).toBe(
      true,
    );
  }

  async removeBudget(row: BudgetRow): Promise<void> {
    expect(await this.#store.budgets.deleteBudget(row, recordOf(row.organizationId, row.id))).toBe(true);
  }

  async raise(...[organizationId, use, amount]: Parameters<BudgetTarget["raise"]>): Promise<void> {
    const audit = recordOf(organizationId, use.budgetId);
    expect(await this.#store.budgets.raiseBudget(organizationId, use, amount, audit)).toBe(true);
  }
}

/** An audit record that `verify` compares with nothing. */
function recordOf(organizationId: string, subjectId: string): AuditRow {
  const who = { actorKind: "command", actorId: null, actorName: null, address: null, requestId: null } as const;
  const change = { action: "test", organizationId, subjectId, before: null, after: null };
  return { id: v7(), madeAtMs: Date.now(), ...who, ...change };
}

const isPattern = (value: unknown): value is string => typeof value === "string" && value.endsWith(PATTERN);

function copyOf(row: Row, run: number): Row {
  const renamed = Object.entries(row).map(([column, value]) => {
    return [column, isPattern(value) ? `${value.slice(0, -PATTERN.length)}_${run}` : value] as const;
  });
  return { ...Object.fromEntries(renamed), ...("hash" in row && { hash: randomBytes(32) }) };
}

interface Playing {
  store: Store;
  accounts: Accounts;
  nodes: readonly Node[];
  run: number;
}

/** Gives every run its own organizations, so that all runs share one database. */
async function play({ store, accounts, nodes, run }: Playing, steps: Step[]): Promise<void> {
  const baseMs = Date.now();
  const model = new CoinModel();
  const ids = ORGANIZATION_IDS.map((id) => `${id}_${run}`);
  await accounts.ready(run);
  for (const id of ids) {
    model.addOrganization(id);
    for (const row of budgetsOf(id)) model.putBudget(row);
  }
  const budgets = new HistoryBudgets(ids.flatMap(budgetsOf));
  const targets = [new StoreBudgets(store, ids), model];
  for (const [index, { batch, changes }] of steps.entries()) {
    // A day has begun since: the model would count in other windows.
    if (startOf("day", Date.now() + AHEAD_MS) !== startOf("day", baseMs)) return;
    const changed = changes.flatMap((change) =>
      budgets.change({ ...change, organizationId: `${change.organizationId}_${run}` }, baseMs),
    );
    for (const step of changed) for (const target of targets) await step(target);
    const own = batch.map((transition) => settled(transition, run, baseMs));
    const transitions = budgets.recorded(own, baseMs);
    for (const organizationId of ids) transitions.push({ kind: "refresh", organizationId });
    const outcomes = await nodes[Number(index % 3 === 2)]?.[index % 2 === 0 ? "holds" : "durable"].apply(transitions);
    const expected = transitions.map((transition) => model.play(transition, baseMs));
    expect(outcomes?.map(withoutTimes)).toEqual(expected.map(withoutTimes));
  }
  for (const id of ids) await expectSame(store.books, model, id);
  if (run % VERIFIED_ONE_IN[store.kind] === 0) for (const id of ids) await expectSound(store.books, model, id);
}

/** Renames the organization of a transition, and moves its times out of reach of the clock. */
function settled(transition: Transition, run: number, baseMs: number): Transition {
  const away = (ms: number | null) => (ms === null ? null : baseMs + ms * 1_000 + (ms > 0 ? FAR_MS : -FAR_MS));
  const lifeMs = (ms: number) => (ms < LONG_LIFE_MS ? -2 * AHEAD_MS : FAR_MS);
  const renamed = <Row extends { organizationId: string }>(row: Row) => ({
    ...row,
    organizationId: `${row.organizationId}_${run}`,
  });
  const facts = (row: HoldFacts) => {
    const { organizationId, tokenId } = renamed(row);
    return { ...row, organizationId, tokenId: `${tokenId}_${organizationId}` };
  };
  switch (transition.kind) {
    case "hold": {
      const { idempotency } = transition;
      const claim = idempotency ? { ...idempotency, keepMs: lifeMs(idempotency.keepMs) } : null;
      const own = facts(transition.facts);
      const callerId = callerOf(own.tokenId);
      return { ...transition, facts: own, callerId, lifeMs: lifeMs(transition.lifeMs), idempotency: claim };
    }
    case "settle":
    case "release":
      return { ...transition, facts: facts(transition.facts) };
    case "renew":
      return { ...transition, facts: facts(transition.facts), lifeMs: lifeMs(transition.lifeMs) };
    case "credit":
      return { ...renamed(transition), expiresAtMs: away(transition.expiresAtMs) };
    case "grant": {
      const { effectiveAtMs, expiresAtMs } = transition;
      return { ...renamed(transition), effectiveAtMs: away(effectiveAtMs), expiresAtMs: away(expiresAtMs) };
    }
    default:
      return renamed(transition);
  }
}

/** Removes times, because the store's clock differs from the model's. */
function withoutTimes(full: Outcome | ComparedOutcome): unknown {
  const outcome = comparable(full);
  if (!("balance" in outcome)) return outcome;
  const balance = { ...outcome.balance, nextChangeAtMs: null };
  return "adjustment" in outcome
    ? { ...outcome, balance, adjustment: { ...outcome.adjustment, madeAtMs: 0 } }
    : { ...outcome, balance };
}

function tokenOf(organizationId: string, name: string): TokenRow {
  const id = `${name}_${organizationId}`;
  const hash = createHash("sha256").update(id).digest();
  const rights = { prefix: "sk-tg-", scopes: [], models: null, limits: null, pinned: null };
  const times = { createdAtMs: 0, expiresAtMs: null, revokedAtMs: null, lastUsedAtMs: null };
  const origin = {
    kind: "secret",
    createdBy: null,
    rotatedBy: null,
    successorId: null,
    callerId: callerOf(id),
  } as const;
  return { id, organizationId, name, hash, ...rights, ...times, ...origin };
}

/** Compares balance, grants and charges with the model. */
async function expectSame(books: Books, model: CoinModel, organizationId: string): Promise<void> {
  const expected = model.picture(organizationId);
  const balance = await books.balance(organizationId);
  expect({ ...balance, nextChangeAtMs: null, budgetVersion: 0, ...UNWARNED }).toEqual(expected.balance);
  const entries = await books.statement(organizationId, { after: null, limit: 1_000 });
  const grants = entries.flatMap((entry) => {
    if (entry.kind !== "grant") return [];
    const { id, state, remaining } = entry.grant;
    return [{ id, pending: state === "pending", remaining }];
  });
  // A refund is an entry of its own, not the grant that it created.
  expect(byId(grants)).toEqual(byId(expected.grants.filter(({ id }) => !id.startsWith("credited_"))));
  const { available = 0n, held = 0n } = balance ?? {};
  const pending = await books.pendingCredits(organizationId);
  expect(entries.reduce((sum, { amount }) => sum + amount, 0n)).toBe(available + held + pending);
  const costs = new Map<string, bigint[]>();
  for (const entry of entries) {
    if (entry.kind !== "charge") continue;
    costs.set(entry.event.holdId, [...(costs.get(entry.event.holdId) ?? []), entry.event.cost]);
  }
  const charged = expected.holds.filter((hold) => hold.costs.length > 0);
  // A charge and its late settlement have the times of their nodes, which can be in another order.
  const sorted = (amounts: Iterable<readonly [string, bigint[]]>) =>
    new Map([...amounts].map(([id, own]) => [id, own.toSorted((a, b) => Number(a - b))]));
  expect(sorted(costs)).toEqual(sorted(charged.map((hold) => [hold.id, hold.costs])));
}

/** Verifies the books, which must have as many holds as the model. */
async function expectSound(books: Books, model: CoinModel, organizationId: string): Promise<void> {
  const holds = model.picture(organizationId).holds.length;
  expect(await books.verify(organizationId)).toMatchObject({ holds, violations: [] });
}

function byId<Row extends { id: string }>(rows: Row[]): Row[] {
  return rows.toSorted((a, b) => (a.id < b.id ? -1 : 1));
}
