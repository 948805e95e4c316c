import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
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
const row = (holdId: string) => books.seen.get(keyOf(ORGANIZATION, holdId));

/** A hold of a process that died. */
function leaveHold(holdId: string, owner = "owner_0"): void {
  books.bookOne({ kind: "hold", facts: factsOf(holdId), least: 1n, most: 1n, lifeMs: HOLD_LIFE_MS, owner });
}
const renewed = () =>
  books.batches.flatMap(({ transitions }) => transitions).filter(({ kind }) => kind === "renew").length;

describe("the sweeper", () => {
  test("ends the holds of ended processes page by page as soon as it starts, and leaves those that run", async () => {
    await ledger.stop();
    ledger = await ledgerOf({ renewEveryMs: 60_000, sweepEveryMs: 60_000 });
    const pages: (string | null)[] = [];
    const look = books.recoverableHolds.bind(books);
    books.recoverableHolds = (search) => {
      pages.push(search.afterHoldId);
      return look(search);
    };
    await grantTo(ledger, "grant_2", 10_000n);
    for (let index = 0; index < 1_201; index += 1) leaveHold(`hold_${String(index).padStart(4, "0")}`);
    await hold("running", 1n);
    books.nowMs += HOLD_LIFE_MS;
    ledger.start();
    await until(() =>
      [...books.seen.values()].every(({ state, holdId }) => state === "recovered" || holdId === "running"),
    );
    expect(row("running")?.state).toBe("open");
    expect(pages).toEqual([null, "hold_0499", "hold_0999"]);
    expect(books.balances.get(ORGANIZATION)).toMatchObject({ available: 10_099n, held: 1n, spent: 0n });
  });

  test("goes on with the next page where one hold cannot be expired", async () => {
    await ledger.stop();
    ledger = await ledgerOf({ renewEveryMs: 60_000, sweepEveryMs: 60_000 });
    await grantTo(ledger, "grant_2", 10_000n);
    for (let index = 0; index < 700; index += 1) leaveHold(`hold_${String(index).padStart(4, "0")}`);
    books.failWith = (transitions) =>
      transitions.some((one) => "holdId" in one && one.holdId === "hold_0007") ? new Error("broken row") : undefined;
    books.nowMs += HOLD_LIFE_MS;
    ledger.start();
    await until(() => row("hold_0699")?.state === "recovered");
    const open = [...books.seen.values()].filter(({ state }) => state === "open");
    expect(open.map(({ holdId }) => holdId)).toEqual(["hold_0007"]);
  });

  test("tells of a shortfall", async () => {
    leaveHold("left");
    const left = books.holds.get(keyOf(ORGANIZATION, "left"));
    if (left === undefined) throw new Error("no hold");
    const details = { ...left.details, tokens: { ...NO_TOKENS, input: 500 } };
    books.holds.set(keyOf(ORGANIZATION, "left"), { ...left, details });
    books.nowMs += HOLD_LIFE_MS;
    ledger.start();
    await until(() => row("left")?.state === "recovered");
    await until(() => log.messages("error").length === 1);
    expect(log.messages("error")).toEqual(["credits did not cover an expired hold: the shortfall is recorded"]);
  });

  test("does not end a hold whose request runs although it could not be renewed", async () => {
    await hold("a");
    leaveHold("left");
    books.failWith = (_, durability) => (durability === "holds" ? new StoreUnavailableError("away") : undefined);
    books.nowMs += HOLD_LIFE_MS;
    ledger.start();
    await until(() => row("left")?.state === "recovered" && renewed() >= 3);
    expect(row("a")?.state).toBe("open");
  });

  test("ends the holds of a process whose spool it took over, and leaves those of others", async () => {
    await ledger.stop();
    // A process that was killed leaves its file behind without a lock.
    const file = join(dataDir, "spool", "killed.jsonl");
    await writeFile(file, "");
    for (const [holdId, owner] of [
      ["early", "killed"],
      ["elsewhere", "other"],
    ] as const)
      leaveHold(holdId, owner);
    let looks = 0;
    const look = books.recoverableHolds.bind(books);
    books.recoverableHolds = (search) => {
      looks += 1;
      return look(search);
    };
    ledger = await ledgerOf({ isShared: true, recoveryMs: 0, renewEveryMs: 5, sweepEveryMs: 5 });
    ledger.start();
    await until(() => looks >= 3);
    // Renewed meanwhile by a request that its process had sent before it was killed.
    books.bookOne({
      kind: "renew",
      facts: factsOf("early"),
      amount: 1n,
      tokens: NO_TOKENS,
      lifeMs: 900,
      owner: "killed",
    });
    looks = 0;
    await until(() => looks >= 3);
    expect(row("early")?.state).toBe("open");
    expect(existsSync(file)).toBe(true);
    clockMs += 10;
    await until(() => row("early")?.state === "recovered");
    await until(() => !existsSync(file));
    expect(row("elsewhere")?.state).toBe("open");
  });

  test("sees a hold of another process unchanged for a life before it ends it, and begins anew after an outage", async () => {
    await ledger.stop();
    leaveHold("left", "other");
    books.nowMs += HOLD_LIFE_MS * 2;
    let looks = 0;
    let isAway = false;
    const look = books.recoverableHolds.bind(books);
    books.recoverableHolds = async (search) => {
      looks += 1;
      if (isAway) throw new StoreUnavailableError("away");
      return look(search);
    };
    const looked = async () => {
      looks = 0;
      await until(() => looks >= 3);
    };
    ledger = await ledgerOf({ isShared: true, recoveryMs: HOLD_LIFE_MS, sweepEveryMs: 5 });
    ledger.start();
    await looked();
    isAway = true;
    clockMs += HOLD_LIFE_MS;
    await looked();
    isAway = false;
    await looked();
    expect(row("left")?.state).toBe("open");
    clockMs += HOLD_LIFE_MS;
    await until(() => row("left")?.state === "recovered");
  });

  test("tells of a failing store once a minute, and goes on", async () => {
    leaveHold("left");
    books.nowMs += HOLD_LIFE_MS;
    let looks = 0;
    const look = books.recoverableHolds.bind(books);
    books.recoverableHolds = async (search) => {
      looks += 1;
      if (looks < 8) throw new StoreUnavailableError("away");
      return look(search);
    };
    ledger.start();
    await until(() => looks >= 4);
    expect(log.messages("error")).toHaveLength(1);
    clockMs += 60_000;
    await until(() => row("left")?.state === "recovered");
    expect(log.messages("error")).toHaveLength(2);
  });
});
