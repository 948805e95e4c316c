import { v7 } from "uuid";
import { expect, test } from "vitest";
import { ANY_REQUEST } from "../../src/reports/requests.ts";
import type { RequestFilter } from "../../src/stores/queries/request-filter.ts";
import type { RequestGrouping, RequestOrder } from "../../src/stores/queries/request-sums.ts";
import type { ListedRequest } from "../../src/stores/queries/requests.ts";
import { usesIn } from "../support/coins.ts";
import {
  factsOf,
  HOUR_MS,
  holdOf,
  NO_PROVIDER_RECORD,
  referenceOf,
  releaseOf,
  renewOf,
  type Subject,
  settleOf,
} from "./fixture.ts";

const MODELS = ["m/a", "m/b", "m/c"];
const TEAMS = ["red", 'say "%hi_\\', "\ud800 half", "gr\u00fcn"];
const NO_FAILURE = { isStreamed: true, firstTokenMs: null, attempts: null, failure: null };

/** Sums and orders of requests, compared with those that the test makes of the listed rows. */
export function requestSumCases(subject: Subject): void {
  groupCases(subject);
  filterCases(subject);
  orderCases(subject);
}

/** Books requests of two organizations over 50 hours: charged, failed, released, recovered and charged late. */
async function bookHistory(subject: Subject): Promise<[string, string]> {
  const owners = [await subject.organization(1_000_000n), await subject.organization(1_000_000n)] as const;
  for (const organizationId of owners) await subject.budget(organizationId, { amount: 1_000_000n });
  for (let at = 0; at < 40; at += 1) {
    const organizationId = owners[at % 2] ?? "";
    const holdId = v7({ msecs: Date.now() - (at * 75 + 1) * 60_000 });
    const metadata = at % 5 === 4 ? null : { team: TEAMS[(at >> 1) % TEAMS.length] ?? "" };
    const [model = "", tokenId] = [MODELS[at % 3], `tok_${at % 4}`];
    const facts = factsOf(organizationId, { holdId, tokenId, model, upstream: `up/${model}`, metadata });
    const hold = await subject.held({ ...holdOf(organizationId, 5_000n), facts, callerId: tokenId });
    const failed = { ...NO_FAILURE, failure: "upstream_error", ...NO_PROVIDER_RECORD };
    if (at % 7 === 0) await subject.one({ ...releaseOf(hold), trace: failed });
    else if (at % 7 === 1) {
      await subject.one(renewOf(hold, 40, -1_000), "holds");
      await subject.one({ kind: "expire", ...referenceOf(hold) });
      const late = { ...settleOf(hold, 90 + at), facts: { ...facts, upstream: "up/late" } };
      if (at % 3 !== 0) await subject.one(at % 4 === 0 ? { ...late, trace: failed } : late);
    } else {
      const trace = { ...NO_FAILURE, providerResponseId: `gen-${holdId}`, providerCost: null };
      await subject.one({ ...settleOf(hold, 10 + ((at * 37) % 101)), trace });
    }
  }
  return [...owners];
}

async function listedOf({ store }: Subject, filter: Partial<RequestFilter>): Promise<ListedRequest[]> {
  const rows: ListedRequest[] = [];
  let before: string | null = null;
  do {
    const page = await store.requests.requests({ ...ANY_REQUEST, ...filter, before, limit: 200 });
    rows.push(...page.rows);
    before = page.next;
  } while (before !== null);
  return rows;
}

async function summedOf({ store }: Subject, filter: Partial<RequestFilter>, grouping: RequestGrouping) {
  const sums = new Map<string | null, { requests: number; failed: number; charged: bigint; output: number }>();
  let before: string | null = null;
  do {
    const page = await store.requests.sums({ ...ANY_REQUEST, ...filter }, grouping, before);
    for (const { key, requests, failed, charged, outputTokens } of page.groups) {
      const sum = sums.get(key) ?? { requests: 0, failed: 0, charged: 0n, output: 0 };
      sums.set(key, {
        ...{ requests: sum.requests + requests, failed: sum.failed + failed },
        ...{ charged: sum.charged + charged, output: sum.output + outputTokens },
      });
    }
    before = page.next;
  } while (before !== null);
  return sums;
}

function expected(rows: readonly ListedRequest[], keyOf: (row: ListedRequest) => string | null) {
  return new Map(
    [...Map.groupBy(rows, keyOf)].map(([key, of]) => [
      key,
      {
        requests: of.length,
        failed: of.filter(({ trace }) => trace?.failure).length,
        charged: of.reduce((sum, { charged }) => sum + charged, 0n),
        output: of.reduce((sum, { tokens }) => sum + tokens.output, 0),
      },
    ]),
  );
}

const timeOf = ({ facts }: ListedRequest) => Number.parseInt(facts.holdId.slice(0, 13).replace("-", ""), 16);
const startOf = (stepMs: number) => (row: ListedRequest) => String(Math.floor(timeOf(row) / stepMs) * stepMs);

function groupCases(subject: Subject): void {
  test("the sums of each grouping are those of the listed requests, late settlements included", async () => {
    const [organizationId] = await bookHistory(subject);
    const rows = await listedOf(subject, { organizationId });
    expect(rows).toHaveLength(20);
    const of = { organizationId };
    const sum = (by: Exclude<RequestGrouping["by"], "metadata">) => summedOf(subject, of, { by });
    expect(await sum("organization")).toEqual(expected(rows, () => organizationId));
    expect(await sum("token")).toEqual(expected(rows, ({ facts }) => facts.tokenId));
    expect(await sum("model")).toEqual(expected(rows, ({ facts }) => facts.model));
    expect(await sum("route")).toEqual(expected(rows, ({ facts }) => facts.upstream));
    expect(await sum("budget")).toEqual(expected(rows, ({ facts }) => usesIn(facts.budgets)[0]?.budgetId ?? null));
    expect(await sum("hour")).toEqual(expected(rows, startOf(HOUR_MS)));
    expect(await sum("day")).toEqual(expected(rows, startOf(24 * HOUR_MS)));
    const charged = (sums: Map<unknown, { charged: bigint }>) =>
      [...sums.values()].reduce((total, one) => total + one.charged, 0n);
    expect(charged(await summedOf(subject, of, { by: "metadata", key: "team" }))).toBe(
      charged(await sum("organization")),
    );
    const green = expected(rows, ({ facts }) => facts.metadata?.team ?? null).get("gr\u00fcn");
    expect((await summedOf(subject, of, { by: "metadata", key: "team" })).get("gr\u00fcn")).toEqual(green);
  });
}

function filterCases(subject: Subject): void {
  test("requests are found by status, error, route, budget, charge and a value of their metadata", async () => {
    const [organizationId] = await bookHistory(subject);
    const rows = await listedOf(subject, { organizationId });
    const expectFound = async (filter: Partial<RequestFilter>, isWanted: (row: ListedRequest) => boolean) => {
      const wanted = rows.filter(isWanted).map(({ facts }) => facts.holdId);
      expect(wanted.length).toBeGreaterThan(0);
      expect((await listedOf(subject, { organizationId, ...filter })).map(({ facts }) => facts.holdId)).toEqual(wanted);
    };
    const { budgetId = "" } = usesIn(rows[0]?.facts.budgets)[0] ?? {};
    await expectFound({ status: "failed" }, ({ trace }) => trace?.failure === "upstream_error");
    await expectFound({ failure: "upstream_error" }, ({ trace }) => trace?.failure === "upstream_error");
    await expectFound({ status: "recovered" }, ({ end }) => end === "recovered");
    await expectFound({ route: "up/late" }, ({ facts }) => facts.upstream === "up/late");
    await expectFound({ budgetId }, () => true);
    await expectFound({ chargedMin: 60n }, ({ charged }) => charged >= 60n);
    for (const value of ["red", 'say "%hi_\\']) {
      await expectFound({ metadata: { key: "team", value } }, ({ facts }) => facts.metadata?.team === value);
    }
    expect(await listedOf(subject, { organizationId, budgetId: "bud%" })).toEqual([]);
    expect(await listedOf(subject, { organizationId, metadata: { key: "te%m", value: "red" } })).toEqual([]);
  });

  test("the provider's id of an answer leads to its request", async () => {
    const [organizationId] = await bookHistory(subject);
    const rows = await listedOf(subject, { organizationId, status: "complete" });
    const row = rows.find(({ trace }) => trace?.providerResponseId);
    const { holdId = "" } = row?.facts ?? {};
    expect(await subject.store.requests.idOfProviderResponse(`gen-${holdId}`)).toBe(holdId);
    expect(await subject.store.requests.idOfProviderResponse("gen-none")).toBeUndefined();
  });

  test("the provider's id of an answer leads to its request among hundreds, and to the newest of several", async () => {
    const organizationId = await subject.organization(1_000n);
    const holds = Array.from({ length: 600 }, () => holdOf(organizationId, 1n));
    const settlements = holds.map((hold, index) => {
      const record = { providerResponseId: `of-many-${index === 599 ? 1 : index}`, providerCost: null };
      return { ...settleOf(hold, 1), trace: { ...NO_FAILURE, ...record } };
    });
    await subject.books.apply("durable", settlements);
    const idOf = (index: number) => subject.store.requests.idOfProviderResponse(`of-many-${index}`);
    for (const index of [0, 254, 255, 256, 598]) expect(await idOf(index)).toBe(holds[index]?.facts.holdId);
    expect(await idOf(1)).toBe(holds[599]?.facts.holdId);
  });
}

function orderCases(subject: Subject): void {
  test("requests come in the order of their charge, their tokens or their duration", async () => {
    const owners = await bookHistory(subject);
    const measures: Record<RequestOrder, (row: ListedRequest) => number> = {
      charged: ({ charged }) => Number(charged),
      tokens: ({ tokens }) => tokens.output,
      duration: ({ endedAtMs, madeAtMs }) => (endedAtMs ?? 0) - madeAtMs,
    };
    for (const [order, of] of Object.entries(measures) as [RequestOrder, (row: ListedRequest) => number][]) {
      const rows: ListedRequest[] = [];
      let before: string | null = null;
      do {
        const search = { ...ANY_REQUEST, organizationId: owners[1], order, before, limit: 50 };
        const page = await subject.store.requests.ranked(search);
        expect(page.rows.map(of)).toEqual(page.rows.map(of).toSorted((one, other) => other - one));
        rows.push(...page.rows);
        before = page.next;
      } while (before !== null);
      const all = (await listedOf(subject, { organizationId: owners[1] })).map(({ facts }) => facts.holdId);
      expect(rows.map(({ facts }) => facts.holdId).sort()).toEqual(all.sort());
    }
  });
}
