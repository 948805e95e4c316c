import { setImmediate as nextTurn } from "node:timers/promises";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { holding, numbers, ORGANIZATION, openBooks } from "../../test/support/commit-queue.ts";
import type { GatedBooks } from "../../test/support/gated-books.ts";
import { keepLog } from "../../test/support/log.ts";
import type { Transition } from "../credits/books.ts";
import { StoreUnavailableError } from "../errors.ts";
import { CommitQueue, type CommitQueueOptions, DURABLE, HOLDS, ONCE } from "./commit-queue.ts";

/** Durations passed to `setTimeout`, which do not depend on the speed of the machine. */
const sleptMs = vi.hoisted((): number[] => []);
/** Endless pauses end only by their signal. */
const pauses = vi.hoisted(() => ({ areEndless: false }));
vi.mock("node:timers/promises", async (original) => {
  const timers = await original<typeof import("node:timers/promises")>();
  const setTimeout: typeof timers.setTimeout = (ms, ...rest) => {
    sleptMs.push(ms ?? 0);
    return timers.setTimeout(pauses.areEndless ? 600_000 : ms, ...rest);
  };
  return { ...timers, setTimeout };
});

let books: GatedBooks;
let log: ReturnType<typeof keepLog>;

beforeEach(() => {
  pauses.areEndless = false;
  books = openBooks();
  log = keepLog();
});

function createQueue(options: Partial<CommitQueueOptions> = {}): CommitQueue {
  return new CommitQueue({ books, retryMs: 0, clock: () => performance.now(), random: () => 0, log, ...options });
}
const releasing = (number: number): Transition => ({ kind: "release", facts: holding(number).facts });
const names = (transitions: Transition[], number: number) =>
  transitions.some((transition) => ("facts" in transition ? transition.facts.holdId : "") === `hold_${number}`);
const away = () => new StoreUnavailableError("the store is away");

describe("a commit queue", () => {
  test("sends transitions that arrive within one turn as one batch, in their order of arrival", async () => {
    const queue = createQueue();
    const outcomes = await Promise.all(numbers(50).map((number) => queue.push(holding(number), DURABLE)));
    expect(books.sizes("durable")).toEqual([50]);
    expect(outcomes.map((outcome) => "available" in outcome && outcome.available)).toEqual(
      numbers(50).map((number) => 999_999n - BigInt(number)),
    );
  });

  test("has one batch in flight while the next gathers", async () => {
    const queue = createQueue();
    books.close();
    const first = queue.push(holding(0), DURABLE);
    await nextTurn();
    const rest = [];
    for (const number of [1, 2, 3]) {
      rest.push(queue.push(holding(number), DURABLE));
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
    await Promise.all(numbers(2_500).map((number) => queue.push(holding(number), DURABLE)));
    expect(books.sizes("durable")).toEqual([1_000, 1_000, 500]);
  });

  test("takes the organizations in turn, so that one with many transitions fills no batch alone", async () => {
    books.addOrganization("org_2");
    const queue = createQueue();
    const { facts, ...terms } = holding(3_000);
    const ofOther: Transition = { ...terms, facts: { ...facts, organizationId: "org_2" } };
    await Promise.all(
      [...numbers(2_500).map((number) => holding(number)), ofOther].map((each) => queue.push(each, DURABLE)),
    );
    expect(books.sizes("durable")).toEqual([1_000, 1_000, 501]);
    expect(books.batches[0]?.transitions.slice(0, 3)).toEqual([holding(0), ofOther, holding(1)]);
  });

  test("books holds and settlements that arrive together in one batch, durable if one of them must be", async () => {
    const queue = createQueue();
    await Promise.all([queue.push(holding(1), HOLDS), queue.push(holding(2), DURABLE)]);
    await Promise.all([queue.push(holding(3), HOLDS), queue.push(holding(4), HOLDS)]);
    expect([books.sizes("durable"), books.sizes("holds")]).toEqual([[2], [2]]);
  });

  test("never names a hold twice in a batch, and keeps the order of its transitions", async () => {
    const queue = createQueue();
    const pushed = [holding(1), releasing(1), holding(2), holding(1), releasing(2)].map((each) =>
      queue.push(each, DURABLE),
    );
    const outcomes = await Promise.all(pushed);
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(["held", "released", "held", "ended", "released"]);
    expect(books.sizes("durable")).toEqual([2, 2, 1]);
  });

  test("sends a transition that had to wait for the next batch before later ones", async () => {
    const queue = createQueue();
    const pushed = [queue.push(holding(0), DURABLE), queue.push(releasing(0), DURABLE)];
    for (const number of numbers(1_200)) pushed.push(queue.push(holding(number + 1), DURABLE));
    await Promise.all(pushed);
    expect(books.sizes("durable")).toEqual([1_000, 202]);
    expect(books.batches[1]?.transitions.slice(0, 2)).toEqual([releasing(0), holding(1_000)]);
  });

  test("starts again after it was idle", async () => {
    const queue = createQueue();
    await queue.idle();
    await queue.push(holding(1), DURABLE);
    await queue.idle();
    expect(await queue.push(releasing(1), DURABLE)).toMatchObject({ outcome: "released" });
    expect(books.sizes("durable")).toEqual([1, 1]);
  });

  test("is idle only when all waiting transitions are booked", async () => {
    const queue = createQueue();
    const booked: number[] = [];
    for (const number of numbers(1_200)) void queue.push(holding(number), DURABLE).then(() => booked.push(number));
    await queue.idle();
    await nextTurn();
    expect(booked).toHaveLength(1_200);
  });
});

describe("a transition that no retry can book", () => {
  test("is rejected alone, and logged without an amount", async () => {
    books.failWith = (transitions) => (names(transitions, 3) ? new Error("constraint failed") : undefined);
    const queue = createQueue();
    const results = await Promise.allSettled(numbers(6).map((number) => queue.push(holding(number, 77n), DURABLE)));
    expect(results.map(({ status }) => status)).toEqual(numbers(6).map((n) => (n === 3 ? "rejected" : "fulfilled")));
    expect(books.sizes("durable")).toEqual([6, 1, 1, 1, 1, 1, 1]);
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
    await expect(queue.push(holding(1), DURABLE)).rejects.toThrow("constraint failed");
    expect(await queue.push(holding(2), DURABLE)).toMatchObject({ outcome: "held" });
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
    const results = await Promise.allSettled(numbers(4).map((number) => queue.push(holding(number), DURABLE)));
    expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled", "fulfilled"]);
    // All; the first three one by one, of which the last finds the store unavailable; then the remaining two together.
    expect(books.sizes("durable")).toEqual([4, 1, 1, 1, 2]);
  });
});

describe("an unavailable store", () => {
  test("rejects transitions immediately if they are not retried", async () => {
    books.failWith = away;
    const queue = createQueue({ retryMs: 5_000 });
    const results = await Promise.allSettled([queue.push(holding(1), HOLDS), queue.push(holding(2), HOLDS)]);
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
    const first = queue.push(holding(1), DURABLE);
    await nextTurn();
    const second = queue.push(holding(2), DURABLE);
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
    const first = queue.push(holding(1), DURABLE);
    await nextTurn();
    const results = await Promise.allSettled([first, queue.push(holding(2), DURABLE)]);
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
    await expect(queue.push(holding(1), DURABLE)).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(books.batches).toHaveLength(2);
  });

  test("is retried after a longer pause each time", async () => {
    let failures = 3;
    books.failWith = () => (failures-- > 0 ? away() : undefined);
    sleptMs.length = 0;
    await createQueue({ retryMs: 60_000 }).push(holding(1), DURABLE);
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
    const expiring = queue.push({ kind: "expire", organizationId: ORGANIZATION, holdId: "hold_1" }, DURABLE);
    await expect(expiring).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(books.batches.length).toBeGreaterThan(1);
    expect(log.lines).toEqual([]);
  });

  test("is tried at once for a transition that is not retried, also during the pause before a retry", async () => {
    books.failWith = away;
    const queue = createQueue({ retryMs: 5_000, clock: () => 0 });
    pauses.areEndless = true;
    const settled = queue.push(holding(1), DURABLE);
    await vi.waitFor(() => expect(books.batches).toHaveLength(1), { timeout: 60_000 });
    await expect(queue.push(holding(2), ONCE)).rejects.toBeInstanceOf(StoreUnavailableError);
    books.failWith = () => undefined;
    expect(await queue.push(holding(3), HOLDS)).toMatchObject({ outcome: "held" });
    expect(await settled).toMatchObject({ outcome: "held" });
    expect(books.sizes("durable")).toEqual([1, 2, 2]);
  });

  test("says that a retried transition may be booked if one of its attempts may have been", async () => {
    let nowMs = 0;
    books.failWith = () => {
      nowMs += 60;
      return Object.assign(away(), { mayBeBooked: nowMs === 60 });
    };
    const queue = createQueue({ retryMs: 100, clock: () => nowMs });
    await expect(queue.push(holding(1), DURABLE)).rejects.toMatchObject({ mayBeBooked: true });
    await expect(queue.push(holding(2), HOLDS)).rejects.toMatchObject({ mayBeBooked: false });
  });
});

test("a store that returns a different number of outcomes than transitions is refused", async () => {
  books.apply = async () => [] as never;
  await expect(createQueue().push(holding(1), DURABLE)).rejects.toThrow("different number");
});
