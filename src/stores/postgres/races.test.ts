import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { grantOf, holdOf, one, randomId, referenceOf, releaseOf, settleOf } from "../../../test/stores/fixture.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../../../test/support/postgres.ts";
import type { Books } from "../queries/books.ts";
import type { Store } from "../store.ts";
import { openPostgresStore } from "./postgres.ts";

const PAIRS = 1_000;
const AT_ONCE = 8;

describe.skipIf(!hasPostgres)("two services on one organization", () => {
  let database: TestDatabase;
  let stores: [Store, Store];
  beforeAll(async () => {
    database = await createTestDatabase();
    const open = () => openPostgresStore({ url: database.url, role: "service", timeouts: { lockMs: 30_000 } });
    stores = [await open(), await open()];
  });
  afterAll(async () => {
    for (const store of stores) await store.close();
    await database.drop();
  });

  async function organization(microCredits: bigint): Promise<string> {
    const id = randomId("org");
    await stores[0].accounts.insertOrganization({ id, name: "Races", kind: "standard", createdAtMs: Date.now() });
    await one(stores[0].books, grantOf(id, microCredits), "durable");
    return id;
  }
  async function soundBalance(id: string) {
    expect((await stores[1].books.verify(id)).violations).toEqual([]);
    return stores[1].books.balance(id);
  }

  test(`the same ${PAIRS} holds, settled and expired at once, are each charged once`, async () => {
    const id = await organization(BigInt(PAIRS) * 20n);
    const holds = Array.from({ length: PAIRS }, () => holdOf(id, 20n, -1_000));
    await stores[0].books.apply("holds", holds);
    let next = 0;
    const seen = new Set<string>();
    const race = async ([settling, expiring]: [Books, Books]) => {
      for (let index = next++; index < PAIRS; index = next++) {
        const hold = holds[index] as (typeof holds)[number];
        const [settled, expired] = await Promise.all([
          one(settling, settleOf(hold, 7), "durable"),
          one(expiring, { kind: "expire", ...referenceOf(hold) }, "durable"),
        ]);
        expect(settled).toMatchObject({ outcome: "charged", charged: 7n, shortfall: 0n });
        seen.add(expired.outcome);
      }
    };
    const both: [Books, Books] = [stores[0].books, stores[1].books];
    const reversed: [Books, Books] = [stores[1].books, stores[0].books];
    await Promise.all(Array.from({ length: AT_ONCE }, (_, i) => race(i % 2 === 0 ? both : reversed)));
    // Both orders occurred, otherwise there was no race.
    expect(seen).toEqual(new Set(["kept", "expired"]));
    const spent = BigInt(PAIRS) * 7n;
    expect(await soundBalance(id)).toMatchObject({ held: 0n, spent, available: BigInt(PAIRS) * 20n - spent });
  });

  test("concurrent batches of holds, settlements, releases and grants never overspend", async () => {
    const id = await organization(500n);
    const rounds = Array.from({ length: 60 }, async (_, i) => {
      const { books } = stores[i % 2 === 0 ? 0 : 1];
      const holds = Array.from({ length: 10 }, () => holdOf(id, 3n));
      const outcomes = await books.apply("holds", holds);
      const held = holds.filter((_hold, at) => outcomes[at]?.outcome === "held");
      const [settled, released] = [held.filter((_hold, at) => at % 2 === 0), held.filter((_hold, at) => at % 2 === 1)];
      const charged = await books.apply("durable", [
        ...settled.map((hold) => settleOf(hold, 2)),
        ...released.map((hold) => releaseOf(hold)),
        grantOf(id, 1n),
      ]);
      return charged.filter(({ outcome }) => outcome === "charged").length;
    });
    const charges = (await Promise.all(rounds)).reduce((sum, count) => sum + count, 0);
    expect(charges).toBeGreaterThan(0);
    const spent = BigInt(charges) * 2n;
    expect(await soundBalance(id)).toMatchObject({ granted: 560n, held: 0n, spent, available: 560n - spent });
  });
});
