import { v7 } from "uuid";
import { expect, test } from "vitest";
import type { OrganizationRow } from "../../src/stores/queries/accounts.ts";
import type { ItemOwner, ResponseItemRow } from "../../src/stores/queries/response-items.ts";
import type { Subject } from "./fixture.ts";

const HOUR_MS = 3_600_000;
const RETENTION_MS = 24 * HOUR_MS;
const ALL = 1_000_000;

function itemOf(owner: ItemOwner, id: string, changes: Partial<ResponseItemRow> = {}): ResponseItemRow {
  const content = JSON.stringify({ id, text: "日 \0 \ud800 '\"" });
  const row = { ...owner, id, answerId: "resp_1", keptAtMs: Date.now(), bytes: content.length, undelivered: null };
  return { ...row, content, ...changes };
}

async function turn({ store: { accounts } }: Subject, id: string, choices: Partial<OrganizationRow>): Promise<void> {
  const actor = { actorKind: "operator", actorId: null, actorName: null, address: null, requestId: null } as const;
  const change = { action: "organization.change", organizationId: id, subjectId: id };
  await accounts.changeOrganization(id, choices, (before, after) => ({
    ...{ id: v7(), madeAtMs: Date.now(), ...actor, ...change },
    before,
    after,
  }));
}

export function responseItemCases(subject: Subject): void {
  const newOwner = async (): Promise<ItemOwner> => ({
    organizationId: await subject.organization(),
    callerId: "tok_a",
  });
  const idsOf = async (owner: ItemOwner, ids: string[], retentionMs = RETENTION_MS) => {
    const found = await subject.store.responseItems.sizes(owner, ids, retentionMs);
    return found.map(({ id }) => id).sort();
  };
  keepingCases(subject, { newOwner, idsOf });
  removalCases(subject, { newOwner, idsOf });
}

interface Tools {
  newOwner: () => Promise<ItemOwner>;
  /** Returns those of some ids that are found. */
  idsOf: (owner: ItemOwner, ids: string[], retentionMs?: number) => Promise<string[]>;
}

function keepingCases(subject: Subject, { newOwner, idsOf }: Tools): void {
  test("a response that was offered to a retry is taken once, by its caller, for some time", async () => {
    const { responseItems } = subject.store;
    const owner = await newOwner();
    const items = [itemOf(owner, "resp_1"), itemOf(owner, "resp_2", { keptAtMs: Date.now() - HOUR_MS })];
    await responseItems.insert(owner, items);
    for (const { id } of items) await responseItems.offer(owner, id, `intent ${id}`);
    const take = (id: string, of = owner, retentionMs = HOUR_MS / 2) =>
      responseItems.take(of, `intent ${id}`, retentionMs, () => {});
    expect(await take("resp_1", { ...owner, callerId: "tok_b" })).toBeUndefined();
    expect(await take("resp_2")).toBeUndefined();
    expect(await take("resp_3")).toBeUndefined();
    const taken = await Promise.all([take("resp_1"), take("resp_1"), take("resp_1")]);
    expect(taken.filter((found) => found !== undefined)).toEqual([items[0]?.content]);
    expect(await take("resp_1")).toBeUndefined();
    expect(await idsOf(owner, ["resp_1"])).toEqual(["resp_1"]);
  });

  test("items are found by their caller only, and the latest with an id is found", async () => {
    const { responseItems } = subject.store;
    const owner = await newOwner();
    const strangers = [
      { ...owner, callerId: "tok_b" },
      { ...(await newOwner()), callerId: "tok_a" },
    ];
    const [item, other] = [itemOf(owner, "msg_1"), itemOf(owner, "rs_1")];
    await responseItems.insert(owner, [item, other]);
    const again = itemOf(owner, "msg_1", { answerId: "resp_2", content: "{}", bytes: 2 });
    await responseItems.insert(owner, [again]);
    const found = await responseItems.contents(owner, ["msg_1", "rs_1", "fc_1"], RETENTION_MS);
    const contents = [again, other].map(({ id, content }) => ({ id, content }));
    expect(found.sort((one, next) => (one.id < next.id ? -1 : 1))).toEqual(contents);
    const sizes = await responseItems.sizes(owner, ["msg_1"], RETENTION_MS);
    expect(sizes).toEqual([{ id: "msg_1", bytes: 2n }]);
    for (const stranger of strangers) {
      expect(await responseItems.contents(stranger, ["msg_1"], RETENTION_MS)).toEqual([]);
      const isKept = () => Promise.all([stranger, owner].map((who) => responseItems.hasAnswer(who, "resp_2")));
      expect(await isKept()).toEqual([false, true]);
      expect(await responseItems.removeAnswer(stranger, "resp_2", ALL)).toBe(0);
    }
    expect(await responseItems.removeAnswer(owner, "resp_2", ALL)).toBe(1);
    expect(await idsOf(owner, ["msg_1", "rs_1"])).toEqual(["rs_1"]);
  });

  test("items are written only for organizations that keep responses", async () => {
    const { responseItems, accounts } = subject.store;
    const owner = await newOwner();
    expect((await accounts.organization(owner.organizationId))?.keepsResponses).toBe(true);
    await turn(subject, owner.organizationId, { keepsResponses: false });
    await responseItems.insert(owner, [itemOf(owner, "msg_1")]);
    expect(await idsOf(owner, ["msg_1"])).toEqual([]);
    await turn(subject, owner.organizationId, { keepsResponses: true });
    await responseItems.insert(owner, [itemOf(owner, "msg_1")]);
    expect(await idsOf(owner, ["msg_1"])).toEqual(["msg_1"]);
  });
}

function removalCases(subject: Subject, { newOwner, idsOf }: Tools): void {
  test("beyond its bytes, a caller's whole responses are removed first, then its oldest items", async () => {
    const { responseItems } = subject.store;
    const owner = await newOwner();
    const neighbour = { ...owner, callerId: "tok_b" };
    const nowMs = Date.now();
    const rowOf = (id: string, ageMs: number, bytes: number) => itemOf(owner, id, { keptAtMs: nowMs - ageMs, bytes });
    const rows = [rowOf("msg_1", 3, 40), rowOf("msg_2", 2, 40), rowOf("resp_1", 1, 40), rowOf("msg_3", 0, 40)];
    await responseItems.insert(neighbour, [itemOf(neighbour, "msg_1", { keptAtMs: nowMs - 9, bytes: 1_000 })]);
    const ids = rows.map(({ id }) => id);
    await responseItems.insert(owner, rows, 130);
    expect(await idsOf(owner, ids)).toEqual(["msg_1", "msg_2", "msg_3"]);
    await responseItems.insert(owner, [], 100);
    expect(await idsOf(owner, ids)).toEqual(["msg_2", "msg_3"]);
    expect(await idsOf(neighbour, ["msg_1"])).toEqual(["msg_1"]);
  });

  test("expired items count as absent, and are removed in chunks", async () => {
    const { responseItems } = subject.store;
    const owner = await newOwner();
    const keptAtMs = Date.now() - RETENTION_MS - 1;
    const old = ["a", "b", "c"].map((id) => itemOf(owner, id, { keptAtMs }));
    await responseItems.insert(owner, [...old, itemOf(owner, "d")]);
    expect(await idsOf(owner, ["a", "b", "c", "d"])).toEqual(["d"]);
    const times = { usualMs: RETENTION_MS, storedMs: 2 * RETENTION_MS };
    expect(await responseItems.countOld(times)).toBe(3);
    expect(await responseItems.removeOld(times, 2)).toBe(2);
    expect(await responseItems.removeOld(times, ALL)).toBe(1);
    expect(await idsOf(owner, ["a", "b", "c", "d"], 2 * RETENTION_MS)).toEqual(["d"]);
  });

  test("items of an organization that stores its conversations are kept for longer", async () => {
    const { responseItems } = subject.store;
    const owner = await newOwner();
    await turn(subject, owner.organizationId, { keepsConversations: true });
    const ages = { old: RETENTION_MS + 1, older: 2 * RETENTION_MS + 1 };
    const rows = Object.entries(ages).map(([id, ageMs]) => itemOf(owner, id, { keptAtMs: Date.now() - ageMs }));
    await responseItems.insert(owner, rows);
    const times = { usualMs: RETENTION_MS, storedMs: 2 * RETENTION_MS };
    expect(await responseItems.countOld(times)).toBe(1);
    expect(await responseItems.removeOld(times, ALL)).toBe(1);
    expect(await idsOf(owner, ["old", "older"], 3 * RETENTION_MS)).toEqual(["old"]);
    await turn(subject, owner.organizationId, { keepsConversations: false });
    expect(await responseItems.removeOld(times, ALL)).toBe(1);
  });

  test("the items of one organization that were kept by a time are removed", async () => {
    const { responseItems } = subject.store;
    const [owner, other] = [await newOwner(), await newOwner()];
    const nowMs = Date.now();
    const later = itemOf(owner, "later", { keptAtMs: nowMs + 1 });
    await responseItems.insert(owner, [
      itemOf(owner, "a", { keptAtMs: nowMs }),
      itemOf(owner, "b", { keptAtMs: nowMs }),
      later,
    ]);
    await responseItems.insert(other, [itemOf(other, "a")]);
    expect(await responseItems.removeOf(owner.organizationId, nowMs, 1)).toBe(1);
    expect(await responseItems.removeOf(owner.organizationId, nowMs, ALL)).toBe(1);
    expect(await idsOf(owner, ["a", "b", "later"])).toEqual(["later"]);
    expect(await idsOf(other, ["a"])).toEqual(["a"]);
  });
}
