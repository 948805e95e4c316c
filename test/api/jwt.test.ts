import { once } from "node:events";
import { createServer } from "node:http";
import { Provider } from "oidc-provider";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { AdminClient, operator } from "../support/admin.ts";
import { runCommand } from "../support/command-line.ts";
import { AUDIENCE, type Issuer, startIssuer } from "../support/issuer.ts";
import {
  freePort,
  makeDirectory,
  makeOrganization,
  type Organization,
  type RunningService,
  startService,
} from "../support/service.ts";

const LONG = { timeout: 60_000 };

let issuer: Issuer;
let redirecting: Issuer;
let service: RunningService;
let dataDir: string;
let organization: Organization;
let oidcUrl: string;
let closeOidc: () => void;

const rolesOf = (organizationId: string) => [
  { when: { groups: "operators" }, role: "operator" },
  { when: { groups: "auditors" }, role: "auditor" },
  { when: { groups: "billing" }, role: "billing", organization: organizationId },
  { when: { groups: "lost" }, role: "member", organization: "org_none" },
  { when: { groups: "staff" }, role: "developer", organization: organizationId },
];
const configOf = (organizationId: string) => ({
  identity: {
    issuers: [
      { issuer: issuer.url, audience: AUDIENCE, roles: rolesOf(organizationId), pins: { user: "sub", team: "team" } },
      { issuer: redirecting.url, audience: AUDIENCE, roles: rolesOf(organizationId) },
      { issuer: oidcUrl, audience: AUDIENCE, roles: rolesOf(organizationId) },
    ],
  },
});

/** A certified OpenID provider, which issues JWT access tokens for a resource (RFC 8707). */
async function startOidcProvider(): Promise<void> {
  const port = await freePort();
  oidcUrl = `http://127.0.0.1:${port}`;
  const provider = new Provider(oidcUrl, {
    clients: [
      {
        client_id: "robot",
        client_secret: "s3cret",
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
      },
    ],
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({
          scope: "models:read chat.completions:write",
          accessTokenFormat: "jwt",
          accessTokenTTL: 300,
        }),
      },
    },
    extraTokenClaims: () => ({ groups: ["staff"] }),
  });
  const server = createServer(provider.callback()).listen(port, "127.0.0.1");
  await once(server, "listening");
  closeOidc = () => void server.close();
}

beforeAll(async () => {
  [issuer, redirecting, dataDir] = await Promise.all([startIssuer(), startIssuer(), makeDirectory()]);
  redirecting.behaviour.redirects = true;
  await startOidcProvider();
  const first = await startService({ dataDir, config: {} });
  organization = await makeOrganization(first, "100");
  await first.end();
  service = await startService({ dataDir, config: configOf(organization.id) });
});
afterAll(async () => {
  await service?.end();
  await Promise.all([issuer?.close(), redirecting?.close()]);
  closeOidc?.();
});

const staff = (claims: Record<string, unknown> = {}, header?: object) =>
  issuer.token({ sub: "ada", email: "ada@example.com", team: "red", groups: ["staff"], ...claims }, header);

interface Completion {
  status: number;
  body: { error?: { code: string; param: string | null; message: string }; usage?: { cost: number } };
  headers: Headers;
}
async function complete(token: string, fields: object = {}, headers: Record<string, string> = {}): Promise<Completion> {
  const answer = await fetch(`${service.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json", ...headers },
    body: JSON.stringify({
      model: "sandbox/echo",
      messages: [{ role: "user", content: "hello" }],
      max_tokens: 10,
      ...fields,
    }),
  });
  return { status: answer.status, body: (await answer.json()) as Completion["body"], headers: answer.headers };
}
const refusalOf = async (...args: Parameters<typeof complete>) => {
  const { status, body } = await complete(...args);
  return [status, body.error?.code];
};
const admin = (token: string) => new AdminClient(service, { authorization: `Bearer ${token}` });
interface Listed {
  data: { id: string; kind: string; name: string; created_by: string }[];
}
const identityTokens = async () => {
  const { body } = await operator(service).call<Listed>("GET", `/tokens?organization_id=${organization.id}`);
  return body.data.filter(({ kind }) => kind === "identity");
};

describe("a JWT on /v1", () => {
  test("a caller of an issuer gets answers, and one token without a secret in its organization", async () => {
    const answers = await Promise.all([staff(), staff()].map(async (token) => complete(await token)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    const name = "ada@example.com";
    const tokens = (await identityTokens()).filter((token) => token.name === name);
    expect(tokens).toMatchObject([{ kind: "identity", created_by: expect.stringMatching(/^idn_/) }]);
    const { body } = await operator(service).call<{ data: object[] }>("GET", `/requests?token_id=${tokens[0]?.id}`);
    expect(body.data).toHaveLength(2);
    const rotated = await operator(service).call("POST", `/tokens/${tokens[0]?.id}/rotate`, {});
    expect(rotated).toMatchObject({ status: 400, body: { error: { code: "invalid_value" } } });
  });

  test("an OpenID provider's access token for a resource is accepted", async () => {
    const asked = await fetch(`${oidcUrl}/token`, {
      method: "POST",
      headers: { authorization: `Basic ${btoa("robot:s3cret")}` },
      body: new URLSearchParams({
        grant_type: "client_credentials",
        resource: AUDIENCE,
        scope: "models:read chat.completions:write",
      }),
    });
    const { access_token } = (await asked.json()) as { access_token: string };
    expect((await complete(access_token)).status).toBe(200);
  });

  test("a claim names an organization by its id, or by the external id of one", async () => {
    const roles = [{ when: { groups: "tenants" }, role: "developer", organization: { claim: "tenant" } }];
    const issuers = [{ issuer: issuer.url, audience: AUDIENCE, roles }];
    const other = await startService({ config: { identity: { issuers } } });
    try {
      const client = operator(other);
      const create = async (external_id: string) =>
        (await client.call<{ id: string }>("POST", "/organizations", { name: "Tenant", external_id })).body.id;
      const id = await create("crm:42");
      const named = await create(id);
      const modelsOf = async (tenant: string) => {
        const token = await staff({ sub: tenant, email: undefined, groups: ["tenants"], tenant });
        const answer = await fetch(`${other.url}/v1/models`, { headers: { authorization: `Bearer ${token}` } });
        return answer.status;
      };
      expect(await Promise.all([id, "crm:42", "crm:43"].map(modelsOf))).toEqual([200, 200, 403]);
      const tokensOf = async (organizationId: string) =>
        (await client.call<Listed>("GET", `/tokens?organization_id=${organizationId}`)).body.data.map(
          ({ name }) => name,
        );
      const host = new URL(issuer.url).host;
      expect((await tokensOf(id)).toSorted()).toEqual([`${id} (${host})`, `crm:42 (${host})`].toSorted());
      expect(await tokensOf(named)).toEqual([]);
    } finally {
      await other.end();
    }
  });

  test("pinned metadata cannot be stated otherwise, and is recorded", async () => {
    const token = await staff({ sub: "grace" });
    for (const key of ["user", "team"]) {
      const { status, body } = await complete(token, { metadata: { [key]: "other" } });
      expect([status, body.error]).toEqual([
        400,
        expect.objectContaining({ code: "invalid_value", param: `metadata.${key}` }),
      ]);
    }
    const teamless = await staff({ sub: "grace", team: undefined });
    expect(await refusalOf(teamless, { metadata: { team: "red" } })).toEqual([400, "invalid_value"]);
    const { status, headers } = await complete(token, { user: "somebody", metadata: { team: "red", note: "mine" } });
    expect(status).toBe(200);
    const { body } = await operator(service).call<{ data: { id: string }[] }>(
      "GET",
      `/requests?request_id=${headers.get("x-request-id")}`,
    );
    const shown = await operator(service).call("GET", `/requests/${body.data[0]?.id}`);
    expect(shown.body).toMatchObject({ metadata: { user: "grace", team: "red", note: "mine" } });
  });

  test("the user id of Anthropic's clients does not count where the user is pinned", async () => {
    const headers = { authorization: `Bearer ${await staff()}`, "content-type": "application/json" };
    const body = {
      model: "sandbox/echo",
      max_tokens: 10,
      messages: [{ role: "user", content: "x" }],
      metadata: { user_id: "other" },
    };
    const answer = await fetch(`${service.url}/v1/messages`, { method: "POST", headers, body: JSON.stringify(body) });
    expect(answer.status).toBe(200);
  });

  test("its role lasts an hour after it was issued, whenever it expires, and the answer says so", async () => {
    const [nowSeconds, exp] = [Math.floor(Date.now() / 1000), Math.floor(Date.now() / 1000) + 86_400];
    expect((await complete(await staff({ iat: nowSeconds - 3_500, exp }))).status).toBe(200);
    const old = await staff({ iat: nowSeconds - 3_700, exp, groups: ["operators"] });
    const said = { code: "expired_token", message: expect.stringContaining("its role lasts an hour") };
    expect(await complete(old)).toMatchObject({ status: 401, body: { error: said } });
    expect(await admin(old).call("GET", "/organizations")).toMatchObject({ status: 401, body: { error: said } });
  });

  test("an idempotency key belongs to issuer and subject", async () => {
    const headers = { "idempotency-key": "key-1" };
    const [first, again, other] = [
      await complete(await staff(), {}, headers),
      await complete(await staff({ jti: "other" }), {}, headers),
      await complete(await staff({ sub: "linus" }), {}, headers),
    ];
    const replayed = [first, again, other].map((answer) => answer.headers.get("x-tollgate-idempotent-replay"));
    expect(replayed).toEqual([null, "true", null]);
  });

  test("scopes and roles limit what a caller may do", async () => {
    expect(await refusalOf(await staff({ scope: "openid models:read" }))).toEqual([403, "insufficient_scope"]);
    expect((await complete(await staff({ scope: "openid" }))).status).toBe(200);
    for (const groups of ["billing", "operators"]) {
      expect(await refusalOf(await staff({ groups })), groups).toEqual([403, "insufficient_role"]);
    }
    for (const groups of ["strangers", "lost"]) {
      expect(await refusalOf(await staff({ groups })), groups).toEqual([403, "no_role"]);
    }
    const { status, headers } = await fetch(`${service.url}/v1/models`, {
      headers: { authorization: `Bearer ${await staff({ aud: "x" })}` },
    });
    expect([status, headers.get("www-authenticate")]).toEqual([401, expect.stringContaining('error="invalid_token"')]);
  });

  test("a budget is marked as by the caller's word if an issuer of the organization does not pin its keys", async () => {
    const other = await makeOrganization(service, "1", { pinned: { user: "x", team: "y", lane: "z" } });
    const mark = async (id: string, terms: object) => {
      const draft = { name: "Marked", window: "day", amount: 1, ...terms };
      const made = await operator(service).call("POST", `/organizations/${id}/budgets`, draft);
      await operator(service).call("DELETE", `/organizations/${id}/budgets/${made.body.id}`);
      return made.body.by_callers_word;
    };
    // All issuers have roles in this organization only, and just the first one pins keys.
    expect(await mark(other.id, { each: "metadata.user" })).toBe(false);
    const own = `/tokens/${organization.tokenId}`;
    await operator(service).call("PATCH", own, { pinned: { user: "own" } });
    expect(await mark(organization.id, { each: "metadata.user" })).toBe(true);
    await operator(service).call("PATCH", own, { pinned: null });
    expect((await complete(await staff({ sub: "mark" }))).status).toBe(200);
    const { body } = await operator(service).call("GET", `/tokens?organization_id=${organization.id}`);
    const { data } = body as unknown as Listed;
    const tokens = data.filter(({ name }) => name.startsWith("ada@")).map(({ id }) => id);
    expect(tokens.length).toBeGreaterThan(0);
    expect(await mark(organization.id, { selector: { tokens }, each: "metadata.user" })).toBe(false);
    expect(await mark(organization.id, { selector: { tokens }, each: "metadata.lane" })).toBe(true);
  });

  test("a budget counts what an identity spends, by its pinned user", async () => {
    const budget = { name: "users", each: "metadata.user", window: "lifetime", amount: 0.000001 };
    const made = await operator(service).call<{ id: string }>(
      "POST",
      `/organizations/${organization.id}/budgets`,
      budget,
    );
    expect(made.status).toBe(201);
    expect(await refusalOf(await staff({ sub: "dennis" }), { max_tokens: 4_000 })).toEqual([402, "budget_exhausted"]);
    await operator(service).call("DELETE", `/organizations/${organization.id}/budgets/${made.body.id}`);
  });
});

describe("a JWT on /admin/v1", () => {
  test("a person acts with the role of their claims, under their name", async () => {
    const token = await staff({ sub: "root", email: "root@example.com", groups: ["operators"] });
    const made = await admin(token).call<{ id: string }>("POST", "/organizations", { name: "By JWT" });
    expect(made.status).toBe(201);
    const audit = await operator(service).call<{ data: object[] }>("GET", "/audit?action=organization.create&limit=1");
    const actor = {
      kind: "operator",
      id: expect.stringMatching(/^idn_/),
      name: "root@example.com",
    };
    expect(audit.body.data).toMatchObject([{ subject_id: made.body.id, actor }]);
    const auditor = admin(await staff({ sub: "eve", groups: ["auditors"] }));
    expect((await auditor.call("GET", "/organizations")).status).toBe(200);
    expect((await auditor.call("POST", "/organizations", { name: "x" })).status).toBe(403);
  });

  test("a role by claims makes no operator and no playground token, and a token that it rotated ends with it", async () => {
    const rogue = admin(await staff({ sub: "rogue", groups: ["operators"] }));
    const refused = [
      await rogue.call("POST", "/operators", { name: "By JWT", role: "operator" }),
      await rogue.call("POST", "/playground/token", { organization_id: organization.id }),
    ];
    const codes = refused.map(({ status, body }) => [status, (body.error as { code: string }).code]);
    expect(codes).toEqual([
      [403, "insufficient_role"],
      [403, "insufficient_role"],
    ]);
    const terms = { organization_id: organization.id, name: "rotated" };
    const made = await operator(service).call<{ id: string }>("POST", "/tokens", terms);
    const rotated = await rogue.call<{ secret: string }>("POST", `/tokens/${made.body.id}/rotate`, {});
    expect(rotated.body).toMatchObject({ created_by: "adm_first" });
    expect((await complete(rotated.body.secret)).status).toBe(200);
    await operator(service).call("POST", "/identities/block", { issuer: issuer.url, subject: "rogue" });
    await expect.poll(async () => refusalOf(rotated.body.secret), LONG).toEqual([401, "invalid_token"]);
    await operator(service).call("POST", "/identities/unblock", { issuer: issuer.url, subject: "rogue" });
  });

  test("a member of one organization sees no other one, and a refused token is recorded", async () => {
    const other = await makeOrganization(service, "1");
    const member = admin(await staff());
    expect((await member.call("GET", `/organizations/${other.id}`)).status).toBe(404);
    expect((await member.call("GET", `/organizations/${organization.id}`)).status).toBe(200);
    expect((await admin(await staff({ aud: "x" })).call("GET", "/organizations")).status).toBe(401);
    expect((await admin(await staff({ groups: "strangers" })).call("GET", "/organizations")).status).toBe(403);
    const audit = await operator(service).call<{ data: object[] }>(
      "GET",
      "/audit?action=session.sign_in_failed&limit=1",
    );
    expect(audit.body.data).toMatchObject([{ after: { reason: "unknown_token", token: null } }]);
  });
});

const ACCOUNT_BLOCKED = { status: 403, body: { error: { code: "account_blocked" } } };

test("a block is in force on every surface, for those who were never seen too, until it ends", async () => {
  const names = ["--issuer", issuer.url, "--subject"];
  const token = await staff({ sub: "mallory" });
  expect((await complete(token)).status).toBe(200);
  const blocked = await service.tollgate("identity", "block", ...names, "mallory");
  expect(blocked).toMatchObject({ subject: "mallory", status: "blocked" });
  await expect.poll(async () => refusalOf(token)).toEqual([403, "account_blocked"]);
  expect(await admin(token).call("GET", "/organizations")).toMatchObject(ACCOUNT_BLOCKED);
  const words = ["identity", "block", ...names, "trudy", "--data-dir", dataDir];
  const [first, again] = [await runCommand(words, dataDir), await runCommand(words, dataDir)];
  const unseen = "The service has never seen this account: check that issuer and subject are exactly its iss and sub.";
  expect([first.stdout.includes(unseen), again.stdout.includes(unseen)]).toEqual([true, false]);
  const trudy = await staff({ sub: "trudy" });
  expect(await refusalOf(trudy)).toEqual([403, "account_blocked"]);
  expect(await admin(trudy).call("GET", "/session")).toMatchObject(ACCOUNT_BLOCKED);
  const listed = await operator(service).call<{ data: { subject: string }[] }>("GET", "/identities?status=blocked");
  expect(listed.body.data.map(({ subject }) => subject).sort()).toEqual(["mallory", "trudy"]);
  const typo = { issuer: `${issuer.url}/`, subject: "mallory" };
  expect(await operator(service).call("POST", "/identities/block", typo)).toMatchObject({
    status: 400,
    body: {
      error: { code: "invalid_value", param: "issuer", message: expect.stringContaining(`one of: ${issuer.url}, `) },
    },
  });
  await service.tollgate("identity", "unblock", ...names, "mallory");
  await expect.poll(async () => (await complete(token)).status).toBe(200);
});

describe("the keys of an issuer", () => {
  test("a new key is found, and unknown keys make the issuer be asked at most once in 30 s", async () => {
    const old = await staff();
    expect((await complete(old)).status).toBe(200);
    const before = issuer.reads.keys;
    const unknown = await Promise.all(
      Array.from({ length: 20 }, (_, index) => staff({ sub: `x${index}` }, { kid: `none-${index}` })),
    );
    const refused = await Promise.all(unknown.map((token) => refusalOf(token)));
    expect(new Set(refused.map(String))).toEqual(new Set(["401,invalid_token"]));
    expect(issuer.reads.keys - before).toBeLessThanOrEqual(1);
  });

  test("while the issuer is away, its last keys count, also after a restart", async () => {
    issuer.behaviour.isDown = true;
    await service.end();
    service = await startService({ dataDir, config: configOf(organization.id) });
    expect((await complete(await staff())).status).toBe(200);
    issuer.behaviour.isDown = false;
  });

  test("a redirect is not followed: without keys, the tokens of the issuer get 503", async () => {
    const token = await redirecting.token({ sub: "ada", groups: ["staff"] });
    expect(await refusalOf(token)).toEqual([503, "issuer_unavailable"]);
    expect(redirecting.reads.keys).toBe(0);
  });
});
