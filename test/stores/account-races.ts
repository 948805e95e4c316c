import { randomBytes } from "node:crypto";
import { v7 } from "uuid";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { AuditRow } from "../../src/credits/audit.ts";
import type { OrganizationRow, OrganizationUpdate, TokenRow } from "../../src/stores/queries/accounts.ts";
import type { Store } from "../../src/stores/store.ts";
import { randomId, type Subject } from "./fixture.ts";

const ROUNDS = 20;
const NOW = 1_790_000_000_000;

function recordOf(organizationId: string, subjectId = organizationId, action = "organization.change") {
  const actor = { actorKind: "operator", actorId: null, actorName: null, address: null, requestId: null } as const;
  return (before: OrganizationUpdate | null, after: OrganizationUpdate | null): AuditRow => ({
    id: v7(),
    madeAtMs: NOW,
    ...actor,
    action,
    organizationId,
    subjectId,
    before,
    after,
  });
}

function tokenOf(organizationId: string, changes: Partial<TokenRow> = {}): TokenRow {
  const terms = { prefix: "sk-tg-races", scopes: [], models: null, limits: null, createdAtMs: NOW };
  const state = { expiresAtMs: null, revokedAtMs: null, lastUsedAtMs: null, successorId: null, callerId: "tok_first" };
  const origin = { kind: "secret", createdBy: null, rotatedBy: null, pinned: null } as const;
  const hash = new Uint8Array(randomBytes(32));
  return { id: randomId("tok"), organizationId, name: "t", hash, ...terms, ...state, ...origin, ...changes };
}

/** Concurrent changes of organizations and tokens, on one instance and on two, as on two nodes. */
export function accountRaceCases(subject: Subject): void {
  let other: Store;
  beforeAll(async () => {
    other = await subject.openAnother();
  });
  afterAll(() => other.close());
  const nodes: Nodes = {
    subject,
    alternate: (index) => (index % 2 === 0 ? subject.store.accounts : other.accounts),
    tokenIds: async (organizationId) =>
      (await subject.read(`select id from token where organization_id = '${organizationId}'`)).map(({ id }) => id),
    auditOf: (organizationId) => subject.store.admin.audit({ organizationId, action: null, before: null, limit: 200 }),
  };
  organizationCases(nodes);
  rotationCases(nodes);
  replacementCases(nodes);
}

interface Nodes {
  subject: Subject;
  /** The rows of the two instances, alternating. */
  alternate(index: number): Store["accounts"];
  tokenIds(organizationId: string): Promise<unknown[]>;
  auditOf(organizationId: string): Promise<AuditRow[]>;
}

function organizationCases({ subject, alternate, auditOf }: Nodes): void {
  test("concurrent changes of different fields of an organization are all kept", async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const id = await subject.organization();
      const changes: OrganizationUpdate[] = [
        { status: "paused" },
        { limits: { requestsPerMinute: round + 1 } },
        { name: `Round ${round}` },
        { keepsConversations: true },
      ];
      await Promise.all(
        changes.map((change, index) => alternate(round + index).changeOrganization(id, change, recordOf(id))),
      );
      expect(await subject.store.accounts.organization(id)).toMatchObject(Object.assign({}, ...changes));
      const records = await auditOf(id);
      expect(records.map(({ after }) => after)).toEqual(expect.arrayContaining(changes));
      expect(records).toHaveLength(changes.length);
    }
  });

  test("of organizations that take one external id concurrently, one has it", async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const externalId = randomId("crm");
      const ids = [await subject.organization(), await subject.organization()];
      const made = { name: "New", kind: "standard", createdAtMs: 1, externalId } as const;
      const outcomes = await Promise.all([
        ...ids.map((id, index) => alternate(index).changeOrganization(id, { externalId }, recordOf(id))),
        alternate(round).insertOrganization({ ...made, id: randomId("org") }),
      ]);
      expect(outcomes.filter((outcome) => typeof outcome === "object")).toMatchObject([{ externalId }]);
    }
  });

  test("the audit record of each concurrent change contains the value before it", async () => {
    const id = await subject.organization();
    const limitOf = (row: OrganizationRow | undefined) => row?.limits?.requestsPerMinute ?? null;
    const counts = Array.from({ length: ROUNDS }, (_, index) => index + 1);
    await Promise.all(
      counts.map((requestsPerMinute, index) =>
        alternate(index).changeOrganization(id, { limits: { requestsPerMinute } }, recordOf(id)),
      ),
    );
    const limitIn = (part: AuditRow["before"]) =>
      (part as OrganizationUpdate | null)?.limits?.requestsPerMinute ?? null;
    const next = new Map((await auditOf(id)).map(({ before, after }) => [limitIn(before), limitIn(after)]));
    expect(next.size).toBe(ROUNDS);
    // The records form one chain from the first value to the last.
    let value: number | null = null;
    for (let step = 0; step < ROUNDS; step += 1) value = next.get(value) ?? null;
    expect(value).toBe(limitOf(await subject.store.accounts.organization(id)));
  });

  test("a change to the present values is neither written nor recorded", async () => {
    const id = await subject.organization();
    const same = { name: "Contract", status: "active", limits: null, keepsConversations: false } as const;
    expect(await subject.store.accounts.changeOrganization(id, same, recordOf(id))).toMatchObject(same);
    expect(await auditOf(id)).toEqual([]);
    expect(await subject.store.accounts.changeOrganization("org_none", same, recordOf(id))).toBeUndefined();
  });
}

function rotationCases({ subject, alternate, tokenIds, auditOf }: Nodes): void {
  test("tokens that one person creates concurrently are at most as many as they may have", async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const organizationId = await subject.organization();
      const written = await Promise.all(
        Array.from({ length: 6 }, (_, index) => {
          const token = tokenOf(organizationId, { createdBy: "idn_1", callerId: `tok_${index}` });
          const record = recordOf(organizationId, token.id, "token.create")(null, null);
          return alternate(index).insertToken(token, null, record, 2);
        }),
      );
      expect(written.filter(Boolean)).toHaveLength(2);
      expect(await auditOf(organizationId)).toHaveLength(2);
      const [first] = await tokenIds(organizationId);
      await subject.store.accounts.revokeToken(String(first), NOW);
      const others = [tokenOf(organizationId, { createdBy: "idn_1" }), tokenOf(organizationId, { createdBy: "idn_2" })];
      const more = others.map((token) => alternate(0).insertToken(token, null, undefined, 2));
      expect(await Promise.all(more)).toEqual([true, true]);
    }
  });

  test("a token that is rotated concurrently gets one successor and one audit record", async () => {
    const organizationId = await subject.organization();
    const old = tokenOf(organizationId);
    await subject.store.accounts.insertToken(old, null);
    const successors = Array.from({ length: ROUNDS }, () => tokenOf(organizationId));
    const written = await Promise.all(
      successors.map((successor, index) => {
        const record = recordOf(organizationId, old.id, "token.rotate")(null, null);
        return alternate(index).replaceToken({ oldId: old.id, oldExpiresAtMs: NOW + 1, successor }, record);
      }),
    );
    expect(written.filter(Boolean)).toHaveLength(1);
    const [winner] = successors.filter((_, index) => written[index]);
    expect(await subject.store.accounts.token(old.id)).toMatchObject({ successorId: winner?.id, expiresAtMs: NOW + 1 });
    expect((await tokenIds(organizationId)).sort()).toEqual([old.id, winner?.id].sort());
    expect(await auditOf(organizationId)).toHaveLength(1);
  });

  test("a token that is revoked concurrently has one audit record", async () => {
    const organizationId = await subject.organization();
    const token = tokenOf(organizationId);
    await subject.store.accounts.insertToken(token, null);
    const times = Array.from({ length: ROUNDS }, (_, index) => NOW + index);
    const written = await Promise.all(
      times.map((atMs, index) => {
        const record = recordOf(organizationId, token.id, "token.revoke")(null, null);
        return alternate(index).revokeToken(token.id, atMs, record);
      }),
    );
    expect(written.filter(Boolean)).toHaveLength(1);
    expect((await subject.store.accounts.token(token.id))?.revokedAtMs).toBe(times[written.indexOf(true)]);
    expect(await auditOf(organizationId)).toHaveLength(1);
  });
}

function replacementCases({ subject, alternate, tokenIds }: Nodes): void {
  test("a successor that is replaced concurrently is replaced once", async () => {
    const organizationId = await subject.organization();
    const [old, unused] = [tokenOf(organizationId), tokenOf(organizationId)];
    await subject.store.accounts.insertToken(old, null);
    await subject.store.accounts.replaceToken({ oldId: old.id, oldExpiresAtMs: NOW + 1, successor: unused });
    const successors = Array.from({ length: ROUNDS }, () => tokenOf(organizationId));
    const replacement = { oldId: old.id, unused, oldExpiresAtMs: NOW + 1 };
    const written = await Promise.all(
      successors.map((successor, index) => alternate(index).replaceToken({ ...replacement, successor })),
    );
    expect(written.filter(Boolean)).toHaveLength(1);
    const [winner] = successors.filter((_, index) => written[index]);
    expect((await subject.store.accounts.token(old.id))?.successorId).toBe(winner?.id);
    expect((await subject.store.accounts.token(unused.id))?.revokedAtMs).toBe(NOW);
    expect(await tokenIds(organizationId)).toHaveLength(3);
  });

  test("a successor that was revoked since it was read is not replaced", async () => {
    const organizationId = await subject.organization();
    const [old, unused, next] = [tokenOf(organizationId), tokenOf(organizationId), tokenOf(organizationId)];
    await subject.store.accounts.insertToken(old, null);
    await subject.store.accounts.replaceToken({ oldId: old.id, oldExpiresAtMs: NOW + 1, successor: unused });
    await subject.store.accounts.revokeToken(unused.id, NOW - 1);
    const replacement = { oldId: old.id, oldExpiresAtMs: NOW + 1, successor: next };
    expect(await subject.store.accounts.replaceToken({ ...replacement, unused })).toBe(false);
    const revoked = { ...unused, revokedAtMs: NOW - 1 };
    expect(await subject.store.accounts.replaceToken({ ...replacement, unused: revoked })).toBe(true);
    expect((await subject.store.accounts.token(unused.id))?.revokedAtMs).toBe(NOW - 1);
  });

  test("a successor that is used during its replacement is not revoked", async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      const organizationId = await subject.organization();
      const [old, successor] = [tokenOf(organizationId), tokenOf(organizationId)];
      await subject.store.accounts.insertToken(old, null);
      await subject.store.accounts.replaceToken({ oldId: old.id, oldExpiresAtMs: NOW + 1, successor });
      const replacement = { oldId: old.id, unused: successor, oldExpiresAtMs: NOW + 1 };
      const use = () => alternate(round).noteUses([{ tokenId: successor.id, atMs: NOW }]);
      const replace = () => alternate(round + 1).replaceToken({ ...replacement, successor: tokenOf(organizationId) });
      const [first, second] = round % 2 === 0 ? [use(), replace()] : [replace(), use()];
      const isReplaced = (await Promise.all([first, second])).includes(true);
      const after = await subject.store.accounts.token(successor.id);
      expect(after?.revokedAtMs).toBe(isReplaced ? NOW : null);
      expect(await subject.store.accounts.replaceToken({ ...replacement, successor: tokenOf(organizationId) })).toBe(
        false,
      );
    }
  });
}
