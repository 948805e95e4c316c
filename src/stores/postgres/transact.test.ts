import pg from "pg";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../../test/support/postgres.ts";
import { PostgresProxy } from "../../../test/support/postgres-proxy.ts";
import { StoreUnavailableError } from "../../errors.ts";
import { closePools, openPools, type Pools } from "./pools.ts";
import { query, StatementNames, Transaction, transact } from "./transact.ts";

const BOOKING = { kind: "booking", isRepeatable: true } as const;
const ONCE = { kind: "booking", isRepeatable: false } as const;

describe.skipIf(!hasPostgres)("a transaction", () => {
  let database: TestDatabase;
  let proxy: PostgresProxy;
  let pools: Pools;
  let beside: pg.Client;
  beforeAll(async () => {
    database = await createTestDatabase();
    proxy = await PostgresProxy.open(database.url);
    pools = openPools(proxy.url);
    beside = new pg.Client({ connectionString: database.url });
    await beside.connect();
    await beside.query("CREATE TABLE counter (name text PRIMARY KEY, value bigint NOT NULL)");
  });
  afterAll(async () => {
    await beside.end();
    await closePools(pools);
    await proxy.close();
    await database.drop();
  });

  let made = 0;
  async function counter(): Promise<string> {
    made += 1;
    await beside.query("INSERT INTO counter VALUES ($1, 0)", [`counter ${made}`]);
    return `counter ${made}`;
  }
  async function readCounter(name: string): Promise<number> {
    const { rows } = await beside.query("SELECT value FROM counter WHERE name = $1", [name]);
    return Number(rows[0].value);
  }
  const add = (client: { query(text: string, values: unknown[]): Promise<unknown> }, name: string) =>
    client.query("UPDATE counter SET value = value + 1 WHERE name = $1", [name]);

  test("the statements of one turn are one write to the connection", async () => {
    const client = await pools.holds.connect();
    const { stream } = client.connection;
    const written = vi.spyOn(stream as Required<typeof stream>, "_writev");
    const single = vi.spyOn(stream, "_write");
    try {
      const transaction = new Transaction(client, "BEGIN");
      const answers = [1, 2, 3].map((value) => transaction.planned("SELECT $1::integer", [value]));
      const results = await Promise.all(answers);
      expect(results.map(({ rows }) => rows)).toEqual([[[1]], [[2]], [[3]]]);
      expect([written.mock.calls.length, single.mock.calls.length]).toEqual([1, 0]);
      await transaction.commit();
    } finally {
      vi.restoreAllMocks();
      client.release();
    }
  });

  test("both transactions of a deadlock succeed, one by a retry", async () => {
    // PostgreSQL checks for deadlocks after a second of waiting for a lock.
    const patient = openPools(proxy.url, { lockMs: 60_000 });
    const names = [await counter(), await counter()];
    let attempts = 0;
    let waiting: (() => void)[] = [];
    const bothStarted = () =>
      new Promise<void>((resolve) => {
        waiting.push(resolve);
        if (waiting.length < 2 && attempts <= 2) return;
        for (const go of waiting) go();
        waiting = [];
      });
    const inOrder = ([first = "", second = ""]: string[]) =>
      transact(patient.durable, BOOKING, async (client) => {
        attempts += 1;
        await add(client, first);
        await bothStarted();
        await add(client, second);
      });
    await Promise.all([inOrder(names), inOrder(names.toReversed())]);
    expect(attempts).toBeGreaterThan(2);
    for (const name of names) expect(await readCounter(name)).toBe(2);
    await closePools(patient);
  });

  test("a serialization failure is retried", async () => {
    const name = await counter();
    let attempts = 0;
    await transact(pools.durable, BOOKING, async (client) => {
      attempts += 1;
      await client.query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
      await client.query("SELECT value FROM counter WHERE name = $1", [name]);
      if (attempts === 1) await add(beside, name);
      await add(client, name);
    });
    expect(attempts).toBe(2);
    expect(await readCounter(name)).toBe(2);
  });

  test("a transaction whose session the server ended is retried on another connection", async () => {
    const name = await counter();
    const backends: number[] = [];
    await transact(pools.durable, BOOKING, async (client) => {
      const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
      const pid = Number(rows[0]?.pid);
      backends.push(pid);
      await add(client, name);
      if (backends.length === 1) await beside.query("SELECT pg_terminate_backend($1, 1000)", [pid]);
      await add(client, name);
    });
    expect(new Set(backends).size).toBe(2);
    expect(await readCounter(name)).toBe(2);
  });

  test("the number of retries is limited", async () => {
    let attempts = 0;
    const failing = transact(pools.durable, BOOKING, async (client) => {
      attempts += 1;
      await client.query("DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$");
    });
    await expect(failing).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(attempts).toBe(5);
  });

  test.each(["before", "after"] as const)("whose COMMIT is cut %s it reaches the server is run again", async (cuts) => {
    const name = await counter();
    Object.assign(proxy, { cuts, commitsToCut: 1 });
    await transact(pools.durable, BOOKING, async (client) => {
      await client.query("UPDATE counter SET value = 1 WHERE name = $1", [name]);
    });
    expect(proxy.commitsToCut).toBe(0);
    expect(await readCounter(name)).toBe(1);
  });

  test.each([
    ["before", 0],
    ["after", 1],
  ] as const)("that must not be repeated says so if COMMIT is cut %s it reaches the server", async (cuts, value) => {
    const name = await counter();
    Object.assign(proxy, { cuts, commitsToCut: 1 });
    const cut = transact(pools.durable, ONCE, (client) => add(client, name));
    await expect(cut).rejects.toMatchObject({ name: "StoreUnavailableError", mayBeBooked: true });
    await expect.poll(() => readCounter(name)).toBe(value);
  });

  test("a transaction that throws is rolled back, is not retried, and returns its connection", async () => {
    const name = await counter();
    const defect = Object.assign(new TypeError("no such thing"), { code: "ERR_INVALID_ARG_TYPE" });
    let attempts = 0;
    await query(pools.durable, "SELECT 1");
    const before = pools.durable.totalCount;
    const failing = transact(pools.durable, BOOKING, async (client) => {
      attempts += 1;
      await add(client, name);
      throw defect;
    });
    await expect(failing).rejects.toBe(defect);
    expect(attempts).toBe(1);
    expect(await readCounter(name)).toBe(0);
    expect(pools.durable.totalCount).toBe(before);
    await transact(pools.durable, BOOKING, (client) => add(client, name));
    expect(await readCounter(name)).toBe(1);
  });

  test("a violated constraint is a defect, not an unavailable store", async () => {
    const name = await counter();
    const twice = transact(pools.durable, BOOKING, (client) =>
      client.query("INSERT INTO counter VALUES ($1, 0)", [name]),
    );
    await expect(twice).rejects.toMatchObject({ code: "23505" });
    await expect(twice).rejects.not.toBeInstanceOf(StoreUnavailableError);
  });

  test("a transaction waits for a lock and for a statement up to their limits", async () => {
    const name = await counter();
    await beside.query("BEGIN");
    await add(beside, name);
    const waiting = transact(pools.durable, BOOKING, (client) => add(client, name));
    const expected = { name: "StoreUnavailableError", cause: { code: "55P03" }, mayBeBooked: false };
    await expect(waiting).rejects.toMatchObject(expected);
    await beside.query("ROLLBACK");
    const sleeping = transact(pools.durable, BOOKING, async (client) => {
      await client.query("SET LOCAL statement_timeout = 50");
      await client.query("SELECT pg_sleep(20)");
    });
    await expect(sleeping).rejects.toMatchObject({ name: "StoreUnavailableError", cause: { code: "57014" } });
    await transact(pools.durable, BOOKING, (client) => add(client, name));
  });

  test("a connection whose server stops answering is dropped", async () => {
    const impatient = new URL(proxy.url);
    impatient.searchParams.set("query_timeout", "300");
    const own = openPools(impatient.href);
    await query(own.durable, "SELECT 1");
    expect(own.durable.totalCount).toBe(1);
    proxy.isFrozen = true;
    const silent = transact(own.durable, BOOKING, async () => {});
    await expect(silent).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(own.durable.totalCount).toBe(0);
    proxy.isFrozen = false;
    await query(own.durable, "SELECT 1");
    await closePools(own);
  });

  test("a failed statement fails all statements that were sent with it", async () => {
    const name = await counter();
    const settled: PromiseSettledResult<unknown>[] = [];
    const failing = transact(pools.durable, BOOKING, async (transaction) => {
      const sent = [add(transaction, name), transaction.query("SELECT 1 / 0"), add(transaction, name)];
      settled.push(...(await Promise.allSettled(sent)));
    });
    await expect(failing).rejects.toMatchObject({ code: "22012" });
    // The statement behind it rejects with the cause, too, not with an aborted transaction.
    const rejected = { status: "rejected", reason: { code: "22012" } };
    expect(settled.slice(1)).toMatchObject([rejected, rejected]);
    expect(await readCounter(name)).toBe(0);
  });

  test("no statement runs after BEGIN has failed", async () => {
    const name = await counter();
    const client = await pools.durable.connect();
    const transaction = new Transaction(client, "BEGIN ISOLATION LEVEL NONE");
    const read = transaction.query("SELECT 1");
    await expect(transaction.begun).rejects.toMatchObject({ code: "42601" });
    await expect(read).rejects.toMatchObject({ code: "42601" });
    await expect(add(transaction, name)).rejects.toMatchObject({ code: "42601" });
    await expect(transaction.commit()).rejects.toMatchObject({ code: "42601" });
    client.release();
    expect(await readCounter(name)).toBe(0);
  });

  test("isolation and durability do not depend on the database's defaults", async () => {
    const own = await createTestDatabase();
    const address = new URL(own.url);
    address.searchParams.set(
      "options",
      "-c default_transaction_isolation=serializable -c default_transaction_read_only=on -c synchronous_commit=local",
    );
    const ownPools = openPools(address.href);
    const settings = (durability: "holds" | "durable") =>
      transact(ownPools[durability], BOOKING, async (client) => {
        const { rows } = await client.query(
          `SELECT current_setting('transaction_isolation') AS isolation, current_setting('transaction_read_only') AS "readOnly",
             current_setting('synchronous_commit') AS durable, current_setting('lock_timeout') AS lock,
             current_setting('statement_timeout') AS statement`,
        );
        return rows[0];
      });
    const same = { isolation: "read committed", readOnly: "off", lock: "250ms", statement: "5s" };
    expect(await settings("holds")).toEqual({ ...same, durable: "off" });
    expect(await settings("durable")).toEqual({ ...same, durable: "on" });
    await closePools(ownPools);
    await own.drop();
  });
});

const useTimes = (names: StatementNames, text: string, times: number) =>
  Array.from({ length: times }, () => names.use(text)).at(-1);

test("A statement gets a name at its eighth use, and keeps it.", () => {
  const names = new StatementNames();
  expect(useTimes(names, "SELECT 1", 7)).toBeUndefined();
  const name = names.use("SELECT 1");
  expect(name).toMatch(/^tollgate_\d+$/);
  expect(names.use("SELECT 1")).toBe(name);
  expect(useTimes(names, "SELECT 2", 8)).not.toBe(name);
});

test("There are 64 names at most, for the first statements that are frequent.", () => {
  const names = new StatementNames();
  const made = new Set(Array.from({ length: 64 }, (_, index) => useTimes(names, `SELECT ${index}`, 8)));
  expect(made.size).toBe(64);
  expect(useTimes(names, "SELECT 64", 100)).toBeUndefined();
  expect(made).toContain(names.use("SELECT 0"));
});

test("Rare statements, however many, take no names.", () => {
  const names = new StatementNames();
  for (let index = 0; index < 10_000; index += 1) expect(names.use(`SELECT ${index}`)).toBeUndefined();
  expect(useTimes(names, "SELECT frequent", 8)).toBeDefined();
});
