import { setImmediate as nextTurn } from "node:timers/promises";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { GatedBooks } from "../../test/support/gated-books.ts";
import { keepLog } from "../../test/support/log.ts";
import type { HoldTransition, Transition } from "../credits/books.ts";
import { FREE } from "../credits/price.ts";
import { OrganizationsLockedError, StoreUnavailableError } from "../errors.ts";
import { CommitQueue, type CommitQueueOptions } from "./commit-queue.ts";

/** Durations passed to `setTimeout`, which do not depend on the speed of the machine. */
const sleptMs = vi.hoisted((): number[] => []);
vi.mock("node:timers/promises", async (original) => {
  const timers = await original<typeof import("node:timers/promises")>();
  const setTimeout: typeof timers.setTimeout = (ms, ...rest) => {
    sleptMs.push(ms ?? 0);
    return timers.setTimeout(ms, ...rest);
  };
  return { ...timers, setTimeout };
});

const ORGANIZATION = "org_1";
let books: GatedBooks;
let log: ReturnType<typeof keepLog>;

beforeEach(() => {
  books = new GatedBooks();
  books.addOrganization(ORGANIZATION);
  const rest = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
  books.bookOne({ kind: "grant", organizationId: ORGANIZATION, grantId: "grant_1", amount: 1_000_000n, ...rest });
  log = keepLog();
});

function createQueue(options: Partial<CommitQueueOptions> = {}): CommitQueue {
  return new CommitQueue({
    books,
    durability: "durable",
    retryMs: 0,
    clock: () => performance.now(),
    random: () => 0,
    log,
    ...options,
  });
}
function holding(number: number, amount = 1n): HoldTransition {
  const request = { tokenId: "tok_1", requestId: "req_1", model: "m", upstream: "p/m", metadata: null };
  const idempotencyKey = null;
  const facts = { holdId: `hold_${number}`, organizationId: ORGANIZATION, prices: FREE, idempotencyKey, ...request };
  return { kind: "hold", facts, least: amount, most: amount, lifeMs: 1_000, owner: "owner_1" };
}
function releasing(number: number): Transition {
  return { kind: "release", facts: holding(number).facts };
}
function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}
const names = (transitions: Transition[], number: number) =>
  transitions.some((transition) => ("facts" in transition ? transition.facts.holdId : "") === `hold_${number}`);
const away = () => new StoreUnavailableError("the store is away");

describe("a commit queue", () => {
  test("sends transitions that arrive within one turn as one batch, in their order of arrival", async () => {
    const queue = createQueue();
    const outcomes = await Promise.all(numbers(50).map((number) => queue.push(holding(number))));
    expect(books.sizes("durable")).toEqual([50]);
    expect(outcomes.map((outcome) => "available" in outcome && outcome.available)).toEqual(
      numbers(50).map((number) => 999_999n - BigInt(number)),
    );
  });

  test("has one batch in flight while the next gathers", async () => {
    const queue = createQueue();
    books.close();
    const first = queue.push(holding(0));
    await nextTurn();
    const rest = [];
    for (const number of [1, 2, 3]) {
      rest.push(queue.push(holding(number)));
      await nextTurn();
    }
    expect(books.sizes("durable")).toEqual([1]);
    books.open();
    await Promise.all([first, ...rest]);
    expect(books.sizes("durable")).toEqual([1, 3]);
    expect(books.inFlightMost.durable).toBe(1);
  });

  test("sends at most 1,000 transitions in one batch", async () => {
    const queue = createQueue();
    await Promise.all(numbers(2_500).map((number) => queue.push(holding(number))));
    expect(books.sizes("durable")).toEqual([1_000, 1_000, 500]);
  });

  test("takes the organizations in turn, so that one with many transitions fills no batch alone", async () => {
    books.addOrganization("org_2");
    const queue = createQueue();
    const { facts, ...terms } = holding(3_000);
    const ofOther: Transition = { ...terms, facts: { ...facts, organizationId: "org_2" } };
    await Promise.all([...numbers(2_500).map((number) => holding(number)), ofOther].map((each) => queue.push(each)));
    expect(books.sizes("durable")).toEqual([1_000, 1_000, 501]);
    expect(books.batches[0]?.transitions.slice(0, 3)).toEqual([holding(0), ofOther, holding(1)]);
  });

  test("never names a hold twice in a batch, and keeps the order of its transitions", async () => {
    const queue = createQueue();
    const pushed = [holding(1), releasing(1), holding(2), holding(1), releasing(2)].map((each) => queue.push(each));
    const outcomes = await Promise.all(pushed);
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(["held", "released", "held", "ended", "released"]);
    expect(books.sizes("durable")).toEqual([2, 2, 1]);
  });

  test("sends a transition that had to wait for the next batch before later ones", async () => {
    const queue = createQueue();
    const pushed = [queue.push(holding(0)), queue.push(releasing(0))];
    for (const number of numbers(1_200)) pushed.push(queue.push(holding(number + 1)));
    await Promise.all(pushed);
    expect(books.sizes("durable")).toEqual([1_000, 202]);
    expect(books.batches[1]?.transitions.slice(0, 2)).toEqual([releasing(0), holding(1_000)]);
  });

  test("starts again after it was idle", async () => {
    const queue = createQueue();
    await queue.idle();
    await queue.push(holding(1));
    await queue.idle();
    expect(await queue.push(releasing(1))).toMatchObject({ outcome: "released" });
    expect(books.sizes("durable")).toEqual([1, 1]);
  });

  test("is idle only when all waiting transitions are booked", async () => {
    const queue = createQueue();
    const booked: number[] = [];
    for (const number of numbers(1_200)) void queue.push(holding(number)).then(() => booked.push(number));
    await queue.idle();
    await nextTurn();
    expect(booked).toHaveLength(1_200);
  });
});

describe("a transition that no retry can book", () => {
  test("is rejected alone, and logged without an amount", async () => {
    books.failWith = (transitions) => (names(transitions, 3) ? new Error("constraint failed") : undefined);
    const queue = createQueue();
    const results = await Promise.allSettled(numbers(6).map((number) => queue.push(holding(number, 77n))));
    expect(results.map(({ status }) => status)).toEqual(numbers(6).map((n) => (n === 3 ? "rejected" : "fulfilled")));
    // The transitions after it move to their organization's own queue, and are booked there together.
    expect(books.sizes("durable")).toEqual([6, 1, 1, 1, 1, 2]);
    expect(log.lines).toHaveLength(1);
    expect(log.lines[0]).toMatchObject({ level: "error", fields: { kind: "hold", holdId: "hold_3" } });
    expect(
      Object.values(log.lines[0]?.fields ?? {})
        .map(String)
        .join(),
    ).not.toContain("77");
  });

  test("is tried once when it arrived alone, and does not delay later transitions", async () => {
    books.failWith = (transitions) => (names(transitions, 1) ? new Error("constraint failed") : undefined);
    const queue = createQueue({ retryMs: 1_000 });
    await expect(queue.push(holding(1))).rejects.toThrow("constraint failed");
    expect(await queue.push(holding(2))).toMatchObject({ outcome: "held" });
    expect(books.sizes("durable")).toEqual([1, 1]);
  });

  test("leaves later transitions to a retry when the store becomes unavailable", async () => {
    let isAway = false;
    books.failWith = (transitions) => {
      if (transitions.length > 1 && names(transitions, 1)) return new Error("constraint failed");
      if (names(transitions, 1)) {
        isAway = true;
        return new Error("constraint failed");
      }
      if (!isAway) return undefined;
      isAway = false;
      return away();
    };
    const queue = createQueue({ retryMs: 5_000 });
    const results = await Promise.allSettled(numbers(4).map((number) => queue.push(holding(number))));
    expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled", "fulfilled"]);
    // All; the first two one by one; then the remaining two together, from their own queue and from the common one.
    expect(books.sizes("durable")).toEqual([4, 1, 1, 2, 2]);
  });
});

describe("an unavailable store", () => {
  test("rejects transitions immediately if the queue does not retry", async () => {
    books.failWith = away;
    const queue = createQueue({ durability: "holds" });
    const results = await Promise.allSettled([queue.push(holding(1)), queue.push(holding(2))]);
    expect(results.map((result) => result.status === "rejected" && result.reason.name)).toEqual([
      "StoreUnavailableError",
      "StoreUnavailableError",
    ]);
    expect(books.sizes("holds")).toEqual([2]);
    expect(log.lines).toEqual([]);
  });

  test("is retried until it is available, together with newer transitions", async () => {
    let failures = 2;
    books.failWith = () => (failures-- > 0 ? away() : undefined);
    const queue = createQueue({ retryMs: 5_000 });
    const first = queue.push(holding(1));
    await nextTurn();
    const second = queue.push(holding(2));
    expect(await Promise.all([first, second])).toMatchObject([{ outcome: "held" }, { outcome: "held" }]);
    expect(books.batches.at(-1)?.transitions).toEqual([holding(1), holding(2)]);
    expect(books.batches).toHaveLength(3);
    expect(log.lines).toEqual([]);
  });

  test("is retried for a limited time, also for newer transitions", async () => {
    let nowMs = 0;
    books.failWith = () => {
      nowMs += 40;
      return away();
    };
    const queue = createQueue({ retryMs: 100, clock: () => nowMs });
    const first = queue.push(holding(1));
    await nextTurn();
    const results = await Promise.allSettled([first, queue.push(holding(2))]);
    for (const result of results) {
      expect(result).toMatchObject({ status: "rejected", reason: expect.any(StoreUnavailableError) });
    }
    // The first failure is at 40 ms, so that the one at 160 ms is the first past 140.
    expect(books.batches).toHaveLength(4);
    expect(log.lines).toEqual([]);
  });

  test("is given up when the clock is set back", async () => {
    let nowMs = 3_600_000;
    books.failWith = () => {
      // Ends the test if nothing is ever given up.
      if (books.batches.length > 5) return undefined;
      if (books.batches.length === 2) nowMs = 0;
      return away();
    };
    const queue = createQueue({ retryMs: 1_000, clock: () => nowMs });
    await expect(queue.push(holding(1))).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(books.batches).toHaveLength(2);
  });

  test("is retried after a longer pause each time", async () => {
    let failures = 3;
    books.failWith = () => (failures-- > 0 ? away() : undefined);
    sleptMs.length = 0;
    await createQueue({ retryMs: 60_000 }).push(holding(1));
    // Half of 50, 100 and 200 with the least jitter.
    expect(sleptMs).toEqual([25, 50, 100]);
  });

  test("is not logged for each hold that the sweeper could not expire", async () => {
    let nowMs = 0;
    books.failWith = () => {
      nowMs += 60;
      return away();
    };
    const queue = createQueue({ retryMs: 100, clock: () => nowMs });
    const expiring = queue.push({ kind: "expire", organizationId: ORGANIZATION, holdId: "hold_1" });
    await expect(expiring).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(books.batches.length).toBeGreaterThan(1);
    expect(log.lines).toEqual([]);
  });

  test("is not retried for a refresh", async () => {
    books.failWith = away;
    const queue = createQueue({ retryMs: 5_000 });
    await expect(queue.push({ kind: "refresh", organizationId: ORGANIZATION })).rejects.toBeInstanceOf(
      StoreUnavailableError,
    );
    expect(books.batches).toHaveLength(1);
  });
});

test("a store that returns a different number of outcomes than transitions is refused", async () => {
  books.apply = async () => [] as never;
  await expect(createQueue().push(holding(1))).rejects.toThrow("different number");
});

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
  const ofOther = (number: number) => {
    const { facts, ...rest } = holding(number);
    return { ...rest, facts: { ...facts, organizationId: OTHER } };
  };

  test("wait in queues of their own: others are booked meanwhile, and they follow in their order once unlocked", async () => {
    const queue = createQueue({ retryMs: 0 });
    const order: number[] = [];
    const locked = numbers(30).map((number) => queue.push(holding(number)).then(() => order.push(number)));
    for (const round of [1, 2, 3]) {
      const others = numbers(20).map((number) => queue.push(ofOther(100 * round + number)));
      for (const { outcome } of await Promise.all(others)) expect(outcome).toBe("held");
    }
    expect(order).toEqual([]);
    const later = queue.push(releasing(0));
    isLocked = false;
    await Promise.all(locked);
    expect(order).toEqual(numbers(30));
    expect(await later).toMatchObject({ outcome: "released" });
    await queue.idle();
    expect(log.messages("warn")).toEqual([
      "balances are locked by another transaction: their organizations wait in queues of their own",
    ]);
  });

  test("are refused when they stay locked, and retried with the next transition", async () => {
    let nowMs = 0;
    const queue = createQueue({ clock: () => nowMs });
    const first = queue.push(holding(1));
    first.catch(() => {});
    await vi.waitFor(() => expect(books.batches.length).toBeGreaterThan(1));
    nowMs = 2_000;
    await expect(first).rejects.toBeInstanceOf(OrganizationsLockedError);
    isLocked = false;
    expect(await queue.push(holding(2))).toMatchObject({ outcome: "held" });
  });

  test("return to the common queue when their batch fails for another reason", async () => {
    const queue = createQueue();
    const defect = new Error("a defect");
    const first = queue.push(holding(1));
    const second = queue.push(holding(2));
    first.catch(() => {});
    await vi.waitFor(() => expect(books.batches.length).toBeGreaterThan(2));
    books.failWith = (transitions) => (names(transitions, 1) ? defect : undefined);
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
      const { facts, ...rest } = holding(number);
      return queue.push({ ...rest, facts: { ...facts, organizationId: id } });
    });
    await vi.waitFor(() => expect(books.batches.length).toBeGreaterThan(20));
    expect(books.inFlightMost.durable).toBe(2);
    isLocked = false;
    for (const { outcome } of await Promise.all(waiting)) expect(outcome).toBe("insufficient");
  });
});

describe("an organization whose rows are broken", () => {
  const BROKEN = "org_broken";
  const ofBroken = (number: number) => {
    const { facts, ...rest } = holding(1_000 + number);
    return { ...rest, facts: { ...facts, organizationId: BROKEN } };
  };
  const isOfBroken = (one: Transition) => "facts" in one && one.facts.organizationId === BROKEN;
  let isBroken = true;
  beforeEach(() => {
    isBroken = true;
    books.addOrganization(BROKEN);
    books.failWith = (transitions) => (isBroken && transitions.some(isOfBroken) ? new Error("broken rows") : undefined);
  });

  test("fails one batch with others at most, and shares batches again once its rows are repaired", async () => {
    const queue = createQueue();
    await expect(queue.push(ofBroken(0))).rejects.toThrow("broken rows");
    const failing: Promise<unknown>[] = [];
    for (const round of numbers(5)) {
      failing.push(...numbers(3).map((number) => queue.push(ofBroken(10 * (round + 1) + number))));
      for (const one of failing) one.catch(() => {});
      const others = await Promise.all(numbers(4).map((number) => queue.push(holding(10 * round + number))));
      expect(others.map(({ outcome }) => outcome)).toEqual(Array(4).fill("held"));
    }
    const statuses = (await Promise.allSettled(failing)).map(({ status }) => status);
    expect(statuses).toEqual(Array(15).fill("rejected"));
    const mixed = () =>
      books.batches.filter(({ transitions: all }) => all.some(isOfBroken) && !all.every(isOfBroken)).length;
    expect(mixed()).toBe(0);
    isBroken = false;
    expect(await queue.push(ofBroken(90))).toMatchObject({ outcome: "insufficient" });
    await Promise.all([queue.push(ofBroken(91)), queue.push(holding(90))]);
    expect(mixed()).toBe(1);
    await queue.idle();
  });
});
