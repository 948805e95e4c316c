import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { AdminClient, type Answer, operator } from "../support/admin.ts";
import { AUDIENCE, type Issuer, startIssuer } from "../support/issuer.ts";
import {
  makeDirectory,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

const DAY_MS = 86_400_000;

let issuer: Issuer;
let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  const dataDir = await makeDirectory();
  issuer = await startIssuer();
  const first = await startService({ dataDir, config: {} });
  organization = await makeOrganization(first, "100");
  await first.end();
  const roles = ["owner", "developer", "billing", "member"].map((role) => ({
    ...{ when: { groups: role }, role, organization: organization.id },
  }));
  const settings = { issuer: issuer.url, audience: AUDIENCE, roles, pins: { user: "sub", team: "team" } };
  service = await startService({ dataDir, config: { identity: { issuers: [settings] } } });
});
afterAll(async () => {
  await service?.end();
  await issuer?.close();
});

interface Token {
  id: string;
  secret: string;
  name: string;
  scopes: string[];
  models: string[] | null;
  cap: { amount: number } | null;
  expires_at: string | null;
  created_by: string;
  pinned: object | null;
  status: string;
}
type Fault = { error?: { code: string; param: string | null; message: string } };

/** Acts as a person of the issuer. */
async function person(sub: string, role = "developer", claims: object = {}): Promise<AdminClient> {
  const email = `${sub}@example.com`;
  const jwt = await issuer.token({ sub, email, groups: [role], team: "red", ...claims });
  return new AdminClient(service, { authorization: `Bearer ${jwt}` });
}
const BOUNDS = { max_count: 3, models: ["sandbox/echo", "sandbox/story"], max_cap: 5, max_days: 30 };
const setBounds = (bounds: object, who = operator(service)) =>
  who.call<Fault & { token_bounds: object }>("PATCH", `/organizations/${organization.id}/token-bounds`, bounds);
const make = (who: AdminClient, terms: object = {}) =>
  who.call<Token & Fault>("POST", "/tokens", { organization_id: organization.id, name: "own", ...terms });
const change = (who: AdminClient, { id }: Token, terms: object) =>
  who.call<Token & Fault>("PATCH", `/tokens/${id}`, terms);
const rotate = (who: AdminClient, { id }: Token, body: object = {}) =>
  who.call<Token & Fault>("POST", `/tokens/${id}/rotate`, body);
const revoke = (who: AdminClient, { id }: Token) => who.call<Token & Fault>("POST", `/tokens/${id}/revoke`, {});
const listed = async (who: AdminClient) => (await who.call<{ data: Token[] }>("GET", "/tokens?limit=200")).body.data;
const refusalOf = ({ status, body }: Answer<Fault>) => [status, body.error?.code, body.error?.param];
const daysAhead = (days: number) => new Date(Date.now() + days * DAY_MS).toISOString();
async function ask(token: string, model: string): Promise<number> {
  const messages = [{ role: "user", content: "hello" }];
  return (await send(service, "/v1/chat/completions", token, { model, messages, max_tokens: 10 })).status;
}

beforeEach(async () => {
  expect((await setBounds(BOUNDS)).body.token_bounds).toEqual(BOUNDS);
});

describe("bounds of an organization", () => {
  test("without bounds only operators create tokens, and an owner can allow more", async () => {
    const other = await makeOrganization(service, "1");
    const shown = await operator(service).call<{ token_bounds: object }>("GET", `/organizations/${other.id}`);
    expect(shown.body.token_bounds).toEqual({ max_count: 0, models: null, max_cap: null, max_days: null });
    const dev = await person("none");
    await setBounds({ ...BOUNDS, max_count: 0 });
    expect(refusalOf(await make(dev))).toEqual([403, "insufficient_role", null]);
    expect((await setBounds(BOUNDS, await person("boss", "owner"))).status).toBe(200);
    expect((await make(dev)).status).toBe(201);
    const audit = await operator(service).call<{ data: object[] }>("GET", "/audit?action=organization.change&limit=1");
    const actor = { kind: "owner", name: expect.stringContaining("boss@example.com") };
    expect(audit.body.data).toMatchObject([{ actor, after: { tokenBounds: { countMax: 3, capMax: 5 } } }]);
  });

  test.each([
    [{ ...BOUNDS, max_count: -1 }, "max_count"],
    [{ ...BOUNDS, max_days: 0 }, "max_days"],
    [{ ...BOUNDS, max_cap: 0.0000001 }, "max_cap"],
    [{ ...BOUNDS, models: [] }, "models"],
    [{ max_count: 1 }, "models"],
    [{ ...BOUNDS, budget: 1 }, "budget"],
  ])("%j is refused", async (bounds, param) => {
    expect(refusalOf(await setBounds(bounds))).toMatchObject([400, expect.any(String), param]);
  });

  test("the command sets the same", async () => {
    const words = ["org", "token-bounds", organization.id, "--count", "2", "--model", "sandbox/echo", "--cap", "1.5"];
    const set = { maxCount: 2, models: ["sandbox/echo"], maxCap: 1.5, maxDays: null };
    expect(await service.tollgate(...words)).toEqual({ id: organization.id, ...set });
    await expect(service.tollgate(...words, "--days", "0")).rejects.toThrow(
      /--days is "0", but must be an integer from 1/,
    );
  });
});

describe("a developer", () => {
  test("absent terms have the bounds, and the token what the identity provider pins", async () => {
    const { status, body } = await make(await person("ada"));
    expect([status, body]).toEqual([
      201,
      expect.objectContaining({
        scopes: ["chat.completions:write", "models:read", "usage:read"],
        models: BOUNDS.models,
        cap: { amount: 5, spent: 0, held: 0 },
        pinned: { user: "ada", team: "red" },
        created_by: expect.stringMatching(/^idn_/),
      }),
    ]);
    const days = (Date.parse(body.expires_at ?? "") - Date.now()) / DAY_MS;
    expect([days > 29.9, days <= 30]).toEqual([true, true]);
    expect([await ask(body.secret, "sandbox/echo"), await ask(body.secret, "sandbox/fault")]).toEqual([200, 403]);
    const { body: audit } = await operator(service).call<{ data: object[] }>(
      "GET",
      "/audit?action=token.create&limit=1",
    );
    const actor = { kind: "developer", id: body.created_by, name: expect.stringContaining("ada@example.com") };
    expect(audit.data).toMatchObject([{ subject_id: body.id, actor }]);
  });

  test("terms within the bounds are kept, also in changes and rotations", async () => {
    const dev = await person("bob");
    const terms = { models: ["sandbox/echo"], cap: 1, expires_at: daysAhead(2), scopes: ["models:read"] };
    const made = (await make(dev, terms)).body;
    expect(made).toMatchObject({ ...terms, cap: { amount: 1 } });
    const changed = await change(dev, made, {
      name: "new",
      models: ["sandbox/story"],
      cap: 2,
      expires_at: daysAhead(30),
    });
    expect(changed.body).toMatchObject({ name: "new", models: ["sandbox/story"], cap: { amount: 2 } });
    const rotated = await rotate(dev, made);
    expect(rotated.body).toMatchObject({
      name: "new",
      models: ["sandbox/story"],
      pinned: { user: "bob", team: "red" },
    });
    expect((await listed(dev)).map(({ id }) => id)).toEqual([rotated.body.id, made.id]);
    expect((await revoke(dev, rotated.body)).body.status).toBe("revoked");
  });

  test.each([
    [{ models: ["sandbox/echo", "sandbox/fault"] }, "models"],
    [{ cap: 5.000001 }, "cap"],
    [{ expires_at: daysAhead(31) }, "expires_at"],
    [{ expires_at: daysAhead(-1) }, "expires_at"],
    [{ scopes: ["console:read"] }, "scopes"],
    [{ limits: { requests_per_minute: 1_000_000 } }, "limits"],
    [{ pinned: { user: "somebody else" } }, "pinned"],
  ])("%j is outside of the bounds, in a new token and in a change", async (terms, param) => {
    const dev = await person("carl");
    const [token] = [...(await listed(dev)), (await make(dev)).body];
    if (token === undefined) throw new Error("There is no token");
    for (const answer of [await make(dev, terms), await change(dev, token, terms)]) {
      expect(refusalOf(answer)).toEqual([400, "invalid_value", param]);
    }
  });

  test("concurrent requests create no more tokens than allowed, and a revoked one makes room", async () => {
    const dev = await person("dora");
    const made = await Promise.all(Array.from({ length: 10 }, () => make(dev)));
    const [first, ...others] = made.filter(({ status }) => status === 201);
    expect(others).toHaveLength(2);
    const refused = made.filter(({ status }) => status !== 201).map(refusalOf);
    expect(refused).toEqual(refused.map(() => [403, "insufficient_role", null]));
    if (first === undefined) throw new Error("There is no token");
    // Both tokens of a rotation count as one.
    expect((await rotate(dev, first.body)).status).toBe(201);
    expect((await make(dev)).status).toBe(403);
    for (const { status, id } of await listed(dev))
      if (status === "active") await dev.call("POST", `/tokens/${id}/revoke`, {});
    expect((await make(dev)).status).toBe(201);
  });

  test("sees, changes and ends no token of others, nor the one that stands for their JWTs", async () => {
    const [dev, other] = [await person("erin"), await person("frank")];
    const jwt = dev.headers.authorization?.slice("Bearer ".length) ?? "";
    expect(await ask(jwt, "sandbox/echo")).toBe(200);
    const [own, foreign] = [(await make(dev)).body, (await make(other)).body];
    const { tokenId } = await makeToken(service, organization.id);
    expect((await listed(dev)).map(({ id }) => id)).toEqual([own.id]);
    const all = await listed(operator(service));
    const standsFor = all.find(({ created_by, id }) => created_by === own.created_by && id !== own.id);
    for (const token of [foreign, { ...foreign, id: tokenId }, standsFor ?? foreign]) {
      const found = await dev.call<{ data: object[] }>("GET", `/search?query=${token.id}`);
      expect(found.body.data).toEqual([]);
      const answers = [await dev.call("GET", `/tokens/${token.id}`), await change(dev, token, { name: "x" })];
      answers.push(await rotate(dev, token), await revoke(dev, token));
      expect(answers.map(({ status }) => status)).toEqual([404, 404, 404, 404]);
    }
    expect(await dev.call("GET", `/tokens/${own.id}`)).toMatchObject({ status: 200, body: { id: own.id } });
    const { id: elsewhere } = await makeOrganization(service, "1");
    expect((await make(dev, { organization_id: elsewhere })).status).toBe(404);
  });

  test("a bound that is lowered later counts for new and changed tokens, and not for the present ones", async () => {
    const dev = await person("gina");
    const made = (await make(dev, { cap: 4, models: null })).body;
    await setBounds({ max_count: 3, models: ["sandbox/story"], max_cap: 2, max_days: 10 });
    expect(await ask(made.secret, "sandbox/echo")).toBe(200);
    expect(refusalOf(await rotate(dev, made))).toEqual([400, "invalid_value", "models"]);
    expect(refusalOf(await change(dev, made, { name: "x" }))).toEqual([400, "invalid_value", "models"]);
    const terms = { models: null, cap: null };
    expect(refusalOf(await change(dev, made, terms))).toEqual([400, "invalid_value", "expires_at"]);
    const changed = await change(dev, made, { ...terms, expires_at: null });
    expect(changed.body).toMatchObject({ models: ["sandbox/story"], cap: { amount: 2 } });
    await setBounds({ max_count: 3, models: null, max_cap: null, max_days: 5 });
    const rotated = await rotate(dev, made);
    expect(Date.parse(rotated.body.expires_at ?? "") - Date.now()).toBeLessThanOrEqual(5 * DAY_MS);
  });

  test("a token without a cap gets one before it is rotated, once the organization has a highest one", async () => {
    const dev = await person("hugo");
    await setBounds({ max_count: 3, models: null, max_cap: null, max_days: null });
    const made = (await make(dev)).body;
    expect(made).toMatchObject({ models: null, cap: null, expires_at: null });
    await setBounds(BOUNDS);
    expect(refusalOf(await rotate(dev, made))).toEqual([400, "invalid_value", "cap"]);
    expect((await change(dev, made, { cap: 1 })).body).toMatchObject({ models: BOUNDS.models, cap: { amount: 1 } });
    expect((await rotate(dev, made)).status).toBe(201);
  });
});

test("replacing the successor of a rotation revives no token that has ended, and one that an operator rotates stays theirs", async () => {
  await setBounds({ ...BOUNDS, max_count: 1 });
  const dev = await person("ivan");
  const old = (await make(dev)).body;
  const lost = (await rotate(dev, old)).body;
  const unused = (await rotate(dev, old, { replace: true })).body;
  expect((await listed(dev)).map(({ id, status }) => [id, status])).toEqual([
    [unused.id, "active"],
    [lost.id, "revoked"],
    [old.id, "active"],
  ]);
  for (const token of [old, unused]) await revoke(dev, token);
  const next = (await make(dev)).body;
  expect(refusalOf(await rotate(dev, old, { replace: true }))).toEqual([409, "token_ended", null]);
  const rotated = (await rotate(operator(service), next)).body;
  expect(rotated.created_by).toBe(next.created_by);
  expect(await ask(rotated.secret, "sandbox/echo")).toBe(200);
  expect((await change(dev, rotated, { name: "still mine" })).body.name).toBe("still mine");
  for (const token of [next, rotated]) {
    expect(refusalOf(await make(dev))).toEqual([403, "insufficient_role", null]);
    await revoke(dev, token);
  }
  expect((await make(dev)).status).toBe(201);
});

describe("a token never grants more than its maker holds:", () => {
  test("the scopes of a JWT bound the tokens that it makes", async () => {
    const dev = await person("ines", "developer", { scope: "console:read models:read" });
    const made = (await make(dev)).body;
    expect([made.scopes, (await change(dev, made, { scopes: null })).body.scopes]).toEqual([
      ["models:read"],
      ["models:read"],
    ]);
    expect(refusalOf(await make(dev, { scopes: ["usage:read"] }))).toEqual([400, "invalid_value", "scopes"]);
    const console = await person("ines", "developer", { scope: "console:read" });
    expect(refusalOf(await make(console))).toEqual([403, "insufficient_role", null]);
  });

  test("terms that an operator gave to the token of a caller bound the tokens that they make", async () => {
    const dev = await person("jan");
    const jwt = dev.headers.authorization?.slice("Bearer ".length) ?? "";
    expect(await ask(jwt, "sandbox/echo")).toBe(200);
    const own = (await listed(operator(service))).find(({ name }) => name.startsWith("jan@example.com"));
    if (own === undefined) throw new Error("There is no token");
    const limits = { requests_per_minute: 7 };
    await change(operator(service), own, { models: ["sandbox/story"], cap: 1, limits });
    const made = (await make(dev)).body;
    expect(made).toMatchObject({ models: ["sandbox/story"], cap: { amount: 1 }, limits });
    const lower = { requests_per_minute: 5, tokens_per_minute: 1_000 };
    await change(operator(service), own, { limits: lower });
    expect((await rotate(dev, made)).body).toMatchObject({ limits: lower });
    await change(operator(service), own, { limits: { requests_per_minute: 6 } });
    expect((await change(dev, made, { name: "x" })).body).toMatchObject({ limits: { requests_per_minute: 6 } });
    expect(refusalOf(await make(dev, { models: ["sandbox/echo"] }))).toEqual([400, "invalid_value", "models"]);
    await change(operator(service), own, { expires_at: new Date(Date.now() + 5_000).toISOString() });
    const refused = [403, "insufficient_role", null];
    await expect.poll(async () => refusalOf(await make(dev)), { timeout: 60_000 }).toEqual(refused);
    await change(operator(service), own, { expires_at: null });
    for (const token of await listed(dev)) await revoke(dev, token);
    expect((await make(dev)).status).toBe(201);
  });

  test("the token that stands for a person is not revoked, which nothing could undo", async () => {
    const [dev, owner] = [await person("lena"), await person("otto", "owner")];
    const jwt = dev.headers.authorization?.slice("Bearer ".length) ?? "";
    expect(await ask(jwt, "sandbox/echo")).toBe(200);
    const own = (await listed(owner)).find(({ name }) => name.startsWith("lena@example.com"));
    if (own === undefined) throw new Error("There is no token");
    for (const who of [owner, operator(service)]) {
      const { status, body } = await revoke(who, own);
      expect([status, body.error?.message]).toEqual([
        400,
        expect.stringContaining("An operator can block the identity"),
      ]);
    }
    await expect(service.tollgate("token", "revoke", own.id)).rejects.toThrow("An operator can block the identity");
    expect(await ask(jwt, "sandbox/echo")).toBe(200);
  });

  test("pins of their token and of their claims are more than a request states, and make a token all the same", async () => {
    const dev = await person("mila");
    const jwt = dev.headers.authorization?.slice("Bearer ".length) ?? "";
    expect(await ask(jwt, "sandbox/echo")).toBe(200);
    const own = (await listed(operator(service))).find(({ name }) => name.startsWith("mila@example.com"));
    const pinned = Object.fromEntries(Array.from({ length: 16 }, (_, index) => [`key${index}`, "x"]));
    await change(operator(service), own as Token, { pinned });
    const made = (await make(dev)).body;
    expect(made.pinned).toEqual({ ...pinned, user: "mila", team: "red" });
    expect(await ask(made.secret, "sandbox/echo")).toBe(200);
    expect((await change(dev, made, { name: "new" })).body.name).toBe("new");
  });

  test("the tokens of a person who is blocked end, with those that they rotated", async () => {
    const dev = await person("karl");
    const made = (await make(dev)).body;
    const rotated = (await rotate(dev, made)).body;
    expect([await ask(made.secret, "sandbox/echo"), await ask(rotated.secret, "sandbox/echo")]).toEqual([200, 200]);
    await operator(service).call("POST", "/identities/block", { issuer: issuer.url, subject: "karl" });
    for (const { secret } of [made, rotated]) await expect.poll(() => ask(secret, "sandbox/echo")).toBe(401);
    expect(refusalOf(await make(dev))).toEqual([403, "account_blocked", null]);
  });
});

test("an owner sees and revokes every token of the organization, and changes those that they created", async () => {
  const owner = await person("olga", "owner");
  const [own, foreign] = [(await make(owner)).body, (await make(await person("paul"))).body];
  expect((await listed(owner)).map(({ id }) => id)).toEqual(expect.arrayContaining([own.id, foreign.id]));
  expect((await change(owner, own, { name: "mine" })).body.name).toBe("mine");
  expect(refusalOf(await change(owner, foreign, { name: "mine" }))).toEqual([403, "insufficient_role", null]);
  expect(refusalOf(await rotate(owner, foreign))).toEqual([403, "insufficient_role", null]);
  expect((await revoke(owner, foreign)).body.status).toBe("revoked");
  const elsewhere = await makeToken(service, (await makeOrganization(service, "1")).id);
  expect((await revoke(owner, { ...own, id: elsewhere.tokenId })).status).toBe(404);
});
