import { setImmediate as nextTurn } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { grantOf, holdOf, one, randomId, settleOf } from "../../../test/stores/fixture.ts";
import { keepLog } from "../../../test/support/log.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../../test/support/postgres.ts";
import type { HoldTransition } from "../../credits/books.ts";
import { OrganizationsLockedError, StoreUnavailableError, TablesLockedError } from "../../errors.ts";
import { CommitQueue, DURABLE, HOLDS } from "../../ledger/commit-queue.ts";
import type { Store } from "../store.ts";
import { closePools, connectionErrorOf, openPools } from "./pools.ts";
import { openPostgresStore } from "./postgres.ts";

const rest = { retryMs: 0, clock: () => 0, random: () => 0, log: keepLog() };

describe.skipIf(!hasPostgres)("a balance that another transaction has locked", () => {
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

  async function organization(): Promise<string> {
    const id = randomId("org");
    await store.accounts.insertOrganization({ id, name: "Locked", kind: "standard", createdAtMs: Date.now() });
    await one(store.books, grantOf(id, 1_000n), "durable");
    return id;
  }

  async function lock(id: string): Promise<void> {
    await beside.query("BEGIN");
    await beside.query("SELECT * FROM balance WHERE organization_id = $1 FOR UPDATE", [id]);
  }

  test("the error names its organization, and nothing of the batch is booked", async () => {
    const [locked, free] = [await organization(), await organization()];
    await lock(locked);
    const batch = store.books.apply("holds", [holdOf(free, 1n), holdOf(locked, 1n), holdOf(randomId("org"), 1n)]);
    const error: unknown = await batch.catch((thrown: unknown) => thrown);
    await beside.query("ROLLBACK");
    expect(error).toBeInstanceOf(OrganizationsLockedError);
    expect([...(error as OrganizationsLockedError).organizationIds]).toEqual([locked]);
    expect(await store.books.balance(free)).toMatchObject({ held: 0n });
  });

  test.each([
    ["SHARE", "balance", "balance (ShareLock of process PID)"],
    ["EXCLUSIVE", "hold", "hold (ExclusiveLock of process PID)"],
    ["ACCESS EXCLUSIVE", "balance", "balance (AccessExclusiveLock of process PID)"],
  ])(
    "a lock of mode %s on the table %s is named, also while another node waits for it with a balance",
    async (mode, table, named) => {
      const id = await organization();
      const node = await openPostgresStore({ url: database.url, role: "service" });
      await beside.query(`BEGIN; LOCK TABLE ${table} IN ${mode} MODE`);
      const outcomes: string[] = [];
      const counted = { ...rest, onSend: () => (outcome: string) => outcomes.push(outcome) };
      const errors: Error[] = await Promise.all(
        [store, node].map(({ books }) =>
          new CommitQueue({ books, ...counted }).push(holdOf(id, 1n), HOLDS).catch((error) => error),
        ),
      );
      const { rows } = await beside.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
      await beside.query("ROLLBACK");
      await node.close();
      const message = `Other sessions have locked tables of the store: ${named.replace("PID", String(rows[0]?.pid))}.`;
      for (const error of errors) {
        expect(error).toBeInstanceOf(TablesLockedError);
        expect(error).toBeInstanceOf(StoreUnavailableError);
        expect(error.message).toBe(message);
      }
      expect(outcomes).toEqual(["table_locked", "table_locked"]);
      expect(await store.books.balance(id)).toMatchObject({ held: 0n });
    },
  );

  test("a command waits longer for it than a service, which has queues", async () => {
    const id = await organization();
    const command = await openPostgresStore({ url: database.url, role: "command" });
    await lock(id);
    const granted = command.books.apply("durable", [grantOf(id, 5n)]);
    await expect(store.books.apply("durable", [grantOf(id, 7n)])).rejects.toBeInstanceOf(OrganizationsLockedError);
    await beside.query("ROLLBACK");
    expect(await granted).toMatchObject([{ outcome: "granted", balance: { granted: 1_005n } }]);
    await command.close();
  });

  test("its organization delays no other, and is booked once the lock is released", async () => {
    const [locked, free] = [await organization(), await organization()];
    const queue = new CommitQueue({ books: store.books, ...rest });
    await lock(locked);
    const waiting = [queue.push(holdOf(locked, 1n), HOLDS), queue.push(holdOf(locked, 2n), HOLDS)];
    for (let round = 0; round < 20; round += 1) {
      expect(await queue.push(holdOf(free, 1n), HOLDS)).toMatchObject({ outcome: "held" });
    }
    expect((await store.books.balance(locked))?.held).toBe(0n);
    await beside.query("ROLLBACK");
    for (const { outcome } of await Promise.all(waiting)) expect(outcome).toBe("held");
    expect((await store.books.balance(locked))?.held).toBe(3n);
  });

  test("holds and settlements that waited for it are written by one transaction", async () => {
    const id = await organization();
    const open = holdOf(id, 10n);
    await one(store.books, open, "holds");
    const patient = await openPostgresStore({ url: database.url, role: "service", timeouts: { lockMs: 60_000 } });
    const queue = new CommitQueue({ books: patient.books, ...rest });
    await lock(id);
    const [first, second] = [holdOf(id, 1n), holdOf(id, 2n)];
    const waiting = queue.push(first, HOLDS);
    await nextTurn();
    await nextTurn();
    const booked = [waiting, queue.push(second, HOLDS), queue.push(settleOf(open, 7), DURABLE)];
    await beside.query("ROLLBACK");
    expect(await Promise.all(booked)).toMatchObject([{ outcome: "held" }, { outcome: "held" }, { outcome: "charged" }]);
    const writers = async (table: string, { facts }: HoldTransition) => {
      const { rows } = await beside.query(`SELECT xmin::text AS writer FROM ${table} WHERE id = $1`, [facts.holdId]);
      return rows[0]?.writer as string;
    };
    expect(await writers("hold", second)).toBe(await writers("request", open));
    expect(await writers("hold", first)).not.toBe(await writers("request", open));
    expect((await patient.books.verify(id)).violations).toEqual([]);
    await patient.close();
  });

  test("the lock of an idle transaction, as that of a frozen node, is released", async () => {
    const id = await organization();
    const pools = openPools(database.url);
    const frozen = await pools.durable.connect();
    await frozen.query("BEGIN");
    await frozen.query("SELECT * FROM balance WHERE organization_id = $1 FOR UPDATE", [id]);
    const queue = new CommitQueue({ books: store.books, ...rest });
    expect(await queue.push(holdOf(id, 1n), HOLDS)).toMatchObject({ outcome: "held" });
    expect(connectionErrorOf(frozen)).toBeInstanceOf(Error);
    frozen.release(true);
    await closePools(pools);
  });
});
