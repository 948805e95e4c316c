import { v7 } from "uuid";
import { expect, test } from "vitest";
import type { RefusalRow, RefusalSearch } from "../../src/stores/queries/refusals.ts";
import { randomId, type Subject } from "./fixture.ts";

const HOUR_MS = 3_600_000;
const EVERYTHING: RefusalSearch = {
  organizationId: null,
  tokenId: null,
  model: null,
  id: null,
  requestId: null,
  failure: null,
  fromMs: null,
  toMs: null,
  before: null,
  limit: 50,
};

function refusalOf(organizationId: string, hoursAgo: number, changes: Partial<RefusalRow> = {}): RefusalRow {
  return {
    id: v7({ msecs: Date.now() - hoursAgo * HOUR_MS }),
    organizationId,
    tokenId: "tok_none",
    requestId: randomId("req"),
    endpoint: "POST /v1/chat/completions",
    model: "m/a",
    status: 402,
    code: "insufficient_credits",
    message: "The organization's credits do not cover this request.",
    durationMs: 7,
    count: 3,
    ...changes,
  };
}

export function refusalCases(subject: Subject): void {
  test("refusals come newest first, in pages, and are found by id, token, model, request and time", async () => {
    const { refusals } = subject.store;
    const organizationId = await subject.organization();
    const old = refusalOf(organizationId, 50, { tokenId: "tok_a" });
    const mid = refusalOf(organizationId, 20, { model: null, requestId: "req_mid" });
    const young = refusalOf(organizationId, 1, { tokenId: "tok_a", model: "m/b" });
    await refusals.insert([mid, old, young]);
    const found = async (search: Partial<RefusalSearch>) =>
      (await refusals.search({ ...EVERYTHING, organizationId, ...search })).map(({ id }) => id);
    expect(await found({})).toEqual([young.id, mid.id, old.id]);
    expect(await found({ limit: 2 })).toEqual([young.id, mid.id]);
    expect(await found({ before: mid.id })).toEqual([old.id]);
    expect(await found({ tokenId: "tok_a" })).toEqual([young.id, old.id]);
    expect(await found({ model: "m/b" })).toEqual([young.id]);
    expect(await found({ requestId: "req_mid" })).toEqual([mid.id]);
    expect(await found({ fromMs: Date.now() - 30 * HOUR_MS, toMs: Date.now() - 10 * HOUR_MS })).toEqual([mid.id]);
    expect(await found({ organizationId: await subject.organization() })).toEqual([]);
    expect(await refusals.find(mid.id)).toEqual({ ...mid, organizationName: "Contract", tokenName: null });
    expect(await refusals.find(v7())).toBeUndefined();
  });

  test("refusals of a day add up by code, also when two processes write at once", async () => {
    const { refusals } = subject.store;
    const organizationId = await subject.organization();
    const day = Date.UTC(2026, 10, 25);
    const counted = (code: string, requests: number, atDay = day) => ({ organizationId, day: atDay, code, requests });
    await Promise.all(
      Array.from({ length: 10 }, () =>
        refusals.addToDays([counted("a", 2), counted("b", 1), counted("a", 1, day + 1)]),
      ),
    );
    expect(await refusals.days(organizationId, day, day)).toEqual([counted("a", 20), counted("b", 10)]);
    expect(await refusals.days(organizationId, day + 1, day + 1)).toEqual([counted("a", 10, day + 1)]);
  });

  test("refusals before a time are removed in chunks", async () => {
    const { refusals } = subject.store;
    const organizationId = await subject.organization();
    // Older than those of any other case.
    const old = Array.from({ length: 5 }, () => refusalOf(organizationId, 9_000));
    const young = refusalOf(organizationId, 1);
    await refusals.insert([...old, young]);
    const untilMs = Date.now() - 8_000 * HOUR_MS;
    expect(await refusals.removeBefore(untilMs, 3)).toBe(3);
    expect(await refusals.removeBefore(untilMs, 100)).toBe(2);
    expect(await refusals.search({ ...EVERYTHING, organizationId })).toMatchObject([{ id: young.id }]);
  });
}
