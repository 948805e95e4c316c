import { v7 } from "uuid";
import { expect, test } from "vitest";
import { type Histogram, LATENCY_BOUNDS_MS } from "../../src/api/latency.ts";
import type { HoldTransition } from "../../src/credits/books.ts";
import type { Trace } from "../../src/credits/facts.ts";
import { NO_USAGE, sumOf } from "../../src/credits/usage-counts.ts";
import type { UsageDayRow } from "../../src/stores/queries/usage.ts";
import { factsOf, holdOf, NO_PROVIDER_RECORD, releaseOf, type Subject, settleOf } from "./fixture.ts";

/** A period in which no other case creates holds. */
const DAY = Date.UTC(2021, 4, 3);
const HOUR_MS = 3_600_000;
const trace = (fields: Partial<Trace>): Trace => {
  return { isStreamed: false, firstTokenMs: null, attempts: null, failure: null, ...NO_PROVIDER_RECORD, ...fields };
};

export function usageCases(subject: Subject): void {
  sumCase(subject);
  costCase(subject);
  latencyCase(subject);
  dayCases(subject);
}

function sumCase(subject: Subject): void {
  const made = (organizationId: string, atMs: number, facts: object): Promise<HoldTransition> => {
    const holdId = v7({ msecs: atMs });
    return subject.held({ ...holdOf(organizationId, 50n), facts: factsOf(organizationId, { holdId, ...facts }) });
  };

  test("requests of a period are added up by organization, token, model, route and time to the first token", async () => {
    const [first, second] = [await subject.organization(1_000n), await subject.organization(1_000n)];
    const shop = { tokenId: "tok_a", model: "m/a" };
    for (const [output, firstTokenMs] of [
      [3, 100],
      [4, 100],
      [5, 9_000],
    ] as const) {
      const hold = await made(first, DAY + 5, shop);
      await subject.one({ ...settleOf(hold, output), trace: trace({ firstTokenMs }) });
    }
    const failed = await made(second, DAY + HOUR_MS - 1, { tokenId: "tok_b", model: "m/b" });
    await subject.one({ ...releaseOf(failed), trace: trace({ failure: "upstream_error" }) });
    await made(second, DAY + 6, { tokenId: "tok_b", model: "m/b" });
    for (const outside of [DAY - 1, DAY + HOUR_MS]) await made(first, outside, shop);
    const sums = await subject.store.usage.requests(DAY, DAY + HOUR_MS);
    const bucketOf = (timeMs: number) => LATENCY_BOUNDS_MS.findIndex((bound) => timeMs < bound);
    const common = { ...NO_USAGE, open: 0 };
    const ofFirst = { ...common, organizationId: first, ...shop, route: "sandbox/echo" };
    const ofSecond = { organizationId: second, tokenId: "tok_b", model: "m/b", route: "sandbox/echo", bucket: null };
    expect(sums.length).toBe(4);
    expect(sums).toEqual(
      expect.arrayContaining([
        { ...ofFirst, bucket: bucketOf(100), requests: 2, charged: 7n, outputTokens: 7 },
        { ...ofFirst, bucket: bucketOf(9_000), requests: 1, charged: 5n, outputTokens: 5 },
        { ...common, ...ofSecond, requests: 1, errors: 1 },
        { ...common, ...ofSecond, requests: 1, open: 1 },
      ]),
    );
    const latencies = await subject.store.usage.latencyCounts(DAY, DAY + HOUR_MS);
    const ended = latencies.filter(({ model, route }) => model === "m/a" && route === "sandbox/echo");
    const requestsOf = (timeMs: number) =>
      ended
        .filter(({ firstToken }) => firstToken === bucketOf(timeMs))
        .reduce((sum, { requests }) => sum + requests, 0);
    expect([requestsOf(100), requestsOf(9_000)]).toEqual([2, 1]);
    expect(ended.filter(({ duration }) => duration === null)).toEqual([]);
    const failure = { model: "m/b", route: "sandbox/echo", firstToken: null, duration: null, requests: 1 };
    expect(latencies.filter(({ model }) => model === "m/b")).toEqual([failure]);
    expect((await subject.store.usage.firstRequestMs()) ?? 0).toBeLessThanOrEqual(DAY - 1);
  });
}

function costCase(subject: Subject): void {
  test("provider costs are added up exactly, apart from those of late settlements, next to the charges of their requests", async () => {
    const id = await subject.organization(1_000n);
    const began = DAY + 12 * HOUR_MS;
    const held = (lifeMs?: number) => {
      const facts = factsOf(id, { holdId: v7({ msecs: began }), tokenId: "tok_c", model: "m/c" });
      return subject.held({ ...holdOf(id, 50n, lifeMs), facts });
    };
    const costs = ["0.0000000001", "0.1", "0.2", "1000", "0"];
    for (const providerCost of costs) {
      await subject.one({ ...settleOf(await held(), 3), trace: trace({ providerCost }) });
    }
    await subject.one({ ...settleOf(await held(), 40), trace: trace({}) });
    await subject.one(settleOf(await held(), 50));
    await subject.one({ ...releaseOf(await held()), trace: trace({ providerCost: "0.5", failure: "upstream_error" }) });
    const late = await held(-1_000);
    await subject.one({ kind: "expire", organizationId: id, holdId: late.facts.holdId });
    await subject.one({ ...settleOf(late, 8), trace: trace({ providerCost: "7" }) });
    await held();
    expect(sumOf(await subject.store.usage.requests(began, began + 1))).toMatchObject({
      requests: 10,
      charged: 113n,
      providerCost: 10_008_000_000_001n,
      chargedWithCost: 15n,
    });
    const stored = (await subject.events(id)).map(({ providerCost }) => providerCost);
    expect(stored.filter((cost) => cost !== null).sort()).toEqual([...costs, "7"].sort());
  });
}

function latencyCase(subject: Subject): void {
  test("latencies are stored with their day, replaced by those of a second run, and read by model", async () => {
    const { usage } = subject.store;
    const row = (model: string, route: string, firstTokens: Histogram, durations: Histogram = { 70: 1 }) => {
      return { day: DAY, model, route, firstTokens, durations };
    };
    const [first, second] = [row("m/a", "up/a", { 3: 1, 12: 5 }), row("m/a", "up/b", { 3: 2 })];
    await usage.finishDay(DAY, [], 1, [first, second, row("m/b", "up/a", {})]);
    expect(await usage.latencies("m/a", [DAY])).toHaveLength(2);
    const again = row("m/a", "up/a", { 3: 1 }, { 71: 2 });
    await usage.finishDay(DAY, [], 2, [again]);
    const stored = await usage.latencies("m/a", [DAY, DAY + 24 * HOUR_MS]);
    expect(stored.sort((a, b) => (a.route < b.route ? -1 : 1))).toEqual([again, second]);
    expect(await usage.latencies("m/a", [])).toEqual([]);
    expect(await usage.latencies("m/a", [DAY + 24 * HOUR_MS])).toEqual([]);
  });
}

function dayCases(subject: Subject): void {
  test("the list of organizations has the charges of its days, added up in one query", async () => {
    const [spending, idle] = [await subject.organization(), await subject.organization()];
    const counts = { ...NO_USAGE, requests: 1 };
    const rowsOf = (day: number, charged: bigint): UsageDayRow[] =>
      (["m/a", "m/b"] as const).flatMap((name) => [
        { ...counts, organizationId: spending, dimension: "model", day, name, charged },
        { ...counts, organizationId: spending, dimension: "token", day, name, charged },
      ]);
    const days = [0, 2, 3].map((index) => DAY + index * 24 * HOUR_MS) as [number, number, number];
    for (const [index, day] of days.entries()) {
      await subject.store.usage.finishDay(day, rowsOf(day, BigInt(10 ** index)), 1, []);
    }
    const spentOf = async (id: string, fromDay: number, toDay: number) => {
      const search = { id, search: null, status: null, before: null, limit: 1, spentIn: { fromDay, toDay } };
      return (await subject.store.directory.organizations(search))[0]?.charged;
    };
    expect(await spentOf(spending, DAY - 1, days[2])).toBe(22n);
    expect(await spentOf(spending, DAY + 1, days[2] + 1)).toBe(220n);
    expect(await spentOf(spending, days[2] + 1, days[2] + 2)).toBe(0n);
    expect(await spentOf(idle, DAY - 1, days[2])).toBe(0n);
  });

  test("sums of a day are stored, read by day or together, and replaced by a second write", async () => {
    const { usage } = subject.store;
    const costs = { providerCost: 2n ** 60n, chargedWithCost: 10n };
    const counts = { ...NO_USAGE, requests: 1, charged: 10n, inputTokens: 2, outputTokens: 3, ...costs };
    const row = (name: string, day: number, more: object = {}): UsageDayRow => {
      return { organizationId: "org_x", dimension: "token", day, name, ...counts, ...more };
    };
    const many = Array.from({ length: 2_500 }, (_, index) => row(`tok_${index}`, DAY));
    await usage.finishDay(DAY, many, 7, []);
    await usage.finishDay(DAY, [row("tok_0", DAY, { charged: 90n }), row("m", DAY, { dimension: "model" })], 8, []);
    await usage.finishDay(DAY + 24 * HOUR_MS, [row("tok_0", DAY + 24 * HOUR_MS)], 9, []);
    const days = await usage.doneDays(DAY - 1, DAY + 48 * HOUR_MS);
    expect(days).toEqual([DAY, DAY + 24 * HOUR_MS]);
    const together = await usage.together("token", { organizationId: "org_x", days });
    expect(together.length).toBe(2_500);
    expect(together.find(({ name }) => name === "tok_0")).toMatchObject({
      requests: 2,
      charged: 100n,
      inputTokens: 4,
      providerCost: 2n ** 61n,
      chargedWithCost: 20n,
    });
    expect(await usage.together("token", { organizationId: "org_y", days })).toEqual([]);
    expect(await usage.byDay("model", { organizationId: "org_x", days })).toEqual([
      row("m", DAY, { dimension: "model" }),
    ]);
  });

  test("credits are summed for one organization and for all", async () => {
    const id = await subject.organization(40n);
    expect(await subject.store.usage.credits(id)).toEqual({
      granted: 40n,
      available: 40n,
      held: 0n,
      spent: 0n,
      expired: 0n,
      createdAtMs: expect.any(Number),
    });
    expect((await subject.store.usage.credits(null)).granted).toBeGreaterThanOrEqual(40n);
    const names = await subject.store.usage.names({ tokens: ["tok_none"], organizations: [id, "org_none"] });
    expect(names).toEqual({ tokens: [], organizations: [{ id, name: "Contract" }] });
  });
}
