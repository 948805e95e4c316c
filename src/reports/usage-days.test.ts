import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { v7 } from "uuid";
import { afterAll, beforeAll, expect, test } from "vitest";
import { LATENCY_BOUNDS_MS, timeOfBucket } from "../api/latency.ts";
import { DAY_MS, isoDay } from "../api/time.ts";
import type { Trace } from "../credits/facts.ts";
import { FREE, NO_TOKENS } from "../credits/price.ts";
import { openStore } from "../stores/open.ts";
import type { Store } from "../stores/store.ts";
import { Overviews } from "./overview.ts";
import { ALL_ORGANIZATIONS, UsageDays } from "./usage-days.ts";

const HOUR_MS = 3_600_000;
const START = Date.UTC(2030, 0, 10, 12);
const directory = mkdtempSync(join(tmpdir(), "tollgate-usage-"));
const log = { debug() {}, info() {}, warn() {}, error() {} };
let nowMs = START;
const clock = () => nowMs;
let store: Store;
let days: UsageDays;
const newDays = () => new UsageDays({ rows: store.usage, books: store.books, clock, log });

beforeAll(async () => {
  store = await openStore({ database: null, dataDir: directory, role: "service", creates: true, clock });
  for (const id of ["org_a", "org_b"]) {
    await store.accounts.insertOrganization({ id, name: id, kind: "standard", createdAtMs: 0 });
    const grant = { kind: "grant" as const, organizationId: id, grantId: `grant_${id}`, amount: 1_000_000n };
    const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference: null };
    await store.books.apply("durable", [{ ...grant, ...terms }]);
  }
  days = newDays();
});
afterAll(async () => {
  await days.stop();
  await store.close();
  rmSync(directory, { recursive: true });
});

const factsOf = (organizationId: string, atMs: number, model = "m") => ({
  holdId: v7({ msecs: atMs }),
  organizationId,
  tokenId: `tok_${organizationId}`,
  requestId: "req",
  model,
  upstream: "up/m",
  prices: { ...FREE, output: 1_000_000n },
  metadata: null,
  idempotencyKey: null,
});
type Facts = ReturnType<typeof factsOf>;
const hold = (facts: Facts) =>
  store.books.apply("holds", [
    { kind: "hold", facts, callerId: facts.tokenId, least: 1n, most: 10n, lifeMs: 3_600_000, owner: "owner_1" },
  ]);
const settle = (facts: Facts, output: number, trace: Trace | null = null) =>
  store.books.apply("durable", [
    { kind: "settle", facts, tokens: { ...NO_TOKENS, output }, basis: "reported", end: "complete", trace },
  ]);
async function request(organizationId: string, atMs: number, output: number, model?: string) {
  const facts = factsOf(organizationId, atMs, model);
  await hold(facts);
  await settle(facts, output);
}
async function charged(organizationId: string, fromDay: number, toDay: number, from = days) {
  const { rows, pendingDays } = await from.usage(organizationId, fromDay, toDay);
  const models = rows.filter(({ dimension }) => dimension === "model");
  return { charged: models.reduce((sum, row) => sum + Number(row.charged), 0), pendingDays };
}

const TODAY = Date.UTC(2030, 0, 10);

test("the usage of the current day is up to date, for one organization and for all", async () => {
  await request("org_a", TODAY + HOUR_MS, 1);
  await request("org_a", START - 60_000, 2);
  await request("org_b", START - 60_000, 4);
  expect(await charged("org_a", TODAY, TODAY)).toEqual({ charged: 3, pendingDays: 0 });
  expect(await charged(ALL_ORGANIZATIONS, TODAY, TODAY)).toEqual({ charged: 7, pendingDays: 0 });
  await request("org_b", nowMs, 8);
  nowMs += 3_000;
  expect(await charged(ALL_ORGANIZATIONS, TODAY - 5 * DAY_MS, TODAY)).toEqual({ charged: 15, pendingDays: 0 });
});

test("a request that runs into the next hour is included once it has ended", async () => {
  const facts = factsOf("org_a", nowMs);
  await hold(facts);
  nowMs += 3 * HOUR_MS;
  expect((await charged("org_a", TODAY, TODAY)).charged).toBe(3);
  await settle(facts, 5);
  nowMs += 3_000;
  expect((await charged("org_a", TODAY, TODAY)).charged).toBe(8);
});

test("a finished day is summed up once none of its requests is running, and then read from the stored sums", async () => {
  const facts = factsOf("org_b", TODAY + DAY_MS - 1);
  nowMs = TODAY + DAY_MS - 1;
  await hold(facts);
  nowMs = TODAY + DAY_MS + 2 * HOUR_MS;
  await days.sumUp();
  expect(await store.usage.doneDays(TODAY, TODAY + DAY_MS)).toEqual([]);
  await settle(facts, 6);
  await days.sumUp();
  expect(await store.usage.doneDays(TODAY, TODAY + DAY_MS)).toEqual([TODAY]);
  for (const looked of [days, newDays()]) {
    expect(await charged(ALL_ORGANIZATIONS, TODAY, TODAY + DAY_MS, looked)).toEqual({ charged: 26, pendingDays: 0 });
  }
  await request("org_a", nowMs, 100);
  nowMs += 3_000;
  expect((await charged("org_a", TODAY, TODAY + DAY_MS)).charged).toBe(108);
});

test("days that are not summed up yet are pending until they are", async () => {
  nowMs = TODAY + 10 * DAY_MS;
  const late = newDays();
  expect(await charged(ALL_ORGANIZATIONS, TODAY - 90 * DAY_MS, TODAY + 10 * DAY_MS, late)).toEqual({
    charged: 26,
    pendingDays: 7,
  });
  await late.sumUp();
  expect(await charged(ALL_ORGANIZATIONS, TODAY - 90 * DAY_MS, TODAY + 10 * DAY_MS, late)).toEqual({
    charged: 126,
    pendingDays: 0,
  });
});

test("a failed query is not cached", async () => {
  let fails = true;
  const rows = Object.create(store.usage, {
    byDay: {
      value: (...words: Parameters<Store["usage"]["byDay"]>) =>
        fails ? Promise.reject(new Error("away")) : store.usage.byDay(...words),
    },
  }) as Store["usage"];
  const flaky = new UsageDays({ rows, books: store.books, clock, log });
  await expect(charged("org_a", TODAY, TODAY, flaky)).rejects.toThrow("away");
  fails = false;
  expect((await charged("org_a", TODAY, TODAY, flaky)).charged).toBe(8);
});

test("the costs of providers are summed up with the charges of their requests", async () => {
  const day = TODAY + 20 * DAY_MS;
  nowMs = day + HOUR_MS;
  const trace = { isStreamed: false, firstTokenMs: null, attempts: null, failure: null, providerResponseId: null };
  for (const [output, providerCost] of [
    [1, "0.1"],
    [2, "0.2000000001"],
    [4, null],
  ] as const) {
    const facts = factsOf("org_a", nowMs, "costed");
    await hold(facts);
    await settle(facts, output, { ...trace, providerCost });
  }
  const expected = { requests: 3, charged: 7n, providerCost: 3_000_000_001n, chargedWithCost: 3n };
  const sums = async (looked: UsageDays) => {
    const { rows } = await looked.usage(ALL_ORGANIZATIONS, day, day);
    return rows.filter(({ dimension }) => dimension !== "first_token");
  };
  for (const row of await sums(newDays())) expect(row).toMatchObject(expected);
  nowMs = day + DAY_MS + 2 * HOUR_MS;
  await days.sumUp();
  const stored = await sums(newDays());
  expect(stored.map(({ dimension }) => dimension).sort()).toEqual(["model", "organization", "route", "token"]);
  for (const row of stored) expect(row).toMatchObject(expected);
});

test("the latencies of a model are those of its finished hours, by day and by route, and are stored with the day", async () => {
  const day = TODAY + 30 * DAY_MS;
  nowMs = day + HOUR_MS;
  const trace = { isStreamed: true, attempts: null, failure: null, providerResponseId: null, providerCost: null };
  for (const [upstream, firstTokenMs, durationMs, end] of [
    ["up/fast", 100, 2_000, "complete"],
    ["up/fast", 100, 3_000, "complete"],
    ["up/slow", 9_000, 40_000, "complete"],
    // A part of an answer has no duration.
    ["up/fast", 100, 500_000, "client_disconnected"],
  ] as const) {
    const facts = { ...factsOf(upstream === "up/fast" ? "org_a" : "org_b", nowMs, "timed"), upstream };
    await hold(facts);
    nowMs += durationMs;
    await store.books.apply("durable", [
      { kind: "settle", facts, tokens: NO_TOKENS, basis: "reported", end, trace: { ...trace, firstTokenMs } },
    ]);
  }
  const latencies = (of: UsageDays) => {
    const none = { rows: store.usage, refusals: store.refusals, perDollar: () => "1" };
    return new Overviews({ ...none, days: of, clock }).latencies({ model: "timed", fromDay: day - DAY_MS, toDay: day });
  };
  const nothing = { first_token_ms: null, duration_ms: null };
  const [yesterday, today] = [day - DAY_MS, day].map(isoDay);
  const open = newDays();
  const unmeasured = [yesterday, today].map((of) => ({ day: of, ...nothing }));
  expect((await latencies(open)).data).toEqual([{ route: null, days: unmeasured }]);
  const near = (ms: number) => timeOfBucket(LATENCY_BOUNDS_MS.findIndex((bound) => ms < bound));
  const timesOf = (first: number[], durations: number[]) => {
    const toTimes = ([p50 = 0, p95 = 0]: number[]) => ({ p50: near(p50), p95: near(p95) });
    return [
      { day: yesterday, ...nothing },
      { day: today, first_token_ms: toTimes(first), duration_ms: toTimes(durations) },
    ];
  };
  const expected = {
    pending_days: 0,
    data: [
      { route: null, days: timesOf([100, 9_000], [3_000, 40_000]) },
      { route: "up/fast", days: timesOf([100, 100], [2_000, 3_000]) },
      { route: "up/slow", days: timesOf([9_000, 9_000], [40_000, 40_000]) },
    ],
  };
  nowMs = day + 3 * HOUR_MS;
  expect(await latencies(open)).toMatchObject(expected);
  nowMs = day + DAY_MS + 2 * HOUR_MS;
  await days.sumUp();
  for (const of of [open, newDays()]) expect(await latencies(of)).toMatchObject(expected);
});

/** Returns the rows of the store, and the times of the hours of which requests have been read. */
function recordedRows() {
  const hours: number[] = [];
  const requests = {
    value: (fromMs: number, toMs: number) => {
      hours.push(fromMs);
      return store.usage.requests(fromMs, toMs);
    },
  };
  return { hours, rows: Object.create(store.usage, { requests }) as Store["usage"] };
}

test("once the days are summed up, a query reads the current hour only", async () => {
  const day = TODAY + 32 * DAY_MS;
  nowMs = day + 5.5 * HOUR_MS;
  const { rows, hours: read } = recordedRows();
  const early = new UsageDays({ rows, books: store.books, clock, log });
  await early.refresh();
  expect(read.length).toBeGreaterThan(1);
  read.length = 0;
  await request("org_a", nowMs, 9);
  expect(await charged(ALL_ORGANIZATIONS, day - DAY_MS, day, early)).toEqual({ charged: 9, pendingDays: 0 });
  expect(read).toEqual([day + 5 * HOUR_MS]);
});

test("summing up days alone reads no open day", async () => {
  nowMs = TODAY + 34.5 * DAY_MS;
  const { rows, hours: read } = recordedRows();
  await new UsageDays({ rows, books: store.books, clock, log }).sumUp();
  expect(read.length).toBeGreaterThan(1);
  expect(read.filter((hour) => hour >= TODAY + 34 * DAY_MS)).toEqual([]);
});

test("a failure to count latencies is logged, and the usage is summed up without them", async () => {
  const day = TODAY + 36 * DAY_MS;
  nowMs = day + HOUR_MS;
  await request("org_a", nowMs, 7);
  const warned: string[] = [];
  const latencyCounts = { value: () => Promise.reject(new Error("too slow")) };
  const rows = Object.create(store.usage, { latencyCounts }) as Store["usage"];
  const warn = (_: object, message: string) => void warned.push(message);
  const failing = new UsageDays({ rows, books: store.books, clock, log: { warn } });
  nowMs = day + 3 * HOUR_MS;
  expect(await charged("org_a", day, day, failing)).toEqual({ charged: 7, pendingDays: 0 });
  nowMs = day + DAY_MS + 2 * HOUR_MS;
  await failing.sumUp();
  expect(await store.usage.doneDays(day, day + DAY_MS)).toEqual([day]);
  expect((await charged("org_a", day, day)).charged).toBe(7);
  expect(new Set(warned)).toEqual(
    new Set(["the latencies of an hour could not be counted: they are not in the reports"]),
  );
});

test("finished days are cached up to a number of rows, whatever the number of ranges", async () => {
  const [row] = (await days.usage(ALL_ORGANIZATIONS, TODAY, TODAY)).rows;
  let read = 0;
  const tokens = { length: 100_000, row };
  const together = {
    value: async (dimension: string) => {
      if (dimension === "token") read += 1;
      return dimension === "token" ? Array.from({ length: tokens.length }, () => tokens.row) : [];
    },
  };
  const rows = Object.create(store.usage, { together }) as Store["usage"];
  const many = new UsageDays({ rows, books: store.books, clock, log });
  const usage = async (toDay: number) => (await many.usage(ALL_ORGANIZATIONS, TODAY, toDay)).rows.length;
  const [first, second, third] = [TODAY, TODAY + DAY_MS, TODAY + 2 * DAY_MS];
  for (const day of [first, first, second, second]) expect(await usage(day)).toBeGreaterThan(100_000);
  const before = read;
  for (const day of [first, second]) await usage(Number(day));
  expect(read).toBe(before);
  await usage(third);
  await usage(first);
  expect(read).toBe(before + 2);
  tokens.length = 300_000;
  for (let times = 0; times < 2; times += 1) expect(await usage(TODAY + 3 * DAY_MS)).toBeGreaterThan(300_000);
  expect(read).toBe(before + 4);
});
