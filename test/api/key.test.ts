import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { makeOrganization, makeToken, type RunningService, send, startService } from "../support/service.ts";

let service: RunningService;
beforeAll(async () => {
  service = await startService({ config: { limits: { requestsPerMinute: 600, tokensPerMinute: 50_000 } } });
});
afterAll(() => service?.end());

const read = async (path: string, token: string) => {
  const answer = await send(service, path, token);
  return { status: answer.status, body: await answer.json() };
};

describe("The token of a request", () => {
  test("is shown with its cap, its limits and the credits of its organization.", async () => {
    const { id } = await makeOrganization(service, "10");
    const terms = { name: "agent", cap: 0.3, models: ["sandbox/echo"], limits: { requests_per_minute: 30 } };
    const { token } = await makeToken(service, id, terms);
    const body = { model: "sandbox/echo", messages: [{ role: "user", content: "one two three" }], max_tokens: 10 };
    const answer = await send(service, "/v1/chat/completions", token, body);
    const { usage } = (await answer.json()) as { usage: { cost: number } };
    expect(usage.cost).toBeGreaterThan(0);
    const remaining = Number((0.3 - usage.cost).toFixed(6));
    expect(await read("/v1/key", token)).toEqual({
      status: 200,
      body: {
        data: {
          label: token.slice(0, 12),
          name: "agent",
          organization_id: id,
          usage: usage.cost,
          limit: 0.3,
          limit_remaining: remaining,
          credits_available: Number((10 - usage.cost).toFixed(6)),
          is_free_tier: false,
          rate_limit: { requests: 30, interval: "1m" },
          tokens_per_minute: 50_000,
          concurrent_requests: 100,
          models: ["sandbox/echo"],
          expires_at: null,
        },
      },
    });
    expect(await read("/key/info", token)).toMatchObject({
      status: 200,
      body: {
        key: token.slice(0, 12),
        info: { key_alias: "agent", spend: usage.cost, max_budget: 0.3, rpm_limit: 30, models: ["sandbox/echo"] },
      },
    });
  });

  test("has no cap and all models by default, and the limits of its organization.", async () => {
    const { id, token } = await makeOrganization(service, "10");
    await operator(service).call("PATCH", `/organizations/${id}`, { limits: { tokens_per_minute: 7_000 } });
    const { body } = await read("/v1/key", token);
    const cap = { usage: null, limit: null, limit_remaining: null };
    expect(body).toMatchObject({ data: { ...cap, models: null, credits_available: 10, tokens_per_minute: 7_000 } });
    expect((await read("/key/info", token)).body).toMatchObject({
      info: { max_budget: null, models: [], spend: null },
    });
  });

  test("needs the scope usage:read, and an organization with credits.", async () => {
    const { id } = await makeOrganization(service, "10");
    const { token } = await makeToken(service, id, { scopes: ["models:read"] });
    const guest = await makeToken(service, "org_playground");
    for (const path of ["/v1/key", "/key/info"]) {
      expect(await read(path, token)).toMatchObject({ status: 403, body: { error: { code: "insufficient_scope" } } });
      const code = "usage_not_available_for_playground";
      expect(await read(path, guest.token)).toMatchObject({ status: 403, body: { error: { code } } });
      expect((await fetch(`${service.url}${path}`)).status).toBe(401);
    }
  });
});

test("The path /health answers like /healthz.", async () => {
  for (const path of ["/health", "/healthz"]) {
    expect(await (await fetch(`${service.url}${path}`)).json()).toEqual({ status: "ok" });
  }
});
