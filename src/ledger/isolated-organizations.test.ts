import { setImmediate as nextTurn } from "node:timers/promises";
import fc from "fast-check";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { holding, numbers, ORGANIZATION, openBooks } from "../../test/support/commit-queue.ts";
import type { GatedBooks } from "../../test/support/gated-books.ts";
import { keepLog } from "../../test/support/log.ts";
import type { Transition } from "../credits/books.ts";
import { holdIdOf, organizationIdOf } from "../credits/names.ts";
import type { Outcome } from "../credits/outcomes.ts";
import { OrganizationsLockedError, StoreUnavailableError } from "../errors.ts";
import type { Durability } from "../stores/driver.ts";
import { CommitQueue, type CommitQueueOptions, DURABLE, HOLDS, ONCE } from "./commit-queue.ts";

const LONG = { timeout: 60_000 };

let books: GatedBooks;
let log: ReturnType<typeof keepLog>;

beforeEach(() => {
  books = openBooks();
  log = keepLog();
});

function createQueue(options: Partial<CommitQueueOptions> = {}): CommitQueue {
  return new CommitQueue({ books, retryMs: 0, clock: () => performance.now(), random: () => 0, log, ...options });
}

describe("locked organizations", () => {
  const OTHER = "org_2";
  let isLocked = true;
  beforeEach(() => {
    isLocked = true;
    books.addOrganization(OTHER);
    const rest = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
    books.bookOne({ kind: "grant", organizationId: OTHER, grantId: "grant_2", amount: 1_000_000n, ...rest });
    books.failWith = (transitions) => {
      const isConcerned = transitions.some((one) => "facts" in one && one.facts.organizationId === ORGANIZATION);
      return isLocked && isConcerned ? new OrganizationsLockedError([ORGANIZATION]) : undefined;
    };
  });
  const ofOther = (number: number) => holding(number, 1n, OTHER);

  test("get batches of their own: others are booked meanwhile, and they follow in their order once unlocked", async () => {
    const queue = createQueue({ retryMs: 0 });
    const order: number[] = [];
    const locked = numbers(30).map((number) => queue.push(holding(number), DURABLE).then(() => order.push(number)));
    for (const round of [1, 2, 3]) {
      const others = numbers(20).map((number) => queue.push(ofOther(100 * round + number), DURABLE));
      for (const { outcome } of await Promise.all(others)) expect(outcome).toBe("held");
    }
    expect(order).toEqual([]);
    const later = queue.push({ kind: "release", facts: holding(0).facts }, DURABLE);
    isLocked = false;
    await Promise.all(locked);
    expect(order).toEqual(numbers(30));
    expect(await later).toMatchObject({ outcome: "released" });
    await queue.idle();
    expect(log.messages("warn")).toEqual([
      "balances are locked by another transaction: their organizations get batches of their own",
    ]);
  });

  test("are refused when they stay locked, and retried with the next transition", async () => {
    let nowMs = 0;
    const queue = createQueue({ clock: () => nowMs });
    const first = queue.push(holding(1), DURABLE);
    first.catch(() => {});
    await vi.waitFor(() => expect(books.batches.length).toBeGreaterThan(1), LONG);
    nowMs = 2_000;
    await expect(first).rejects.toBeInstanceOf(OrganizationsLockedError);
    isLocked = false;
    expect(await queue.push(holding(2), DURABLE)).toMatchObject({ outcome: "held" });
  });

  test("return to the common queue when their batch fails for another reason", async () => {
    const queue = createQueue();
    const defect = new Error("a defect");
    const first = queue.push(holding(1), DURABLE);
    const second = queue.push(holding(2), DURABLE);
    first.catch(() => {});
    await vi.waitFor(() => expect(books.batches.length).toBeGreaterThan(2), LONG);
    books.failWith = (transitions) => (transitions.some((one) => holdIdOf(one) === "hold_1") ? defect : undefined);
    await expect(first).rejects.toBe(defect);
    expect(await second).toMatchObject({ outcome: "held" });
    await queue.idle();
  });

  test("are tried two at a time", async () => {
    const ids = numbers(6).map((number) => `org_locked_${number}`);
    books.failWith = (transitions) => {
      const found = transitions.flatMap((one) => ("facts" in one ? one.facts.organizationId : []));
      return found.some((id) => ids.includes(id)) && isLocked ? new OrganizationsLockedError(ids) : undefined;
    };
    const queue = createQueue();
    const waiting = ids.map((id, number) => {
      books.addOrganization(id);
      return queue.push(holding(number, 1n, id), DURABLE);
    });
    await vi.waitFor(() => expect(books.batches.length).toBeGreaterThan(20), LONG);
    expect(books.inFlightMost.durable).toBe(2);
    isLocked = false;
    for (const { outcome } of await Promise.all(waiting)) expect(outcome).toBe("insufficient");
  });
});

describe("an organization whose rows are broken", () => {
  const BROKEN = "org_broken";
  const ofBroken = (number: number) => holding(1_000 + number, 1n, BROKEN);
  const isOfBroken = (one: Transition) => "facts" in one && one.facts.organizationId === BROKEN;
  let isBroken = true;
  beforeEach(() => {
    isBroken = true;
    books.addOrganization(BROKEN);
    books.failWith = (transitions) => (isBroken && transitions.some(isOfBroken) ? new Error("broken rows") : undefined);
  });

  test("is found among the organizations of a batch, which are booked meanwhile, each with its own batch", async () => {
    const ids = numbers(5).map((number) => `org_beside_${number}`);
    for (const id of ids) books.addOrganization(id);
    const queue = createQueue();
    const results = await Promise.allSettled(
      [...ids, BROKEN, ...ids].map((id, number) => queue.push(holding(number, 1n, id), DURABLE)),
    );
    expect(results.map(({ status }) => status)).toEqual(numbers(11).map((n) => (n === 5 ? "rejected" : "fulfilled")));
    expect(books.sizes("durable").toSorted()).toEqual([1, 11, 2, 2, 2, 2, 2]);
    expect(books.inFlightMost.durable).toBe(2);
  });

  test("fails one batch with others at most, and shares batches again once its rows are repaired", async () => {
    const queue = createQueue();
    await expect(queue.push(ofBroken(0), DURABLE)).rejects.toThrow("broken rows");
    const failing: Promise<unknown>[] = [];
    for (const round of numbers(5)) {
      failing.push(...numbers(3).map((number) => queue.push(ofBroken(10 * (round + 1) + number), DURABLE)));
      for (const one of failing) one.catch(() => {});
      const others = await Promise.all(numbers(4).map((number) => queue.push(holding(10 * round + number), DURABLE)));
      expect(others.map(({ outcome }) => outcome)).toEqual(Array(4).fill("held"));
    }
    const statuses = (await Promise.allSettled(failing)).map(({ status }) => status);
    expect(statuses).toEqual(Array(15).fill("rejected"));
    const mixed = () =>
      books.batches.filter(({ transitions: all }) => all.some(isOfBroken) && !all.every(isOfBroken)).length;
    expect(mixed()).toBe(0);
    isBroken = false;
    expect(await queue.push(ofBroken(90), DURABLE)).toMatchObject({ outcome: "insufficient" });
    await Promise.all([queue.push(ofBroken(91), DURABLE), queue.push(holding(90), DURABLE)]);
    expect(mixed()).toBe(1);
    await queue.idle();
  });
});

interface Pushed {
  organization: number;
  hold: number;
  terms: typeof HOLDS;
  isBroken: boolean;
}

const pushed: fc.Arbitrary<Pushed> = fc.record({
  organization: fc.nat(3),
  hold: fc.nat(5),
  terms: fc.constantFrom(HOLDS, DURABLE, ONCE),
  isBroken: fc.boolean(),
});
const answer = fc.constantFrom("booked" as const, "booked" as const, "locked" as const, "unavailable" as const);

test("Whatever fails, each transition is answered once, in the order of its hold, and an organization has one batch in flight.", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(pushed, { maxLength: 30 }), fc.array(answer, { maxLength: 12 }), async (all, answers) => {
      const inFlight = new Set<string>();
      const booked: Transition[] = [];
      const isBroken = (transition: Transition) => all.some((one, index) => one.isBroken && made[index] === transition);
      const apply = async (durability: Durability, transitions: Transition[]): Promise<Outcome[]> => {
        const organizationIds = [...new Set(transitions.map(organizationIdOf))];
        for (const id of organizationIds) expect(inFlight).not.toContain(id);
        for (const id of organizationIds) inFlight.add(id);
        expect(new Set(transitions.map(holdIdOf)).size).toBe(transitions.length);
        const mustBe = transitions.some((transition) => all[made.indexOf(transition)]?.terms.durability === "durable");
        expect(durability).toBe(mustBe ? "durable" : "holds");
        await nextTurn();
        for (const id of organizationIds) inFlight.delete(id);
        const next = answers.shift() ?? "booked";
        if (next === "locked") throw new OrganizationsLockedError(organizationIds.slice(0, 1));
        if (next === "unavailable") throw new StoreUnavailableError("the store is away");
        if (transitions.some(isBroken)) throw new Error("constraint failed");
        booked.push(...transitions);
        return transitions.map((transition) => ({ outcome: transition }) as unknown as Outcome);
      };
      const made: Transition[] = all.map(({ organization, hold }) =>
        holding(10 * organization + hold, 1n, `org_${organization}`),
      );
      const queue = createQueue({ books: { apply } as unknown as CommitQueueOptions["books"], retryMs: 30 });
      const results = await Promise.allSettled(
        made.map((transition, index) => queue.push(transition, all[index]?.terms ?? HOLDS)),
      );
      await queue.idle();
      const fulfilled = results.flatMap((result) => (result.status === "fulfilled" ? [result.value.outcome] : []));
      expect(new Set(fulfilled)).toEqual(new Set(booked));
      expect(booked).toHaveLength(fulfilled.length);
      for (const name of new Set(made.map(holdIdOf))) {
        const ofHold = booked.filter((transition) => holdIdOf(transition) === name).map((one) => made.indexOf(one));
        expect(ofHold).toEqual(ofHold.toSorted((one, other) => one - other));
      }
      for (const [index, result] of results.entries()) {
        if (all[index]?.isBroken) expect(result.status).toBe("rejected");
        else if (result.status === "rejected") expect(result.reason).toBeInstanceOf(StoreUnavailableError);
      }
    }),
    { numRuns: 100 },
  );
});
