import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { setUpLedger } from "../../test/support/ledger-setup.ts";
import { keyOf } from "../../test/support/memory-books.ts";
import { factsOf, grantTo, HOLD_LIFE_MS, ORGANIZATION, until } from "../../test/support/open-ledger.ts";
import { decodeLines, encodeLines } from "../credits/charge-lines.ts";
import { NO_TOKENS } from "../credits/price.ts";
import { StoreUnavailableError } from "../errors.ts";

const fixture = setUpLedger();

describe("the sweeper", () => {
  test("expires the holds of ended processes page by page when it starts, and leaves running ones open", async () => {
    await fixture.reopen({ renewEveryMs: 60_000, sweepEveryMs: 60_000 });
    const pages: (string | null)[] = [];
    const look = fixture.books.recoverableHolds.bind(fixture.books);
    fixture.books.recoverableHolds = (search) => {
      pages.push(search.afterHoldId);
      return look(search);
    };
    await grantTo(fixture.ledger, "grant_2", 10_000n);
    for (let index = 0; index < 1_201; index += 1) fixture.leaveHold(`hold_${String(index).padStart(4, "0")}`);
    await fixture.hold("running", 1n);
    fixture.books.nowMs += HOLD_LIFE_MS;
    fixture.ledger.start();
    await until(() =>
      [...fixture.books.seen.values()].every(({ state, holdId }) => state === "recovered" || holdId === "running"),
    );
    expect(fixture.row("running")?.state).toBe("open");
    expect(pages).toEqual([null, "hold_0499", "hold_0999"]);
    expect(fixture.books.balances.get(ORGANIZATION)).toMatchObject({ available: 10_099n, held: 1n, spent: 0n });
  });

  test("continues with the next page when a hold cannot be expired", async () => {
    await fixture.reopen({ renewEveryMs: 60_000, sweepEveryMs: 60_000 });
    await grantTo(fixture.ledger, "grant_2", 10_000n);
    for (let index = 0; index < 700; index += 1) fixture.leaveHold(`hold_${String(index).padStart(4, "0")}`);
    fixture.books.failWith = (transitions) =>
      transitions.some((one) => "holdId" in one && one.holdId === "hold_0007") ? new Error("broken row") : undefined;
    fixture.books.nowMs += HOLD_LIFE_MS;
    fixture.ledger.start();
    await until(() => fixture.row("hold_0699")?.state === "recovered");
    const open = [...fixture.books.seen.values()].filter(({ state }) => state === "open");
    expect(open.map(({ holdId }) => holdId)).toEqual(["hold_0007"]);
  });

  test("logs that debts cannot be collected, and also that a hold cannot be expired", async () => {
    const collectDebts = () => Promise.reject(new Error("broken payment"));
    await fixture.reopen({ renewEveryMs: 60_000, sweepEveryMs: 5, collectDebts });
    fixture.leaveHold("left");
    fixture.books.failWith = (transitions) =>
      transitions.some((one) => "holdId" in one && one.holdId === "left") ? new Error("broken row") : undefined;
    fixture.books.nowMs += HOLD_LIFE_MS;
    fixture.ledger.start();
    await until(() => fixture.log.messages("error").length >= 2);
    await until(() => fixture.books.batches.length > 10);
    const failures = fixture.log.messages("error").filter((message) => message.endsWith(": it is retried"));
    expect(failures).toEqual([
      "collecting debts of payments failed: it is retried",
      "ending expired holds failed: it is retried",
    ]);
  });

  test("logs a shortfall", async () => {
    fixture.leaveHold("left");
    const left = fixture.books.holds.get(keyOf(ORGANIZATION, "left"));
    if (left === undefined) throw new Error("no hold");
    const { prices } = decodeLines(left.details.charge);
    const details = { ...left.details, charge: encodeLines({ ...NO_TOKENS, input: 500 }, prices) };
    fixture.books.holds.set(keyOf(ORGANIZATION, "left"), { ...left, details });
    fixture.books.nowMs += HOLD_LIFE_MS;
    fixture.ledger.start();
    await until(() => fixture.row("left")?.state === "recovered");
    await until(() => fixture.log.messages("error").length === 1);
    expect(fixture.log.messages("error")).toEqual(["credits did not cover an expired hold: the shortfall is recorded"]);
  });

  test("does not expire the hold of a running request although it could not be renewed", async () => {
    await fixture.hold("a");
    fixture.leaveHold("left");
    fixture.books.failWith = (_, durability) =>
      durability === "holds" ? new StoreUnavailableError("away") : undefined;
    fixture.books.nowMs += HOLD_LIFE_MS;
    fixture.ledger.start();
    await until(() => fixture.row("left")?.state === "recovered" && fixture.renewals() >= 3);
    expect(fixture.row("a")?.state).toBe("open");
  });

  test("expires the holds of a process whose spool it took over, and leaves those of others open", async () => {
    await fixture.ledger.stop();
    // A process that was killed leaves its file behind without a lock.
    const file = join(fixture.dataDir, "spool", "killed.jsonl");
    await writeFile(file, "");
    for (const [holdId, owner] of [
      ["early", "killed"],
      ["elsewhere", "other"],
    ] as const)
      fixture.leaveHold(holdId, owner);
    let looks = 0;
    const look = fixture.books.recoverableHolds.bind(fixture.books);
    fixture.books.recoverableHolds = (search) => {
      looks += 1;
      return look(search);
    };
    await fixture.reopen({ isShared: true, recoveryMs: 0, renewEveryMs: 5, sweepEveryMs: 5 });
    fixture.ledger.start();
    await until(() => looks >= 3);
    // Renewed meanwhile by a request that its process had sent before it was killed.
    fixture.books.bookOne({
      kind: "renew",
      facts: factsOf("early"),
      amount: 1n,
      tokens: NO_TOKENS,
      lifeMs: 900,
      owner: "killed",
    });
    looks = 0;
    await until(() => looks >= 3);
    expect(fixture.row("early")?.state).toBe("open");
    expect(existsSync(file)).toBe(true);
    fixture.clockMs += 10;
    await until(() => fixture.row("early")?.state === "recovered");
    await until(() => !existsSync(file));
    expect(fixture.row("elsewhere")?.state).toBe("open");
  });

  test("expires a hold of another process only after a life without a change, and waits again after an outage", async () => {
    await fixture.ledger.stop();
    fixture.leaveHold("left", "other");
    fixture.books.nowMs += HOLD_LIFE_MS * 2;
    let looks = 0;
    let isAway = false;
    const look = fixture.books.recoverableHolds.bind(fixture.books);
    fixture.books.recoverableHolds = async (search) => {
      looks += 1;
      if (isAway) throw new StoreUnavailableError("away");
      return look(search);
    };
    const looked = async () => {
      looks = 0;
      await until(() => looks >= 3);
    };
    await fixture.reopen({ isShared: true, recoveryMs: HOLD_LIFE_MS, sweepEveryMs: 5 });
    fixture.ledger.start();
    await looked();
    isAway = true;
    fixture.clockMs += HOLD_LIFE_MS;
    await looked();
    isAway = false;
    await looked();
    expect(fixture.row("left")?.state).toBe("open");
    fixture.clockMs += HOLD_LIFE_MS;
    await until(() => fixture.row("left")?.state === "recovered");
  });

  test("logs a failing store once a minute, and continues", async () => {
    fixture.leaveHold("left");
    fixture.books.nowMs += HOLD_LIFE_MS;
    let looks = 0;
    const look = fixture.books.recoverableHolds.bind(fixture.books);
    fixture.books.recoverableHolds = async (search) => {
      looks += 1;
      if (looks < 8) throw new StoreUnavailableError("away");
      return look(search);
    };
    fixture.ledger.start();
    await until(() => looks >= 4);
    expect(fixture.log.messages("error")).toHaveLength(1);
    fixture.clockMs += 60_000;
    await until(() => fixture.row("left")?.state === "recovered");
    expect(fixture.log.messages("error")).toHaveLength(2);
  });
});
