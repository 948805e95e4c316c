import { afterEach, expect, test, vi } from "vitest";
import { DAY_MS } from "../../api/time.ts";
import { idAt } from "../../credits/request-id.ts";
import type { Database } from "../database.ts";
import { walkBack } from "./requests.ts";

const TO_MS = Date.UTC(2025, 0, 31);
const FROM_MS = TO_MS - 30 * DAY_MS;
const FILTER = {
  ...{ organizationId: null, tokenId: null, model: null, id: null, requestId: null, budgetId: null },
  ...{ status: null, failure: null, route: null, metadata: null, chargedMin: null },
  ...{ fromMs: FROM_MS, toMs: TO_MS },
};
const database = { read: async () => [{ first_id: idAt(0) }] } as unknown as Database;

afterEach(() => {
  vi.restoreAllMocks();
});

test("a search whose stretches cost the same, whatever their length, reads 30 days in few pages", async () => {
  let nowMs = 0;
  vi.spyOn(performance, "now").mockImplementation(() => nowMs);
  const bounds: string[] = [];
  let pages = 0;
  for (let before: string | null = null; pages === 0 || before !== null; pages += 1) {
    const startedMs = nowMs;
    before = await walkBack(database, FILTER, { before }, async ({ from, to }) => {
      bounds.push(to, from);
      nowMs += 60;
      return false;
    });
    expect(nowMs - startedMs).toBeLessThanOrEqual(250);
  }
  expect(pages).toBeLessThanOrEqual(52);
  expect([bounds[0], bounds.at(-1)]).toEqual([idAt(TO_MS), idAt(FROM_MS)]);
  // Each stretch begins where the one before ended.
  for (let index = 2; index < bounds.length; index += 2) expect(bounds[index]).toBe(bounds[index - 1]);
});

test("a search whose stretches cost what they contain exceeds the time limit by little", async () => {
  let nowMs = 0;
  vi.spyOn(performance, "now").mockImplementation(() => nowMs);
  const to = idAt(TO_MS);
  for (const msPerMinute of [0.1, 1, 3, 6, 12, 20]) {
    const startedMs = nowMs;
    await walkBack(database, FILTER, { before: to }, async (range) => {
      nowMs += msPerMinute * (timeOf(range.to) - timeOf(range.from)) * (1 / 60_000);
      return false;
    });
    expect([msPerMinute, nowMs - startedMs < 750]).toEqual([msPerMinute, true]);
  }
});

/** Returns the time of a UUIDv7. */
function timeOf(id: string): number {
  return Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16);
}
