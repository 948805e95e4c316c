import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { GatedBooks } from "../../test/support/gated-books.ts";
import { keepLog } from "../../test/support/log.ts";
import { keyOf } from "../../test/support/memory-books.ts";
import {
  factsOf,
  grantTo,
  HOLD_LIFE_MS,
  type LedgerSetup,
  ORGANIZATION,
  openLedger,
  until,
} from "../../test/support/open-ledger.ts";
import { NO_TOKENS } from "../credits/price.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { Ledger } from "./ledger.ts";

let books: GatedBooks;
let log: ReturnType<typeof keepLog>;
let ledger: Ledger;
let clockMs: number;

let dataDir: string;

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "tollgate-ledger-"));
  books = new GatedBooks();
  books.addOrganization(ORGANIZATION);
  log = keepLog();
  clockMs = 0;
  ledger = await ledgerOf();
  await grantTo(ledger, "grant_1", 100n);
});
afterEach(async () => {
  await ledger.stop();
  await rm(dataDir, { recursive: true });
});

function ledgerOf(options: Partial<LedgerSetup> = {}): Promise<Ledger> {
  return openLedger({ books, dataDir, log, clock: () => clockMs, ...options });
}
function hold(holdId: string, amount = 10n) {
  return ledger.hold({ facts: factsOf(holdId), least: amount, most: amount });
}
function settle(holdId: string, input: number) {
  return ledger.settle({ facts: factsOf(holdId), tokens: { ...NO_TOKENS, input }, basis: "reported", end: "complete" });
}
const row = (holdId: string) => books.seen.get(keyOf(ORGANIZATION, holdId));

/** A hold of a process that died. */
function leaveHold(holdId: string, owner = "owner_0"): void {
  books.bookOne({ kind: "hold", facts: factsOf(holdId), least: 1n, most: 1n, lifeMs: HOLD_LIFE_MS, owner });
}
const renewed = () =>
  books.batches.flatMap(({ transitions }) => transitions).filter(({ kind }) => kind === "renew").length;

describe("the verbs", () => {
  test("hold over one lane; settle, release and grant over the other", async () => {
    expect(await hold("a")).toMatchObject({ outcome: "held", amount: 10n, available: 90n });
    expect(await settle("a", 7)).toEqual({ outcome: "charged", charged: 7n, shortfall: 0n, available: 93n });
    await hold("b");
    expect(await ledger.release({ facts: factsOf("b") })).toEqual({
      outcome: "released",
      available: 93n,
    });
    expect(
      books.batches.map(({ durability, transitions }) => [durability, transitions.map(({ kind }) => kind).join()]),
    ).toEqual([
      ["durable", "grant"],
      ["holds", "hold"],
      ["durable", "settle"],
      ["holds", "hold"],
      ["durable", "release"],
    ]);
    expect(log.lines).toEqual([]);
  });

  test("100 concurrent holds on credit for 10: exactly 10 are held", async () => {
    const outcomes = await Promise.all(Array.from({ length: 100 }, (_, index) => hold(`hold_${index}`)));
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(
      Array.from({ length: 100 }, (_, index) => (index < 10 ? "held" : "busy")),
    );
  });

  test("hold is refused at once while the store is away; a settlement waits for it", async () => {
    await hold("a");
    let failures = 2;
    books.failWith = () => (failures-- > 0 ? new StoreUnavailableError("away") : undefined);
    await expect(hold("b")).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(await settle("a", 7)).toMatchObject({ outcome: "charged", charged: 7n });
  });

  test("a hold that may have been booked is released in the background, and its idempotency key is free again", async () => {
    const idempotency = { key: "key", fingerprint: "body", keepMs: 60_000 };
    const ask = (asked: Ledger, holdId: string) =>
      asked.hold({ facts: { ...factsOf(holdId), idempotencyKey: "key" }, least: 10n, most: 10n, idempotency });
    let isLost = true;
    books.failWith = (transitions) => {
      const [first] = transitions;
      if (first?.kind !== "hold" || !isLost) return undefined;
      // Its answer is lost, and not the transition itself.
      isLost = false;
      books.book(transitions);
      return Object.assign(new StoreUnavailableError("lost"), { mayBeBooked: true });
    };
    const impatient = await ledgerOf({ settleRetryMs: 0 });
    await expect(ask(impatient, "a")).rejects.toMatchObject({ mayBeBooked: true });
    await impatient.stop();
    expect(await ledger.balance(ORGANIZATION)).toMatchObject({ available: 100n, held: 0n });
    expect(await ask(ledger, "b")).toMatchObject({ outcome: "held" });
  });

  test("a shortfall is an alarm, without the amount", async () => {
    await hold("a");
    expect(await settle("a", 7_777)).toMatchObject({ outcome: "charged", charged: 100n, shortfall: 7_677n });
    expect(log.lines).toMatchObject([{ level: "error", fields: { holdId: "a", organizationId: ORGANIZATION } }]);
    expect(JSON.stringify(log.lines)).not.toContain("7677");
  });

  test("balance applies what is due, and only then writes", async () => {
    books.nowMs = clockMs = 2_000;
    await grantTo(ledger, "grant_2", 5n, 3_000);
    const asked = books.batches.length;
    expect(await ledger.balance(ORGANIZATION)).toMatchObject({ available: 105n, expired: 0n });
    expect(books.batches).toHaveLength(asked);
    books.nowMs = clockMs = 3_000;
    expect(await ledger.balance(ORGANIZATION)).toMatchObject({ available: 100n, expired: 5n });
    expect(books.batches).toHaveLength(asked + 1);
    expect(await ledger.balance("org_2")).toBeUndefined();
  });
});

describe("renewal", () => {
  test("keeps holds alive until they are settled or released, and no longer", async () => {
    await hold("a");
    await hold("b");
    ledger.start();
    books.nowMs += HOLD_LIFE_MS - 1;
    await until(() => renewed() >= 4);
    books.nowMs += HOLD_LIFE_MS - 1;
    await until(() => renewed() >= 8);
    expect([row("a")?.state, row("b")?.state]).toEqual(["open", "open"]);
    expect(row("a")?.expiresAtMs).toBe(books.nowMs + HOLD_LIFE_MS);
    await settle("a", 1);
    await ledger.release({ facts: factsOf("b") });
    await sleep(20);
    const before = renewed();
    await sleep(40);
    expect(renewed()).toBe(before);
  });

  test("of a process that slept comes before others could end its holds; it does not end them itself", async () => {
    await hold("a");
    leaveHold("left");
    books.nowMs += HOLD_LIFE_MS * 5;
    ledger.start();
    await until(() => row("left")?.state === "recovered");
    expect(row("a")?.state).toBe("open");
  });

  test("goes over the holds lane in chunks, so that a new hold waits for one at the most", async () => {
    await grantTo(ledger, "grant_2", 10_000n);
    await Promise.all(Array.from({ length: 1_200 }, (_, index) => hold(`hold_${index}`, 1n)));
    books.batches.length = 0;
    ledger.start();
    await until(() => renewed() >= 1_200);
    await ledger.stop();
    const sizes = books.batches
      .filter(({ durability }) => durability === "holds")
      .map(({ transitions }) => transitions.length);
    expect(sizes.slice(0, 3)).toEqual([500, 500, 200]);
  });

  test("goes on with the next chunk where one fails", async () => {
    await grantTo(ledger, "grant_2", 10_000n);
    await Promise.all(Array.from({ length: 1_200 }, (_, index) => hold(`hold_${index}`, 1n)));
    books.failWith = (transitions) => {
      const isSecond = transitions.some((one) => "facts" in one && one.facts.holdId === "hold_700");
      return isSecond ? new StoreUnavailableError("too slow") : undefined;
    };
    books.nowMs += HOLD_LIFE_MS - 1;
    ledger.start();
    await until(() => renewed() >= 1_200);
    await ledger.stop();
    const ends = [0, 499, 500, 999, 1_000, 1_199].map((index) => row(`hold_${index}`)?.expiresAtMs);
    const [late, early] = [books.nowMs + HOLD_LIFE_MS, books.nowMs + 1];
    expect(ends).toEqual([late, late, early, early, late, late]);
    expect(log.messages("error")).toEqual([expect.stringContaining("renewing or sweeping holds failed")]);
  });

  test("makes a hold again that the store has lost, as far as credits reach", async () => {
    await hold("a", 60n);
    const balance = books.balances.get(ORGANIZATION);
    const granted = books.grants.get(keyOf(ORGANIZATION, "grant_1"));
    if (balance === undefined || granted === undefined) throw new Error("no rows");
    books.holds.clear();
    books.balances.set(ORGANIZATION, { ...balance, available: 45n, held: 0n, spent: 55n });
    books.grants.set(keyOf(ORGANIZATION, "grant_1"), { ...granted, remaining: 45n });
    ledger.start();
    await until(() => row("a") !== undefined);
    expect(row("a")).toMatchObject({ state: "open", amount: 45n });
    expect(log.messages("warn")).toEqual(["hold was lost by the store and created again"]);
    expect(await settle("a", 50)).toMatchObject({ charged: 45n, shortfall: 5n });
  });

  test("stops for a hold that another process has expired; its settlement comes late", async () => {
    await hold("a");
    books.nowMs += HOLD_LIFE_MS;
    books.bookOne({ kind: "expire", organizationId: ORGANIZATION, holdId: "a" });
    ledger.start();
    await until(() => renewed() === 1 && log.messages("warn").length === 1);
    await sleep(20);
    expect(renewed()).toBe(1);
    expect(await settle("a", 7)).toMatchObject({ outcome: "charged", charged: 7n });
    expect(books.events.size).toBe(2);
  });

  test("stops for a hold whose settlement failed for good, which the sweeper then expires", async () => {
    await hold("a");
    books.failWith = (transitions) =>
      transitions.some(({ kind }) => kind === "settle") ? new Error("constraint failed") : undefined;
    await expect(settle("a", 7)).rejects.toThrow("constraint failed");
    expect(log.lines).toMatchObject([
      { level: "error", message: "transition not booked", fields: { kind: "settle", holdId: "a" } },
      { level: "error", message: expect.stringContaining("dead-letter file"), fields: { kind: "settle", holdId: "a" } },
    ]);
    ledger.start();
    books.nowMs += HOLD_LIFE_MS;
    await until(() => row("a")?.state === "recovered");
    expect(renewed()).toBe(0);
  });
});

describe("stop", () => {
  test("waits for what is in flight and what waits behind it, and ends the timers", async () => {
    await hold("a");
    ledger.start();
    books.close();
    const booked: string[] = [];
    void settle("a", 3).then(({ outcome }) => booked.push(outcome));
    await nextTurn();
    await nextTurn();
    void hold("b").then(({ outcome }) => booked.push(outcome));
    const stopped = ledger.stop().then(() => booked.push("stopped"));
    await sleep(20);
    expect(booked).toEqual([]);
    books.open();
    await stopped;
    expect(booked.toSorted()).toEqual(["charged", "held", "stopped"]);
    expect(booked.at(-1)).toBe("stopped");
    const before = books.batches.length;
    await sleep(30);
    expect(books.batches).toHaveLength(before);
  });
});
