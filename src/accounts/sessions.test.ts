import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { v7 } from "uuid";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openStore } from "../stores/open.ts";
import type { Store } from "../stores/store.ts";
import { Accounts } from "./accounts.ts";
import { firstAdminToken, replaceAdminToken } from "./admin-tokens.ts";
import { COMMAND_ACTOR } from "./audit.ts";
import { Sessions } from "./sessions.ts";
import { ShortTokens } from "./short-tokens.ts";

const HOUR_MS = 3_600_000;
const directory = mkdtempSync(join(tmpdir(), "tollgate-sessions-"));
let nowMs = Date.UTC(2030, 0, 1);
const clock = () => nowMs;
let store: Store;
let accounts: Accounts;
let sessions: Sessions;
let adminToken: string;

beforeAll(async () => {
  store = await openStore({ database: null, dataDir: directory, role: "service", creates: true, clock });
  const options = { clock, random: randomBytes, newId: v7 };
  accounts = new Accounts({ ...options, rows: store.accounts, actor: COMMAND_ACTOR });
  sessions = new Sessions({ ...options, rows: store.admin, accounts: store.accounts });
  adminToken = (await firstAdminToken({ ...options, rows: store.admin })) ?? "none";
  expect(await firstAdminToken({ ...options, rows: store.admin })).toBeNull();
});
afterAll(async () => {
  await store.close();
  rmSync(directory, { recursive: true });
});

async function signIn(token: string): Promise<string> {
  const outcome = await sessions.signIn(token);
  if (outcome.outcome !== "signed_in") throw new Error(outcome.outcome);
  return outcome.secret;
}
async function makeToken(expiresAtMs: number | null = null) {
  const { id } = await accounts.createOrganization("Test");
  const terms = { name: "t", scopes: ["console:read"], models: null, limits: null, cap: null };
  const made = await accounts.createToken({ ...terms, organizationId: id, expiresAtMs });
  if (made.outcome !== "created") throw new Error(made.outcome);
  return made;
}

describe("a session", () => {
  test("ends after 8 hours without a request, and goes on with one", async () => {
    const [used, unused] = [await signIn(adminToken), await signIn(adminToken)];
    for (let hours = 0; hours < 3; hours += 1) {
      nowMs += 7 * HOUR_MS;
      expect((await sessions.find(used))?.who.role).toBe("operator");
    }
    expect(await sessions.find(unused)).toBeUndefined();
    nowMs += 8 * HOUR_MS;
    expect(await sessions.find(used)).toBeUndefined();
  });

  test("ends after 7 days however busy it is", async () => {
    const secret = await signIn(adminToken);
    for (let hours = 0; hours < 7 * 24 - 6; hours += 6) {
      nowMs += 6 * HOUR_MS;
      expect(await sessions.find(secret)).toBeDefined();
    }
    nowMs += 6 * HOUR_MS;
    expect(await sessions.find(secret)).toBeUndefined();
  });

  test("lasts no longer than the token that it began with", async () => {
    const { token } = await makeToken(nowMs + HOUR_MS);
    const secret = await signIn(token);
    expect((await sessions.find(secret))?.expiresAtMs).toBe(nowMs + HOUR_MS);
    nowMs += HOUR_MS;
    expect(await sessions.find(secret)).toBeUndefined();
    expect((await sessions.signIn(token)).outcome).toBe("expired");
  });

  test("of a member needs a token with console:read, which tokens do not have by default", async () => {
    const { row } = await makeToken();
    const terms = { organizationId: row.organizationId, name: "t", models: null, limits: null, cap: null };
    for (const scopes of [null, ["usage:read"]]) {
      const made = await accounts.createToken({ ...terms, scopes, expiresAtMs: null });
      if (made.outcome !== "created") throw new Error(made.outcome);
      expect(await sessions.signIn(made.token)).toEqual({ outcome: "scope_missing" });
    }
  });

  test("of the operator ends with the admin token", async () => {
    const secret = await signIn(adminToken);
    const options = { rows: store.admin, clock, random: randomBytes, newId: v7 };
    const { token } = await replaceAdminToken(options, COMMAND_ACTOR);
    expect(await sessions.find(secret)).toBeUndefined();
    expect((await sessions.signIn(adminToken)).outcome).toBe("unknown");
    expect((await sessions.signIn(token)).outcome).toBe("signed_in");
    adminToken = token;
  });

  test("is kept by its hash alone", async () => {
    const secret = await signIn(adminToken);
    const kept = await store.admin.session(Buffer.from(secret));
    expect(kept).toBeUndefined();
  });
});

describe("a short token", () => {
  const shortTokens = () =>
    new ShortTokens({ rows: store.admin, accounts: store.accounts, clock, random: randomBytes });

  test("lives for 15 minutes, is handed out again while it is young, and never outlives the token behind it", async () => {
    const tokens = shortTokens();
    const { row } = await makeToken(nowMs + 20 * 60_000);
    const first = await tokens.standFor(row);
    expect(first.expiresAtMs).toBe(nowMs + 15 * 60_000);
    nowMs += 7 * 60_000;
    expect(await tokens.standFor(row)).toEqual(first);
    nowMs += 2 * 60_000;
    const next = await tokens.standFor(row);
    expect([next.token === first.token, next.expiresAtMs]).toEqual([false, row.expiresAtMs]);
  });

  test("is made once for the console of an organization, also by two nodes at once", async () => {
    const { row } = await makeToken();
    const made = await Promise.all([
      shortTokens().consoleToken(row.organizationId),
      shortTokens().consoleToken(row.organizationId),
    ]);
    expect(new Set(made.map((token) => token?.id)).size).toBe(1);
    expect(await shortTokens().consoleToken("org_none")).toBeUndefined();
  });
});
