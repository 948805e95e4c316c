import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { AccessEntry } from "./logger.ts";
import { type AccessLogOptions, BoundedAccessLog } from "./logger.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const entry: AccessEntry = {
  requestId: "req_1",
  method: "POST",
  route: "/v1/chat/completions",
  status: 200,
  code: null,
  organizationId: "org_1",
  tokenId: "tok_1",
  model: "m",
  durationMs: 3,
};

function open(options: Partial<AccessLogOptions> = {}) {
  const chunks: string[] = [];
  const text = () => chunks.join("");
  const settings = {
    level: "info",
    sampleRate: 1,
    failuresPerMinute: 600,
    clock: Date.now,
    random: () => 0.5,
  } as const;
  const log = new BoundedAccessLog({ ...settings, write: (lines) => void chunks.push(lines), ...options });
  const lines = () => {
    log.flush();
    return text()
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  };
  return { log, lines, text };
}

test("a request is one line with its status, organization, token, model, duration and request id", () => {
  const { log, lines } = open();
  log.record(entry);
  expect(lines()).toEqual([{ level: "info", time: expect.stringMatching(/^\d{4}-.*Z$/), ...entry, msg: "request" }]);
});

test("a line has the further fields that are defined", () => {
  const { log, lines } = open();
  log.record(entry, { credits: "1.5", upstream: undefined });
  expect(lines()).toEqual([{ level: "info", time: expect.any(String), ...entry, credits: "1.5", msg: "request" }]);
});

test("a level above that of a line hides it", () => {
  const { log, lines } = open({ level: "warn" });
  log.record(entry);
  log.configure({ level: "silent", sampleRate: 1, failuresPerMinute: 600 });
  log.record({ ...entry, code: "upstream_error" });
  expect(lines()).toEqual([]);
});

test("lines are written within a tenth of a second, together", () => {
  const { log, text } = open();
  log.record(entry);
  log.record(entry);
  expect(text()).toBe("");
  vi.advanceTimersByTime(100);
  expect(text().match(/\n/g)).toHaveLength(2);
});

test("successful requests are sampled, and failed requests are not", () => {
  const { log, lines } = open({ sampleRate: 0.4 });
  log.record(entry);
  log.record({ ...entry, status: 402, code: "insufficient_credits" });
  // A stream that breaks off has sent its status already.
  log.record({ ...entry, code: "upstream_error" });
  expect(lines()).toMatchObject([{ status: 402 }, { status: 200, code: "upstream_error", level: "warn" }]);
});

test("failed requests are limited for each organization and code, and the rest is counted", () => {
  const { log, lines } = open({ failuresPerMinute: 100 });
  const flood = { ...entry, status: 429, code: "rate_limit_exceeded" };
  for (let sent = 0; sent < 10_000; sent += 1) log.record(flood);
  log.record({ ...entry, organizationId: "org_2", status: 404, code: "model_not_found" });
  for (let sent = 0; sent < 1_000; sent += 1) {
    log.record({ ...entry, organizationId: `org_${sent}`, status: 401, code: "invalid_token" });
  }
  const before = lines();
  expect(before.length).toBeLessThanOrEqual(100);
  expect(before.filter(({ organizationId }) => organizationId === "org_2").length).toBeGreaterThan(0);
  vi.advanceTimersByTime(60_000);
  const { counts } = lines().at(-1) as { counts: Record<string, number> };
  expect(counts.rate_limit_exceeded).toBe(9_990);
  expect(before.length + Object.values(counts).reduce((sum, count) => sum + count)).toBe(11_001);
  log.record(flood);
  expect(lines().at(-1)).toMatchObject({ code: "rate_limit_exceeded" });
});

test("no input of a caller breaks a line, and no line contains a token", () => {
  const { log, lines, text } = open();
  const model = "sk-tg-abcdefSECRET\r\n{}";
  log.record({ ...entry, model, status: 404, code: "model_not_found" });
  expect(lines()).toHaveLength(1);
  expect(text()).not.toContain("SECRET");
});
