import { setImmediate as nextTurn } from "node:timers/promises";
import pg from "pg";
import { describe, expect, onTestFinished, test } from "vitest";
import { grantOf, holdOf, one, randomId, settleOf } from "../../../test/stores/fixture.ts";
import { createTestDatabase, hasPostgres } from "../../../test/support/postgres.ts";
import type { HoldTransition, Transition } from "../../credits/books.ts";
import { holdIdOf } from "../../credits/names.ts";
import type { Outcome } from "../../credits/outcomes.ts";
import { OrganizationsLockedError, StoreUnavailableError } from "../../errors.ts";
import type { Durability } from "../driver.ts";
import { openPostgresStore } from "./postgres.ts";
import { SharedTransactions } from "./shared-transactions.ts";

interface Sent {
  durability: Durability;
  holdIds: (string | null)[];
  /** Ends the transaction; its outcomes name the holds. */
  succeed(): Promise<void>;
  fail(error: unknown): Promise<void>;
}

/** Returns a queue whose transactions end when the test says so. */
function makeTransactions() {
  const sent: Sent[] = [];
  const transactions = new SharedTransactions((durability, transitions) => {
    const { promise, resolve, reject } = Promise.withResolvers<Outcome[]>();
    const holdIds = transitions.map(holdIdOf);
    const end = async (settle: () => void) => {
      settle();
      // The next transactions begin in the turn after the outcomes.
      await nextTurn();
      await nextTurn();
    };
    const outcomes = holdIds.map((outcome) => ({ outcome })) as unknown as Outcome[];
    sent.push({
      durability,
      holdIds,
      succeed: () => end(() => resolve(outcomes)),
      fail: (error) => end(() => reject(error)),
    });
    return promise;
  });
  const apply = (durability: Durability, ...transitions: Transition[]) => {
    const applied = transactions.apply(durability, transitions);
    applied.catch(() => undefined);
    return applied;
  };
  return { sent, apply };
}

const idOf = ({ facts }: HoldTransition) => facts.holdId;

test("Batches of one organization that arrive while one is booked share the next transaction, on disk if one must be.", async () => {
  const { sent, apply } = makeTransactions();
  const [a, b, c, d] = [1n, 2n, 3n, 4n].map((amount) => holdOf("org_1", amount)) as [
    HoldTransition,
    HoldTransition,
    HoldTransition,
    HoldTransition,
  ];
  const first = apply("holds", a);
  const second = apply("holds", b, c);
  const third = apply("durable", settleOf(d, 1));
  expect(sent).toMatchObject([{ durability: "holds", holdIds: [idOf(a)] }]);
  await sent[0]?.succeed();
  expect(sent.slice(1)).toMatchObject([{ durability: "durable", holdIds: [b, c, d].map(idOf) }]);
  await sent[1]?.succeed();
  const outcomes = await Promise.all([first, second, third]);
  expect(outcomes.map((some) => some.map(({ outcome }) => outcome))).toEqual([
    [idOf(a)],
    [idOf(b), idOf(c)],
    [idOf(d)],
  ]);
  const alone = apply("holds", a);
  expect(sent[2]).toMatchObject({ durability: "holds", holdIds: [idOf(a)] });
  await sent[2]?.succeed();
  await alone;
});

test("Batches of different organizations are booked at the same time, and one that needs both waits for both.", async () => {
  const { sent, apply } = makeTransactions();
  const [one, other, third] = [holdOf("org_1", 1n), holdOf("org_2", 1n), holdOf("org_3", 1n)];
  apply("holds", one);
  apply("durable", other);
  expect(sent.map(({ durability }) => durability)).toEqual(["holds", "durable"]);
  apply("durable", holdOf("org_1", 2n), holdOf("org_2", 2n));
  // This one must not overtake, or the batch before it could wait for ever.
  const last = holdOf("org_2", 3n);
  apply("holds", last);
  apply("holds", third);
  expect(sent).toHaveLength(3);
  await sent[0]?.succeed();
  expect(sent).toHaveLength(3);
  await sent[1]?.succeed();
  expect(sent).toHaveLength(4);
  expect(sent[3]?.holdIds).toEqual([expect.any(String), expect.any(String), idOf(last)]);
});

test("Two batches that name the same hold get a transaction each.", async () => {
  const { sent, apply } = makeTransactions();
  const hold = holdOf("org_1", 1n);
  apply("holds", holdOf("org_1", 5n));
  apply("holds", hold);
  apply("durable", settleOf(hold, 1));
  await sent[0]?.succeed();
  expect(sent[1]?.holdIds).toEqual([idOf(hold)]);
  expect(sent).toHaveLength(2);
  await sent[1]?.succeed();
  expect(sent[2]).toMatchObject({ durability: "durable", holdIds: [idOf(hold)] });
});

/** Starts a transaction of two batches, of org_1 and of org_1 and org_2. */
async function startShared() {
  const { sent, apply } = makeTransactions();
  apply("holds", holdOf("org_1", 1n));
  const batches = [apply("holds", holdOf("org_1", 2n)), apply("durable", holdOf("org_1", 3n), holdOf("org_2", 3n))];
  await sent[0]?.succeed();
  expect(sent).toHaveLength(2);
  return { sent, batches };
}

test("After a defect each batch gets a transaction of its own, so that only one of them is refused.", async () => {
  const { sent, batches } = await startShared();
  await sent[1]?.fail(new Error("a defect"));
  await sent[2]?.fail(new Error("the defect of this one"));
  expect(sent[3]).toMatchObject({ durability: "durable", holdIds: [expect.any(String), expect.any(String)] });
  await sent[3]?.succeed();
  await expect(batches[0]).rejects.toThrow("the defect of this one");
  expect(await batches[1]).toHaveLength(2);
});

test("A locked organization refuses only the batches that name it.", async () => {
  const { sent, batches } = await startShared();
  await sent[1]?.fail(new OrganizationsLockedError(["org_2"]));
  expect(sent[2]?.holdIds).toHaveLength(1);
  await sent[2]?.succeed();
  expect(await batches[0]).toHaveLength(1);
  const refusal: unknown = await batches[1]?.catch((error: unknown) => error);
  expect(refusal).toBeInstanceOf(OrganizationsLockedError);
  expect((refusal as OrganizationsLockedError).organizationIds).toEqual(new Set(["org_2"]));
});

test("A store that is unavailable refuses all batches of a transaction, with what may have been booked.", async () => {
  const { sent, batches } = await startShared();
  const error = new StoreUnavailableError("gone");
  error.mayBeBooked = true;
  await sent[1]?.fail(error);
  for (const batch of batches) await expect(batch).rejects.toBe(error);
  expect(sent).toHaveLength(2);
});

describe.skipIf(!hasPostgres)("on a server", () => {
  test("holds and settlements that waited for one organization are written by one transaction", async () => {
    const database = await createTestDatabase();
    const store = await openPostgresStore({ url: database.url, role: "service", timeouts: { lockMs: 60_000 } });
    const gate = new pg.Client({ connectionString: database.url });
    await gate.connect();
    onTestFinished(async () => {
      await gate.end();
      await store.close();
      await database.drop();
    });
    const id = randomId("org");
    await store.accounts.insertOrganization({ id, name: "Shared", kind: "standard", createdAtMs: Date.now() });
    await one(store.books, grantOf(id, 100n), "durable");
    const open = holdOf(id, 10n);
    await one(store.books, open, "holds");
    await gate.query("BEGIN");
    await gate.query("SELECT 1 FROM balance WHERE organization_id = $1 FOR UPDATE", [id]);
    const [first, second] = [holdOf(id, 1n), holdOf(id, 2n)];
    const booked = [
      one(store.books, first, "holds"),
      one(store.books, second, "holds"),
      one(store.books, settleOf(open, 7), "durable"),
    ];
    await gate.query("COMMIT");
    expect(await Promise.all(booked)).toMatchObject([{ outcome: "held" }, { outcome: "held" }, { outcome: "charged" }]);
    const writers = async (table: string, hold: HoldTransition) => {
      const { rows } = await gate.query(`SELECT xmin::text AS writer FROM ${table} WHERE id = $1`, [idOf(hold)]);
      return rows[0]?.writer as string;
    };
    expect(await writers("hold", second)).toBe(await writers("request", open));
    expect(await writers("hold", first)).not.toBe(await writers("request", open));
    expect((await store.books.verify(id)).violations).toEqual([]);
    expect(await store.books.balance(id)).toMatchObject({ available: 90n, held: 3n, spent: 7n });
  });
});
