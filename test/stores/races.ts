import { afterAll, beforeAll, expect, test } from "vitest";
import type { HoldTransition, Transition } from "../../src/credits/books.ts";
import type { Outcome } from "../../src/credits/outcomes.ts";
import type { Durability } from "../../src/stores/driver.ts";
import type { Books } from "../../src/stores/queries/books.ts";
import type { Store } from "../../src/stores/store.ts";
import {
  grantOf,
  holdOf,
  one,
  randomId,
  referenceOf,
  releaseOf,
  type Subject,
  settleOf,
  tokenHoldOf,
} from "./fixture.ts";
import { keyRaceCases } from "./keys.ts";

/** Concurrent transitions, on one instance and on two, as on two nodes. */
export function raceCases(subject: Subject): void {
  let other: Store;
  beforeAll(async () => {
    other = await subject.openAnother();
  });
  afterAll(() => other.close());
  const both = () => [subject.books, other.books] as const;

  for (const count of [100, 1_000]) {
    test(`exactly 10 of ${count} concurrent holds succeed on credits for 10`, async () => {
      const organizationId = await subject.organization(10n);
      const holds = Array.from({ length: count }, () => holdOf(organizationId, 1n));
      await expectTenHeld(subject, organizationId, await each(both(), holds, "holds"));
    });

    test(`exactly 10 of ${count} concurrent holds in batches succeed on credits for 10`, async () => {
      const organizationId = await subject.organization(10n);
      const batches = Array.from({ length: 10 }, () =>
        Array.from({ length: count / 10 }, () => holdOf(organizationId, 1n)),
      );
      const outcomes = await Promise.all(batches.map((batch, i) => alternate(both(), i).apply("holds", batch)));
      await expectTenHeld(subject, organizationId, outcomes.flat());
    });
  }

  test("concurrent holds and settlements never overspend, and charge their outcomes", async () => {
    const organizationId = await subject.organization(50n);
    const holds = Array.from({ length: 300 }, () => holdOf(organizationId, 2n));
    const charged = await Promise.all(
      holds.map(async (hold, i) => {
        const books = alternate(both(), i);
        const { outcome } = await one(books, hold, "holds");
        if (outcome !== "held") return 0n;
        const settled = await one(books, settleOf(hold, 1), "durable");
        return settled.outcome === "charged" ? settled.charged : 0n;
      }),
    );
    const spent = charged.reduce((sum, amount) => sum + amount, 0n);
    expect(await subject.books.balance(organizationId)).toMatchObject({ held: 0n, spent, available: 50n - spent });
    await subject.expectSound(organizationId);
  });

  settlementAgainstExpiry(subject, both);
  doubleCases(subject, both);
  keyRaceCases(subject, both);
  capRaceCases(subject, both);

  test("batches that name organizations in opposite orders all succeed", async () => {
    const ids = await Promise.all(Array.from({ length: 6 }, () => subject.organization(1_000n)));
    const batches = Array.from({ length: 20 }, (_, i) => (i % 2 === 0 ? ids : [...ids].reverse()));
    const outcomes = await Promise.all(
      batches.map((order, i) =>
        alternate(both(), i).apply(
          i % 3 === 0 ? "durable" : "holds",
          order.map((id) => holdOf(id, 1n)),
        ),
      ),
    );
    expect(new Set(outcomes.flat().map(({ outcome }) => outcome))).toEqual(new Set(["held"]));
    for (const id of ids) expect((await subject.books.balance(id))?.held).toBe(20n);
    for (const id of ids) await subject.expectSound(id);
  });
}

function alternate(both: readonly [Books, Books], index: number): Books {
  return index % 2 === 0 ? both[0] : both[1];
}

/** Applies each transition in its own batch, all at once; returns the outcomes in the order of the transitions. */
function each(both: readonly [Books, Books], transitions: Transition[], durability: Durability): Promise<Outcome[]> {
  return Promise.all(transitions.map((transition, i) => one(alternate(both, i), transition, durability)));
}

async function expectTenHeld(subject: Subject, organizationId: string, outcomes: Outcome[]): Promise<void> {
  expect(outcomes.filter(({ outcome }) => outcome === "held")).toHaveLength(10);
  expect(outcomes.filter(({ outcome }) => outcome === "busy")).toHaveLength(outcomes.length - 10);
  expect(await subject.books.balance(organizationId)).toMatchObject({ available: 0n, held: 10n });
  await subject.expectSound(organizationId);
}

const PAIRS = 1_000;

function settlementAgainstExpiry(subject: Subject, both: () => readonly [Books, Books]): void {
  test(`each of ${PAIRS} holds that are settled and expired concurrently is charged exactly once`, async () => {
    const organizationId = await subject.organization(100_000n);
    const holds = Array.from({ length: PAIRS }, () => holdOf(organizationId, 20n, -1_000));
    await subject.books.apply("holds", holds);
    const groups = Array.from({ length: PAIRS / 10 }, (_, i) => holds.slice(i * 10, i * 10 + 10));
    const outcomes = await Promise.all(
      groups.map(async (group, i) => {
        const [settling, expiring] = i % 2 === 0 ? both() : ([...both()].reverse() as [Books, Books]);
        const settlements: Transition[] = group.map((hold) => settleOf(hold, 7));
        const expiries: Transition[] = group.map((hold) => ({ kind: "expire", ...referenceOf(hold) }));
        const settlement = () => settling.apply("durable", settlements);
        const expiry = () => expiring.apply("durable", expiries);
        if (i % 3 !== 0) return (await Promise.all([settlement(), expiry()]))[0];
        const expired = expiry();
        const settled = await settlement();
        await expired;
        return settled;
      }),
    );
    for (const outcome of outcomes.flat()) expect(outcome).toMatchObject({ outcome: "charged", charged: 7n });
    const balance = await subject.books.balance(organizationId);
    expect(balance).toMatchObject({ held: 0n, spent: BigInt(PAIRS) * 7n, available: 100_000n - BigInt(PAIRS) * 7n });
    const costs = new Map<string, bigint>();
    for (const { holdId, cost } of await subject.events(organizationId)) {
      costs.set(holdId, (costs.get(holdId) ?? 0n) + cost);
    }
    expect([...costs.values()]).toEqual(holds.map(() => 7n));
    await subject.expectSound(organizationId);
  });
}

function doubleCases(subject: Subject, both: () => readonly [Books, Books]): void {
  test("the same hold, settlement or release from two instances counts once", async () => {
    const organizationId = await subject.organization(1_000n);
    const holds: HoldTransition[] = Array.from({ length: 40 }, () => holdOf(organizationId, 10n));
    const onBoth = (transitions: Transition[], durability: Durability) =>
      Promise.all(transitions.flatMap((transition) => both().map((books) => one(books, transition, durability))));
    const held = await onBoth(holds, "holds");
    expect(new Set(held.map(({ outcome }) => outcome))).toEqual(new Set(["held"]));
    expect((await subject.books.balance(organizationId))?.held).toBe(400n);
    const settlements = holds.slice(0, 20).map((hold) => settleOf(hold, 3));
    const releases = holds.slice(20).map((hold) => releaseOf(hold));
    const ended = await onBoth([...settlements, ...releases], "durable");
    expect(ended.map(({ outcome }) => outcome)).toEqual([
      ...Array<string>(40).fill("charged"),
      ...Array<string>(40).fill("released"),
    ]);
    expect(await subject.books.balance(organizationId)).toMatchObject({ held: 0n, spent: 60n, available: 940n });
    await subject.expectSound(organizationId);
  });

  test("the same reference from two instances grants once", async () => {
    const organizationId = await subject.organization();
    const grants = Array.from({ length: 20 }, () => grantOf(organizationId, 5n, { reference: "payment" }));
    const outcomes = (await each(both(), grants, "durable")) as { grantId: string; repeated: boolean }[];
    expect(outcomes.filter(({ repeated }) => !repeated)).toHaveLength(1);
    expect(new Set(outcomes.map(({ grantId }) => grantId)).size).toBe(1);
    expect((await subject.books.balance(organizationId))?.granted).toBe(5n);
  });

  test("credits that one instance grants are available to another at once", async () => {
    const organizationId = await subject.organization();
    for (let i = 0; i < 20; i += 1) {
      const [granting, holding] = i % 2 === 0 ? both() : ([...both()].reverse() as [Books, Books]);
      await one(granting, grantOf(organizationId, 3n, { reference: randomId("reference") }), "durable");
      expect(await one(holding, holdOf(organizationId, 3n), "holds")).toMatchObject({ outcome: "held" });
    }
    await subject.expectSound(organizationId);
  });
}

function capRaceCases(subject: Subject, both: () => readonly [Books, Books]): void {
  test("exactly 10 of 1,000 concurrent holds of a token with a cap of 10 succeed", async () => {
    const organizationId = await subject.organization(100_000n);
    const tokenId = await subject.cappedToken(organizationId, 10n);
    const holds = Array.from({ length: 1_000 }, () => tokenHoldOf(organizationId, tokenId, 1n));
    const outcomes = await each(both(), holds, "holds");
    expect(outcomes.filter(({ outcome }) => outcome === "held")).toHaveLength(10);
    expect(outcomes.filter((outcome) => "budget" in outcome && outcome.budget?.isCap)).toHaveLength(990);
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 99_990n, held: 10n });
    await subject.expectSound(organizationId);
  });

  test("exactly 10 of 1,000 concurrent holds of three tokens that share a cap of 10 succeed", async () => {
    const organizationId = await subject.organization(100_000n);
    const first = await subject.cappedToken(organizationId, 10n);
    const second = await subject.successor(organizationId, first);
    const tokens = [first, second, await subject.successor(organizationId, second)];
    const holds = tokens.flatMap((id) => Array.from({ length: 334 }, () => tokenHoldOf(organizationId, id, 1n, first)));
    const [early, late] = [holds.filter((_, i) => i % 2 === 0), holds.filter((_, i) => i % 2 === 1)];
    const batches = Array.from({ length: 10 }, (_, i) => late.slice(i * 50, i * 50 + 50));
    const outcomes = await Promise.all([
      each(both(), early, "holds"),
      ...batches.map((batch, i) => alternate(both(), i).apply("holds", batch)),
    ]);
    expect(outcomes.flat().filter(({ outcome }) => outcome === "held")).toHaveLength(10);
    expect(await subject.books.balance(organizationId)).toMatchObject({ available: 99_990n, held: 10n });
    for (const id of tokens) {
      expect(await subject.store.accounts.token(id)).toMatchObject({ budget: { cap: 10n, held: 10n, spent: 0n } });
    }
    await subject.expectSound(organizationId);
  });
}
