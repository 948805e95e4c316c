import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { get, type IncomingMessage } from "node:http";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ErrorCode, errorCatalog } from "../../src/errors.ts";
import { endpoints } from "../../src/http/routing.ts";
import { cookieOf, FROM_CONSOLE, operator, signIn } from "../support/admin.ts";
import { type IdentityProvider, LoginBrowser, startIdentityProvider } from "../support/identity-provider.ts";
import { createTestServer } from "../support/server.ts";
import {
  freePort,
  MEMBER_SCOPES,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
  usageOf,
} from "../support/service.ts";
import { stripeSettings } from "../support/stripe.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";
import { expectError } from "./contract-checks.ts";

const COMPLETIONS = "/v1/chat/completions";
const messages = [{ role: "user", content: "hello" }];
const price = { input: 1_000_000, output: 1_000_000 };
/** Limit of the organization of the rate limit tests, each of which uses its own token. */
const REQUESTS_A_MINUTE = 60;

let upstream: Upstream;
let identityProvider: IdentityProvider;
/** An address at which no program listens. */
let nobody: string;
let service: RunningService;
let rich: Organization;
let poor: Organization;
/** Has a low limit of requests per minute, which the rate limit tests exhaust. */
let hasty: Organization;

beforeAll(async () => {
  upstream = await startUpstream();
  nobody = `http://127.0.0.1:${await freePort()}/v1`;
  const port = await freePort();
  identityProvider = await startIdentityProvider([`http://127.0.0.1:${port}`]);
  const away = { ...identityProvider.settings, issuer: nobody };
  const behaviours = ["ok", "slow", "failing", "busy", "busier", "silent", "rejecting", "filtering", "keyless"];
  service = await startService({
    port,
    config: {
      identity: { issuers: [identityProvider.settings, away] },
      limits: { requestsPerMinute: 100_000 },
      payments: { stripe: stripeSettings(nobody) },
      providers: [
        upstream.provider,
        {
          id: "hasty",
          kind: "openai-compatible",
          baseUrl: upstream.baseUrl,
          apiKey: "k",
          timeouts: { firstByteMs: 300 },
        },
        { id: "down", kind: "openai-compatible", baseUrl: nobody, apiKey: "k" },
      ],
      models: [
        ...behaviours.map((id) => ({ id, price, routes: [{ provider: id === "silent" ? "hasty" : "up", model: id }] })),
        { id: "down", price, routes: [{ provider: "down", model: "any" }] },
        { id: "absent", price, routes: [{ provider: "up", model: "absent" }] },
        { id: "short", price, contextWindow: 100, routes: [{ provider: "up", model: "ok" }] },
        { id: "plain", price, capabilities: ["chat"], routes: [{ provider: "up", model: "ok" }] },
      ],
    },
  });
  const usage = { prompt_tokens: 2, completion_tokens: 1, total_tokens: 3 };
  upstream.behave("ok", answering({ words: ["hi"], usage }));
  upstream.behave("slow", answering({ words: Array(2_000).fill("word "), usage, pauseMs: 50 }));
  upstream.behave("failing", ({ response }) => sendJson(response, 500, { error: { message: "inner secret-4711" } }));
  for (const busy of ["busy", "busier"]) {
    upstream.behave(busy, ({ response }) =>
      sendJson(response, 429, { error: { message: "slow down org-secret" } }, { "retry-after": "47" }),
    );
  }
  upstream.behave("silent", () => {});
  upstream.behave("rejecting", ({ response }) => sendJson(response, 400, { error: { message: "tools[0] is odd" } }));
  upstream.behave("filtering", ({ response }) =>
    sendJson(response, 400, { error: { message: "no", code: "content_filter" } }),
  );
  upstream.behave("keyless", ({ response }) => sendJson(response, 401, { error: { message: "bad key sk-1234" } }));
  rich = await makeOrganization(service, "100000", { scopes: MEMBER_SCOPES });
  poor = await makeOrganization(service, "0.5");
  hasty = await makeOrganization(service, "0.5");
  await administer("PATCH", `/organizations/${hasty.id}`, { limits: { requests_per_minute: REQUESTS_A_MINUTE } });
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
  await identityProvider?.close();
});

const ask = (fields: object, token: string | null = rich.token, options?: RequestInit) =>
  send(service, COMPLETIONS, token, { model: "ok", messages, max_tokens: 10, ...fields }, options);

/** Calls the admin API, by default with the admin token. */
const administer = (method: string, path: string, body: object, headers: object = operator(service).headers) =>
  send(service, `/admin/v1${path}`, null, body, { method, headers: { ...headers } });

/** The response to a sign-in with the identity provider. */
async function signInAtProvider(login: string): Promise<Response> {
  const begun = await administer("POST", "/session/authorization", { issuer: identityProvider.issuer }, FROM_CONSOLE);
  const { url } = (await begun.json()) as { url: string };
  const query = await new LoginBrowser().login(url, login);
  return administer("POST", "/session/callback", { query }, { ...FROM_CONSOLE, cookie: cookieOf(begun) });
}

/** The response to an attempt to open a WebSocket, whose headers `fetch` cannot send. */
async function webSocketAnswer(path: string): Promise<Response> {
  const headers = {
    upgrade: "websocket",
    connection: "Upgrade",
    "sec-websocket-version": "13",
    "sec-websocket-key": randomBytes(16).toString("base64"),
    authorization: `Bearer ${rich.token}`,
  };
  const outgoing = get(`${service.url}${path}`, { headers });
  const [answer] = (await once(outgoing, "response")) as [IncomingMessage];
  expect([answer.headers.upgrade, answer.headers.connection]).toEqual(["HTTP/1.1", "upgrade"]);
  const { upgrade: _upgrade, connection: _connection, ...others } = answer.headers;
  return new Response(await text(answer), {
    status: answer.statusCode ?? 0,
    headers: others as Record<string, string>,
  });
}

/** A request for each row of the catalog. A code without a case does not compile. */
const cases: Record<ErrorCode, () => Promise<Response>> = {
  invalid_json: () => send(service, COMPLETIONS, rich.token, "{broken"),
  unknown_parameter: async () => administer("POST", "/organizations", { name: "x", nmae: "y" }),
  missing_required_parameter: () => ask({ model: undefined }),
  invalid_type: () => ask({ temperature: "0.5" }),
  invalid_value: () => ask({ messages: [{ role: "robot", content: "x" }] }),
  unsupported_value: () => ask({ model: "plain", tools: [{ type: "function", function: { name: "f" } }] }),
  decimal_above_max_value: () => ask({ temperature: 1.1 }),
  decimal_below_min_value: () => ask({ temperature: -0.1 }),
  previous_response_not_found: () => {
    const body = { model: "ok", input: "hello", previous_response_id: "resp_unknown" };
    return send(service, "/v1/responses", rich.token, body);
  },
  context_length_exceeded: () => ask({ model: "short", messages: [{ role: "user", content: "word ".repeat(2000) }] }),
  max_cost_exceeded: () => ask({}, rich.token, { headers: { "x-tollgate-max-cost": "0.000001" } }),
  content_filter: () => ask({ model: "filtering" }),
  upstream_rejected: () => ask({ model: "rejecting" }),
  missing_token: () => ask({}, null),
  invalid_token: () => ask({}, `${rich.token.slice(0, -1)}${rich.token.endsWith("0") ? "1" : "0"}`),
  expired_token: async () => {
    const expiresAtMs = Date.now() + 3_000;
    const expires_at = new Date(expiresAtMs).toISOString();
    const made = await administer("POST", "/tokens", { organization_id: rich.id, name: "short", expires_at });
    const { secret } = (await made.json()) as { secret: string };
    while (Date.now() <= expiresAtMs) await new Promise((resolve) => setTimeout(resolve, 50));
    return ask({}, secret);
  },
  insufficient_credits: () => ask({ max_tokens: 1000 }, poor.token),
  budget_exhausted: async () => {
    const { id, token } = await makeOrganization(service, "1000");
    await administer("POST", `/organizations/${id}/budgets`, { name: "tight", window: "day", amount: 0.000001 });
    return ask({}, token);
  },
  insufficient_scope: async () => {
    const { token } = await makeToken(service, rich.id, { scopes: ["models:read"] });
    return ask({}, token);
  },
  model_not_allowed: async () => {
    const { token } = await makeToken(service, rich.id, { models: ["plain"] });
    return ask({}, token);
  },
  organization_paused: async () => {
    const { id, token } = await makeOrganization(service, "1");
    await administer("PATCH", `/organizations/${id}`, { status: "paused" });
    return ask({}, token);
  },
  insufficient_role: async () => {
    const member = await signIn(service, rich.token);
    return administer("POST", "/organizations", { name: "x" }, member.headers);
  },
  sign_in_failed: () => administer("POST", "/session/callback", { query: "code=a&state=b" }, FROM_CONSOLE),
  no_role: () => signInAtProvider("stranger"),
  account_blocked: async () => {
    await administer("POST", "/identities/block", { issuer: identityProvider.issuer, subject: "eve" });
    return signInAtProvider("eve");
  },
  issuer_unavailable: () => administer("POST", "/session/authorization", { issuer: nobody }, FROM_CONSOLE),
  payment_provider_unavailable: () =>
    administer("POST", `/organizations/${rich.id}/checkouts`, { amount: 10, return_url: "https://a.example" }),
  csrf_check_failed: async () => administer("POST", "/session", { token: rich.token }, {}),
  usage_not_available_for_playground: async () => {
    const { token } = await makeToken(service, "org_playground");
    return send(service, "/v1/usage", token);
  },
  model_not_found: () => ask({ model: "no-such-model" }),
  not_found: () => send(service, "/v1/moderations", rich.token, {}),
  already_rotated: async () => {
    const { tokenId } = await makeToken(service, rich.id);
    await administer("POST", `/tokens/${tokenId}/rotate`, {});
    return administer("POST", `/tokens/${tokenId}/rotate`, {});
  },
  token_ended: async () => {
    const { tokenId } = await makeToken(service, rich.id);
    await service.tollgate("token", "revoke", tokenId);
    return administer("POST", `/tokens/${tokenId}/rotate`, {});
  },
  method_not_allowed: () => send(service, COMPLETIONS, rich.token),
  upgrade_required: () => webSocketAnswer("/v1/responses"),
  voucher_ended: async () => {
    const made = await service.tollgate<{ codes: string[] }>("voucher", "create", "1", "--name", "Trial");
    const redeem = (id: string) => administer("POST", `/organizations/${id}/redemptions`, { code: made.codes[0] });
    expect((await redeem(rich.id)).status).toBe(201);
    return redeem(poor.id);
  },
  reference_mismatch: async () => {
    const grant = (amount: number) =>
      administer("POST", `/organizations/${rich.id}/grants`, { amount, reference: "invoice 1" });
    expect((await grant(1)).status).toBe(201);
    return grant(2);
  },
  erasure_not_due: () => administer("POST", `/organizations/${rich.id}/erase`, {}),
  request_closed: async () => {
    const books = new DatabaseSync(join(service.dataDir, "tollgate.db"), { timeout: 60_000 });
    books.prepare("update balance set closed_before = 2 where organization_id = ?").run(poor.id);
    books.close();
    const credit = { amount: 1, request_id: "00000000-0001-7000-8000-000000000000" };
    return administer("POST", `/organizations/${poor.id}/credits`, credit);
  },
  idempotency_in_progress: async () => {
    const running = new AbortController();
    const asked = { model: "slow", stream: true };
    const first = await ask(asked, rich.token, { headers: { "idempotency-key": "running" }, signal: running.signal });
    expect(first.status).toBe(200);
    const refused = await ask(asked, rich.token, { headers: { "idempotency-key": "running" } });
    running.abort();
    return refused;
  },
  idempotency_interrupted: async () => {
    const leaving = new AbortController();
    const asked = { model: "slow", stream: true };
    const keyed = { headers: { "idempotency-key": "left" } };
    await ask(asked, rich.token, { ...keyed, signal: leaving.signal });
    leaving.abort();
    let again = await ask(asked, rich.token, keyed);
    while (again.headers.get("retry-after") === "1") again = await ask(asked, rich.token, keyed);
    return again;
  },
  idempotency_mismatch: async () => {
    const keyed = { headers: { "idempotency-key": "other body" } };
    expect((await ask({}, rich.token, keyed)).status).toBe(200);
    return ask({ max_tokens: 11 }, rich.token, keyed);
  },
  body_too_large: () => ask({ padding: "x".repeat(21 * 1024 * 1024) }),
  unsupported_media_type: () => ask({}, rich.token, { headers: { "content-type": "text/plain" } }),
  rate_limit_exceeded: async () => {
    const { token } = await makeToken(service, hasty.id);
    for (let count = 0; count < REQUESTS_A_MINUTE; count += 1) await send(service, "/v1/models", token);
    return ask({}, token);
  },
  credits_held: async () => {
    const busy = await makeOrganization(service, "1500");
    const running = new AbortController();
    const held = { model: "slow", stream: true, max_tokens: 900 };
    const first = await ask(held, busy.token, { signal: running.signal });
    expect(first.status).toBe(200);
    const refused = await ask({ max_tokens: 900 }, busy.token);
    running.abort();
    return refused;
  },
  upstream_error: () => ask({ model: "failing" }),
  upstream_unavailable: () => ask({ model: "down" }),
  overloaded: () => ask({ model: "busy" }),
  upstream_timeout: () => ask({ model: "silent" }),
  // Callers cannot cause these, so they are tested with a server whose parts fail.
  internal_error: () => createTestServer({ catalogFails: true }),
  store_unavailable: () => createTestServer({ storeFails: true }),
};

describe.each(Object.entries(cases))("%s", (code, provoke) => {
  const row = errorCatalog[code as ErrorCode];
  test(`${row.status} ${code}`, async () => {
    const answer = await provoke();
    expect(answer.status).toBe(row.status);
    expect(answer.headers.get("content-type")).toContain("application/json");
    expect(answer.headers.get("x-request-id")).toMatch(/^req_/);
    const error = expectError(await answer.json());
    expect(error).toMatchObject({ code, type: row.type });
    expect(JSON.stringify(error)).not.toMatch(/secret|sk-1234|node:|\.ts:/);
    expect(answer.headers.has("x-credits-charged")).toBe(false);
  });
});

describe("Details of errors", () => {
  test("401 has the header WWW-Authenticate.", async () => {
    const missing = await ask({}, null);
    expect(missing.headers.get("www-authenticate")).toBe('Bearer realm="tollgate"');
    const wrong = await ask({}, "sk-tg-wrong");
    expect(wrong.headers.get("www-authenticate")).toContain('error="invalid_token"');
  });

  test("403 insufficient_scope names the scope.", async () => {
    const { token } = await makeToken(service, rich.id, { scopes: ["models:read"] });
    const answer = await ask({}, token);
    expect(answer.headers.get("www-authenticate")).toContain('scope="chat.completions:write"');
  });

  test("402 has the available credits, the required credits and the affordable tokens.", async () => {
    const answer = await ask({ max_tokens: 1000 }, poor.token);
    const { error } = (await answer.json()) as { error: Record<string, number> };
    expect(error.credits_available).toBe(0.5);
    expect(error.credits_required).toBeGreaterThan(1000);
    expect(error.affordable_max_tokens).toBe(0);
    expect(answer.headers.get("x-should-retry")).toBe("false");
  });

  test("405 lists the allowed methods.", async () => {
    const answer = await send(service, COMPLETIONS, rich.token);
    expect(answer.headers.get("allow")).toBe("POST, OPTIONS");
    const model = await send(service, "/v1/models/ok", rich.token, {}, { method: "DELETE" });
    expect([model.status, model.headers.get("allow")]).toEqual([405, "POST, GET, HEAD, OPTIONS"]);
  });

  test("404 for an unknown path names the paths that exist, without authentication.", async () => {
    const { error } = (await (await send(service, "/v1/nothing", null)).json()) as { error: { message: string } };
    const named = /Paths under \/v1: (.+?)\. /.exec(error.message)?.[1]?.split(", ");
    const paths = endpoints.flatMap(({ path }) => /^\/v1\/([^:*]+)$/.exec(path)?.[1] ?? []);
    expect(named).toEqual([...new Set(paths)]);
    expect(named).toEqual(expect.arrayContaining(["chat/completions", "messages", "models"]));
  });

  test("An upstream's Retry-After is forwarded, and the upstream is not called before that time.", async () => {
    const calls = () => upstream.requests.filter(({ body }) => body.model === "busier").length;
    const first = await ask({ model: "busier" });
    expect([first.status, first.headers.get("retry-after"), calls()]).toEqual([503, "47", 1]);
    const second = await ask({ model: "busier" });
    expect([second.status, calls()]).toEqual([503, 1]);
    expect(second.headers.get("retry-after")).toMatch(/^([1-3]?\d|4[0-7])$/);
  });

  test("An upstream that rejects our key is an error of the service, and logged as such.", async () => {
    const answer = await ask({ model: "keyless" });
    expect(answer.status).toBe(502);
    await expect.poll(() => service.output()).toContain("an upstream refused the service's own credentials");
    expect(service.output()).not.toContain("sk-1234");
  });

  test("An upstream that does not have the model is an error of the service.", async () => {
    const answer = await ask({ model: "absent" });
    expect([answer.status, await answer.text()]).toEqual([502, expect.stringContaining('"code":"upstream_error"')]);
    await expect.poll(() => service.output()).toContain("an upstream has no such model or address");
  });

  test("429 has the header Retry-After.", async () => {
    const { token } = await makeToken(service, hasty.id);
    let last = await send(service, "/v1/models", token);
    while (last.status === 200) last = await send(service, "/v1/models", token);
    expect(Number(last.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
    expect(Number(last.headers.get("retry-after"))).toBeLessThanOrEqual(60);
  });

  test("Credentials that are sent twice or in two ways are rejected.", async () => {
    const twice = await ask({}, rich.token, { headers: { authorization: "Bearer a, Bearer b" } });
    expect(twice.status).toBe(401);
    const inQuery = await send(service, "/v1/models?access_token=x", rich.token);
    expect(inQuery.status).toBe(400);
  });
});

test("Only the complete responses were charged.", async () => {
  expect(await usageOf(service, poor.token)).toMatchObject({ creditsUsed: 0, creditsHeld: 0 });
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
});

test("docs/errors.md and the catalog list the same errors.", () => {
  const page = readFileSync(new URL("../../docs/errors.md", import.meta.url), "utf8");
  const rows = [...page.matchAll(/^\| (\d{3}) \| `(\w+)` \| `(\w+)` \| (yes|no) \|/gm)].map((row) => row.slice(1));
  const catalog = Object.entries(errorCatalog).map(([code, row]) => [
    String(row.status),
    row.type,
    code,
    row.retryable ? "yes" : "no",
  ]);
  expect(rows.sort()).toEqual(catalog.sort());
});
