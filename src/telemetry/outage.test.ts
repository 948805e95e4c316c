import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import { createOutage } from "./outage.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function start() {
  const log = keepLog();
  const texts = { begins: "it is unavailable", lasts: "it is still unavailable", ends: "it is available again" };
  return { log, outage: createOutage({ log, level: "error", texts, clock: Date.now }) };
}

test("an outage is logged once when it begins, once a minute with a count, and once when it is over", () => {
  const { log, outage } = start();
  outage.succeeded();
  for (let second = 0; second < 150; second += 1) {
    for (let client = 0; client < 50; client += 1) outage.failed({ client });
    vi.advanceTimersByTime(1_000);
  }
  outage.succeeded();
  vi.advanceTimersByTime(60_000);
  expect(log.lines).toEqual([
    { level: "error", message: "it is unavailable", fields: { client: 0 } },
    { level: "error", message: "it is still unavailable", fields: { failures: 3_000, seconds: 60 } },
    { level: "error", message: "it is still unavailable", fields: { failures: 3_000, seconds: 60 } },
    { level: "info", message: "it is available again", fields: { failures: 7_500, durationMs: 150_000 } },
  ]);
});

test("alternating failures and successes are one outage", () => {
  const { log, outage } = start();
  for (let round = 0; round < 100; round += 1) {
    outage.failed({});
    vi.advanceTimersByTime(100);
    outage.succeeded();
    vi.advanceTimersByTime(100);
  }
  expect(log.lines.map(({ message }) => message)).toEqual(["it is unavailable"]);
  vi.advanceTimersByTime(2_000);
  expect(log.lines.map(({ message }) => message)).toEqual(["it is unavailable", "it is available again"]);
});

test("a minute without a failure writes no line", () => {
  const { log, outage } = start();
  outage.failed({});
  vi.advanceTimersByTime(600_000);
  expect(log.lines).toHaveLength(2);
});
