import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { GatedBooks } from "../../test/support/gated-books.ts";
import { keepLog } from "../../test/support/log.ts";
import { keyOf } from "../../test/support/memory-books.ts";
import { factsOf, grantTo, HOLD_LIFE_MS, ORGANIZATION, openLedger, until } from "../../test/support/open-ledger.ts";
import type { BalanceRow } from "../credits/books.ts";
import { FREE, NO_TOKENS } from "../credits/price.ts";
import { StoreUnavailableError } from "../errors.ts";
import { deadLetterFileOf } from "./dead-letter.ts";
import type { Ledger } from "./ledger.ts";

let books: GatedBooks;
let log: ReturnType<typeof keepLog>;
let dataDir: string;
let ledger: Ledger;

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "tollgate-outage-"));
  books = new GatedBooks();
  books.addOrganization(ORGANIZATION);
  log = keepLog();
  ledger = await openLedger({ books, dataDir, log, settleRetryMs: 0 });
  ledger.start();
  await grantTo(ledger, "grant_1", 1_000n);
});
afterEach(async () => {
  await ledger.stop();
  await rm(dataDir, { recursive: true });
});

const unavailable = () => new StoreUnavailableError("unavailable");
const hold = (holdId: string, by = ledger) =>
  by.hold({ callerId: "tok_1", facts: factsOf(holdId), least: 10n, most: 10n });
const settle = (holdId: string, input: number, by = ledger) =>
  by.settle({ facts: factsOf(holdId), tokens: { ...NO_TOKENS, input }, basis: "reported", end: "complete" });
const row = (holdId: string) => books.seen.get(keyOf(ORGANIZATION, holdId));
const entries = async (of = ledger) => (await of.status()).spool.entries;
const deadLetters = async () => {
  const text = await readFile(deadLetterFileOf(dataDir), "utf8");
  return text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
};

describe("while the store is unavailable", () => {
  test("a settlement is priced, spooled, and booked when the store is available again", async () => {
    await hold("a");
    await hold("b");
    books.failWith = unavailable;
    expect(await settle("a", 7)).toEqual({ outcome: "spooled", charged: 7n });
    expect(await ledger.release({ facts: factsOf("b") })).toEqual({
      outcome: "spooled",
      charged: 0n,
    });
    expect(await entries()).toBe(2);
    expect(log.messages("warn")).toEqual([expect.stringContaining("settlements go to the spool")]);
    books.failWith = () => undefined;
    await until(() => log.messages("info").length > 0);
    expect(log.messages("info")).toEqual([expect.stringContaining("the spool is empty")]);
    expect(await entries()).toBe(0);
    expect([row("a")?.state, row("a")?.charged, row("b")?.state]).toEqual(["charged", 7n, "released"]);
    expect(books.balances.get(ORGANIZATION)).toMatchObject({ held: 0n, spent: 7n, available: 993n });
  });

  test("the ledger reports itself as refusing after a failed hold, for seconds or until a hold is booked", async () => {
    let nowMs = 1_000;
    const elsewhere = join(dataDir, "elsewhere");
    const other = await openLedger({ books, dataDir: elsewhere, log, settleRetryMs: 0, clock: () => nowMs });
    await hold("a", other);
    expect(other.isRefusing).toBe(false);
    books.failWith = unavailable;
    await expect(hold("b", other)).rejects.toThrow(StoreUnavailableError);
    expect(other.isRefusing).toBe(true);
    nowMs += 5_000;
    expect(other.isRefusing).toBe(false);
    await expect(hold("c", other)).rejects.toThrow(StoreUnavailableError);
    books.failWith = () => undefined;
    await hold("d", other);
    expect(other.isRefusing).toBe(false);
    await other.stop();
  });

  test("only the first settlement tries the store; the others go to the spool immediately", async () => {
    const ids = Array.from({ length: 20 }, (_, index) => `hold_${index}`);
    await Promise.all(ids.map((id) => hold(id)));
    books.failWith = unavailable;
    await settle("hold_0", 1);
    books.close();
    for (const id of ids.slice(1)) expect(await settle(id, 1)).toMatchObject({ outcome: "spooled" });
    books.failWith = () => undefined;
    books.open();
    await until(async () => (await entries()) === 0);
    expect(books.balances.get(ORGANIZATION)).toMatchObject({ held: 0n, spent: 20n });
  });

  test("settlements go to the store again when it is available", async () => {
    await hold("a");
    await hold("b");
    books.failWith = unavailable;
    await settle("a", 1);
    books.failWith = () => undefined;
    await until(async () => (await entries()) === 0);
    expect(await settle("b", 2)).toMatchObject({ outcome: "charged", charged: 2n });
  });

  test("a booked hold shows that the store is available, and the spool is booked without delay", async () => {
    await ledger.stop();
    ledger = await openLedger({ books, dataDir, log, settleRetryMs: 0, random: () => 1 });
    await hold("a");
    ledger.start();
    books.failWith = unavailable;
    await settle("a", 1);
    await sleep(10);
    books.failWith = () => undefined;
    await hold("b");
    await until(async () => (await entries()) === 0);
    expect(row("a")?.state).toBe("charged");
  });

  test("a settlement whose commit was not confirmed is charged once", async () => {
    await hold("a");
    books.failWith = (transitions) => {
      if (transitions[0]?.kind !== "settle" || row("a")?.state === "charged") return undefined;
      books.book(transitions);
      return unavailable();
    };
    expect(await settle("a", 7)).toEqual({ outcome: "spooled", charged: 7n });
    await until(async () => (await entries()) === 0);
    expect([books.events.size, books.balances.get(ORGANIZATION)?.spent]).toEqual([1, 7n]);
  });

  test("a settlement after another process expired its hold charges the difference", async () => {
    await hold("a");
    books.failWith = unavailable;
    await settle("a", 7);
    books.nowMs += HOLD_LIFE_MS;
    books.bookOne({ kind: "expire", organizationId: ORGANIZATION, holdId: "a" });
    books.failWith = () => undefined;
    await until(async () => (await entries()) === 0);
    expect([row("a")?.state, books.events.size, books.balances.get(ORGANIZATION)?.spent]).toEqual(["recovered", 2, 7n]);
  });

  test("holds with a spooled settlement are not expired by their own process", async () => {
    await hold("a");
    books.failWith = unavailable;
    await settle("a", 7);
    books.nowMs += HOLD_LIFE_MS;
    // Renewals and expiries succeed before the spool is tried again.
    books.failWith = (transitions) => (transitions[0]?.kind === "settle" ? unavailable() : undefined);
    await sleep(50);
    expect(row("a")?.state).toBe("open");
    books.failWith = () => undefined;
    await until(() => row("a")?.state === "charged");
    expect(books.events.size).toBe(1);
  });

  test("a request is refused while 20,000 are running or spooled, of which its organization has half at most", async () => {
    const other = "org_2";
    books.addOrganization(other);
    const rest = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
    for (const organizationId of [ORGANIZATION, other]) {
      await ledger.book({
        kind: "grant",
        organizationId,
        grantId: `grant_of_${organizationId}`,
        amount: 1_000_000n,
        ...rest,
      });
    }
    const holdOf = (holdId: string, organizationId: string) =>
      ledger.hold({ callerId: "tok_1", facts: { ...factsOf(holdId), organizationId }, least: 10n, most: 10n });
    const numbers = Array.from({ length: 10_000 }, (_, index) => index);
    await Promise.all(numbers.map((index) => hold(`hold_${index}`)));
    await expect(hold("more")).rejects.toBeInstanceOf(StoreUnavailableError);
    await Promise.all(numbers.map((index) => holdOf(`other_${index}`, other)));
    books.failWith = (transitions) => (transitions[0]?.kind === "settle" ? unavailable() : undefined);
    const asked = books.batches.filter(({ durability }) => durability === "holds").length;
    await settle("hold_0", 1);
    await expect(hold("more")).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(row("more")).toBeUndefined();
    expect(books.batches.filter(({ transitions }) => transitions[0]?.kind === "hold").length).toBeLessThanOrEqual(
      asked,
    );
    books.failWith = () => undefined;
    await until(async () => (await entries()) === 0);
    expect(await hold("more")).toMatchObject({ outcome: "held" });
  });
});

describe("a stop while the store is unavailable", () => {
  test("logs once how many settlements stay in the spool, and the next start books them", async () => {
    await hold("a");
    await hold("b");
    books.failWith = unavailable;
    const ending = settle("a", 7);
    await settle("b", 5);
    await ending;
    await ledger.stop();
    const warnings = log.lines.filter(({ message }) => message.includes("stay in the spool"));
    expect(warnings).toMatchObject([{ level: "warn", fields: { entries: 2 } }]);
    books.failWith = () => undefined;
    ledger = await openLedger({ books, dataDir, log });
    ledger.start();
    await until(() => row("a")?.state === "charged" && row("b")?.state === "charged");
    expect(books.balances.get(ORGANIZATION)).toMatchObject({ held: 0n, spent: 12n });
    expect(log.messages("warn").filter((message) => message.includes("taken over"))).toHaveLength(1);
    // Its own file and lock; those of the process before it are gone.
    await until(async () => (await readdir(join(dataDir, "spool"))).length === 2);
  });

  test("leaves no spool file behind if the spool is empty", async () => {
    await hold("a");
    await settle("a", 7);
    await ledger.stop();
    expect(await readdir(join(dataDir, "spool"))).toEqual([]);
    expect(log.lines).toEqual([]);
  });
});

describe("two processes on one directory", () => {
  test("do not touch each other's spool while both are running", async () => {
    const other = await openLedger({ books, dataDir, log: keepLog(), settleRetryMs: 0 });
    await hold("a");
    books.failWith = unavailable;
    await settle("a", 7);
    other.start();
    await sleep(20);
    expect([await entries(), await entries(other)]).toEqual([1, 0]);
    await other.stop();
    expect(await entries()).toBe(1);
    books.failWith = () => undefined;
    await until(() => row("a")?.state === "charged");
  });
});

describe("a settlement that no retry can book", () => {
  const refuse = (holdId: string) => (transitions: unknown[]) =>
    JSON.stringify(transitions, (_, value) => (typeof value === "bigint" ? String(value) : value)).includes(holdId)
      ? new Error("constraint failed")
      : undefined;

  test("is rejected, stored as a dead letter and logged; the others of its batch are booked", async () => {
    for (const id of ["a", "b", "c"]) await hold(id);
    books.failWith = refuse('"b"');
    const results = await Promise.allSettled(["a", "b", "c"].map((id) => settle(id, 3)));
    expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    expect(await deadLetters()).toMatchObject([
      { reason: "constraint failed", transition: { kind: "settle", facts: { holdId: "b" }, tokens: { input: 3 } } },
    ]);
    expect(await ledger.status()).toEqual({ spool: { entries: 0 }, deadLetters: { entries: 1 } });
    expect(log.messages("error")).toContainEqual(expect.stringContaining("dead-letter file"));
  });

  test("leaves the spool as a dead letter, and does not delay later settlements", async () => {
    for (const id of ["a", "b", "c"]) await hold(id);
    books.failWith = unavailable;
    for (const id of ["a", "b", "c"]) await settle(id, 3);
    books.failWith = refuse('"b"');
    await until(async () => (await entries()) === 0);
    expect([row("a")?.state, row("c")?.state]).toEqual(["charged", "charged"]);
    expect(await deadLetters()).toMatchObject([{ transition: { facts: { holdId: "b" } } }]);
  });

  test("becomes a dead letter if the store does not know its organization", async () => {
    books.failWith = unavailable;
    const facts = { ...factsOf("x"), organizationId: "org_gone", prices: FREE };
    await ledger.settle({ facts, tokens: NO_TOKENS, basis: "counted", end: "complete" });
    books.failWith = () => undefined;
    await until(async () => (await entries()) === 0);
    expect(await deadLetters()).toMatchObject([{ reason: "the store answered unknown_organization" }]);
  });

  test("becomes a dead letter if its request belongs to a closed period, and books nothing", async () => {
    const closedBeforeMs = 1_000_000;
    books.failWith = unavailable;
    await settle("00000000-0001-7000-8000-000000000000", 3);
    await ledger.release({ facts: factsOf("00000000-0002-7000-8000-000000000000") });
    const balance = { ...books.balances.get(ORGANIZATION), closedBeforeMs } as BalanceRow;
    books.balances.set(ORGANIZATION, balance);
    books.failWith = () => undefined;
    await until(async () => (await entries()) === 0);
    const reason = "the request belongs to a closed period, and may have been booked in it";
    expect(await deadLetters()).toMatchObject([{ reason }, { reason }]);
    await expect(settle("00000000-0003-7000-8000-000000000000", 3)).rejects.toThrow(reason);
    await expect(ledger.release({ facts: factsOf("00000000-0004-7000-8000-000000000000") })).rejects.toThrow(reason);
    expect(await deadLetters()).toMatchObject([{ reason }, { reason }, { reason }, { reason }]);
    expect(await books.balance(ORGANIZATION)).toEqual(balance);
    expect(books.requests.size).toBe(0);
  });
});
