import { createServer } from "node:net";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { factsOf, grantOf, holdOf, one, randomId, settleOf } from "../../../test/stores/fixture.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../../test/support/postgres.ts";
import { PostgresProxy } from "../../../test/support/postgres-proxy.ts";
import { StoreUnavailableError } from "../../errors.ts";
import type { Store } from "../store.ts";
import { closePools, openPools } from "./pools.ts";
import { openPostgresStore } from "./postgres.ts";
import { query } from "./transact.ts";

/** The longest wait of a caller: for a connection, and for one statement that is not answered. */
const LONGEST_WAIT_MS = 13_000;

describe.skipIf(!hasPostgres)("a store whose server becomes unreachable", () => {
  let database: TestDatabase;
  let proxy: PostgresProxy;
  let store: Store;
  let beside: pg.Client;
  beforeAll(async () => {
    database = await createTestDatabase();
    proxy = await PostgresProxy.open(database.url);
    store = await openPostgresStore({ url: proxy.url, role: "service" });
    beside = new pg.Client({ connectionString: database.url });
    await beside.connect();
  });
  afterAll(async () => {
    await beside.end();
    await store.close();
    await proxy.close();
    await database.drop();
  });

  async function organization(microCredits: bigint): Promise<string> {
    const id = randomId("org");
    await store.accounts.insertOrganization({ id, name: "Outages", kind: "standard", createdAtMs: Date.now() });
    await one(store.books, grantOf(id, microCredits), "durable");
    return id;
  }
  async function soundBalance(id: string) {
    expect((await store.books.verify(id)).violations).toEqual([]);
    return store.books.balance(id);
  }

  test.each(["before", "after"] as const)(
    "a transition whose connection is cut %s COMMIT is booked once",
    async (cuts) => {
      const id = await organization(100n);
      const hold = holdOf(id, 30n);
      Object.assign(proxy, { cuts, commitsToCut: 1 });
      expect(await one(store.books, hold, "holds")).toMatchObject({ outcome: "held", amount: 30n });
      Object.assign(proxy, { cuts, commitsToCut: 2 });
      expect(await one(store.books, settleOf(hold, 12), "durable")).toMatchObject({ outcome: "charged", charged: 12n });
      Object.assign(proxy, { cuts, commitsToCut: 1 });
      const grant = grantOf(id, 5n, { reference: "once" });
      expect(await one(store.books, grant, "durable")).toMatchObject({ grantId: grant.grantId });
      expect(proxy.commitsToCut).toBe(0);
      expect(await soundBalance(id)).toMatchObject({ granted: 105n, available: 93n, held: 0n, spent: 12n });
    },
  );

  test("an organization is created once if the answer to COMMIT is lost", async () => {
    const id = randomId("org");
    Object.assign(proxy, { cuts: "after", commitsToCut: 1 });
    const made = store.accounts.insertOrganization({ id, name: "Once", kind: "standard", createdAtMs: 1 });
    await expect(made).rejects.toBeInstanceOf(StoreUnavailableError);
    await expect.poll(() => store.accounts.organization(id)).toMatchObject({ name: "Once" });
  });

  test("no booking is lost if the server keeps ending sessions", async () => {
    const id = await organization(1_000n);
    const others =
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let booked = 0;
    const noteBooked = async () => {
      booked += 1;
      // A few succeed each time, however long a busy machine takes for a session.
      if (booked % 8 === 0) await beside.query(others);
    };
    const rounds = Array.from({ length: 100 }, async () => {
      const hold = holdOf(id, 5n);
      await untilBooked(() => one(store.books, hold, "holds"));
      await noteBooked();
      await untilBooked(() => one(store.books, settleOf(hold, 3), "durable"));
      await noteBooked();
    });
    await Promise.all(rounds);
    expect(await soundBalance(id)).toMatchObject({ held: 0n, spent: 300n, available: 700n });
  });

  test("the store is unavailable at once without a server, and works again with it", async () => {
    const id = await organization(100n);
    await proxy.leave();
    const startedAtMs = performance.now();
    const asked = [
      store.ping(),
      store.books.balance(id),
      store.books.recoverableHolds({ lifeMs: 1, owners: { only: [] }, afterHoldId: null, limit: 10 }),
      store.books.verify(id),
      one(store.books, holdOf(id, 1n), "holds"),
      one(store.books, settleOf({ facts: factsOf(id) }, 1), "durable"),
      store.accounts.tokenByHash(new Uint8Array(32)),
      store.accounts.insertOrganization({ id: randomId("org"), name: "Away", kind: "standard", createdAtMs: 1 }),
    ];
    for (const answer of await Promise.allSettled(asked)) {
      expect(answer).toMatchObject({ status: "rejected", reason: expect.any(StoreUnavailableError) });
    }
    expect(performance.now() - startedAtMs).toBeLessThan(LONGEST_WAIT_MS);
    await proxy.comeBack();
    await store.ping();
    expect(await one(store.books, holdOf(id, 40n), "holds")).toMatchObject({ outcome: "held", available: 60n });
    expect(await soundBalance(id)).toMatchObject({ available: 60n, held: 40n, spent: 0n });
  });

  test("the store survives a pause that is shorter than its retries", async () => {
    const id = await organization(100n);
    await proxy.leave();
    const booked = one(store.books, holdOf(id, 40n), "holds");
    setTimeout(() => void proxy.comeBack(), 40);
    expect(await booked).toMatchObject({ outcome: "held" });
  });

  test("a balance that another session locks makes the store unavailable to its organization only", async () => {
    const [locked, free] = [await organization(10n), await organization(10n)];
    await beside.query("BEGIN");
    await beside.query("SELECT * FROM balance WHERE organization_id = $1 FOR UPDATE", [locked]);
    const waiting = one(store.books, holdOf(locked, 1n), "holds");
    const refused = expect(waiting).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(await one(store.books, holdOf(free, 1n), "holds")).toMatchObject({ outcome: "held" });
    expect(await store.books.balance(locked)).toMatchObject({ available: 10n });
    await refused;
    await beside.query("ROLLBACK");
    expect(await one(store.books, holdOf(locked, 1n), "holds")).toMatchObject({ outcome: "held" });
  });
});

test("a session that the server ends as it begins does no harm", async () => {
  const message = (type: string, body: string) => {
    const head = Buffer.alloc(5);
    head.write(type);
    head.writeInt32BE(4 + body.length, 1);
    return Buffer.concat([head, Buffer.from(body)]);
  };
  const welcome = [message("R", "\0\0\0\0"), message("Z", "I")];
  const shutdownMessage = message("E", "SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0");
  let sessions = 0;
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => {
      sessions += 1;
      socket.end(Buffer.concat([...welcome, shutdownMessage]));
    });
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as { port: number };
  const pools = openPools(`postgres://user:secret@127.0.0.1:${port}/db`);
  const asked = query(pools.durable, "SELECT 1");
  await expect(asked).rejects.toMatchObject({ name: "StoreUnavailableError", kind: "lost" });
  expect(sessions).toBe(5);
  await closePools(pools);
  await new Promise((resolve) => server.close(resolve));
});

/** Repeats a transition until it is booked, as the ledger does. */
async function untilBooked(book: () => Promise<unknown>): Promise<void> {
  for (;;) {
    try {
      await book();
      return;
    } catch (error) {
      if (!(error instanceof StoreUnavailableError)) throw error;
    }
  }
}
