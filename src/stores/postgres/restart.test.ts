import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { factsOf, grantOf, holdOf, one, randomId, releaseOf, settleOf } from "../../../test/stores/fixture.ts";
import { hasPostgres } from "../../../test/support/postgres.ts";
import { makePostgresServer, type PostgresServer } from "../../../test/support/postgres-server.ts";
import { StoreUnavailableError } from "../../errors.ts";
import type { Store } from "../store.ts";
import { openPostgresStore } from "./postgres.ts";

describe.skipIf(!hasPostgres)("a server that restarts", () => {
  let server: PostgresServer;
  let store: Store;
  beforeAll(async () => {
    server = await makePostgresServer();
    store = await openPostgresStore({ url: server.url, role: "service" });
  });
  afterAll(async () => {
    await store.close();
    await server.remove();
  });

  async function organization(microCredits: bigint): Promise<string> {
    const id = randomId("org");
    await store.accounts.insertOrganization({ id, name: "Restart", kind: "standard", createdAtMs: Date.now() });
    await one(store.books, grantOf(id, microCredits), "durable");
    return id;
  }

  test("the store is unavailable while it is stopped, and has everything afterwards", async () => {
    const id = await organization(100n);
    const hold = holdOf(id, 30n);
    await one(store.books, hold, "holds");
    await server.stop();
    const asked = [
      store.ping(),
      one(store.books, holdOf(id, 1n), "holds"),
      one(store.books, settleOf(hold, 1), "durable"),
      store.accounts.tokenByHash(new Uint8Array(32)),
    ];
    for (const answer of await Promise.allSettled(asked)) {
      expect(answer).toMatchObject({ status: "rejected", reason: expect.any(StoreUnavailableError) });
    }
    await server.start();
    expect(await one(store.books, settleOf(hold, 12), "durable")).toMatchObject({ outcome: "charged", charged: 12n });
    expect(await store.books.balance(id)).toMatchObject({ available: 88n, held: 0n, spent: 12n });
    expect((await store.books.verify(id)).violations).toEqual([]);
  });

  test("durable writes survive a crash, and lost holds are still charged", async () => {
    const id = await organization(1_000n);
    const charged = Array.from({ length: 20 }, () => holdOf(id, 5n));
    for (const hold of charged) {
      await one(store.books, hold, "holds");
      await one(store.books, settleOf(hold, 3), "durable");
    }
    const [open, released] = [holdOf(id, 7n), holdOf(id, 7n)];
    await store.books.apply("holds", [open, released]);
    await server.crash();
    await server.start();
    const after = await store.books.balance(id);
    // The two holds may be lost, because they need not have been written.
    expect([0n, 14n]).toContain(after?.held);
    expect(after).toMatchObject({ granted: 1_000n, spent: 60n });
    expect((await store.books.verify(id)).violations).toEqual([]);
    expect(await one(store.books, settleOf(open, 7), "durable")).toMatchObject({ outcome: "charged", charged: 7n });
    const freed = await one(store.books, releaseOf(released), "durable");
    expect(["released", "missing"]).toContain(freed.outcome);
    await one(store.books, settleOf({ facts: factsOf(id) }, 1), "durable");
    expect(await store.books.balance(id)).toMatchObject({ held: 0n, spent: 68n, available: 932n });
    expect((await store.books.verify(id)).violations).toEqual([]);
  });
});
