import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { ConversationRow } from "../stores/queries/conversations.ts";
import { ConversationKeeper, type ConversationKeeperOptions } from "./conversation-log.ts";

const AWAY = new StoreUnavailableError("away");

/** A keeper over rows of the test's own: `insert` says what becomes of each batch. */
function setUp(options: Partial<ConversationKeeperOptions> = {}) {
  const log = keepLog();
  const written: ConversationRow[] = [];
  const batches: number[] = [];
  const state: { insert: (rows: readonly ConversationRow[]) => Promise<void> } = { insert: async () => {} };
  const rows = {
    insert: async (batch: readonly ConversationRow[]) => {
      await state.insert(batch);
      batches.push(batch.length);
      written.push(...batch);
    },
    removeOld: async () => 0,
  };
  const keeper = new ConversationKeeper({
    rows,
    keptMs: 1_000,
    limitBytes: 100_000,
    clock: () => 7,
    log,
    gatherMs: 5,
    retryMs: 5,
    ...options,
  });
  const keep = (holdId: string, content = "Hello", answer: () => null = () => null) =>
    keeper.keep({
      organizationId: "org_1",
      holdId,
      request: { model: "m", messages: [{ role: "user", content }] },
      answer,
    });
  const ids = () => written.map(({ holdId }) => holdId);
  const dropped = () => log.lines.flatMap(({ fields }) => fields.dropped ?? []);
  return { keeper, keep, state, written, batches, ids, dropped, log };
}

test("nothing is made of a conversation in the turn in which it is handed over, and what comes together is written so", async () => {
  const { keeper, keep, written, batches, ids } = setUp();
  const asked: string[] = [];
  for (const id of ["a", "b"])
    keep(id, "Hello", () => {
      asked.push(id);
      return null;
    });
  expect(asked).toEqual([]);
  await nextTurn();
  expect(asked).toEqual(["a", "b"]);
  await expect.poll(ids).toEqual(["a", "b"]);
  expect(batches).toEqual([2]);
  const request = JSON.stringify({ model: "m", messages: [{ role: "user", content: "Hello" }] });
  const row = { organizationId: "org_1", endedAtMs: 7, isTruncated: false, request, answer: null };
  expect(written[0]).toEqual({ ...row, holdId: "a" });
  await keeper.stop();
});

test("many are written a chunk at a time, by their number and by their length", async () => {
  const short = setUp();
  for (let index = 0; index < 120; index += 1) short.keep(`${index}`);
  await expect.poll(() => short.ids().length).toBe(120);
  expect(short.batches).toEqual([50, 50, 20]);
  const long = setUp();
  for (let index = 0; index < 10; index += 1) long.keep(`${index}`, "x".repeat(90_000));
  await expect.poll(() => long.ids().length).toBe(10);
  expect(Math.max(...long.batches)).toBe(5);
  await Promise.all([short.keeper.stop(), long.keeper.stop()]);
});

test("while the store is away they wait, as far as there is room: the rest is dropped, and counted once", async () => {
  const { keeper, keep, state, ids, dropped } = setUp({ queueBytesMax: 10_000 });
  state.insert = () => Promise.reject(AWAY);
  for (let index = 0; index < 20; index += 1) keep(`${index}`, "x".repeat(900));
  await nextTurn();
  expect(dropped()).toEqual([10]);
  keep("late", "x".repeat(900));
  await nextTurn();
  expect(dropped()).toEqual([10]);
  state.insert = async () => {};
  await expect.poll(ids).toEqual(["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
  keep("again");
  await expect.poll(() => ids().at(-1)).toBe("again");
  await keeper.stop();
  expect(dropped()).toEqual([10, 1]);
});

test("one that cannot be written keeps no other from it, and nothing of it is in the log", async () => {
  const { keeper, keep, state, ids, dropped, log } = setUp();
  state.insert = async (rows) => {
    if (rows.some(({ holdId }) => holdId === "bad")) throw Object.assign(new Error("no"), { detail: "canary" });
  };
  for (const id of ["a", "bad", "b"]) keep(id, "canary");
  await expect.poll(ids).toEqual(["a", "b"]);
  await keeper.stop();
  expect(dropped()).toEqual([1]);
  expect(log.messages("error")).toEqual(["a conversation cannot be written"]);
  expect(JSON.stringify(log.lines)).not.toContain("canary");
});

test("what cannot even be put into JSON is dropped, and harms nobody", async () => {
  const { keeper, keep, ids, dropped } = setUp();
  const deep = () => {
    throw new RangeError("Maximum call stack size exceeded");
  };
  keep("deep", "Hello", deep);
  keep("fine");
  await expect.poll(ids).toEqual(["fine"]);
  await keeper.stop();
  expect(dropped()).toEqual([1]);
});

test("a stop writes what waits, and what was handed over last", async () => {
  const { keeper, keep, ids } = setUp({ gatherMs: 60_000 });
  keep("a");
  await nextTurn();
  keep("b");
  await keeper.stop();
  expect(ids()).toEqual(["a", "b"]);
});

test("a stop waits for no store that is away, and says how many were lost", async () => {
  const { keeper, keep, state, ids, dropped } = setUp({ retryMs: 60_000 });
  state.insert = () => Promise.reject(AWAY);
  for (let index = 0; index < 60; index += 1) keep(`${index}`);
  await keeper.stop();
  expect(ids()).toEqual([]);
  expect(dropped()).toEqual([60]);
});

test("removes what is past its time from its start on, until nothing is left, and says where it cannot", async () => {
  const asked: [number, number][] = [];
  const left = [50, 50, 3];
  const removeOld = async (keptMs: number, limit: number) => {
    asked.push([keptMs, limit]);
    return left.shift() ?? 0;
  };
  const { keeper } = setUp({ rows: { insert: async () => {}, removeOld } });
  expect(asked).toEqual([]);
  keeper.start();
  await expect
    .poll(() => asked)
    .toEqual([
      [1_000, 50],
      [1_000, 50],
      [1_000, 50],
    ]);
  await keeper.stop();
  const broken = setUp({ rows: { insert: async () => {}, removeOld: () => Promise.reject(AWAY) } });
  broken.keeper.start();
  await expect.poll(() => broken.log.messages("warn")).toHaveLength(1);
  await broken.keeper.stop();
});
