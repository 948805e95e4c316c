import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { idOfPerson } from "../../src/admin/token.ts";
import { AdminClient, type Answer, cookieOf, FROM_CONSOLE, operator, signIn } from "../support/admin.ts";
import { ROOT } from "../support/documents.ts";
import {
  type IdentityProvider,
  LoginBrowser,
  sessionCookie,
  signInAt,
  startIdentityProvider,
} from "../support/identity-provider.ts";
import { freePort, MEMBER_SCOPES, makeOrganization, type RunningService, startService } from "../support/service.ts";

const HOUR_MS = 3_600_000;
const LONG = { timeout: 60_000, interval: 200 };

let providers: [IdentityProvider, IdentityProvider];
let service: RunningService;
let organizationId: string;

beforeAll(async () => {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  providers = await Promise.all([startIdentityProvider([url]), startIdentityProvider([url])]);
  const [first, second] = providers;
  const acme = { when: { tenant: "acme" }, role: "member", organization: "org_unknown" };
  const issuers = [{ ...first.settings, roles: [...first.settings.roles, acme] }, second.settings];
  const config = { server: { trustProxy: "127.0.0.1" }, identity: { issuers } };
  service = await startService({ config, port });
  organizationId = (await makeOrganization(service, "10")).id;
});
afterAll(async () => {
  await service?.end();
  await Promise.all((providers ?? []).map((provider) => provider.close()));
});

let addresses = 0;
const browser = (headers: Record<string, string> = {}) =>
  new AdminClient(service, { ...FROM_CONSOLE, "x-forwarded-for": `10.1.0.${++addresses}`, ...headers });
const codeOf = ({ status, body }: Answer) => [status, (body.error as { code?: string } | undefined)?.code];

interface Begun {
  url: URL;
  cookie: string;
}

async function begin(provider: IdentityProvider = providers[0], further: object = {}): Promise<Begun> {
  const answer = await browser().call<{ url: string }>("POST", "/session/authorization", {
    issuer: provider.issuer,
    ...further,
  });
  expect(answer.status).toBe(200);
  return { url: new URL(answer.body.url), cookie: cookieOf(answer) };
}
const complete = (query: string, cookie: string) => browser({ cookie }).call("POST", "/session/callback", { query });

/** Signs in as an account, with changes of the address that the browser opens and of the answer that it brings back. */
async function signInAs(
  account: string,
  { provider = providers[0], onTheWay, onReturn }: Attempt = {},
): Promise<Answer & { query: string; begun: Begun }> {
  const begun = await begin(provider);
  onTheWay?.(begun.url.searchParams);
  const query = await new LoginBrowser().login(begun.url.href, account);
  const returned = new URLSearchParams(query);
  onReturn?.(returned);
  return { ...(await complete(returned.toString(), begun.cookie)), query, begun };
}
interface Attempt {
  provider?: IdentityProvider;
  onTheWay?: (parameters: URLSearchParams) => void;
  onReturn?: (parameters: URLSearchParams) => void;
}

describe("a sign-in with an identity provider", () => {
  test("the console learns the names of the providers, and nothing else of them", async () => {
    const { body } = await browser().call("GET", "/service");
    const known = providers.map(({ issuer }) => ({ issuer, name: "Example Login" }));
    expect(body.identity_providers).toEqual(known);
  });

  test("an operator by a group signs in with a session of an hour, and the audit log names them", async () => {
    const answer = await signInAs("ada");
    const person = { issuer: providers[0].issuer, subject: "ada", name: "ada@example.com" };
    expect(answer.body).toMatchObject({ role: "operator", organization: null, token: null, person });
    const lifeMs = Date.parse(String(answer.body.expires_at)) - Date.now();
    expect([lifeMs > HOUR_MS - 60_000, lifeMs <= HOUR_MS]).toEqual([true, true]);
    const ada = browser({ cookie: sessionCookie(answer) });
    expect((await ada.call("POST", "/organizations", { name: "By Ada" })).status).toBe(201);
    const { body } = await operator(service).call<{ data: { action: string; actor: object }[] }>(
      "GET",
      "/audit?limit=2",
    );
    const actor = {
      kind: "operator",
      id: idOfPerson({ issuer: providers[0].issuer, subject: "ada" }),
      name: "ada@example.com",
    };
    expect(body.data.map((entry) => [entry.action, entry.actor])).toEqual([
      ["organization.create", expect.objectContaining(actor)],
      ["session.sign_in", expect.objectContaining(actor)],
    ]);
    const made = await ada.call("POST", "/playground/token", { organization_id: organizationId });
    expect([made.status, made.body.organization_id]).toEqual([201, organizationId]);
  });

  test("the role that matches first counts, and an auditor changes nothing", async () => {
    const answer = await signInAs("eve");
    expect(answer.body.role).toBe("auditor");
    const eve = browser({ cookie: sessionCookie(answer) });
    expect(codeOf(await eve.call("POST", "/organizations", { name: "By Eve" }))).toEqual([403, "insufficient_role"]);
  });

  test("an account without a role is told who it is, and an unverified address is not its name", async () => {
    const answer = await signInAs("unverified");
    expect(codeOf(answer)).toEqual([403, "no_role"]);
    expect(answer.body.error).toMatchObject({
      message: expect.stringContaining("Example Login as mallory (127.0.0.1:"),
    });
    expect(sessionCookie(answer)).toBe("");
    const failed = await operator(service).call<{ data: object[] }>(
      "GET",
      "/audit?action=session.sign_in_failed&limit=1",
    );
    expect(failed.body.data).toMatchObject([
      { after: { reason: "no_role", account: expect.stringMatching(/^mallory \(127.* \(Example Login\)$/) } },
    ]);
  });

  test("an account of an organization that does not exist is refused", async () => {
    const answer = await signInAs("max");
    expect(codeOf(answer)).toEqual([403, "no_role"]);
    expect(answer.body.error).toMatchObject({ message: expect.stringContaining("org_unknown") });
  });

  test("the session is listed with the person, an operator ends it, and the cookie is worth nothing then", async () => {
    const answer = await signInAs("ada", { provider: providers[1] });
    const cookie = sessionCookie(answer);
    const id = idOfPerson({ issuer: providers[1].issuer, subject: "ada" });
    const { body } = await operator(service).call<{ data: { id: string; holder: { id: string } }[] }>(
      "GET",
      "/sessions",
    );
    const listed = body.data.find(({ holder }) => holder.id === id);
    expect(listed).toMatchObject({ role: "operator", holder: { id, name: "ada@example.com" }, organization_id: null });
    expect((await operator(service).call("DELETE", `/sessions/${listed?.id}`)).status).toBe(204);
    expect((await browser({ cookie }).call("GET", "/session")).body.role).toBeNull();
  });

  test("a person who is blocked loses their session with the next request, and does not sign in again", async () => {
    const { issuer } = providers[0];
    const answer = await signInAs("eve");
    const eve = browser({ cookie: sessionCookie(answer) });
    expect((await eve.call("GET", "/organizations")).status).toBe(200);
    const account = { issuer, subject: "eve" };
    expect((await operator(service).call("POST", "/identities/block", account)).status).toBeLessThan(300);
    expect((await eve.call("GET", "/organizations")).status).toBe(401);
    const again = await signInAs("eve");
    expect(codeOf(again)).toEqual([403, "account_blocked"]);
    expect(again.body.error).toMatchObject({ message: "An operator has blocked the account eve@example.com." });
    expect((await operator(service).call("POST", "/identities/unblock", account)).status).toBeLessThan(300);
    expect((await signInAs("eve")).status).toBe(200);
  });

  test("the provider's session is left with an address that names the client and leads back", async () => {
    const { body } = await signInAs("ada");
    const url = new URL(String(body.sign_out_url));
    expect(url.origin).toBe(providers[0].issuer);
    expect(url.searchParams.get("post_logout_redirect_uri")).toBe(`${service.url}/sign-in`);
    expect([url.searchParams.get("client_id"), url.searchParams.has("id_token_hint")]).toEqual(["tollgate", true]);
  });

  test("new keys of the provider count at once", async () => {
    expect((await signInAs("ada", { provider: providers[1] })).status).toBe(200);
    await providers[1].rotateKeys();
    expect((await signInAs("ada", { provider: providers[1] })).status).toBe(200);
  });

  test("a provider that is away is named, and signs people in as soon as it is back", async () => {
    const begun = await begin();
    const query = await new LoginBrowser().login(begun.url.href, "ada");
    const recover = providers[0].fail();
    const answer = await complete(query, begun.cookie);
    recover();
    expect(codeOf(answer)).toEqual([503, "issuer_unavailable"]);
    expect(answer.body.error).toMatchObject({ message: expect.stringMatching(/^Example Login cannot be reached/) });
    expect((await signInAs("ada")).status).toBe(200);
  });
});

describe("attacks on a sign-in", () => {
  const rejected = [401, "sign_in_failed"];

  test("the browser is bound by a cookie that scripts and other sites cannot use, and that the answer clears", async () => {
    const begun = await browser().call("POST", "/session/authorization", { issuer: providers[0].issuer });
    expect(begun.headers.get("set-cookie")).toMatch(
      /^tollgate_sign_in=[0-9A-Za-z]{43}; Path=\/; Max-Age=600; HttpOnly; SameSite=Strict$/,
    );
    const secure = browser({ "x-forwarded-proto": "https", "x-forwarded-host": "tollgate.example.com" });
    const overTls = await secure.call("POST", "/session/authorization", { issuer: providers[0].issuer });
    expect(overTls.headers.get("set-cookie")).toMatch(/^__Host-tollgate_sign_in=.*; Secure$/);
    const url = new URL(String(overTls.body.url));
    expect(url.searchParams.get("redirect_uri")).toBe("https://tollgate.example.com/sign-in");
    const done = await complete("code=x&state=y", cookieOf(begun));
    expect(done.headers.get("set-cookie")).toMatch(/^tollgate_sign_in=; Path=\/; Max-Age=0;/);
  });

  test("the address has PKCE with S256, a state and a nonce, all different at every start", async () => {
    const [one, two] = await Promise.all([begin(), begin(providers[0], { prompt: "login" })]);
    expect([one, two].map(({ url }) => url.searchParams.get("prompt"))).toEqual([null, "login"]);
    for (const name of ["state", "nonce", "code_challenge"]) {
      const values = [one, two].map(({ url }) => url.searchParams.get(name) ?? "");
      expect(values[0]).not.toBe(values[1]);
      expect(values.every((value) => value.length >= 43)).toBe(true);
    }
    expect(one.url.searchParams.get("code_challenge_method")).toBe("S256");
    expect(one.url.searchParams.get("response_type")).toBe("code");
  });

  test("a state that is missing, changed, of another browser, or twice in the answer is refused", async () => {
    const other = await begin();
    const changes: ((returned: URLSearchParams) => void)[] = [
      (returned) => returned.delete("state"),
      (returned) => returned.set("state", `${returned.get("state")}x`),
      (returned) => returned.set("state", other.url.searchParams.get("state") ?? ""),
      (returned) => returned.set("state", (returned.get("state") ?? "").replace(/^\d+/, "9999999999999")),
      (returned) => returned.append("state", returned.get("state") ?? ""),
      (returned) => returned.append("code", returned.get("code") ?? ""),
    ];
    for (const onReturn of changes) expect(codeOf(await signInAs("ada", { onReturn }))).toEqual(rejected);
  });

  test("without the cookie, or with that of an attacker, an answer signs nobody in", async () => {
    const begun = await begin();
    const query = await new LoginBrowser().login(begun.url.href, "ada");
    expect(codeOf(await complete(query, ""))).toEqual(rejected);
    expect(codeOf(await complete(query, (await begin()).cookie))).toEqual(rejected);
    // A state that anybody can compute, because no secret is in it.
    const expiresAtMs = Date.now() + 60_000;
    const text = JSON.stringify(["state", providers[0].issuer, expiresAtMs]);
    const state = `${expiresAtMs}.${createHmac("sha256", "").update(text).digest("base64url")}`;
    expect(codeOf(await complete(`code=x&state=${state}`, ""))).toEqual(rejected);
    expect(codeOf(await complete(`code=x&state=${state}`, "tollgate_sign_in="))).toEqual(rejected);
    expect((await complete(query, begun.cookie)).status).toBe(200);
  });

  test("a code and its state work once", async () => {
    const { status, query, begun } = await signInAs("ada");
    expect(status).toBe(200);
    const again = await complete(query, begun.cookie);
    expect(codeOf(again)).toEqual(rejected);
    expect(sessionCookie(again)).toBe("");
  });

  test("an ID token with another nonce, and a code of another challenge, are refused", async () => {
    for (const name of ["nonce", "code_challenge"]) {
      const other = (await begin()).url.searchParams.get(name) ?? "";
      const onTheWay = (parameters: URLSearchParams) => parameters.set(name, other);
      expect(codeOf(await signInAs("ada", { onTheWay }))).toEqual(rejected);
    }
  });

  test("an answer of another issuer is refused, with and without the parameter `iss`", async () => {
    const [first, second] = providers;
    const ofSecond = await begin(second);
    const query = new URLSearchParams(await new LoginBrowser().login(ofSecond.url.href, "ada"));
    expect(query.get("iss")).toBe(second.issuer);
    const begun = await begin(first);
    query.set("state", begun.url.searchParams.get("state") ?? "");
    const before = first.requestsTo("/token");
    expect(codeOf(await complete(query.toString(), begun.cookie))).toEqual(rejected);
    query.delete("iss");
    expect(codeOf(await complete(query.toString(), begun.cookie))).toEqual(rejected);
    // The code of one provider never reaches the other.
    expect(first.requestsTo("/token")).toBe(before);
    query.set("iss", first.issuer);
    expect(codeOf(await complete(query.toString(), begun.cookie))).toEqual(rejected);
  });

  test("a refusal by the provider is shown in words, without markup or control characters", async () => {
    const refused = async (parameters: Record<string, string>) => {
      const begun = await begin();
      const state = begun.url.searchParams.get("state") ?? "";
      const query = new URLSearchParams({ ...parameters, state, iss: providers[0].issuer });
      const answer = await complete(query.toString(), begun.cookie);
      return [answer.status, (answer.body.error as { message: string }).message];
    };
    expect(await refused({ error: "access_denied" })).toEqual([
      401,
      "The sign-in was cancelled, or Example Login refused it.",
    ]);
    const description = `no\u0000\n${"x".repeat(5_000)}`;
    const [status, message] = await refused({ error: "login_required", error_description: description });
    expect([status, message]).toEqual([
      401,
      expect.stringMatching(/^Example Login refused the sign-in: login_required/),
    ]);
    expect(String(message)).toMatch(/^[^\p{Cc}]{1,400}$/u);
  });

  test("a sign-in never keeps the session or the secret from before it", async () => {
    const before = await signIn(service, (await makeOrganization(service, "0", { scopes: MEMBER_SCOPES })).token);
    const begun = await begin();
    const query = await new LoginBrowser().login(begun.url.href, "ada");
    const planted = before.headers.cookie ?? "";
    const answer = await complete(query, `${planted}; ${begun.cookie}`);
    expect(answer.status).toBe(200);
    expect(sessionCookie(answer)).not.toContain(planted);
    expect((await browser({ cookie: planted }).call("GET", "/session")).body.role).toBeNull();
  });

  test("a start from another site, of an unknown issuer, or with a huge parameter is refused", async () => {
    const { issuer } = providers[0];
    const foreign = browser({ origin: "https://attacker.example", "sec-fetch-site": "cross-site" });
    const start = (client: AdminClient, body: object) => client.call("POST", "/session/authorization", body);
    expect(codeOf(await start(foreign, { issuer }))).toEqual([403, "csrf_check_failed"]);
    expect(codeOf(await start(browser(), { issuer: "https://attacker.example" }))).toEqual([400, "invalid_value"]);
    expect(codeOf(await start(browser(), { issuer: "x".repeat(2_001) }))).toEqual([400, "invalid_value"]);
    expect(codeOf(await start(browser(), { issuer, return_to: "//attacker.example" }))).toEqual([
      400,
      "unknown_parameter",
    ]);
    const { cookie } = await begin();
    expect(codeOf(await complete("x".repeat(8_001), cookie))).toEqual([400, "invalid_value"]);
    expect(codeOf(await complete("x".repeat(17_000), cookie))).toEqual([413, "body_too_large"]);
    const split = browser({ "x-forwarded-host": "a/../@b" });
    expect(codeOf(await start(split, { issuer }))).toEqual([400, "invalid_value"]);
  });

  test("a flood of starts from one address is refused, is no flood for the provider, and others can sign in", async () => {
    const flooder = browser();
    const statuses = [];
    const before = providers[0].requestsTo("/.well-known/openid-configuration");
    for (let count = 0; count < 62; count += 1) {
      statuses.push((await flooder.call("POST", "/session/authorization", { issuer: providers[0].issuer })).status);
    }
    expect(statuses.indexOf(429)).toBe(60);
    expect(providers[0].requestsTo("/.well-known/openid-configuration") - before).toBeLessThan(5);
    expect((await signInAs("ada")).status).toBe(200);
  });
});

test("people of an organization see it alone, and spend its credits alone in the playground", async () => {
  const port = await freePort();
  const provider = await startIdentityProvider([`http://127.0.0.1:${port}`]);
  const rolesOf = (organization: string) => [{ when: { tenant: "acme" }, role: "member", organization }];
  const configured = (id: string) => ({ identity: { issuers: [{ ...provider.settings, roles: rolesOf(id) }] } });
  const own = await startService({ config: configured("org_unknown"), port });
  const writeConfig = (config: object) => writeFile(join(own.dataDir, "tollgate.yaml"), JSON.stringify(config));
  try {
    const [acme, other] = [await makeOrganization(own, "10"), await makeOrganization(own, "10")];
    await writeConfig(configured(acme.id));
    await expect.poll(() => own.output(), { timeout: 60_000 }).toContain("the configuration was reloaded");
    const answer = await signInAt(own, provider.issuer, "max");
    expect(answer.body).toMatchObject({ role: "member", organization: { id: acme.id }, may_complete: true });
    const max = new AdminClient(own, { ...FROM_CONSOLE, cookie: sessionCookie(answer) });
    expect((await max.call("GET", `/organizations/${acme.id}`)).status).toBe(200);
    expect((await max.call("GET", `/organizations/${other.id}`)).status).toBe(404);
    const made = await max.call("POST", "/playground/token", {});
    expect((await max.call("POST", "/playground/token", { organization_id: other.id })).status).toBe(404);
    const headers = { authorization: `Bearer ${made.body.token}` };
    const ask = async () => (await fetch(`${own.url}/v1/models`, { headers })).status;
    expect([made.status, made.body.organization_id, await ask()]).toEqual([201, acme.id, 200]);
    await operator(own).call("POST", "/identities/block", { issuer: provider.issuer, subject: "max" });
    await expect.poll(ask, LONG).toBe(401);
    await operator(own).call("POST", "/identities/unblock", { issuer: provider.issuer, subject: "max" });
    // Without the issuer, its sessions end with their next request.
    await writeConfig({});
    await expect.poll(async () => (await max.call("GET", "/session")).body.role, LONG).toBeNull();
    expect((await max.call("GET", `/organizations/${acme.id}`)).status).toBe(401);
  } finally {
    await own.end();
    await provider.close();
  }
});

test("the configuration of docs/identity.md signs people in", async () => {
  const page = readFileSync(join(ROOT, "docs", "identity.md"), "utf8");
  const [, example = ""] = /```yaml\n(identity:\n[\s\S]*?)```/.exec(page) ?? [];
  const port = await freePort();
  const provider = await startIdentityProvider([`http://127.0.0.1:${port}`]);
  const config = parse(example.replaceAll("https://login.example.com", provider.issuer)) as object;
  const environment = { OIDC_CLIENT_SECRET: provider.settings.clientSecret };
  const documented = await startService({ config, port, environment });
  try {
    const { status, body } = await signInAt(documented, provider.issuer, "ada");
    expect([status, body.role]).toEqual([200, "operator"]);
  } finally {
    await documented.end();
    await provider.close();
  }
});
