import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { AdminClient, type Answer, FROM_CONSOLE, operator } from "../support/admin.ts";
import { type IdentityProvider, sessionCookie, signInAt, startIdentityProvider } from "../support/identity-provider.ts";
import { AUDIENCE, type Issuer, startIssuer } from "../support/issuer.ts";
import {
  freePort,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";

const LONG = { timeout: 60_000 };
const ROLES = ["owner", "developer", "billing", "member"] as const;

let service: RunningService;
let provider: IdentityProvider;
let issuer: Issuer;
let organization: Organization;

beforeAll(async () => {
  const port = await freePort();
  provider = await startIdentityProvider([`http://127.0.0.1:${port}`]);
  issuer = await startIssuer();
  service = await startService({ config: {}, port });
});
afterAll(async () => {
  await service?.end();
  await Promise.all([provider?.close(), issuer?.close()]);
});
/** Each test has an organization of its own, in which the accounts of the provider have the role of their name. */
beforeEach(async () => {
  organization = await makeOrganization(service, "100");
  await configure(ROLES);
});

const accountOf = (role: string) => `${role}-${organization.id}`;
/** Gives roles in the organization by the claims of both issuers. */
async function configure(roles: readonly string[]): Promise<void> {
  const rule = (role: string, when: object) => ({ when, role, organization: organization.id });
  const issuers = [
    { ...provider.settings, roles: roles.map((role) => rule(role, { sub: accountOf(role) })) },
    { issuer: issuer.url, audience: AUDIENCE, roles: roles.map((role) => rule(role, { role })) },
  ];
  const reloads = () => service.output().split("the configuration was reloaded").length;
  const before = reloads();
  await writeFile(join(service.dataDir, "tollgate.yaml"), JSON.stringify({ identity: { issuers } }));
  await vi.waitFor(() => expect(reloads()).toBeGreaterThan(before), LONG);
}

const codeOf = ({ status, body }: Answer<object>) => [status, (body as { error?: { code: string } }).error?.code];
async function signInAs(role: (typeof ROLES)[number]): Promise<AdminClient> {
  const answer = await signInAt(service, provider.issuer, accountOf(role));
  expect(answer.body.role).toBe(role);
  return new AdminClient(service, { ...FROM_CONSOLE, cookie: sessionCookie(answer) });
}
async function ask(token: string, model = "sandbox/echo"): Promise<unknown[]> {
  const messages = [{ role: "user", content: "hello" }];
  const answer = await send(service, "/v1/chat/completions", token, { model, messages, max_tokens: 10 });
  return codeOf({ status: answer.status, body: (await answer.json()) as object, headers: answer.headers });
}

interface Listed {
  data: { id: string; name: string; kind: string; cap_of: string | null }[];
}
const tokens = async () =>
  (await operator(service).call<Listed>("GET", `/tokens?organization_id=${organization.id}`)).body.data;

describe("the playground", () => {
  const playground = (client: AdminClient) => client.call<{ token: string }>("POST", "/playground/token", {});

  test("a person spends within the terms of the token that stands for them, and not by that of the console", async () => {
    const developer = await signInAs("developer");
    const { body } = await playground(developer);
    expect(await ask(body.token)).toEqual([200, undefined]);
    const [own, ...others] = (await tokens()).filter(({ id }) => id !== organization.tokenId);
    expect([own?.kind, others]).toEqual(["identity", []]);
    const change = (terms: object) => operator(service).call("PATCH", `/tokens/${own?.id}`, terms);
    await change({ models: ["sandbox/story"] });
    await expect.poll(() => ask(body.token), LONG).toEqual([403, "model_not_allowed"]);
    const { body: models } = await developer.call<Listed>("GET", "/models");
    expect(models.data.map(({ id }) => id)).toEqual(["sandbox/story"]);
    await change({ models: null, cap: 0.000001 });
    await expect.poll(() => ask(body.token), LONG).toEqual([402, "insufficient_credits"]);
    await change({ cap: null, expires_at: new Date(Date.now() + 2_000).toISOString() });
    await expect.poll(() => ask(body.token), LONG).toEqual([401, "expired_token"]);
    expect(codeOf(await playground(developer))).toEqual([409, "token_ended"]);
    await change({ expires_at: null, scopes: ["models:read"] });
    expect(codeOf(await playground(developer))).toEqual([403, "insufficient_scope"]);
  });

  test("a playground token ends when the configuration takes the role of its session", async () => {
    const [owner, developer] = await Promise.all([signInAs("owner"), signInAs("developer")]);
    const [kept, ended] = [(await playground(owner)).body.token, (await playground(developer)).body.token];
    expect([await ask(kept), await ask(ended)]).toEqual([
      [200, undefined],
      [200, undefined],
    ]);
    await configure(["owner"]);
    expect([await ask(kept), await ask(ended)]).toEqual([
      [200, undefined],
      [401, "invalid_token"],
    ]);
  });

  test("people share neither a token nor kept responses", async () => {
    const [owner, developer] = await Promise.all([signInAs("owner"), signInAs("developer")]);
    const [one, other] = [(await playground(owner)).body.token, (await playground(developer)).body.token];
    const made = await send(service, "/v1/responses", one, { model: "sandbox/echo", input: "secret" });
    const { id } = (await made.json()) as { id: string };
    const read = async (token: string) => (await send(service, `/v1/responses/${id}`, token)).status;
    expect([made.status, await read(other), await read(one)]).toEqual([200, 404, 200]);
  });
});

test("a developer sees neither tokens nor caps nor spending of others, and billing sees them as in statements", async () => {
  const [developer, billing] = await Promise.all([signInAs("developer"), signInAs("billing")]);
  const other = await makeToken(service, organization.id, { name: "secret project of Bob", cap: 5 });
  const path = `/organizations/${organization.id}/budgets`;
  const make = (terms: object) =>
    operator(service).call("POST", path, { name: "B", window: "day", amount: 9, ...terms });
  for (const terms of [
    { selector: { tokens: [other.tokenId] } },
    { each: "token" },
    { each: "metadata.user" },
    { each: "model" },
  ])
    expect((await make(terms)).status).toBe(201);
  const own = (await developer.call<{ token: string }>("POST", "/playground/token", {})).body.token;
  for (const token of [own, other.token]) expect(await ask(token)).toEqual([200, undefined]);
  const ownId = (await tokens()).find(({ kind }) => kind === "identity")?.id;
  const topOf = async (client: AdminClient) => {
    const { body } = await client.call<{ top_tokens: { token_id: string }[] }>("GET", "/overview");
    return body.top_tokens.map(({ token_id }) => token_id).toSorted();
  };
  await expect.poll(() => topOf(billing), LONG).toEqual([ownId, other.tokenId].toSorted());
  expect(await topOf(developer)).toEqual([ownId]);
  const budgetsOf = async (client: AdminClient) => (await client.call<Listed>("GET", path)).body.data;
  const all = await budgetsOf(billing);
  expect([all.length, all.filter(({ cap_of }) => cap_of === other.tokenId).length]).toEqual([5, 1]);
  const seen = await budgetsOf(developer);
  expect([seen.length, JSON.stringify(seen).includes(other.tokenId)]).toEqual([3, false]);
  const countersOf = async (client: AdminClient, id: string) => {
    const { status, body } = await client.call<{ counters?: Listed }>("GET", `${path}/${id}`);
    return status === 200 ? body.counters?.data.length : status;
  };
  const counters = (client: AdminClient) => Promise.all(all.map(({ id }) => countersOf(client, id)));
  expect((await counters(billing)).toSorted()).toEqual([0, 0, 1, 1, 2]);
  expect((await counters(developer)).toSorted()).toEqual([0, 0, 1, 404, 404]);
});

test("only people who read the credits of their organization see its contacts, and only operators its note", async () => {
  const path = `/organizations/${organization.id}`;
  const terms = { contacts: ["ada@example.com"], note: "Pays late" };
  expect((await operator(service).call("PATCH", path, terms)).body).toMatchObject(terms);
  const seenBy = async (role: (typeof ROLES)[number]) => (await (await signInAs(role)).call("GET", path)).body;
  for (const role of ["owner", "billing", "member"] as const) {
    expect(await seenBy(role)).toMatchObject({ contacts: terms.contacts, note: null });
  }
  expect(await seenBy("developer")).toMatchObject({ contacts: null, note: null, credits: { available: 100 } });
});

test("a JWT with scopes of this service needs `console:read` on /admin/v1, as a token does", async () => {
  const listWith = async (scope: string) => {
    const jwt = await issuer.token({ sub: "scoped", role: "owner", scope });
    const client = new AdminClient(service, { authorization: `Bearer ${jwt}` });
    return codeOf(await client.call("GET", "/organizations"));
  };
  expect(await listWith("openid chat.completions:write")).toEqual([403, "insufficient_scope"]);
  expect(await listWith("models:read console:read")).toEqual([200, undefined]);
  expect(await listWith("openid")).toEqual([200, undefined]);
});

test("a session ends as soon as the configuration does not give its role any more, and another one stays", async () => {
  const [owner, developer] = await Promise.all([signInAs("owner"), signInAs("developer")]);
  const rolesOf = async () =>
    Promise.all([owner, developer].map(async (client) => (await client.call("GET", "/session")).body.role));
  await configure(["owner", "developer"]);
  expect(await rolesOf()).toEqual(["owner", "developer"]);
  await configure(["owner"]);
  expect(await rolesOf()).toEqual(["owner", null]);
  await configure(["developer", "owner"]);
  expect(await rolesOf()).toEqual([null, null]);
  await signInAs("developer");
});
