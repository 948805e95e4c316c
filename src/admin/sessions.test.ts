import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { v7 } from "uuid";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { AccountCore } from "../operations/core.ts";
import { addOrganization } from "../operations/organizations.ts";
import { addToken, endToken } from "../operations/tokens.ts";
import { openStore } from "../stores/open.ts";
import type { Person } from "../stores/queries/admin.ts";
import type { Store } from "../stores/store.ts";
import { COMMAND_ACTOR } from "./audit.ts";
import { firstAdminToken, replaceAdminToken } from "./operators.ts";
import { createSignInFailures, Sessions, type SignInFailures } from "./sessions.ts";
import { shortTokensOver } from "./short-tokens.ts";
import { idOfPerson, makeToken as makeTokenSecret } from "./token.ts";

const HOUR_MS = 3_600_000;
const directory = mkdtempSync(join(tmpdir(), "tollgate-sessions-"));
let nowMs = Date.UTC(2030, 0, 1);
const clock = () => nowMs;
let store: Store;
let core: AccountCore;
let sessions: Sessions;
let adminToken: string;
let failures: SignInFailures;
const uses: [string, boolean][] = [];
const blocked = new Set<string>();
const ORIGIN = { address: "192.0.2.7", requestId: "req_1" };
const UNCOUNTED = async () => {};

beforeAll(async () => {
  store = await openStore({ database: null, dataDir: directory, role: "service", creates: true, clock });
  const options = { clock, random: randomBytes, newId: v7 };
  core = { ...options, accounts: store.accounts, actor: COMMAND_ACTOR };
  failures = createSignInFailures({ ...options, rows: store.admin, log: pino({ level: "silent" }) });
  const isAdmitted = async ({ subject }: Person) => !blocked.has(subject);
  const noteUse = (tokenId: string, _atMs: number, isFirst: boolean) => uses.push([tokenId, isFirst]);
  sessions = new Sessions({ ...options, rows: store.admin, accounts: store.accounts, failures, noteUse, isAdmitted });
  adminToken = (await firstAdminToken({ ...options, admin: store.admin })) ?? "none";
  expect(await firstAdminToken({ ...options, admin: store.admin })).toBeNull();
});
afterAll(async () => {
  await store.close();
  rmSync(directory, { recursive: true });
});

async function signIn(token: string): Promise<string> {
  return (await sessions.signIn(token, ORIGIN, UNCOUNTED)).secret;
}
async function makeToken(expiresAtMs: number | null = null) {
  const { id: organizationId } = await addOrganization(core, "Test");
  return addToken(core, { organizationId, name: "t", scopes: ["console:read"], expiresAtMs });
}

describe("a session", () => {
  test("a session ends after 8 hours without a request, and a request extends it", async () => {
    const [used, unused] = [await signIn(adminToken), await signIn(adminToken)];
    for (let hours = 0; hours < 3; hours += 1) {
      nowMs += 7 * HOUR_MS;
      expect((await sessions.find(used))?.role).toBe("operator");
    }
    expect(await sessions.find(unused)).toBeUndefined();
    nowMs += 8 * HOUR_MS;
    expect(await sessions.find(used)).toBeUndefined();
  });

  test("a session ends after 7 days, even if it is in use", async () => {
    const secret = await signIn(adminToken);
    for (let hours = 0; hours < 7 * 24 - 6; hours += 6) {
      nowMs += 6 * HOUR_MS;
      expect(await sessions.find(secret)).toBeDefined();
    }
    nowMs += 6 * HOUR_MS;
    expect(await sessions.find(secret)).toBeUndefined();
  });

  test("a session of a person ends after an hour, even if it is in use, or as soon as they are not admitted", async () => {
    const terms = {
      name: "Ada",
      role: "auditor",
      organizationId: null,
      pins: {},
      basis: "",
      signOutUrl: null,
    } as const;
    const person = { issuer: "https://login.example", subject: "ada", ...terms };
    const [first, second] = [await sessions.signInPerson(person, ORIGIN), await sessions.signInPerson(person, ORIGIN)];
    expect(first.who).toMatchObject({ role: "auditor", name: "Ada", id: idOfPerson(person), token: null });
    expect(await sessions.find(first.secret)).toMatchObject({ role: "auditor", person });
    blocked.add("ada");
    expect(await sessions.find(first.secret)).toBeUndefined();
    blocked.clear();
    expect(await sessions.find(first.secret)).toBeUndefined();
    nowMs += HOUR_MS - 1;
    expect(await sessions.find(second.secret)).toBeDefined();
    nowMs += 1;
    expect(await sessions.find(second.secret)).toBeUndefined();
  });

  test("a session ends with its token", async () => {
    const { token } = await makeToken(nowMs + HOUR_MS);
    const secret = await signIn(token);
    expect((await sessions.find(secret))?.session?.expiresAtMs).toBe(nowMs + HOUR_MS);
    nowMs += HOUR_MS;
    expect(await sessions.find(secret)).toBeUndefined();
    await expect(signIn(token)).rejects.toMatchObject({ code: "expired_token" });
  });

  test("the session of a member needs a token with console:read, which tokens do not have by default", async () => {
    const { row } = await makeToken();
    for (const scopes of [null, ["usage:read"]]) {
      const { token } = await addToken(core, { organizationId: row.organizationId, name: "t", scopes });
      await expect(signIn(token)).rejects.toMatchObject({ code: "insufficient_scope" });
    }
  });

  test("the session of the operator ends with the admin token", async () => {
    const secret = await signIn(adminToken);
    const options = { admin: store.admin, clock, random: randomBytes, newId: v7 };
    const { token } = await replaceAdminToken(options, COMMAND_ACTOR);
    expect(await sessions.find(secret)).toBeUndefined();
    await expect(signIn(adminToken)).rejects.toMatchObject({ code: "invalid_token" });
    expect(await signIn(token)).toMatch(/^[0-9A-Za-z]{43}$/);
    adminToken = token;
  });

  test("only the hash of a session is stored", async () => {
    const secret = await signIn(adminToken);
    const kept = await store.admin.session(Buffer.from(secret));
    expect(kept).toBeUndefined();
  });
});

describe("the record of sign-ins", () => {
  const recorded = (action: string, limit = 50) =>
    store.admin.audit({ organizationId: null, action, before: null, limit });

  test("the record contains who signed in and out, with which token and from which address", async () => {
    const { row, token } = await makeToken();
    const secret = await signIn(token);
    expect(uses.at(-1)).toEqual([row.id, true]);
    await sessions.end(secret, ORIGIN);
    await sessions.end(secret, ORIGIN);
    const member = { actorKind: "member", actorId: row.id, ...ORIGIN, organizationId: row.organizationId };
    expect((await recorded("session.sign_in"))[0]).toMatchObject({ ...member, subjectId: row.id });
    const signOuts = await recorded("session.sign_out");
    expect(signOuts.filter(({ actorId }) => actorId === row.id)).toMatchObject([{ ...member, subjectId: row.id }]);
    await signIn(adminToken);
    expect((await recorded("session.sign_in"))[0]).toMatchObject({ actorKind: "operator", ...ORIGIN });
  });

  test("the record of a refused sign-in contains the reason and at most the first characters of the token", async () => {
    nowMs += HOUR_MS;
    const { row, token } = await makeToken();
    await endToken(core, row.id);
    const unknown = makeTokenSecret(randomBytes).token;
    const cases: [string, object, string | null][] = [
      [unknown, { reason: "unknown_token", token: unknown.slice(0, 12) }, null],
      [`${unknown.slice(0, -1)}!`, { reason: "unknown_token", token: null }, null],
      ["correct horse battery staple", { reason: "unknown_token", token: null }, null],
      [`tg-admin-${"a".repeat(49)}`, { reason: "unknown_token", token: "tg-admin-aaaaaa" }, null],
      [token, { reason: "revoked_token", token: row.prefix }, row.id],
    ];
    for (const [text, after, subjectId] of cases) {
      await expect(signIn(text)).rejects.toMatchObject({ code: "invalid_token" });
      const [entry] = await recorded("session.sign_in_failed", 1);
      expect(entry).toMatchObject({ actorKind: "anonymous", actorId: null, ...ORIGIN, subjectId, after });
      if (text.length > 30) expect(JSON.stringify(entry)).not.toContain(text.slice(16));
    }
  });

  test("at most 20 failures per minute are recorded one by one, and the others are counted", async () => {
    await failures.stop();
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    failures.start();
    const before = (await recorded("session.sign_in_failed", 200)).length;
    const fail = () => expect(signIn("wrong")).rejects.toMatchObject({ code: "invalid_token" });
    for (let attempt = 0; attempt < 50; attempt += 1) await fail();
    expect(await recorded("session.sign_in_failed", 200)).toHaveLength(before + 20);
    vi.advanceTimersByTime(60_000);
    await fail();
    const [next, counted] = await recorded("session.sign_in_failed", 2);
    expect([next?.after, counted?.after]).toEqual([{ reason: "unknown_token", token: null }, { furtherAttempts: 30 }]);
    await failures.stop();
    vi.useRealTimers();
    expect(await recorded("session.sign_in_failed", 200)).toHaveLength(before + 22);
  });
});

describe("a short token", () => {
  const shortTokens = () =>
    shortTokensOver({ rows: store.admin, accounts: store.accounts, clock, random: randomBytes, newId: v7 });
  const guest = { actor: COMMAND_ACTOR, session: null, operatorId: null };

  test("a short token lives for 15 minutes, is reused while it is new, and ends with the token that it represents", async () => {
    const tokens = shortTokens();
    const { row } = await makeToken(nowMs + 20 * 60_000);
    const first = await tokens.issueFor(row, guest);
    expect(first.expiresAtMs).toBe(nowMs + 15 * 60_000);
    nowMs += 7 * 60_000;
    expect(await tokens.issueFor(row, guest)).toEqual(first);
    nowMs += 2 * 60_000;
    const next = await tokens.issueFor(row, guest);
    expect([next.token === first.token, next.expiresAtMs]).toEqual([false, row.expiresAtMs]);
  });

  test("a short token belongs to one session and ends with it", async () => {
    const tokens = shortTokens();
    const { row } = await makeToken();
    const session = { hash: randomBytes(32), expiresAtMs: nowMs + 60_000 };
    const first = await tokens.issueFor(row, { ...guest, session });
    expect(first.expiresAtMs).toBe(session.expiresAtMs);
    const other = await tokens.issueFor(row, { ...guest, session: { ...session, hash: randomBytes(32) } });
    expect(other.token).not.toBe(first.token);
    const byAdminToken = await tokens.issueFor(row, { ...guest, operatorId: "adm_first" });
    expect(byAdminToken.token).not.toBe((await tokens.issueFor(row, guest)).token);
  });

  test("the creation of a short token is recorded with the token that it represents, and its reuse is not", async () => {
    const tokens = shortTokens();
    const { row } = await makeToken();
    const { token } = await tokens.issueFor(row, guest);
    await tokens.issueFor(row, guest);
    const page = { organizationId: row.organizationId, before: null, limit: 10 };
    const records = await store.admin.audit({ ...page, action: "playground_token.create" });
    expect(records).toMatchObject([{ subjectId: row.id, after: { prefix: token.slice(0, 12) } }]);
    expect(JSON.stringify(records)).not.toContain(token.slice(12));
  });

  test("the console token of an organization is created once, also by two nodes at once", async () => {
    const { row } = await makeToken();
    const made = await Promise.all([
      shortTokens().consoleToken(row.organizationId, COMMAND_ACTOR),
      shortTokens().consoleToken(row.organizationId, COMMAND_ACTOR),
    ]);
    expect(new Set(made.map((token) => token?.id)).size).toBe(1);
    expect(await shortTokens().consoleToken("org_none", COMMAND_ACTOR)).toBeUndefined();
    const page = { organizationId: row.organizationId, action: "token.create", before: null, limit: 10 };
    expect(await store.admin.audit(page)).toMatchObject([{ subjectId: made[0]?.id }, { subjectId: row.id }]);
  });
});
