import { randomBytes } from "node:crypto";
import { v7 } from "uuid";
import { expect, test } from "vitest";
import type { ConversationRow } from "../../src/stores/queries/conversations.ts";
import type { Store } from "../../src/stores/store.ts";
import type { Subject } from "./fixture.ts";

const DAY_MS = 86_400_000;
const RETENTION_MS = 30 * DAY_MS;
const ALL = 1_000_000;

function conversationOf(organizationId: string, changes: Partial<ConversationRow> = {}): ConversationRow {
  const texts = {
    request: JSON.stringify({ content: "日 \0 \ud800 '\"" }),
    answer: '{"message":{}}',
    isTruncated: false,
  };
  return { organizationId, holdId: v7(), endedAtMs: Date.now(), ...texts, ...changes };
}

/** Turns the storage of conversations on or off. */
async function keep({ accounts }: Store, id: string, keepsConversations: boolean): Promise<void> {
  const actor = { actorKind: "operator", actorId: null, actorName: null, address: null, requestId: null } as const;
  const change = { action: "organization.change", organizationId: id, subjectId: id };
  await accounts.changeOrganization(id, { keepsConversations }, (before, after) => ({
    id: v7(),
    madeAtMs: Date.now(),
    ...actor,
    ...change,
    before,
    after,
  }));
}

async function keeping(subject: Subject): Promise<string> {
  const id = await subject.organization();
  await keep(subject.store, id, true);
  return id;
}

export function conversationCases(subject: Subject): void {
  keepingCases(subject);
  removalCases(subject);
}

function keepingCases(subject: Subject): void {
  test("conversations are written once, only for organizations that keep them", async () => {
    const { conversations, accounts } = subject.store;
    const [off, on] = [await subject.organization(), await keeping(subject)];
    expect((await accounts.organization(off))?.keepsConversations).toBe(false);
    const kept = conversationOf(on);
    const bare = conversationOf(on, { answer: null, isTruncated: true });
    const refused = [conversationOf(off), conversationOf("org_none")];
    await conversations.insert([kept, ...refused, bare, { ...kept, request: "again" }]);
    for (const row of [kept, bare]) expect(await conversations.find(row, RETENTION_MS)).toEqual(row);
    for (const row of refused) expect(await conversations.find(row, RETENTION_MS)).toBeUndefined();
    expect(await conversations.status(kept, RETENTION_MS)).toEqual({ isEnabled: true, isStored: true });
    expect(await conversations.status(refused[0] ?? kept, RETENTION_MS)).toEqual({ isEnabled: false, isStored: false });
    expect(await Promise.all([off, on].map((id) => conversations.count(id)))).toEqual([0, 2]);
    await keep(subject.store, on, false);
    const late = conversationOf(on);
    await conversations.insert([late]);
    expect(await conversations.status(late, RETENTION_MS)).toEqual({ isEnabled: false, isStored: false });
    expect(await conversations.status(kept, RETENTION_MS)).toEqual({ isEnabled: false, isStored: true });
  });

  test("no process writes conversations after keeping has ended", async () => {
    const id = await keeping(subject);
    const stores = [subject.store, await subject.openAnother()];
    let isOver = false;
    const writing = stores.map(async ({ conversations }) => {
      while (!isOver) await conversations.insert([conversationOf(id), conversationOf(id)]);
    });
    await expect.poll(() => subject.store.conversations.count(id)).toBeGreaterThan(4);
    await keep(subject.store, id, false);
    const count = await subject.store.conversations.count(id);
    for (let round = 0; round < 5; round += 1) await stores[1]?.conversations.insert([conversationOf(id)]);
    isOver = true;
    await Promise.all(writing);
    expect(await subject.store.conversations.count(id)).toBe(count);
  });

  test("a conversation may be as long as a request", async () => {
    const id = await keeping(subject);
    const row = conversationOf(id, { request: JSON.stringify(randomBytes(3_000_000).toString("base64")) });
    await subject.store.conversations.insert([row]);
    expect(await subject.store.conversations.find(row, RETENTION_MS)).toEqual(row);
  });
}

function removalCases(subject: Subject): void {
  test("expired conversations count as absent and are removed in chunks", async () => {
    const { conversations } = subject.store;
    const id = await keeping(subject);
    const young = conversationOf(id, { endedAtMs: Date.now() - RETENTION_MS + 60_000 });
    const old = Array.from({ length: 5 }, () => conversationOf(id, { endedAtMs: Date.now() - RETENTION_MS - 1 }));
    await conversations.insert([young, ...old]);
    for (const row of old) expect(await conversations.find(row, RETENTION_MS)).toBeUndefined();
    expect(await conversations.status(old[0] ?? young, RETENTION_MS)).toEqual({ isEnabled: true, isStored: false });
    expect(await conversations.removeOld(RETENTION_MS, 3)).toBe(3);
    expect(await conversations.removeOld(RETENTION_MS, ALL)).toBe(2);
    expect(await conversations.removeOld(RETENTION_MS, ALL)).toBe(0);
    expect(await conversations.find(young, RETENTION_MS)).toEqual(young);
    expect(await conversations.removeOld(RETENTION_MS - 120_000, ALL)).toBe(1);
  });

  test("one conversation, and those of one organization that ended by a time, are removed", async () => {
    const { conversations } = subject.store;
    const [id, other] = [await keeping(subject), await keeping(subject)];
    const nowMs = Date.now();
    const later = conversationOf(id, { endedAtMs: nowMs + 1 });
    const others = conversationOf(other);
    const rows = Array.from({ length: 5 }, () => conversationOf(id, { endedAtMs: nowMs }));
    await conversations.insert([later, others, ...rows]);
    const [first] = rows;
    if (first === undefined) throw new Error("No row was made");
    expect(await conversations.removeOne({ ...first, organizationId: other })).toBe(false);
    expect(await conversations.removeOne(first)).toBe(true);
    expect(await conversations.removeOne(first)).toBe(false);
    expect(await conversations.removeOf(id, nowMs, 3)).toBe(3);
    expect(await conversations.removeOf(id, nowMs, 3)).toBe(1);
    expect(await conversations.find(later, RETENTION_MS)).toEqual(later);
    expect(await conversations.find(others, RETENTION_MS)).toEqual(others);
  });
}
