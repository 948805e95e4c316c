import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { type ResponseItemsOptions, responseItemsOver } from "./response-items.ts";

const OWNER = { organizationId: "org_1", callerId: "tok_1" };
const LIMIT = 8_000;

function itemsWith(
  insert: ResponseItemsOptions["rows"]["insert"],
  { waitMs, limitBytes = LIMIT }: { waitMs?: number; limitBytes?: number } = {},
) {
  const warnings: object[] = [];
  const log = { debug() {}, info() {}, error() {}, warn: (fields: object) => void warnings.push(fields) };
  const none = async () => 0;
  const rows = {
    insert,
    sizes: async () => [],
    contents: async () => [],
    hasAnswer: async () => false,
    offer: async () => {},
    take: async () => undefined,
    removeAnswer: none,
    removeOf: none,
  };
  const config = { responses: { keepHours: 1, limitBytes }, conversations: { keepDays: 1 } };
  const options = { clock: () => 5, ...(waitMs !== undefined && { waitMs }) };
  return { warnings, items: responseItemsOver({ rows, live: { config }, log, ...options }) };
}

const contentOf = (id: string, bytes: number) => ({ id, content: "x".repeat(bytes) });

test("Old items are removed at the first write of a process, and after each eighth of the limit.", async () => {
  const removed: (number | undefined)[] = [];
  const { items } = itemsWith(async (_owner, _rows, keptBytesMax) => void removed.push(keptBytesMax));
  for (const id of ["a", "b", "c", "d"]) await items.keep(OWNER, "resp_1", [contentOf(id, 500)]);
  await items.keep({ ...OWNER, callerId: "tok_2" }, "resp_1", [contentOf("a", 500)]);
  expect(removed).toEqual([7_000, undefined, undefined, 7_000, 7_000]);
});

test("An item above an eighth of the limit is not kept, the others of its response are.", async () => {
  const written: string[][] = [];
  const { items } = itemsWith(async (_owner, rows) => void written.push(rows.map(({ id, bytes }) => `${id} ${bytes}`)));
  await items.keep(OWNER, "resp_1", [contentOf("a", 1_001), contentOf("b", 1_000), { id: "c", content: "日" }]);
  expect(written).toEqual([["b 1000", "c 3"]]);
});

test("An answer does not wait for a store that does not answer, and no content is logged.", async () => {
  const { items, warnings } = itemsWith(() => new Promise(() => {}), { waitMs: 5 });
  await items.keep(OWNER, "resp_1", [contentOf("a", 1)]);
  const failing = itemsWith(async () => {
    throw Object.assign(new Error("no room"), { rows: ["secret"] });
  });
  await failing.items.keep(OWNER, "resp_1", [contentOf("a", 1)]);
  expect(warnings).toEqual([{ ...OWNER, reason: "The store took longer than 5 ms" }]);
  expect(failing.warnings).toEqual([{ ...OWNER, reason: "no room" }]);
});

test("An organization writes long items one at a time, and nobody else waits for them.", async () => {
  const begun: string[] = [];
  const pending: (() => void)[] = [];
  const insert: ResponseItemsOptions["rows"]["insert"] = ({ callerId }) => {
    begun.push(callerId);
    return new Promise((resolve) => pending.push(resolve));
  };
  const { items } = itemsWith(insert, { waitMs: 600_000, limitBytes: 8 * 1024 * 1024 });
  const keep = (organizationId: string, callerId: string, bytes: number) =>
    items.keep({ organizationId, callerId }, "resp_1", [contentOf("a", bytes)]);
  const kept = [
    keep("org_1", "first", 300_000),
    keep("org_1", "second", 300_000),
    keep("org_1", "short", 1_000),
    keep("org_2", "other", 300_000),
  ];
  expect(begun.toSorted()).toEqual(["first", "other", "short"]);
  while (pending.length > 0 || begun.length < kept.length) {
    pending.shift()?.();
    await nextTurn();
  }
  await Promise.all(kept);
  expect(begun.at(-1)).toBe("second");
});
