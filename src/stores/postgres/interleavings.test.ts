import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  auditOf,
  factsOf,
  grantOf,
  holdOf,
  one,
  paymentOf,
  randomId,
  referenceOf,
  releaseOf,
  renewOf,
  settleOf,
  wait,
} from "../../../test/stores/fixture.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../../test/support/postgres.ts";
import { PostgresProxy } from "../../../test/support/postgres-proxy.ts";
import type { HoldTransition, Transition } from "../../credits/books.ts";
import type { Outcome } from "../../credits/outcomes.ts";
import type { Durability } from "../driver.ts";
import type { Store } from "../store.ts";
import { openPostgresStore } from "./postgres.ts";

/**
 * Forces the interleavings by which the broken variants of docs/ledger.pml fail: every transition has begun its transaction
 * and waits for the lock of the balance, which the test holds, before any of them continues. Anything read before the lock
 * would be out of date.
 */
describe.skipIf(!hasPostgres)("transitions that wait for one lock", () => {
  let database: TestDatabase;
  let proxy: PostgresProxy;
  let direct: Store;
  let proxied: Store;
  let further: Store;
  let gate: pg.Client;
  let watch: pg.Client;
  beforeAll(async () => {
    database = await createTestDatabase();
    proxy = await PostgresProxy.open(database.url);
    // On a slow machine too, no transition gives up waiting before the others have come.
    const timeouts = { lockMs: 60_000 };
    direct = await openPostgresStore({ url: database.url, role: "service", timeouts });
    proxied = await openPostgresStore({ url: proxy.url, role: "service", timeouts });
    further = await openPostgresStore({ url: database.url, role: "service", timeouts });
    gate = new pg.Client({ connectionString: database.url });
    watch = new pg.Client({ connectionString: database.url });
    await Promise.all([gate.connect(), watch.connect()]);
  });
  afterAll(async () => {
    await Promise.all([gate.end(), watch.end(), direct.close(), proxied.close(), further.close()]);
    await proxy.close();
    await database.drop();
  });

  async function organization(microCredits: bigint): Promise<string> {
    const id = randomId("org");
    await direct.accounts.insertOrganization({ id, name: "Interleaved", kind: "standard", createdAtMs: Date.now() });
    if (microCredits > 0n) await one(direct.books, grantOf(id, microCredits), "durable");
    return id;
  }
  async function held(id: string, amount: bigint, lifeMs?: number): Promise<HoldTransition> {
    const hold = holdOf(id, amount, lifeMs);
    expect(await one(direct.books, hold, "holds")).toMatchObject({ outcome: "held" });
    return hold;
  }
  async function waiting(count: number): Promise<void> {
    const text = `SELECT count(*)::integer AS count FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event_type = 'Lock'`;
    while ((await watch.query<{ count: number }>(text)).rows[0]?.count !== count) await wait(5);
  }
  /**
   * Applies each through a store of its own, the first through the proxied one: transitions of one store would share a
   * transaction. PostgreSQL grants the lock to the first one first, and to the others in any order.
   */
  async function inOrder(id: string, ...transitions: Transition[]): Promise<Outcome[]> {
    await gate.query("BEGIN");
    await gate.query("SELECT 1 FROM balance WHERE organization_id = $1 FOR UPDATE", [id]);
    const outcomes: Promise<Outcome>[] = [];
    const stores = [proxied, direct, further];
    for (const [index, transition] of transitions.entries()) {
      const { books } = stores[index] as Store;
      const durability: Durability = transition.kind === "hold" || transition.kind === "renew" ? "holds" : "durable";
      outcomes.push(one(books, transition, durability));
      await waiting(index + 1);
    }
    await gate.query("COMMIT");
    return Promise.all(outcomes);
  }
  async function soundBalance(id: string) {
    expect((await direct.books.verify(id)).violations).toEqual([]);
    return direct.books.balance(id);
  }
  async function costs(id: string): Promise<bigint[]> {
    const entries = await direct.books.statement(id, { after: null, limit: 100 });
    return entries.flatMap((entry) => (entry.kind === "charge" ? [entry.event.cost] : []));
  }

  describe("a payment and the closing of its organization", () => {
    test("a payment that waits for the lock while the organization is closed is withheld", async () => {
      const id = await organization(0n);
      await gate.query("BEGIN");
      await gate.query("SELECT 1 FROM balance WHERE organization_id = $1 FOR UPDATE", [id]);
      const paid = one(direct.books, paymentOf(id, randomId("pi"), { credits: 100n }), "durable");
      await waiting(1);
      const change = { status: "closed", pausesAllowances: true } as const;
      await further.accounts.changeOrganization(id, change, () => auditOf(id, id));
      await gate.query("COMMIT");
      expect(await paid).toMatchObject({ outcome: "booked", payment: { withheld: 100n, granted: 0n } });
      expect(await soundBalance(id)).toMatchObject({ available: 0n });
    });

    test("the read before the last revocation waits for a payment that found the organization open", async () => {
      const id = await organization(0n);
      const payment = paymentOf(id, randomId("pi"), { credits: 100n });
      const outcomes = await inOrder(id, payment, { kind: "refresh", organizationId: id });
      expect(outcomes).toMatchObject([{ outcome: "booked" }, { balance: { available: 100n } }]);
    });
  });

  describe("a settlement and an expiry", () => {
    test("a settlement that is first leaves nothing to expire", async () => {
      const id = await organization(100n);
      const hold = await held(id, 20n, -1_000);
      const outcomes = await inOrder(id, settleOf(hold, 7), { kind: "expire", ...referenceOf(hold) });
      expect(outcomes).toMatchObject([
        { outcome: "charged", charged: 7n },
        { outcome: "kept", state: "charged" },
      ]);
      expect(await costs(id)).toEqual([7n]);
      expect(await soundBalance(id)).toMatchObject({ available: 93n, held: 0n, spent: 7n });
    });

    test("a settlement after the expiry charges the difference", async () => {
      const id = await organization(100n);
      const hold = await held(id, 20n, 60_000);
      // The checkpoint of 9 is above the amount that is reported later.
      await one(direct.books, renewOf(hold, 9, -1_000), "holds");
      const outcomes = await inOrder(id, { kind: "expire", ...referenceOf(hold) }, settleOf(hold, 7));
      expect(outcomes).toMatchObject([
        { outcome: "expired", charged: 9n },
        { outcome: "charged", charged: 7n },
      ]);
      expect(await costs(id)).toEqual([9n, -2n]);
      expect(await soundBalance(id)).toMatchObject({ available: 93n, held: 0n, spent: 7n });
    });

    test("an expiry does not end a hold that was renewed after it was found overdue", async () => {
      const id = await organization(100n);
      const hold = await held(id, 20n, -1_000);
      const outcomes = await inOrder(id, renewOf(hold, 3), { kind: "expire", ...referenceOf(hold) });
      expect(outcomes).toMatchObject([{ outcome: "renewed" }, { outcome: "kept", state: "open" }]);
      expect(await soundBalance(id)).toMatchObject({ available: 80n, held: 20n, spent: 0n });
    });

    test("an expiry and a second release find a released hold", async () => {
      const id = await organization(100n);
      const hold = await held(id, 20n, -1_000);
      const release = releaseOf(hold);
      const outcomes = await inOrder(id, release, { kind: "expire", ...referenceOf(hold) }, release);
      expect(outcomes).toMatchObject([
        { outcome: "released" },
        { outcome: "kept", state: "released" },
        { outcome: "released", available: 100n },
      ]);
      expect(await soundBalance(id)).toMatchObject({ available: 100n, held: 0n, spent: 0n });
    });
  });

  test("a hold that waited uses credits that were granted meanwhile", async () => {
    const id = await organization(0n);
    const outcomes = await inOrder(id, grantOf(id, 5n), holdOf(id, 5n));
    expect(outcomes).toMatchObject([{ outcome: "granted" }, { outcome: "held", amount: 5n }]);
    expect(await soundBalance(id)).toMatchObject({ available: 0n, held: 5n });
  });

  test("a repeated grant that waited for the first grants nothing", async () => {
    const id = await organization(0n);
    const grants = [1, 2, 3].map(() => grantOf(id, 5n, { reference: "payment" }));
    const outcomes = (await inOrder(id, ...grants)) as { repeated: boolean }[];
    expect(outcomes.map(({ repeated }) => repeated)).toEqual([false, true, true]);
    expect(await soundBalance(id)).toMatchObject({ granted: 5n });
  });

  test("a request that waited finds its idempotency key in use", async () => {
    const id = await organization(100n);
    const idempotency = { callerId: "tok_first", key: "once", fingerprint: "body", keepMs: 60_000 };
    const holds = [1, 2, 3].map(() => ({ ...holdOf(id, 10n), idempotency }));
    const outcomes = await inOrder(id, ...holds);
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(["held", "in_progress", "in_progress"]);
    expect(await soundBalance(id)).toMatchObject({ available: 90n, held: 10n });
  });

  describe("a commit whose connection is lost, with an expiry waiting behind it", () => {
    test("a repeated batch returns the first outcome and books nothing if only the answer was lost", async () => {
      const id = await organization(100n);
      const hold = await held(id, 20n, -1_000);
      Object.assign(proxy, { commitsToCut: 1, cuts: "after" });
      const outcomes = await inOrder(id, settleOf(hold, 7), { kind: "expire", ...referenceOf(hold) });
      expect(outcomes).toMatchObject([
        { outcome: "charged", charged: 7n, shortfall: 0n },
        { outcome: "kept", state: "charged" },
      ]);
      expect(proxy.commitsToCut).toBe(0);
      expect(await costs(id)).toEqual([7n]);
      expect(await soundBalance(id)).toMatchObject({ available: 93n, held: 0n, spent: 7n });
    });

    test("a repeated settlement that follows the expiry is a late settlement", async () => {
      const id = await organization(100n);
      const hold = await held(id, 20n, -1_000);
      Object.assign(proxy, { commitsToCut: 1, cuts: "before" });
      const outcomes = await inOrder(id, settleOf(hold, 7), { kind: "expire", ...referenceOf(hold) });
      expect(outcomes).toMatchObject([
        { outcome: "charged", charged: 7n, shortfall: 0n },
        { outcome: "expired", charged: 0n },
      ]);
      expect(proxy.commitsToCut).toBe(0);
      expect(await costs(id)).toEqual([0n, 7n]);
      expect(await soundBalance(id)).toMatchObject({ available: 93n, held: 0n, spent: 7n });
    });

    test("a hold whose answer was lost is held once", async () => {
      const id = await organization(100n);
      Object.assign(proxy, { commitsToCut: 1, cuts: "after" });
      const outcomes = await inOrder(id, holdOf(id, 60n), holdOf(id, 60n));
      expect(outcomes).toMatchObject([{ outcome: "held", amount: 60n, available: 40n }, { outcome: "busy" }]);
      expect(proxy.commitsToCut).toBe(0);
      expect(await soundBalance(id)).toMatchObject({ available: 40n, held: 60n });
    });
  });

  test("a settlement from a spool and the same one in flight count once", async () => {
    const id = await organization(100n);
    const settlement = settleOf(await held(id, 20n), 7);
    const outcomes = await inOrder(id, settlement, settlement, settlement);
    for (const outcome of outcomes) expect(outcome).toMatchObject({ outcome: "charged", charged: 7n, available: 93n });
    expect(await costs(id)).toEqual([7n]);
    await soundBalance(id);
  });

  describe("a hold that was lost in a crash of the store", () => {
    /** Leaves the state after a crash before the hold was on disk. */
    async function lose({ facts, most }: HoldTransition): Promise<void> {
      const { organizationId, holdId } = facts;
      await watch.query("BEGIN");
      await watch.query("DELETE FROM hold WHERE organization_id = $1 AND id = $2", [organizationId, holdId]);
      await watch.query("UPDATE balance SET available = available + $2, held = held - $2 WHERE organization_id = $1", [
        organizationId,
        most,
      ]);
      await watch.query("UPDATE credit_grant SET remaining = remaining + $2 WHERE organization_id = $1", [
        organizationId,
        most,
      ]);
      await watch.query("COMMIT");
    }

    test("a renewal that is first holds the whole amount again", async () => {
      const id = await organization(100n);
      const hold = await held(id, 70n);
      await lose(hold);
      const outcomes = await inOrder(id, renewOf(hold, 5), holdOf(id, 60n));
      expect(outcomes).toMatchObject([
        { outcome: "renewed", remade: true },
        { outcome: "busy", held: 70n },
      ]);
      const settled = await one(direct.books, settleOf(hold, 70), "durable");
      expect(settled).toMatchObject({ outcome: "charged", charged: 70n, shortfall: 0n });
      expect(await soundBalance(id)).toMatchObject({ available: 30n, held: 0n, spent: 70n });
    });

    test("a renewal after other holds takes the rest, and the charge records the shortfall", async () => {
      const id = await organization(100n);
      const hold = await held(id, 70n);
      await lose(hold);
      const other = holdOf(id, 60n);
      const outcomes = await inOrder(id, other, renewOf(hold, 5));
      expect(outcomes).toMatchObject([
        { outcome: "held", amount: 60n },
        { outcome: "renewed", remade: true },
      ]);
      const settled = await direct.books.apply("durable", [settleOf(hold, 70), settleOf(other, 60)]);
      expect(settled).toMatchObject([
        { outcome: "charged", charged: 40n, shortfall: 30n },
        { outcome: "charged", charged: 60n, shortfall: 0n },
      ]);
      expect(await soundBalance(id)).toMatchObject({ available: 0n, held: 0n, spent: 100n });
    });

    test("a settlement without a renewal charges the available credits", async () => {
      const id = await organization(100n);
      const hold = await held(id, 70n);
      await lose(hold);
      const outcomes = await inOrder(id, settleOf(hold, 70), renewOf(hold, 5));
      expect(outcomes).toMatchObject([
        { outcome: "charged", charged: 70n, shortfall: 0n },
        { outcome: "ended", state: "charged" },
      ]);
      expect(await soundBalance(id)).toMatchObject({ available: 30n, held: 0n, spent: 70n });
    });
  });

  test("batches that name two organizations in opposite orders do not deadlock", async () => {
    const [a, b] = [await organization(10n), await organization(10n)].sort() as [string, string];
    await gate.query("BEGIN");
    await gate.query("SELECT 1 FROM balance WHERE organization_id = $1 FOR UPDATE", [a]);
    const batch = (ids: string[]) => ids.map((id) => ({ ...holdOf(id, 1n), facts: factsOf(id) }));
    const first = proxied.books.apply("holds", batch([a, b]));
    await waiting(1);
    const second = direct.books.apply("durable", batch([b, a]));
    await waiting(2);
    await gate.query("COMMIT");
    const outcomes = (await Promise.all([first, second])).flat();
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(Array(4).fill("held"));
    for (const id of [a, b]) expect(await soundBalance(id)).toMatchObject({ available: 8n, held: 2n });
  });
});
