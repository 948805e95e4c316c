import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { keepLog } from "../../test/support/log.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { RefusalDayRow, RefusalRow } from "../stores/queries/refusals.ts";
import { type Refusal, RefusalLog } from "./refusal-log.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const refusal: Refusal = {
  organizationId: "org_1",
  tokenId: "tok_1",
  requestId: "req_1",
  endpoint: "POST /v1/chat/completions",
  model: "m",
  status: 429,
  code: "rate_limit_exceeded",
  message: "A rate limit was reached.",
  durationMs: 1,
};

function open() {
  const written: RefusalRow[] = [];
  const counted: RefusalDayRow[] = [];
  const store = { isUnavailable: false };
  const log = keepLog();
  let made = 0;
  const rows = {
    insert: async (given: readonly RefusalRow[]) => {
      if (store.isUnavailable) throw new StoreUnavailableError("unavailable");
      written.push(...given);
    },
    addToDays: async (given: readonly RefusalDayRow[]) => {
      if (store.isUnavailable) throw new StoreUnavailableError("unavailable");
      counted.push(...structuredClone(given));
    },
  };
  const nextId = () => {
    made += 1;
    return `id_${made}`;
  };
  const refusals = new RefusalLog({ rows, clock: Date.now, newId: nextId, log });
  return { refusals, written, counted, store, log };
}

test("equal refusals are counted on one row until it is written", async () => {
  const { refusals, written } = open();
  for (let sent = 0; sent < 500; sent += 1) refusals.note({ ...refusal, requestId: `req_${sent}` });
  refusals.note({ ...refusal, model: "other" });
  await refusals.write();
  expect(written).toEqual([
    { ...refusal, id: "id_1", requestId: "req_0", count: 500 },
    { ...refusal, id: "id_2", model: "other", count: 1 },
  ]);
});

test("an organization with many refusals writes a limited number of rows, and does not displace others", async () => {
  const { refusals, written } = open();
  let sent = 0;
  for (let second = 0; second < 3_600; second += 1) {
    for (let index = 0; index < 20; index += 1) {
      sent += 1;
      refusals.note({ ...refusal, model: `m${sent}` });
    }
    vi.advanceTimersByTime(1_000);
    await refusals.write();
  }
  expect(written.length).toBeLessThanOrEqual(60 + 360);
  refusals.note({ ...refusal, organizationId: "org_2" });
  await refusals.write();
  expect(written.at(-1)?.organizationId).toBe("org_2");
});

test("refusals that cannot be written are dropped and logged, and a stop writes the rest", async () => {
  const { refusals, written, store, log } = open();
  store.isUnavailable = true;
  for (let sent = 0; sent < 7; sent += 1) refusals.note(refusal);
  await refusals.write();
  store.isUnavailable = false;
  refusals.note(refusal);
  await refusals.stop();
  expect(written).toMatchObject([{ count: 1 }]);
  expect(log.lines).toMatchObject([{ level: "warn", fields: { dropped: 7 } }]);
});

test("every refusal is counted for its day, also those that are missing from the list", async () => {
  vi.setSystemTime(Date.UTC(2026, 10, 25, 23, 59, 59));
  const { refusals, counted, store } = open();
  store.isUnavailable = true;
  for (let sent = 0; sent < 500; sent += 1) refusals.note({ ...refusal, model: `m${sent}` });
  await refusals.write();
  vi.advanceTimersByTime(1_000);
  refusals.note({ ...refusal, organizationId: "org_2", code: "insufficient_credits" });
  store.isUnavailable = false;
  await refusals.stop();
  const [before, after] = [Date.UTC(2026, 10, 25), Date.UTC(2026, 10, 26)];
  expect(counted).toEqual([
    { organizationId: "*", day: before, code: "rate_limit_exceeded", requests: 500 },
    { organizationId: "*", day: after, code: "insufficient_credits", requests: 1 },
    { organizationId: "org_1", day: before, code: "rate_limit_exceeded", requests: 500 },
    { organizationId: "org_2", day: after, code: "insufficient_credits", requests: 1 },
  ]);
});
