import pg from "pg";
import { v7 } from "uuid";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { budgetOf, factsOf, grantOf, holdOf, one, PRICES, randomId, settleOf } from "../../../test/stores/fixture.ts";
import { onOneDay } from "../../../test/support/patience.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../../test/support/postgres.ts";
import type { Store } from "../store.ts";
import { makePartitions } from "./partitions.ts";
import { closePools, openPools } from "./pools.ts";
import { openPostgresStore } from "./postgres.ts";

const LARGEST = 2n ** 63n - 1n;

describe.skipIf(!hasPostgres)("the tables of PostgreSQL", () => {
  let database: TestDatabase;
  let store: Store;
  let beside: pg.Client;
  beforeAll(async () => {
    database = await createTestDatabase();
    store = await openPostgresStore({ url: database.url, role: "service" });
    beside = new pg.Client({ connectionString: database.url });
    await beside.connect();
  });
  afterAll(async () => {
    await beside.end();
    await store.close();
    await database.drop();
  });

  async function organization(microCredits: bigint): Promise<string> {
    const id = randomId("org");
    await store.accounts.insertOrganization({ id, name: "Tables", kind: "standard", createdAtMs: Date.now() });
    await one(store.books, grantOf(id, microCredits), "durable");
    return id;
  }
  async function partitionsOf(organizationId: string): Promise<string[]> {
    const { rows } = await beside.query(
      "SELECT DISTINCT tableoid::regclass::text AS name FROM request WHERE organization_id = $1 ORDER BY name",
      [organizationId],
    );
    return rows.map(({ name }) => name);
  }
  const nameOf = (timeMs: number) => `request_${new Date(timeMs).toISOString().slice(0, 7).replace("-", "")}`;
  const monthsAhead = (ahead: number) => {
    const today = new Date();
    return Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + ahead, 15);
  };

  test("the server keeps the plans of batches, which find rows by their keys and in the partition of their month", async () => {
    const organizationId = await organization(1_000n);
    const [row, audit] = [budgetOf(organizationId, { amount: 1_000n }), { id: v7(), madeAtMs: Date.now() }];
    const who = { actorKind: "command", actorId: null, actorName: null, address: null, requestId: null } as const;
    const change = { action: "budget.create", organizationId, subjectId: row.id, before: null, after: null };
    await store.budgets.insertBudget(row, { ...audit, ...who, ...change });
    const query = vi.spyOn(pg.Client.prototype, "query");
    for (let count = 0; count < 10; count += 1) {
      const hold = holdOf(organizationId, 9n);
      await one(store.books, hold, "holds");
      await one(store.books, settleOf(hold, 3), "durable");
    }
    const sent = query.mock.calls.map(([statement], index) => {
      const { name = "", values = [] } = statement as unknown as pg.QueryConfig;
      return { name, values, client: query.mock.contexts[index] as pg.Client };
    });
    query.mockRestore();
    const named = new Map(sent.filter(({ name }) => name !== "").map((one) => [one.name, one]));
    expect(named.size).toBeGreaterThan(10);
    const searched: string[] = [];
    for (const { name, values, client } of named.values()) {
      const literals = values.map((value) => (value === null ? "NULL" : pg.escapeLiteral(String(value))));
      const execution = literals.length === 0 ? name : `${name} (${literals.join(", ")})`;
      const { rows } = await client.query<Record<string, string>>(`EXPLAIN EXECUTE ${execution}`);
      const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
      expect(plan).not.toContain("Seq Scan");
      searched.push(...[...plan.matchAll(/ on (request_\w+)/g)].map(([, table]) => table ?? ""));
    }
    expect(new Set(searched).size).toBe(1);
  });

  test("batches whose plans are kept are booked after a newer version has changed the tables", async () => {
    const own = await createTestDatabase();
    const running = await openPostgresStore({ url: own.url, role: "service" });
    const newer = new pg.Client({ connectionString: own.url });
    await newer.connect();
    const id = randomId("org");
    await running.accounts.insertOrganization({ id, name: "Upgraded", kind: "standard", createdAtMs: 1 });
    await one(running.books, grantOf(id, 1_000n), "durable");
    const bookTen = async () => {
      for (let count = 0; count < 10; count += 1) {
        const hold = holdOf(id, 9n);
        expect(await one(running.books, hold, "holds")).toMatchObject({ outcome: "held" });
        expect(await one(running.books, settleOf(hold, 3), "durable")).toMatchObject({ outcome: "charged" });
      }
    };
    await bookTen();
    for (const table of ["balance", "credit_grant", "budget_use", "hold", "request", "idempotency_key"]) {
      await newer.query(`ALTER TABLE ${table} ADD COLUMN later text`);
    }
    await newer.query(`ALTER TABLE request DETACH PARTITION ${nameOf(monthsAhead(2))}`);
    await bookTen();
    expect(await running.books.verify(id)).toMatchObject({ events: 20, violations: [] });
    await newer.end();
    await running.close();
    await own.drop();
  });

  test("requests are in the partition of their month, and there is one for this month and two more", async () => {
    const before = Date.now();
    const id = await organization(10n);
    await one(store.books, settleOf({ facts: factsOf(id) }, 3), "durable");
    expect([nameOf(before), nameOf(Date.now())]).toContain((await partitionsOf(id))[0]);
    const { rows } = await beside.query(
      "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = 'request'::regclass",
    );
    const names = rows.map(({ name }) => name);
    for (const ahead of [1, 2]) expect(names).toContain(nameOf(monthsAhead(ahead)));
  });

  test("requests of a month without a partition go to the default partition, and later months still get theirs", async () => {
    await onOneDay();
    const own = await createTestDatabase();
    const command = await openPostgresStore({ url: own.url, role: "command" });
    const pools = openPools(own.url);
    const id = randomId("org");
    await command.accounts.insertOrganization({ id, name: "No months", kind: "standard", createdAtMs: 1 });
    await one(command.books, grantOf(id, 10n), "durable");
    await one(command.books, settleOf({ facts: factsOf(id) }, 3), "durable");
    await Promise.all([makePartitions(pools.durable), makePartitions(pools.durable), makePartitions(pools.durable)]);
    await makePartitions(pools.durable);
    await one(command.books, settleOf({ facts: factsOf(id) }, 4), "durable");
    const { rows } = await pools.durable.query(
      `SELECT (SELECT count(*)::integer FROM request_default) AS requests,
         (SELECT count(*)::integer FROM pg_inherits WHERE inhparent = 'request'::regclass) AS partitions`,
    );
    // The default partition and those of the next two months.
    expect(rows).toEqual([{ requests: 2, partitions: 3 }]);
    expect(await command.books.verify(id)).toMatchObject({ events: 2, violations: [] });
    expect(await command.books.statement(id, { after: null, limit: 10 })).toHaveLength(3);
    await closePools(pools);
    await command.close();
    await own.drop();
  });

  test("a request is searched in the partition of its month only", async () => {
    const { rows } = await beside.query(
      `EXPLAIN SELECT * FROM request WHERE organization_id = ANY ('{org}') AND id = ANY ('{${v7()}}')`,
    );
    const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
    expect(plan).toContain(nameOf(Date.now()));
    expect(plan).not.toContain(nameOf(monthsAhead(1)));
    expect(plan).not.toContain("request_default");
  });

  test("a partition can be added while requests are charged", async () => {
    const id = await organization(1_000n);
    await one(store.books, settleOf({ facts: factsOf(id) }, 1), "durable");
    const [today] = await partitionsOf(id);
    const missing = nameOf(monthsAhead(2));
    const pools = openPools(database.url);
    await beside.query(`DROP TABLE ${missing}`);
    // An uncommitted charge keeps its locks.
    await beside.query("BEGIN");
    await beside.query(`UPDATE ${today} SET request_id = 'moved' WHERE organization_id = $1`, [id]);
    await beside.query(`INSERT INTO request SELECT * FROM ${today} WHERE false`);
    await makePartitions(pools.durable);
    await beside.query("ROLLBACK");
    const { rows } = await beside.query("SELECT to_regclass($1) IS NOT NULL AS made", [missing]);
    expect(rows).toEqual([{ made: true }]);
    await closePools(pools);
  });

  test("amounts up to the largest signed 64-bit integer are stored", async () => {
    const id = await organization(LARGEST - 1n);
    await one(store.books, grantOf(id, 1n), "durable");
    const hold = holdOf(id, LARGEST);
    expect(await one(store.books, hold, "holds")).toEqual({ outcome: "held", amount: LARGEST, available: 0n });
    const facts = { ...hold.facts, prices: { ...PRICES, output: LARGEST } };
    expect(await one(store.books, { ...settleOf(hold, 1_000_000), facts }, "durable")).toMatchObject({
      charged: LARGEST,
    });
    expect(await store.books.balance(id)).toMatchObject({ granted: LARGEST, spent: LARGEST, available: 0n });
    expect((await store.books.verify(id)).violations).toEqual([]);
  });

  test("every text that metadata may contain is stored", async () => {
    const id = await organization(10n);
    const metadata = { "a\u0000b": "\u0000", half: "\ud800", emoji: "🦊", quote: `'"\\`, lines: "\r\n\u2028" };
    const hold = { ...holdOf(id, 5n), facts: factsOf(id, { metadata }) };
    await one(store.books, hold, "holds");
    await one(store.books, settleOf(hold, 5), "durable");
    const [, entry] = await store.books.statement(id, { after: null, limit: 10 });
    expect(entry).toMatchObject({ kind: "charge", event: { metadata } });
  });

  test("updates of balances and grants hardly ever write an index", async () => {
    const id = await organization(10_000n);
    const own = await openPostgresStore({ url: database.url, role: "command" });
    const before = await updatesOf(beside);
    for (let round = 0; round < 100; round += 1) {
      const holds = Array.from({ length: 10 }, () => holdOf(id, 2n));
      await own.books.apply("holds", holds);
      await own.books.apply(
        "durable",
        holds.map((hold) => settleOf(hold, 1)),
      );
    }
    await own.close();
    await expect.poll(async () => (await updatesOf(beside)).all - before.all).toBeGreaterThanOrEqual(400);
    const { all, inPlace } = await updatesOf(beside);
    expect((inPlace - before.inPlace) / (all - before.all)).toBeGreaterThan(0.8);
  });

  test("overdue holds are found however old their ids are", async () => {
    const own = await createTestDatabase();
    const ended = await openPostgresStore({ url: own.url, role: "command" });
    const id = randomId("org");
    await ended.accounts.insertOrganization({ id, name: "Sweep", kind: "standard", createdAtMs: 1 });
    await one(ended.books, grantOf(id, 100n), "durable");
    const agoMs = (minutes: number) => Date.now() - minutes * 60_000;
    const at = async (msecs: number, lifeMs: number) => {
      const hold = { ...holdOf(id, 1n, lifeMs), facts: factsOf(id, { holdId: v7({ msecs }) }) };
      await one(ended.books, hold, "holds");
      return hold;
    };
    const old = await at(agoMs(600), -1_000);
    const young = await at(agoMs(1), -1_000);
    const idsOf = async () => {
      const search = { lifeMs: 120_000, owners: { only: [] }, afterHoldId: null, limit: 10 };
      return (await ended.books.recoverableHolds(search)).holds.map(({ holdId }) => holdId);
    };
    expect(await idsOf()).toEqual([old.facts.holdId, young.facts.holdId]);
    for (const hold of [old, young]) await one(ended.books, settleOf(hold, 1), "durable");
    expect(await idsOf()).toEqual([]);
    // From a node whose clock is behind, after a sweep that found nothing.
    const late = await at(agoMs(4), -1_000);
    expect(await idsOf()).toEqual([late.facts.holdId]);
    await ended.close();
    await own.drop();
  });
});

async function updatesOf(client: pg.Client): Promise<{ all: number; inPlace: number }> {
  const { rows } = await client.query(
    `SELECT sum(n_tup_upd)::integer AS all, sum(n_tup_hot_upd)::integer AS "inPlace" FROM pg_stat_user_tables
     WHERE relname IN ('balance', 'credit_grant')`,
  );
  return rows[0];
}
