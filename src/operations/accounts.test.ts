import { randomBytes } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { v7 } from "uuid";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { COMMAND_ACTOR } from "../admin/audit.ts";
import { directoryOver } from "../admin/directory.ts";
import { tokenHashHex } from "../admin/token.ts";
import { ApiError } from "../errors.ts";
import { Authenticator } from "../http/authentication.ts";
import { openStore } from "../stores/open.ts";
import type { Store } from "../stores/store.ts";
import { type AccountCore, allPages } from "./core.ts";
import { addOrganization } from "./organizations.ts";
import { replaceToken } from "./rotate-token.ts";
import { addToken, endToken, type TokenDraft } from "./tokens.ts";

const DAY_MS = 86_400_000;
const directory = mkdtempSync(join(tmpdir(), "tollgate-accounts-"));
let nowMs = Date.UTC(2030, 0, 1);
const clock = () => nowMs;
let store: Store;
let core: AccountCore;
let authenticator: Authenticator;

beforeAll(async () => {
  store = await openStore({ database: null, dataDir: directory, role: "service", creates: true, clock });
  core = { accounts: store.accounts, clock, random: randomBytes, newId: v7, actor: COMMAND_ACTOR };
  authenticator = new Authenticator({ rows: store.accounts, clock, noteUse: () => undefined, givesAccess: () => true });
});
afterAll(async () => {
  await store.close();
  rmSync(directory, { recursive: true });
});

async function create(changes: Partial<TokenDraft> = {}) {
  const { id: organizationId } = await addOrganization(core, "Test");
  return addToken(core, { organizationId, name: "test", ...changes });
}
const lists = () => directoryOver({ rows: store.directory, clock });
const organizations = async () =>
  (await allPages((page) => lists().organizations({ search: null, status: null, ...page }))).reverse();
const tokensOf = (organizationId: string | null) =>
  allPages((page) => lists().tokens({ organizationId, createdBy: null, search: null, status: null, ...page }));
const alreadyRotated = (successorId: string, hint: RegExp) => ({
  code: "already_rotated",
  fields: { successor_id: successorId },
  message: expect.stringMatching(hint),
});
async function codeOf(token: string): Promise<string> {
  try {
    await authenticator.authenticate(tokenHashHex(token));
    return "admitted";
  } catch (error) {
    return error instanceof ApiError ? error.code : String(error);
  }
}

describe("organizations", () => {
  test("organizations are found and listed, the oldest first, together with the playground", async () => {
    const first = await addOrganization(core, "First");
    nowMs += 1;
    const second = await addOrganization(core, "Zweite Abteilung: Süd & 北");
    expect(await store.accounts.organization(second.id)).toEqual(second);
    expect(await store.accounts.organization("org_none")).toBeUndefined();
    const ids = (await organizations()).map(({ id }) => id);
    expect(ids).toContain("org_playground");
    expect(ids.indexOf(first.id)).toBeLessThan(ids.indexOf(second.id));
  });

  test("organizations are listed over many pages", async () => {
    const before = (await organizations()).length;
    for (let round = 0; round < 501; round += 1) await addOrganization(core, `Page ${round}`);
    expect(await organizations()).toHaveLength(before + 501);
  });

  test.each(["", " ", "a\nb", "a\u0000", "\u2028", "x".repeat(201)])("may not be named %j", async (name) => {
    await expect(addOrganization(core, name)).rejects.toMatchObject({ code: "invalid_value", param: "name" });
  });

  test("the name of an organization can have 200 characters", async () => {
    expect((await addOrganization(core, "🦉".repeat(200))).name).toHaveLength(400);
  });
});

describe("tokens", () => {
  test("a token belongs to its organization and has by default the scopes of the API and all models", async () => {
    const { token, row } = await create();
    expect(await authenticator.authenticate(tokenHashHex(token))).toEqual({
      tokenId: row.id,
      callerId: row.id,
      organizationId: row.organizationId,
      organizationLimits: null,
      organizationModels: null,
      aliases: null,
      priceList: null,
      keepsConversations: false,
      keepsResponses: true,
      organizationKind: "standard",
      scopes: new Set(["chat.completions:write", "models:read", "usage:read"]),
      models: null,
      limits: null,
      pins: null,
      limitingBudgets: [],
    });
  });

  test("a token has the requested scopes, models and limits", async () => {
    const { token } = await create({
      scopes: ["usage:read", "models:read", "models:read"],
      models: ["a", "b"],
      limits: { requestsPerMinute: 3 },
    });
    expect(await authenticator.authenticate(tokenHashHex(token))).toMatchObject({
      scopes: new Set(["models:read", "usage:read"]),
      models: new Set(["a", "b"]),
      limits: { requestsPerMinute: 3 },
    });
  });

  test("a token of the playground has the default scopes", async () => {
    const { token } = await create({ organizationId: "org_playground" });
    expect(await authenticator.authenticate(tokenHashHex(token))).toMatchObject({
      organizationId: "org_playground",
      organizationKind: "playground",
      scopes: new Set(["chat.completions:write", "models:read", "usage:read"]),
    });
  });

  test("the files of the store contain the prefix of a token and not its secret", async () => {
    const { token, row } = await create();
    const files = readdirSync(directory).filter((name) => name.startsWith("tollgate.db"));
    const bytes = Buffer.concat(files.map((name) => readFileSync(join(directory, name))));
    expect(bytes.includes(row.prefix)).toBe(true);
    expect(token.startsWith(row.prefix)).toBe(true);
    expect(bytes.includes(token.slice(row.prefix.length))).toBe(false);
    expect(bytes.includes(token.slice(0, row.prefix.length + 1))).toBe(false);
  });

  test("a token needs an existing organization", async () => {
    await expect(create({ organizationId: "org_none" })).rejects.toMatchObject({ code: "invalid_value" });
  });

  test.each([
    [
      { scopes: ["everything"] },
      /^scope is "everything", but must be one of: chat.completions:write, models:read, usage:read, console:read\.$/,
    ],
    [{ name: "" }, /^name is "", but must be 1 to 200 characters/],
    [{ limits: { requestsPerMinute: 0 } }, /^requestsPerMinute is 0, but must be an integer, 1 or more\.$/],
  ])("%j is refused", async (changes, line) => {
    await expect(create(changes)).rejects.toThrow(line);
  });

  test("a token ends at its expiry", async () => {
    const { token } = await create({ expiresAtMs: nowMs + DAY_MS });
    expect(await codeOf(token)).toBe("admitted");
    nowMs += DAY_MS;
    expect(await codeOf(token)).toBe("expired_token");
  });

  test("a token ends within a second of its revocation, and a second revocation changes nothing", async () => {
    const { token, row } = await create();
    expect(await codeOf(token)).toBe("admitted");
    const revokedAtMs = nowMs;
    expect(await endToken(core, row.id)).toMatchObject({ repeated: false });
    nowMs += 1000;
    expect(await codeOf(token)).toBe("invalid_token");
    expect(await endToken(core, row.id)).toMatchObject({ repeated: true, row: { revokedAtMs } });
    await expect(endToken(core, "tok_none")).rejects.toMatchObject({ code: "not_found" });
  });

  test("tokens are listed by organization", async () => {
    const { row } = await create();
    expect(await store.accounts.token(row.id)).toEqual({ ...row, budget: null, hash: new Uint8Array(row.hash) });
    expect((await tokensOf(row.organizationId)).map(({ id }) => id)).toEqual([row.id]);
    expect((await tokensOf(null)).map(({ id }) => id)).toContain(row.id);
  });
});

describe("rotation", () => {
  test("both tokens work during the overlap of a rotation", async () => {
    const old = await create({ scopes: ["models:read"], models: ["a"] });
    const rotated = await replaceToken(core, old.row.id, 60_000);
    expect(rotated.row).toMatchObject({ name: "test", scopes: ["models:read"], models: ["a"], expiresAtMs: null });
    expect(rotated.row.id).not.toBe(old.row.id);
    expect([old.row.callerId, rotated.row.callerId]).toEqual([old.row.id, old.row.id]);
    expect(await codeOf(old.token)).toBe("admitted");
    expect(await codeOf(rotated.token)).toBe("admitted");
    nowMs += 60_000;
    expect(await codeOf(old.token)).toBe("expired_token");
    expect(await codeOf(rotated.token)).toBe("admitted");
  });

  test("a rotation gives the new token the lifetime of the old one, and never extends the old one", async () => {
    const old = await create({ expiresAtMs: nowMs + DAY_MS });
    nowMs += DAY_MS - 1000;
    const rotated = await replaceToken(core, old.row.id, 3_600_000);
    expect(rotated.row.expiresAtMs).toBe(nowMs + DAY_MS);
    expect((await store.accounts.token(old.row.id))?.expiresAtMs).toBe(nowMs + 1000);
  });

  test("a second rotation is refused, names the successor and changes nothing", async () => {
    const old = await create({ expiresAtMs: nowMs + 10 * DAY_MS });
    const rotated = await replaceToken(core, old.row.id, 3_600_000);
    const refused = alreadyRotated(rotated.row.id, /never used/);
    await expect(replaceToken(core, old.row.id, 3_600_000)).rejects.toMatchObject(refused);
    nowMs += 2 * 3_600_000;
    await expect(replaceToken(core, old.row.id, 3_600_000)).rejects.toMatchObject(refused);
    await store.accounts.noteUses([{ tokenId: rotated.row.id, atMs: nowMs }]);
    const used = alreadyRotated(rotated.row.id, /was used; rotate it/);
    await expect(replaceToken(core, old.row.id, 0, true)).rejects.toMatchObject(used);
    expect(await codeOf(rotated.token)).toBe("admitted");
    expect(await tokensOf(old.row.organizationId)).toHaveLength(2);
  });

  test("a rotation with replace creates another successor of an unused one, with the same lifetime", async () => {
    const old = await create({ scopes: ["models:read"], expiresAtMs: nowMs + 10 * DAY_MS });
    const first = await replaceToken(core, old.row.id, 3_600_000, true);
    nowMs += 2 * 3_600_000;
    const second = await replaceToken(core, old.row.id, 3_600_000, true);
    expect(second.row).toMatchObject({ scopes: ["models:read"], expiresAtMs: nowMs + 10 * DAY_MS });
    expect(await codeOf(first.token)).toBe("invalid_token");
    expect(await codeOf(second.token)).toBe("admitted");
    expect(await codeOf(old.token)).toBe("expired_token");
    await expect(replaceToken(core, old.row.id, 0)).rejects.toMatchObject({ fields: { successor_id: second.row.id } });
    await expect(replaceToken(core, first.row.id, 0)).rejects.toMatchObject({ code: "token_ended" });
  });

  test("a successor that was rotated itself cannot be replaced", async () => {
    const old = await create();
    const first = await replaceToken(core, old.row.id, 3_600_000);
    await replaceToken(core, first.row.id, 3_600_000);
    const used = alreadyRotated(first.row.id, /was used; rotate it/);
    await expect(replaceToken(core, old.row.id, 0, true)).rejects.toMatchObject(used);
  });

  test("concurrent rotations create one successor, which the others name", async () => {
    const old = await create();
    const outcomes = await Promise.allSettled(Array.from({ length: 10 }, () => replaceToken(core, old.row.id, 0)));
    const [made, ...more] = outcomes.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
    if (made === undefined || more.length > 0) throw new Error("not one successor");
    const refusals = outcomes.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
    expect(refusals).toHaveLength(9);
    for (const refusal of refusals) expect(refusal).toMatchObject(alreadyRotated(made.row.id, /never used/));
  });

  test("a token that has ended cannot be rotated", async () => {
    const revoked = await create();
    await endToken(core, revoked.row.id);
    await expect(replaceToken(core, revoked.row.id, 0)).rejects.toMatchObject({ code: "token_ended" });
    const expired = await create({ expiresAtMs: nowMs + 1 });
    nowMs += 1;
    await expect(replaceToken(core, expired.row.id, 0)).rejects.toMatchObject({ code: "token_ended" });
    await expect(replaceToken(core, "tok_none", 0)).rejects.toMatchObject({ code: "not_found" });
  });
});
