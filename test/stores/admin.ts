import { randomBytes } from "node:crypto";
import { v7 } from "uuid";
import { expect, test } from "vitest";
import { SCOPES } from "../../src/api/principal.ts";
import type { AuditRow } from "../../src/credits/audit.ts";
import type { OrganizationUpdate, TokenRow } from "../../src/stores/queries/accounts.ts";
import type { OperatorRow, SessionRow } from "../../src/stores/queries/admin.ts";
import { randomId, type Subject } from "./fixture.ts";

const hash = () => new Uint8Array(randomBytes(32));
const NOW = 1_790_000_000_000;

function operatorOf(changes: Partial<OperatorRow> = {}): OperatorRow {
  const terms = { name: randomId("name"), role: "operator", prefix: "tg-admin-abc" } as const;
  return { id: randomId("adm"), hash: hash(), ...terms, createdAtMs: NOW, revokedAtMs: null, ...changes };
}

function sessionOf(changes: Partial<SessionRow> = {}): SessionRow {
  const times = { createdAtMs: NOW, seenAtMs: NOW, expiresAtMs: NOW + 10 };
  return { hash: hash(), operatorId: "adm_first", tokenId: null, person: null, ...times, ...changes };
}

function auditOf(changes: Partial<AuditRow> = {}): AuditRow {
  const actor = { actorKind: "operator", actorId: "adm_1", actorName: "Ada", address: "::1" } as const;
  const subject = { requestId: "req_1", organizationId: null, subjectId: "x" };
  const change = { action: "token.create", ...subject, before: null, after: { name: "日\n'" } };
  return { id: v7(), madeAtMs: NOW, ...actor, ...change, ...changes };
}

function tokenOf(organizationId: string, changes: Partial<TokenRow> = {}): TokenRow {
  const terms = { scopes: [...SCOPES], models: null, limits: null, createdAtMs: NOW };
  const ends = { expiresAtMs: null, revokedAtMs: null, lastUsedAtMs: null, successorId: null, callerId: "tok_first" };
  const origin = { prefix: "sk-tg-x", kind: "secret", createdBy: null, rotatedBy: null, pinned: null } as const;
  return {
    id: randomId("tok"),
    organizationId,
    name: "t",
    hash: hash(),
    ...{ ...terms, ...ends, ...origin, ...changes },
  };
}

const hex = (row: { hash: Uint8Array }) => Buffer.from(row.hash).toString("hex");

/** Copies bytes to a Uint8Array: drivers return subclasses. */
const plain = <Row extends { hash: Uint8Array }>(row: Row | undefined) =>
  row && { ...row, hash: new Uint8Array(row.hash) };

export function adminCases(subject: Subject): void {
  operatorCases(subject);
  peopleCases(subject);
  openSessionCases(subject);
  shortTokenCases(subject);
  accountVersionCases(subject);
  tokenCases(subject);
}

function operatorCases(subject: Subject): void {
  test("there is one first admin token, and a new one revokes all before it", async () => {
    const { admin } = subject.store;
    const first = operatorOf();
    const record = () => auditOf({ action: "admin_token.create" });
    const made = await Promise.all([
      admin.insertFirstOperator(first, record()),
      admin.insertFirstOperator(operatorOf(), record()),
    ]);
    expect(made.toSorted()).toEqual([false, true]);
    const creations = await admin.audit({ organizationId: null, action: "admin_token.create", before: null, limit: 5 });
    expect(creations.map(({ subjectId }) => subjectId)).toEqual(["adm_first"]);
    expect((await admin.operator("adm_first"))?.revokedAtMs).toBeNull();
    const next = operatorOf({ createdAtMs: NOW + 5 });
    const audit = auditOf({ action: "admin_token.replace" });
    await admin.replaceOperators(next, audit);
    expect((await admin.operator("adm_first"))?.revokedAtMs).toBe(NOW + 5);
    expect(plain(await admin.operatorByHash(next.hash))).toEqual(next);
    expect(await admin.operatorByHash(hash())).toBeUndefined();
    expect(await admin.insertFirstOperator(operatorOf())).toBe(false);
    const page = { organizationId: null, action: "admin_token.replace", before: null, limit: 10 };
    expect(await admin.audit(page)).toEqual([audit]);
  });

  test("a session exists until it ends, and expired sessions are removed when another begins", async () => {
    const { admin } = subject.store;
    const [old, member] = [sessionOf(), sessionOf({ operatorId: null, tokenId: "tok_1", expiresAtMs: NOW + 90 })];
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

  test("audit records come newest first, by organization and by action, in pages", async () => {
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

function peopleCases(subject: Subject): void {
  test("operators have names that are unique until they are revoked, once", async () => {
    const { admin, directory } = subject.store;
    const ada = operatorOf({ role: "auditor", createdAtMs: NOW + 100 });
    const [created, revoked] = [
      auditOf({ action: "operator.create", actorId: null }),
      auditOf({ action: "operator.revoke" }),
    ];
    expect(await admin.insertOperator(ada, created)).toBe(true);
    const namesake = operatorOf({ name: ada.name, createdAtMs: NOW + 200 });
    expect(await admin.insertOperator(namesake, auditOf({ action: "operator.create", actorId: null }))).toBe(false);
    expect(await admin.operator(namesake.id)).toBeUndefined();
    expect(await admin.revokeOperator(ada.id, NOW + 150, revoked)).toBe(true);
    expect(await admin.revokeOperator(ada.id, NOW + 160, auditOf({ action: "operator.revoke" }))).toBe(false);
    expect(plain(await admin.operator(ada.id))).toEqual({ ...ada, revokedAtMs: NOW + 150 });
    expect(await admin.insertOperator(namesake, auditOf({ action: "operator.create", actorId: null }))).toBe(true);
    const page = { organizationId: null, before: null, limit: 9 };
    expect(await admin.audit({ ...page, action: "operator.revoke" })).toEqual([revoked]);
    expect((await admin.audit({ ...page, action: "operator.create" })).at(-1)).toEqual(created);
    const listed = await directory.operators({ before: null, limit: 2 });
    expect(listed.map(({ id }) => id)).toEqual([namesake.id, ada.id]);
    const [next] = await directory.operators({ before: namesake, limit: 1 });
    expect(next?.id).toBe(ada.id);
  });

  test("nobody remains whom an operator creates while two processes replace all operators", async () => {
    const { admin } = subject.store;
    const stores = [subject.store, await subject.openAnother()];
    for (let round = 0; round < 10; round += 1) {
      const creator = operatorOf();
      await admin.insertOperator(creator, auditOf({ actorId: null }));
      const create = () => admin.insertOperator(operatorOf(), auditOf({ actorId: creator.id }));
      expect(await create()).toBe(true);
      const next = () => operatorOf({ name: "admin", createdAtMs: NOW + 5 });
      const replaced = stores.map((store) => store.admin.replaceOperators(next(), auditOf()));
      await Promise.all([create(), ...replaced]);
      expect(await create()).toBe(false);
      expect(await subject.read("select name from operator where revoked_at is null")).toEqual([{ name: "admin" }]);
    }
  });
}

function openSessionCases(subject: Subject): void {
  test("open sessions are listed with their holders, the newest first, and without those that have ended", async () => {
    const { accounts, admin, directory } = subject.store;
    const organizationId = await subject.organization();
    const [ada, bob] = [operatorOf({ role: "auditor" }), operatorOf()];
    for (const operator of [ada, bob]) await admin.insertOperator(operator, auditOf({ actorId: null }));
    const [token, ended] = [tokenOf(organizationId), tokenOf(organizationId, { expiresAtMs: NOW + 1_000 })];
    for (const one of [token, ended]) await accounts.insertToken(one, null);
    const at = (afterMs: number) => ({ createdAtMs: NOW + afterMs, seenAtMs: NOW + afterMs, expiresAtMs: NOW + 9_000 });
    const byToken = (tokenId: string) => ({ operatorId: null, tokenId });
    const open = [
      sessionOf({ ...at(5_003), operatorId: ada.id }),
      sessionOf({ ...at(5_002), ...byToken(token.id) }),
      sessionOf({ ...at(5_002), operatorId: ada.id }),
    ];
    const others = [
      sessionOf({ ...at(5_004), operatorId: bob.id }),
      sessionOf({ ...at(5_005), ...byToken(ended.id) }),
      sessionOf({ ...at(5_006), operatorId: ada.id, seenAtMs: NOW + 5_000 }),
      sessionOf({ ...at(5_007), operatorId: ada.id, expiresAtMs: NOW + 5_500 }),
    ];
    for (const session of [...open, ...others]) await admin.insertSession(session);
    await admin.revokeOperator(bob.id, NOW + 5_500, auditOf({ action: "operator.revoke" }));
    const search = { before: null, nowMs: NOW + 5_500, seenAfterMs: NOW + 5_000, limit: 9 };
    const found = await directory.sessions(search);
    const times = found.map(({ session }) => session.createdAtMs - NOW);
    expect(times).toEqual([5_003, 5_002, 5_002]);
    expect(new Set(found.map(({ session }) => hex(session)))).toEqual(new Set(open.map(hex)));
    const holders = found.map(({ role, holderName, organizationId: of }) => [role, holderName, of]);
    expect(holders).toContainEqual(["member", token.name, organizationId]);
    expect(holders[0]).toEqual(["auditor", ada.name, null]);
    const [second, third] = found.slice(1).map(({ session }) => session);
    if (second === undefined || third === undefined) throw new Error("Sessions are missing");
    const rest = await directory.sessions({ ...search, before: second });
    expect(rest.map(({ session }) => hex(session))).toEqual([hex(third)]);
  });
}

function shortTokenCases(subject: Subject): void {
  test("a short token acts as its token, with fewer scopes, until either ends", async () => {
    const { accounts, admin } = subject.store;
    const token = tokenOf(await subject.organization(), { expiresAtMs: NOW + 50 });
    await accounts.insertToken(token, null);
    const [short, shorter] = [hash(), hash()];
    const terms = { tokenId: token.id, sessionHash: null, operatorId: null };
    await admin.insertShortToken({ ...terms, hash: short, expiresAtMs: NOW + 90 }, NOW);
    await admin.insertShortToken({ ...terms, hash: shorter, expiresAtMs: NOW + 20 }, NOW);
    expect(await accounts.tokenByHash(short)).toMatchObject({
      id: token.id,
      scopes: ["chat.completions:write", "models:read"],
      expiresAtMs: NOW + 50,
    });
    expect((await accounts.tokenByHash(shorter))?.expiresAtMs).toBe(NOW + 20);
    await accounts.revokeToken(token.id, NOW + 1);
    expect((await accounts.tokenByHash(short))?.revokedAtMs).toBe(NOW + 1);
    await admin.insertShortToken({ ...terms, hash: hash(), expiresAtMs: NOW + 99 }, NOW + 60);
    expect(await accounts.tokenByHash(shorter)).toBeUndefined();
    expect(await accounts.tokenByHash(short)).toBeDefined();
  });

  test("a short token ends with its session, and with the admin token behind it", async () => {
    const { accounts, admin } = subject.store;
    const token = tokenOf(await subject.organization());
    await accounts.insertToken(token, null);
    const adminToken = operatorOf();
    const audit = () => auditOf({ action: "admin_token.replace" });
    await admin.replaceOperators(adminToken, audit());
    const sessions = [
      sessionOf({ operatorId: adminToken.id, expiresAtMs: NOW + 1_000 }),
      sessionOf({ operatorId: null, tokenId: token.id, expiresAtMs: NOW + 1_000 }),
    ];
    for (const session of sessions) await admin.insertSession(session);
    const mint = async (sessionHash: Uint8Array | null, operatorId: string | null) => {
      const short = { hash: hash(), tokenId: token.id, expiresAtMs: NOW + 90, sessionHash, operatorId };
      await admin.insertShortToken(short, NOW, auditOf({ action: "playground_token.create" }));
      return short.hash;
    };
    const [operators, members] = sessions.map((session) => session.hash);
    const minted = {
      ofOperator: await mint(operators ?? null, adminToken.id),
      ofMember: await mint(members ?? null, null),
      ofAdminToken: await mint(null, adminToken.id),
      ofGuest: await mint(null, null),
      ofNoSession: await mint(hash(), null),
    };
    const valid = async () => {
      const found: string[] = [];
      for (const [name, short] of Object.entries(minted)) if (await accounts.tokenByHash(short)) found.push(name);
      return found;
    };
    expect(await valid()).toEqual(["ofOperator", "ofMember", "ofAdminToken", "ofGuest"]);
    expect(await admin.deleteSession(members ?? hash(), auditOf({ action: "session.sign_out" }))).toBe(true);
    expect(await valid()).toEqual(["ofOperator", "ofAdminToken", "ofGuest"]);
    expect(await admin.deleteSession(members ?? hash(), auditOf({ action: "session.sign_out" }))).toBe(false);
    await admin.replaceOperators(operatorOf(), audit());
    expect(await valid()).toEqual(["ofGuest"]);
    const recorded = { organizationId: null, before: null, limit: 10 };
    expect(await admin.audit({ ...recorded, action: "session.sign_out" })).toHaveLength(1);
    expect(await admin.audit({ ...recorded, action: "playground_token.create" })).toHaveLength(5);
  });
}

const OF_TOKEN = "id = (SELECT organization_id FROM token WHERE id = ?)";
/** Statements of an operator that change what the token may do. */
const BY_HAND = [
  `UPDATE token SET scopes = '["models:read"]' WHERE id = ?`,
  `UPDATE token SET models = '["sandbox/echo"]' WHERE id = ?`,
  `UPDATE token SET limits = '{"requestsPerMinute":1}' WHERE id = ?`,
  "DELETE FROM token WHERE id = ?",
  `UPDATE organization SET kind = 'playground' WHERE ${OF_TOKEN}`,
  `UPDATE organization SET keeps_responses = 0 WHERE ${OF_TOKEN}`,
  `DELETE FROM organization WHERE ${OF_TOKEN}`,
];

function successionOf({ id: oldId, organizationId }: TokenRow, terms: Partial<TokenRow> = {}) {
  return { oldId, oldExpiresAtMs: NOW + 10, successor: tokenOf(organizationId, terms) };
}

/**
 * A service keeps the tokens that it has read while the version stays the same. So whatever changes the row of a token must
 * replace the version; what happens often should not.
 */
function accountVersionCases(subject: Subject): void {
  const setUp = async () => {
    const { accounts, admin } = subject.store;
    const token = tokenOf(await subject.organization(), { expiresAtMs: NOW + 5_000 });
    await accounts.insertToken(token, null);
    const adminToken = operatorOf();
    await admin.replaceOperators(adminToken, auditOf());
    const session = sessionOf({ operatorId: adminToken.id, expiresAtMs: NOW + 1_000 });
    await admin.insertSession(session);
    const short = { hash: hash(), tokenId: token.id, expiresAtMs: NOW + 90, operatorId: adminToken.id };
    await admin.insertShortToken({ ...short, sessionHash: session.hash }, NOW);
    const read = async () => {
      const tokens = await Promise.all([token.hash, short.hash].map((key) => accounts.tokenByHash(key)));
      return { version: await accounts.accountVersion(), tokens: tokens.map(plain) };
    };
    return { accounts, admin, token, session, read };
  };
  type SetUp = Awaited<ReturnType<typeof setUp>>;
  const expectReplaced = async (act: (made: SetUp) => Promise<unknown>) => {
    const made = await setUp();
    const before = await made.read();
    await act(made);
    const after = await made.read();
    expect(after.tokens).not.toEqual(before.tokens);
    expect(after.version).not.toBe(before.version);
    expect(Number.isSafeInteger(after.version)).toBe(true);
  };
  const change = (fields: OrganizationUpdate) => (made: SetUp) =>
    made.accounts.changeOrganization(made.token.organizationId, fields, () => auditOf());

  test.each<[string, (made: SetUp) => Promise<unknown>]>([
    ["a revocation", ({ accounts, token }) => accounts.revokeToken(token.id, NOW)],
    ["a rotation", ({ accounts, token }) => accounts.replaceToken(successionOf(token), auditOf())],
    ["a pause of the organization", change({ status: "paused" })],
    ["limits of the organization", change({ limits: { tokensPerMinute: 7 } })],
    ["models of the organization", change({ models: ["m"] })],
    ["a price list of the organization", change({ priceList: "partners" })],
    ["storage of conversations", change({ keepsConversations: true })],
    ["a sign-out", ({ admin, session }) => admin.deleteSession(session.hash)],
    ["a sign-in after the session's end", ({ admin }) => admin.insertSession(sessionOf({ createdAtMs: NOW + 2_000 }))],
    ["new admin tokens", ({ admin }) => admin.replaceOperators(operatorOf(), auditOf())],
  ])("%s replaces the version of the accounts", (_, act) => expectReplaced(act));

  test.each(BY_HAND)("by hand, %s replaces the version of the accounts", (sql) =>
    expectReplaced(({ token }) => subject.write(sql.replace("?", `'${token.id}'`))),
  );

  test("uses, new tokens, names and a short token leave the version of the accounts as it is", async () => {
    const made = await setUp();
    const { accounts, admin, token, read } = made;
    const before = await read();
    await accounts.noteUses([{ tokenId: token.id, atMs: NOW }]);
    await accounts.insertToken(tokenOf(token.organizationId), null);
    await subject.organization();
    await change({ name: "Other" })(made);
    const short = { hash: hash(), tokenId: token.id, sessionHash: null, operatorId: null };
    await admin.insertShortToken({ ...short, expiresAtMs: NOW + 9 }, NOW + 1);
    await accounts.revokeToken("tok_absent", NOW);
    expect((await read()).version).toBe(before.version);
  });

  test("a change that is not committed leaves the version of the accounts as it is", async () => {
    const { accounts, token, read } = await setUp();
    const before = await read();
    await expect(accounts.replaceToken(successionOf(token, { hash: token.hash }))).rejects.toThrow();
    expect((await read()).version).toBe(before.version);
  });
}

function tokenCases(subject: Subject): void {
  test("only the newest records of failed sign-ins are kept, and no other records are removed", async () => {
    const { admin } = subject.store;
    await admin.insertAudit(auditOf({ action: "session.sign_in" }));
    const entries = [];
    for (let count = 0; count < 7; count += 1) {
      const entry = auditOf({ action: "session.sign_in_failed", actorKind: "anonymous", actorId: null });
      await admin.insertFailedSignIn(entry, 4);
      entries.unshift(entry);
    }
    const page = { organizationId: null, before: null, limit: 10 };
    expect(await admin.audit({ ...page, action: "session.sign_in_failed" })).toEqual(entries.slice(0, 4));
    expect(await admin.audit({ ...page, action: "session.sign_in" })).toHaveLength(1);
  });

  test("the latest use of a token is recorded", async () => {
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

  test("an organization's change and its audit record are written together or not at all", async () => {
    const { accounts, admin } = subject.store;
    const id = await subject.organization();
    const before = await accounts.organization(id);
    if (before === undefined) throw new Error("no organization");
    const changed = {
      ...before,
      name: "ÄÖ",
      status: "paused",
      limits: { tokensPerMinute: 7 },
      keepsConversations: true,
      keepsResponses: false,
    } as const;
    const audit = auditOf({ organizationId: id });
    await accounts.changeOrganization(id, changed, () => audit);
    expect(await accounts.organization(id)).toEqual(changed);
    await expect(accounts.changeOrganization(id, { name: "Twice" }, () => audit)).rejects.toThrow();
    expect((await accounts.organization(id))?.name).toBe("ÄÖ");
    expect(await admin.audit({ organizationId: id, action: null, before: null, limit: 5 })).toEqual([audit]);
    const search = { id: null, search: "äö", status: "paused", before: null, limit: 5 } as const;
    const spentIn = { fromDay: 0, toDay: 1 };
    const found = await subject.store.directory.organizations({ ...search, spentIn });
    expect(found.map(({ organization }) => organization)).toEqual([changed]);
  });
}
