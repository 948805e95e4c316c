import { randomBytes } from "node:crypto";
import { v7 } from "uuid";
import { expect, test } from "vitest";
import { SCOPES } from "../../contract/scope.ts";
import type { AdminTokenRow, AuditRow, SessionRow, TokenRow } from "../store.ts";
import { randomId, type Subject } from "./fixture.ts";

const hash = () => new Uint8Array(randomBytes(32));
const NOW = 1_790_000_000_000;

function adminTokenOf(changes: Partial<AdminTokenRow> = {}): AdminTokenRow {
  return { id: randomId("adm"), hash: hash(), prefix: "tg-admin-abc", createdAtMs: NOW, revokedAtMs: null, ...changes };
}

function sessionOf(changes: Partial<SessionRow> = {}): SessionRow {
  const times = { createdAtMs: NOW, seenAtMs: NOW, expiresAtMs: NOW + 10 };
  return { hash: hash(), adminTokenId: "adm_first", tokenId: null, ...times, ...changes };
}

function auditOf(changes: Partial<AuditRow> = {}): AuditRow {
  const actor = { actorKind: "operator", actorId: "adm_1", address: "::1", requestId: "req_1" } as const;
  const change = {
    action: "token.create",
    organizationId: null,
    subjectId: "x",
    before: null,
    after: { name: "日\n'" },
  };
  return { id: v7(), madeAtMs: NOW, ...actor, ...change, ...changes };
}

function tokenOf(organizationId: string, changes: Partial<TokenRow> = {}): TokenRow {
  const terms = { scopes: [...SCOPES], models: null, limits: null, createdAtMs: NOW };
  const ends = { expiresAtMs: null, revokedAtMs: null, lastUsedAtMs: null };
  return {
    id: randomId("tok"),
    organizationId,
    name: "t",
    hash: hash(),
    prefix: "sk-tg-x",
    ...terms,
    ...ends,
    ...changes,
  };
}

/** Drivers give bytes in classes of their own. */
const plain = <Row extends { hash: Uint8Array }>(row: Row | undefined) =>
  row && { ...row, hash: new Uint8Array(row.hash) };

export function adminCases(subject: Subject): void {
  operatorCases(subject);
  tokenCases(subject);
}

function operatorCases(subject: Subject): void {
  test("there is one first admin token, and another ends all before it", async () => {
    const { admin } = subject.store;
    const first = adminTokenOf();
    const made = await Promise.all([admin.insertFirstAdminToken(first), admin.insertFirstAdminToken(adminTokenOf())]);
    expect(made.toSorted()).toEqual([false, true]);
    expect((await admin.adminToken("adm_first"))?.revokedAtMs).toBeNull();
    const next = adminTokenOf({ createdAtMs: NOW + 5 });
    const audit = auditOf({ action: "admin_token.replace" });
    await admin.replaceAdminTokens(next, audit);
    expect((await admin.adminToken("adm_first"))?.revokedAtMs).toBe(NOW + 5);
    expect(plain(await admin.adminTokenByHash(next.hash))).toEqual(next);
    expect(await admin.adminTokenByHash(hash())).toBeUndefined();
    expect(await admin.insertFirstAdminToken(adminTokenOf())).toBe(false);
    const page = { organizationId: null, action: "admin_token.replace", before: null, limit: 10 };
    expect(await admin.audit(page)).toEqual([audit]);
  });

  test("a session is kept until it ends, and what has expired goes when another begins", async () => {
    const { admin } = subject.store;
    const [old, member] = [sessionOf(), sessionOf({ adminTokenId: null, tokenId: "tok_1", expiresAtMs: NOW + 90 })];
    for (const session of [old, member]) {
      await admin.insertSession(session);
      expect(plain(await admin.session(session.hash))).toEqual(session);
    }
    await admin.touchSession(member.hash, NOW + 20);
    expect((await admin.session(member.hash))?.seenAtMs).toBe(NOW + 20);
    await admin.insertSession(sessionOf({ createdAtMs: NOW + 50, expiresAtMs: NOW + 99 }));
    expect(await admin.session(old.hash)).toBeUndefined();
    await admin.deleteSession(member.hash);
    expect(await admin.session(member.hash)).toBeUndefined();
    await expect(admin.insertSession(sessionOf({ tokenId: "both" }))).rejects.toThrow();
  });

  test("the record of changes is told newest first, by organization and by action, in pages", async () => {
    const { admin } = subject.store;
    const organizationId = await subject.organization();
    const entries = [];
    for (const action of ["a.b", "a.c", "a.b"]) {
      const entry = auditOf({ action, organizationId, before: { deep: [null, 1] } });
      await admin.insertAudit(entry);
      entries.unshift(entry);
    }
    const page = { organizationId, action: null, before: null, limit: 10 };
    expect(await admin.audit(page)).toEqual(entries);
    expect(await admin.audit({ ...page, action: "a.b" })).toEqual([entries[0], entries[2]]);
    expect(await admin.audit({ ...page, limit: 1, before: entries[0]?.id ?? null })).toEqual([entries[1]]);
    await expect(admin.insertAudit(entries[0] as AuditRow)).rejects.toThrow();
  });
}

function tokenCases(subject: Subject): void {
  test("a short token is the token that it stands for, with fewer scopes, until either ends", async () => {
    const { accounts, admin } = subject.store;
    const token = tokenOf(await subject.organization(), { expiresAtMs: NOW + 50 });
    await accounts.insertToken(token, null);
    const [short, shorter] = [hash(), hash()];
    await admin.insertShortToken({ hash: short, tokenId: token.id, expiresAtMs: NOW + 90 }, NOW);
    await admin.insertShortToken({ hash: shorter, tokenId: token.id, expiresAtMs: NOW + 20 }, NOW);
    expect(await accounts.tokenByHash(short)).toMatchObject({
      id: token.id,
      scopes: ["chat.completions:write", "models:read"],
      expiresAtMs: NOW + 50,
    });
    expect((await accounts.tokenByHash(shorter))?.expiresAtMs).toBe(NOW + 20);
    await accounts.revokeToken(token.id, NOW + 1);
    expect((await accounts.tokenByHash(short))?.revokedAtMs).toBe(NOW + 1);
    await admin.insertShortToken({ hash: hash(), tokenId: token.id, expiresAtMs: NOW + 99 }, NOW + 60);
    expect(await accounts.tokenByHash(shorter)).toBeUndefined();
    expect(await accounts.tokenByHash(short)).toBeDefined();
  });

  test("when tokens were last used is kept, the latest alone", async () => {
    const { accounts } = subject.store;
    const token = tokenOf(await subject.organization());
    await accounts.insertToken(token, null);
    await accounts.noteUses([]);
    for (const atMs of [NOW + 5, NOW + 3])
      await accounts.noteUses([
        { tokenId: token.id, atMs },
        { tokenId: "none", atMs },
      ]);
    expect((await accounts.token(token.id))?.lastUsedAtMs).toBe(NOW + 5);
  });

  test("an organization's change and its record are written together, or neither", async () => {
    const { accounts, admin } = subject.store;
    const id = await subject.organization();
    const before = await accounts.organization(id);
    if (before === undefined) throw new Error("no organization");
    const changed = {
      ...before,
      name: "ÄÖ",
      status: "suspended",
      limits: { tokensPerMinute: 7 },
      keepsConversations: true,
    } as const;
    const audit = auditOf({ organizationId: id });
    await accounts.updateOrganization(changed, audit);
    expect(await accounts.organization(id)).toEqual(changed);
    await expect(accounts.updateOrganization({ ...changed, name: "Twice" }, audit)).rejects.toThrow();
    expect((await accounts.organization(id))?.name).toBe("ÄÖ");
    expect(await admin.audit({ organizationId: id, action: null, before: null, limit: 5 })).toEqual([audit]);
    const search = { id: null, search: "äö", status: "suspended", before: null, limit: 5 } as const;
    const found = await subject.store.directory.organizations(search);
    expect(found.map(({ organization }) => organization)).toEqual([changed]);
  });
}
