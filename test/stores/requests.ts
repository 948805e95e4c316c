import { v7 } from "uuid";
import { expect, test } from "vitest";
import type { HoldTransition } from "../../src/credits/books.ts";
import { ANY_REQUEST } from "../../src/reports/requests.ts";
import type { ListedRequest, RequestSearch } from "../../src/stores/queries/requests.ts";
import { factsOf, holdOf, NO_PROVIDER_RECORD, randomId, releaseOf, type Subject, settleOf } from "./fixture.ts";

const HOUR_MS = 3_600_000;
const EVERYTHING: RequestSearch = { ...ANY_REQUEST, before: null, limit: 50 };

export function requestCases(subject: Subject): void {
  orderCases(subject);
  searchCases(subject);
}

const idsOf = (holds: HoldTransition[]) => holds.map(({ facts }) => facts.holdId);

function toolsFor(subject: Subject) {
  return {
    /** Books a hold whose id is some hours old. */
    made: (organizationId: string, hoursAgo: number, facts: Parameters<typeof factsOf>[1] = {}) => {
      const holdId = v7({ msecs: Date.now() - hoursAgo * HOUR_MS });
      return subject.held({ ...holdOf(organizationId, 5n), facts: factsOf(organizationId, { holdId, ...facts }) });
    },
    /** Reads a page, to its end also where its search is ended by its time limit. */
    list: async (search: Partial<RequestSearch>) => {
      const { limit, ...wanted } = { ...EVERYTHING, ...search };
      const rows: ListedRequest[] = [];
      let next = wanted.before;
      do {
        const page = await subject.store.requests.requests({ ...wanted, before: next, limit: limit - rows.length });
        rows.push(...page.rows);
        next = page.next;
      } while (next !== null && rows.length < limit);
      return { ids: rows.map(({ facts }) => facts.holdId), next, rows };
    },
  };
}

function orderCases(subject: Subject): void {
  const { made, list } = toolsFor(subject);

  test("requests come newest first, however far apart, and pages contain each once", async () => {
    const organizationId = await subject.organization(1_000n);
    const holds = [];
    for (const hoursAgo of [9_000, 800, 30, 29.99, 5, 0.5, 0.49, 0])
      holds.unshift(await made(organizationId, hoursAgo));
    expect((await list({ organizationId })).ids).toEqual(idsOf(holds));
    for (const limit of [1, 3, 8, 9]) {
      const seen: string[] = [];
      let before: string | null = null;
      do {
        const page = await list({ organizationId, limit, before });
        seen.push(...page.ids);
        before = page.next;
      } while (before !== null);
      expect(seen).toEqual(idsOf(holds));
    }
  });

  test("requests of all organizations are listed together", async () => {
    const [first, second] = [await subject.organization(100n), await subject.organization(100n)];
    const model = randomId("model");
    const holds = [];
    for (const [organizationId, hoursAgo] of [
      [first, 3],
      [second, 2],
      [first, 1],
      [second, 0],
    ] as const) {
      holds.unshift(await made(organizationId, hoursAgo, { model }));
    }
    expect((await list({ model })).ids).toEqual(idsOf(holds));
    expect((await list({ model, limit: 2 })).ids).toEqual(idsOf(holds).slice(0, 2));
  });
}

function searchCases(subject: Subject): void {
  const { made, list } = toolsFor(subject);

  test("requests are found by token, model, request, state and time, and in no other organization", async () => {
    const organizationId = await subject.organization(100n);
    const [old, mid, young] = [
      await made(organizationId, 50, { tokenId: "tok_a", model: "m/a" }),
      await made(organizationId, 20, { tokenId: "tok_b", model: "m/a", requestId: "req_mid" }),
      await made(organizationId, 1, { tokenId: "tok_a", model: "m/b" }),
    ];
    await subject.one(settleOf(mid, 3));
    const found = async (search: Partial<RequestSearch>) => (await list({ organizationId, ...search })).ids;
    expect(await found({ tokenId: "tok_a" })).toEqual(idsOf([young, old]));
    expect(await found({ model: "m/a" })).toEqual(idsOf([mid, old]));
    expect(await found({ requestId: "req_mid" })).toEqual(idsOf([mid]));
    expect(await found({ status: "complete" })).toEqual(idsOf([mid]));
    expect(await found({ status: "running" })).toEqual(idsOf([young, old]));
    const hoursAgo = (hours: number) => Date.now() - hours * HOUR_MS;
    expect(await found({ fromMs: hoursAgo(30) })).toEqual(idsOf([young, mid]));
    expect(await found({ toMs: hoursAgo(10) })).toEqual(idsOf([mid, old]));
    expect(await found({ fromMs: hoursAgo(30), toMs: hoursAgo(10) })).toEqual(idsOf([mid]));
    expect((await list({ organizationId: await subject.organization() })).ids).toEqual([]);
  });

  test("requests contain their names, their events and their failures", async () => {
    const organizationId = await subject.organization(100n);
    const charged = await made(organizationId, 2);
    await subject.one(settleOf(charged, 3));
    const released = await made(organizationId, 1);
    const trace = {
      isStreamed: true,
      firstTokenMs: null,
      attempts: null,
      failure: "upstream_error",
      ...NO_PROVIDER_RECORD,
    };
    await subject.one({ ...releaseOf(released), trace });
    const { rows } = await list({ organizationId });
    expect(rows).toMatchObject([
      { end: "released", trace, organizationName: "Contract", tokenName: null, events: [] },
      { end: "complete", charged: 3n, events: [{ sequence: 0, cost: 3n, end: "complete" }] },
    ]);
    expect((await list({ organizationId, status: "failed" })).ids).toEqual(idsOf([released]));
    expect((await list({ organizationId, failure: "upstream_error" })).ids).toEqual(idsOf([released]));
    expect((await list({ organizationId, failure: "overloaded" })).ids).toEqual([]);
    expect((await list({ organizationId, status: "complete" })).ids).toEqual(idsOf([charged]));
    expect(await subject.store.requests.request(charged.facts.holdId)).toEqual(rows[1]);
    expect(await subject.store.requests.request(v7())).toBeUndefined();
  });

  test("an invalid cursor is refused", async () => {
    const organizationId = await subject.organization(10n);
    await made(organizationId, 0);
    for (const before of ["", "x", "zzzzzzzz-zzzz", "' OR 1=1"]) {
      await expect(list({ organizationId, before })).rejects.toMatchObject({ code: "invalid_value", param: "cursor" });
    }
  });
}
