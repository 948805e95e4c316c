import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { setUpLedger } from "../../test/support/ledger-setup.ts";
import { keyOf } from "../../test/support/memory-books.ts";
import { factsOf, grantTo, HOLD_LIFE_MS, ORGANIZATION, until } from "../../test/support/open-ledger.ts";
import { NO_TOKENS } from "../credits/price.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { Ledger } from "./ledger.ts";

const fixture = setUpLedger();

function settle(holdId: string, input: number) {
  const tokens = { ...NO_TOKENS, input };
  return fixture.ledger.settle({ facts: factsOf(holdId), tokens, basis: "reported", end: "complete" });
}

describe("the ledger", () => {
  test("books holds without waiting for the disk, and settlements, releases and grants durably", async () => {
    expect(await fixture.hold("a")).toMatchObject({ outcome: "held", amount: 10n, available: 90n });
    expect(await settle("a", 7)).toEqual({ outcome: "charged", charged: 7n, shortfall: 0n, available: 93n });
    await fixture.hold("b");
    expect(await fixture.ledger.release({ facts: factsOf("b") })).toEqual({
      outcome: "released",
      available: 93n,
    });
    expect(
      fixture.books.batches.map(({ durability, transitions }) => [
        durability,
        transitions.map(({ kind }) => kind).join(),
      ]),
    ).toEqual([
      ["durable", "grant"],
      ["holds", "hold"],
      ["durable", "settle"],
      ["holds", "hold"],
      ["durable", "release"],
    ]);
    expect(fixture.log.lines).toEqual([]);
  });

  test("holds exactly 10 of 100 concurrent requests with credits for 10", async () => {
    const outcomes = await Promise.all(Array.from({ length: 100 }, (_, index) => fixture.hold(`hold_${index}`)));
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(
      Array.from({ length: 100 }, (_, index) => (index < 10 ? "held" : "busy")),
    );
  });

  test("refuses a hold immediately while the store is unavailable, and retries a settlement", async () => {
    await fixture.hold("a");
    let failures = 2;
    fixture.books.failWith = () => (failures-- > 0 ? new StoreUnavailableError("away") : undefined);
    await expect(fixture.hold("b")).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(await settle("a", 7)).toMatchObject({ outcome: "charged", charged: 7n });
  });

  test("releases a hold that may have been booked in the background, and frees its idempotency key", async () => {
    const name = { callerId: "tok_first", key: "key" };
    const idempotency = { ...name, fingerprint: "body", keepMs: 60_000 };
    const ask = (asked: Ledger, holdId: string) =>
      asked.hold({
        callerId: "tok_1",
        facts: { ...factsOf(holdId), idempotencyKey: name },
        least: 10n,
        most: 10n,
        idempotency,
      });
    let isLost = true;
    fixture.books.failWith = (transitions) => {
      const [first] = transitions;
      if (first?.kind !== "hold" || !isLost) return undefined;
      // Its answer is lost, and not the transition itself.
      isLost = false;
      fixture.books.book(transitions);
      return Object.assign(new StoreUnavailableError("lost"), { mayBeBooked: true });
    };
    const impatient = await fixture.open({ settleRetryMs: 0 });
    await expect(ask(impatient, "a")).rejects.toMatchObject({ mayBeBooked: true });
    await impatient.stop();
    expect(await fixture.ledger.balance(ORGANIZATION)).toMatchObject({ available: 100n, held: 0n });
    expect(await ask(fixture.ledger, "b")).toMatchObject({ outcome: "held" });
  });

  test("logs a shortfall as an error without the amount", async () => {
    await fixture.hold("a");
    expect(await settle("a", 7_777)).toMatchObject({ outcome: "charged", charged: 100n, shortfall: 7_677n });
    expect(fixture.log.lines).toMatchObject([
      { level: "error", fields: { holdId: "a", organizationId: ORGANIZATION } },
    ]);
    expect(JSON.stringify(fixture.log.lines)).not.toContain("7677");
  });

  test("applies due grants when the balance is read, and writes only then", async () => {
    fixture.books.nowMs = fixture.clockMs = 2_000;
    await grantTo(fixture.ledger, "grant_2", 5n, 3_000);
    const asked = fixture.books.batches.length;
    expect(await fixture.ledger.balance(ORGANIZATION)).toMatchObject({ available: 105n, expired: 0n });
    expect(fixture.books.batches).toHaveLength(asked);
    fixture.books.nowMs = fixture.clockMs = 3_000;
    expect(await fixture.ledger.balance(ORGANIZATION)).toMatchObject({ available: 100n, expired: 5n });
    expect(fixture.books.batches).toHaveLength(asked + 1);
    expect(await fixture.ledger.balance("org_2")).toBeUndefined();
  });
});

describe("renewal", () => {
  test("renews holds until they are settled or released", async () => {
    await fixture.hold("a");
    await fixture.hold("b");
    fixture.ledger.start();
    fixture.books.nowMs += HOLD_LIFE_MS - 1;
    await until(() => fixture.renewals() >= 4);
    fixture.books.nowMs += HOLD_LIFE_MS - 1;
    await until(() => fixture.renewals() >= 8);
    expect([fixture.row("a")?.state, fixture.row("b")?.state]).toEqual(["open", "open"]);
    expect(fixture.row("a")?.expiresAtMs).toBe(fixture.books.nowMs + HOLD_LIFE_MS);
    await settle("a", 1);
    await fixture.ledger.release({ facts: factsOf("b") });
    await sleep(20);
    const before = fixture.renewals();
    await sleep(40);
    expect(fixture.renewals()).toBe(before);
  });

  test("of a process that was suspended happens before it sweeps, so that it does not expire its own holds", async () => {
    await fixture.hold("a");
    fixture.leaveHold("left");
    fixture.books.nowMs += HOLD_LIFE_MS * 5;
    fixture.ledger.start();
    await until(() => fixture.row("left")?.state === "recovered");
    expect(fixture.row("a")?.state).toBe("open");
  });

  test("goes through the queue of holds in chunks, so that a new hold waits for one at most", async () => {
    await grantTo(fixture.ledger, "grant_2", 10_000n);
    await Promise.all(Array.from({ length: 1_200 }, (_, index) => fixture.hold(`hold_${index}`, 1n)));
    fixture.books.batches.length = 0;
    fixture.ledger.start();
    await until(() => fixture.renewals() >= 1_200);
    await fixture.ledger.stop();
    const sizes = fixture.books.batches
      .filter(({ durability }) => durability === "holds")
      .map(({ transitions }) => transitions.length);
    expect(sizes.slice(0, 3)).toEqual([500, 500, 200]);
  });

  test("continues with the next chunk when one fails", async () => {
    await grantTo(fixture.ledger, "grant_2", 10_000n);
    await Promise.all(Array.from({ length: 1_200 }, (_, index) => fixture.hold(`hold_${index}`, 1n)));
    fixture.books.failWith = (transitions) => {
      const isSecond = transitions.some((one) => "facts" in one && one.facts.holdId === "hold_700");
      return isSecond ? new StoreUnavailableError("too slow") : undefined;
    };
    fixture.books.nowMs += HOLD_LIFE_MS - 1;
    fixture.ledger.start();
    await until(() => fixture.renewals() >= 1_200);
    await fixture.ledger.stop();
    const ends = [0, 499, 500, 999, 1_000, 1_199].map((index) => fixture.row(`hold_${index}`)?.expiresAtMs);
    const [late, early] = [fixture.books.nowMs + HOLD_LIFE_MS, fixture.books.nowMs + 1];
    expect(ends).toEqual([late, late, early, early, late, late]);
    expect(fixture.log.messages("error")).toEqual([expect.stringContaining("renewing or sweeping holds failed")]);
  });

  test("creates a hold again that the store has lost, as far as credits allow", async () => {
    await fixture.hold("a", 60n);
    const balance = fixture.books.balances.get(ORGANIZATION);
    const granted = fixture.books.grants.get(keyOf(ORGANIZATION, "grant_1"));
    if (balance === undefined || granted === undefined) throw new Error("no rows");
    fixture.books.holds.clear();
    fixture.books.balances.set(ORGANIZATION, { ...balance, available: 45n, held: 0n, spent: 55n });
    fixture.books.grants.set(keyOf(ORGANIZATION, "grant_1"), { ...granted, remaining: 45n });
    fixture.ledger.start();
    await until(() => fixture.row("a") !== undefined);
    expect(fixture.row("a")).toMatchObject({ state: "open", amount: 45n });
    expect(fixture.log.messages("warn")).toEqual(["hold was lost by the store and created again"]);
    expect(await settle("a", 50)).toMatchObject({ charged: 45n, shortfall: 5n });
  });

  test("stops for a hold that another process has expired, and its settlement is booked late", async () => {
    await fixture.hold("a");
    fixture.books.nowMs += HOLD_LIFE_MS;
    fixture.books.bookOne({ kind: "expire", organizationId: ORGANIZATION, holdId: "a" });
    fixture.ledger.start();
    await until(() => fixture.renewals() === 1 && fixture.log.messages("warn").length === 1);
    await sleep(20);
    expect(fixture.renewals()).toBe(1);
    expect(await settle("a", 7)).toMatchObject({ outcome: "charged", charged: 7n });
    expect(fixture.books.events.size).toBe(2);
  });

  test("stops for a hold whose settlement cannot be booked, and the sweeper expires it", async () => {
    await fixture.hold("a");
    fixture.books.failWith = (transitions) =>
      transitions.some(({ kind }) => kind === "settle") ? new Error("constraint failed") : undefined;
    await expect(settle("a", 7)).rejects.toThrow("constraint failed");
    expect(fixture.log.lines).toMatchObject([
      { level: "error", message: "transition not booked", fields: { kind: "settle", holdId: "a" } },
      { level: "error", message: expect.stringContaining("dead-letter file"), fields: { kind: "settle", holdId: "a" } },
    ]);
    fixture.ledger.start();
    fixture.books.nowMs += HOLD_LIFE_MS;
    await until(() => fixture.row("a")?.state === "recovered");
    expect(fixture.renewals()).toBe(0);
  });
});

describe("stop", () => {
  test("waits for all transitions in flight or queued, and stops the timers", async () => {
    await fixture.hold("a");
    fixture.ledger.start();
    fixture.books.close();
    const booked: string[] = [];
    void settle("a", 3).then(({ outcome }) => booked.push(outcome));
    await nextTurn();
    await nextTurn();
    void fixture.hold("b").then(({ outcome }) => booked.push(outcome));
    const stopped = fixture.ledger.stop().then(() => booked.push("stopped"));
    await sleep(20);
    expect(booked).toEqual([]);
    fixture.books.open();
    await stopped;
    expect(booked.toSorted()).toEqual(["charged", "held", "stopped"]);
    expect(booked.at(-1)).toBe("stopped");
    const before = fixture.books.batches.length;
    await sleep(30);
    expect(fixture.books.batches).toHaveLength(before);
  });
});
