import { randomBytes } from "node:crypto";
import { v7 } from "uuid";
import { expect, test } from "vitest";
import { auditRow, COMMAND_ACTOR } from "../../src/admin/audit.ts";
import { identityRowOf } from "../../src/admin/token.ts";
import { SCOPES } from "../../src/api/principal.ts";
import { StoreUnavailableError } from "../../src/errors.ts";
import type { TokenRow } from "../../src/stores/queries/accounts.ts";
import { auditOf, budgetOf, randomId, type Subject } from "./fixture.ts";

const STRANGE_NAMES = [
  "",
  " ",
  "O'Brien",
  '"; DROP TABLE organization; --',
  "`$1` ? :name @name",
  "back\\slash\nnew line\ttab\r",
  "日本語 العربية é e\u0301",
  "👩‍👩‍👧‍👦🏳️‍🌈",
  "\u{10FFFF}\u200B\uFEFF",
  "long ".repeat(4_000),
];

const NO_TERMS = {
  ...{ models: null, aliases: null, priceList: null, externalId: null, contacts: null, note: null },
  erasedAtMs: null,
};

export function accountCases(subject: Subject): void {
  organizationCases(subject);
  externalIdCases(subject);
  tokenCases(subject);
  limitCases(subject);
  tokenChangeCases(subject);
  personCases(subject);
}

function organizationCases(subject: Subject): void {
  test("the playground organization exists from the start, without credits", async () => {
    const organization = await subject.store.accounts.organization("org_playground");
    expect(organization).toMatchObject({ id: "org_playground", kind: "playground" });
    expect(await subject.books.balance("org_playground")).toMatchObject({ granted: 0n, available: 0n });
    await subject.expectSound("org_playground");
  });

  test.each(STRANGE_NAMES.map((name) => [JSON.stringify(name).slice(0, 40), name]))(
    "an organization named %s is given back as it was",
    async (_, name) => {
      const organization = { id: randomId("org"), name, kind: "standard", createdAtMs: 1_790_000_000_123 } as const;
      await subject.store.accounts.insertOrganization(organization);
      const choices = { keepsConversations: false, keepsResponses: true, pausesAllowances: false, tokenBounds: null };
      const fresh = { status: "active", limits: null, ...choices, ...NO_TERMS };
      expect(await subject.store.accounts.organization(organization.id)).toEqual({ ...organization, ...fresh });
    },
  );

  test("a name with NUL is stored whole or refused, never cut off", async () => {
    const { accounts } = subject.store;
    const organization = { id: randomId("org"), name: "a\0b", kind: "standard", createdAtMs: 1 } as const;
    const refusal = await accounts.insertOrganization(organization).then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(refusal).not.toBeInstanceOf(StoreUnavailableError);
    const kept = await accounts.organization(organization.id);
    expect(kept?.name).toEqual(refusal === undefined ? organization.name : undefined);
  });

  test("a new organization has an empty balance", async () => {
    const id = await subject.organization();
    const zero = { granted: 0n, available: 0n, held: 0n, spent: 0n, expired: 0n };
    expect(await subject.books.balance(id)).toEqual({
      organizationId: id,
      ...zero,
      nextChangeAtMs: null,
      ...{ closedBeforeMs: null, budgetVersion: 0, topUp: 0n, warnAt: null, announced: null },
    });
  });

  test("a second insert of an organization fails and changes nothing", async () => {
    const id = await subject.organization(5n);
    const again = { id, name: "Other", kind: "standard", createdAtMs: 2 } as const;
    await expect(subject.store.accounts.insertOrganization(again)).rejects.not.toBeInstanceOf(StoreUnavailableError);
    expect((await subject.store.accounts.organization(id))?.name).toBe("Contract");
    expect((await subject.books.balance(id))?.available).toBe(5n);
  });

  test("unknown organizations and tokens are undefined", async () => {
    const { accounts } = subject.store;
    expect(await accounts.organization("org_absent")).toBeUndefined();
    expect(await accounts.token("tok_absent")).toBeUndefined();
    expect(await accounts.tokenByHash(randomBytes(32))).toBeUndefined();
    expect(await subject.books.balance("org_absent")).toBeUndefined();
  });

  test("pages of organizations contain each once, in the order of their ids", async () => {
    const made = [await subject.organization(), await subject.organization(), await subject.organization()];
    const seen: string[] = [];
    for (;;) {
      const page = await subject.store.accounts.organizations({ after: seen.at(-1) ?? null, limit: 2 });
      seen.push(...page.map(({ id }) => id));
      if (page.length < 2) break;
    }
    expect(seen).toEqual([...new Set(seen)].sort());
    expect(seen).toEqual(expect.arrayContaining(made));
  });
}

function tokenOf(organizationId: string, token: Partial<TokenRow> = {}): TokenRow {
  return {
    id: randomId("tok"),
    organizationId,
    name: "test",
    hash: new Uint8Array(randomBytes(32)),
    prefix: "sk-tg-abcd",
    scopes: [...SCOPES],
    models: null,
    limits: null,
    createdAtMs: 1_790_000_000_123,
    expiresAtMs: null,
    revokedAtMs: null,
    lastUsedAtMs: null,
    successorId: null,
    kind: "secret",
    createdBy: null,
    rotatedBy: null,
    pinned: null,
    callerId: "tok_first",
    ...token,
  };
}

/** Copies bytes to a Uint8Array: drivers return subclasses. */
function plain<Row extends TokenRow>(token: Row | undefined): Row | undefined {
  return token && { ...token, hash: new Uint8Array(token.hash) };
}

function limitCases(subject: Subject): void {
  test("a token has the limits of the budgets that cover it, and each change of them changes the version of accounts", async () => {
    const { accounts, budgets } = subject.store;
    const organizationId = await subject.organization();
    const callerOf = () => tokenOf(organizationId, { callerId: randomId("tok") });
    const [one, other] = [callerOf(), callerOf()];
    await accounts.insertToken(one, null);
    await accounts.insertToken(other, null);
    const limits = { requestsPerMinute: 5 };
    const named = async ({ hash }: TokenRow) =>
      (await accounts.tokenByHash(hash))?.limitingBudgets.map(({ name, limits }) => [name, limits]);
    const changesVersion = async (change: () => Promise<boolean>) => {
      const before = await accounts.accountVersion();
      expect(await change()).toBe(true);
      return (await accounts.accountVersion()) !== before;
    };
    const ofAll = budgetOf(organizationId, { name: "all", amount: null, limits });
    const ofOne = budgetOf(organizationId, { name: "one", callerIds: [one.callerId], limits });
    const spending = budgetOf(organizationId, { name: "spending" });
    const auditFor = ({ id }: { id: string }) => auditOf(organizationId, id);
    for (const [row, isNoticed] of [
      [ofAll, true],
      [ofOne, true],
      [spending, false],
    ] as const) {
      expect(await changesVersion(() => budgets.insertBudget(row, auditFor(row)))).toBe(isNoticed);
    }
    expect((await named(one))?.sort()).toEqual([
      ["all", limits],
      ["one", limits],
    ]);
    expect(await named(other)).toEqual([["all", limits]]);
    const more = { ...ofAll, limits: { tokensPerMinute: 7 } };
    expect(await changesVersion(() => budgets.changeBudget(ofAll, more, auditFor(ofAll)))).toBe(true);
    // It was changed since it was read as `ofAll`.
    expect(await budgets.changeBudget(ofAll, { ...ofAll, name: "none" }, auditFor(ofAll))).toBe(false);
    expect(await named(other)).toEqual([["all", { tokensPerMinute: 7 }]]);
    const raised = { ...spending, amount: 200n };
    expect(await changesVersion(() => budgets.changeBudget(spending, raised, auditFor(spending)))).toBe(false);
    expect(await changesVersion(() => budgets.deleteBudget(spending, auditFor(spending)))).toBe(false);
    expect(await changesVersion(() => budgets.deleteBudget(ofAll, auditFor(ofAll)))).toBe(true);
    expect(await named(other)).toEqual([]);
  });
}

function externalIdCases(subject: Subject): void {
  test("an external id belongs to one organization, and is free again after it is removed", async () => {
    const { accounts } = subject.store;
    const externalId = randomId("crm");
    const make = (id: string) =>
      accounts.insertOrganization({ id, name: "One", kind: "standard", createdAtMs: 1, externalId });
    const [first, second] = [randomId("org"), randomId("org")];
    expect(await make(first)).toMatchObject({ id: first, externalId });
    expect(await make(second)).toBeUndefined();
    expect(await accounts.organization(second)).toBeUndefined();
    const other = await subject.organization();
    const change = (id: string, to: string | null) =>
      accounts.changeOrganization(id, { externalId: to }, () => auditOf(id, id));
    expect(await change(other, externalId)).toBe("taken");
    expect(await change(first, externalId)).toMatchObject({ externalId });
    expect(await change(first, null)).toMatchObject({ externalId: null });
    expect(await change(other, externalId)).toMatchObject({ externalId });
  });

  test("an organization is found by its id first and then by its external id, but the playground by neither", async () => {
    const { accounts } = subject.store;
    const [id, externalId] = [await subject.organization(), randomId("crm")];
    const name = (of: string, to: string | null) =>
      accounts.changeOrganization(of, { externalId: to }, () => auditOf(of, of));
    await name(id, externalId);
    await name(await subject.organization(), id);
    for (const named of [id, externalId]) expect(await accounts.organizationNamed(named)).toMatchObject({ id });
    expect(await accounts.organizationNamed(externalId.toUpperCase())).toBeUndefined();
    const ofPlayground = randomId("crm");
    expect(await name("org_playground", ofPlayground)).toMatchObject({ externalId: ofPlayground });
    for (const named of ["org_playground", ofPlayground]) {
      expect(await accounts.organizationNamed(named)).toBeUndefined();
    }
    await name("org_playground", null);
  });
}

function tokenCases(subject: Subject): void {
  test("a token is returned as it was written, by id and by hash", async () => {
    const { accounts } = subject.store;
    const organizationId = await subject.organization();
    const bare = tokenOf(organizationId);
    const full = tokenOf(organizationId, {
      name: STRANGE_NAMES[3] ?? "",
      hash: new Uint8Array(32),
      scopes: ["models:read"],
      models: ["sandbox/echo", 'a"b'],
      limits: { requestsPerMinute: 5 },
      expiresAtMs: 1_790_000_000_456,
      revokedAtMs: 1_790_000_000_789,
    });
    for (const token of [bare, full]) {
      await accounts.insertToken(token, null);
      expect(plain(await accounts.token(token.id))).toEqual({ ...token, budget: null });
      expect(plain(await accounts.tokenByHash(token.hash))).toEqual({
        ...token,
        organization: await accounts.organization(organizationId),
        isCreatorBlocked: false,
        limitingBudgets: [],
      });
    }
  });

  test("a token of the playground has its kind", async () => {
    const token = tokenOf("org_playground");
    await subject.store.accounts.insertToken(token, null);
    expect((await subject.store.accounts.tokenByHash(token.hash))?.organization.kind).toBe("playground");
  });

  test("ids and hashes of tokens are unique", async () => {
    const { accounts } = subject.store;
    const token = tokenOf(await subject.organization());
    const other = await subject.organization();
    await accounts.insertToken(token, null);
    const sameHash = tokenOf(other, { hash: token.hash });
    await expect(accounts.insertToken(sameHash, null)).rejects.not.toBeInstanceOf(StoreUnavailableError);
    const sameId = tokenOf(other, { id: token.id });
    await expect(accounts.insertToken(sameId, null)).rejects.not.toBeInstanceOf(StoreUnavailableError);
    expect(plain(await accounts.token(token.id))).toEqual({ ...token, budget: null });
  });
}

function tokenChangeCases(subject: Subject): void {
  test("a token is revoked once", async () => {
    const { accounts } = subject.store;
    const token = tokenOf(await subject.organization());
    await accounts.insertToken(token, null);
    expect(await accounts.revokeToken(token.id, 1_800_000_000_001)).toBe(true);
    expect(await accounts.revokeToken(token.id, 1_800_000_000_002)).toBe(false);
    expect((await accounts.token(token.id))?.revokedAtMs).toBe(1_800_000_000_001);
    expect(await accounts.revokeToken("tok_absent", 1)).toBe(false);
  });

  test("a successor ends its predecessor, no later than its expiry", async () => {
    const { accounts } = subject.store;
    const organizationId = await subject.organization();
    for (const [before, after] of [
      [null, 2_000],
      [3_000, 2_000],
      [1_000, 1_000],
    ] as const) {
      const old = tokenOf(organizationId, { expiresAtMs: before });
      const successor = tokenOf(organizationId);
      await accounts.insertToken(old, null);
      await accounts.replaceToken({ oldId: old.id, oldExpiresAtMs: 2_000, successor });
      expect((await accounts.token(old.id))?.expiresAtMs).toBe(after);
      expect(plain(await accounts.token(successor.id))).toEqual({ ...successor, budget: null });
    }
  });

  test("a successor that cannot be written does not change its predecessor", async () => {
    const { accounts } = subject.store;
    const old = tokenOf(await subject.organization());
    await accounts.insertToken(old, null);
    const successor = tokenOf(old.organizationId, { hash: old.hash });
    await expect(accounts.replaceToken({ oldId: old.id, oldExpiresAtMs: 2_000, successor })).rejects.toThrow();
    expect(plain(await accounts.token(old.id))).toEqual({ ...old, budget: null });
    expect(await accounts.token(successor.id)).toBeUndefined();
  });
}

function personCases(subject: Subject): void {
  test("a caller chooses a metadata key unless its token or its issuer pins it", async () => {
    const { accounts, budgets, identities } = subject.store;
    const organizationId = await subject.organization();
    const covered = { organizationId, callerIds: null };
    const isFree = (keys: string[], without: string[] = [], callerIds: string[] | null = null) =>
      budgets.hasFreeCaller({ ...covered, callerIds }, keys, () => without);
    expect(await isFree(["user"])).toBe(false);
    const key = 'a"b%_\\';
    const pinned = tokenOf(organizationId, {
      pinned: { [key]: '","user":"', none: "x", unset: null },
      callerId: "tok_1",
    });
    await accounts.insertToken(pinned, null);
    expect(await isFree([key])).toBe(false);
    expect(await isFree(["none"])).toBe(false);
    expect(await isFree(["unset"])).toBe(false);
    expect(await isFree(["None"])).toBe(true);
    expect(await isFree([key, "user"])).toBe(true);
    expect(await isFree(["user"], [], ["tok_2"])).toBe(false);
    const identity = identityRowOf("https://login.example", randomId("ada"), pinned.createdAtMs);
    const kind = "identity" as const;
    const person = tokenOf(organizationId, { kind, createdBy: identity.id, callerId: "tok_2" });
    const audit = (action: string) =>
      auditRow(COMMAND_ACTOR, { action, organizationId, subjectId: person.id }, { clock: () => 1, newId: v7 });
    await identities.insertIdentityToken(identity, person, audit("token.create"));
    expect(await isFree(["user"], [], ["tok_2"])).toBe(false);
    expect(await isFree(["user"], ["https://other.example", identity.issuer], ["tok_2"])).toBe(true);
    await identities.blockIdentity(identity, pinned.createdAtMs, audit("identity.block"));
    expect(await isFree(["user"], [identity.issuer], ["tok_2"])).toBe(false);
    await accounts.insertToken(tokenOf(organizationId, { expiresAtMs: pinned.createdAtMs, callerId: "tok_3" }), null);
    expect(await isFree(["user"], [], ["tok_3"])).toBe(false);
  });

  test("a short token of a person has their pins, and is refused while they are blocked", async () => {
    const { accounts, admin, identities } = subject.store;
    const token = tokenOf(await subject.organization(), { pinned: { team: "red" } });
    await accounts.insertToken(token, null);
    const nowMs = token.createdAtMs;
    const identity = identityRowOf("https://login.example", randomId("ada"), nowMs);
    const { id, issuer } = identity;
    const access = { name: "Ada", role: "operator", organizationId: null, basis: "", signOutUrl: null } as const;
    const person = { issuer, subject: identity.subject, ...access, pins: { user: "ada" } };
    const [hash, sessionHash] = [new Uint8Array(randomBytes(32)), new Uint8Array(randomBytes(32))];
    const times = { createdAtMs: nowMs, seenAtMs: nowMs, expiresAtMs: nowMs + 1_000 };
    await admin.insertSession({ hash: sessionHash, operatorId: null, tokenId: null, person, ...times });
    const short = { hash, tokenId: token.id, expiresAtMs: nowMs + 90, sessionHash, operatorId: id };
    await admin.insertShortToken(short, nowMs);
    const change = { action: "identity.block", organizationId: null, subjectId: id };
    const audit = () => auditRow(COMMAND_ACTOR, change, { clock: () => nowMs, newId: v7 });
    expect((await accounts.tokenByHash(hash))?.pinned).toEqual({ team: "red", user: "ada" });
    await identities.blockIdentity(identity, nowMs, audit());
    expect(await accounts.tokenByHash(hash)).toBeUndefined();
    await identities.unblockIdentity(id, audit());
    expect(await accounts.tokenByHash(hash)).toBeDefined();
    await admin.deleteSession(sessionHash);
    expect(await accounts.tokenByHash(hash)).toBeUndefined();
  });
}
