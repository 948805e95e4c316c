import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { operator } from "../support/admin.ts";
import { createTestDatabase, hasPostgres, type TestDatabase } from "../support/postgres.ts";
import { hasRedis } from "../support/redis.ts";
import { RedisServer } from "../support/redis-server.ts";
import { makeOrganization, makeToken, type RunningService, send, startService } from "../support/service.ts";
import { sendJson, startUpstream, type Upstream, type UpstreamRequest } from "../support/upstream.ts";

const PATIENCE = { timeout: 60_000, interval: 20 };
const REQUESTS_PER_MINUTE = 12;
/** Tokens of the prompt and the answer of `quick`. */
const TOKENS_USED = 9;
const COMPLETIONS = "/v1/chat/completions";
/** The status of `/readyz`, and its limits. */
const BOTH_SHARED = [
  [200, "shared"],
  [200, "shared"],
];
const OUTAGE_BEGINS = "Redis cannot be reached: this process applies its share of the limits";
const OUTAGE_ENDS = "Redis can be reached again: the limits are shared";

describe.skipIf(!(hasRedis && hasPostgres))("two services with one Redis", () => {
  let redis: RedisServer;
  let database: TestDatabase;
  let upstream: Upstream;
  let services: [RunningService, RunningService];

  beforeAll(async () => {
    redis = await RedisServer.open({ password: "redis-secret" });
    database = await createTestDatabase();
    upstream = await startUpstream();
    upstream.behave("quick", ({ response }) => answer(response));
    const route = (model: string) => [{ provider: "up", model }];
    const price = { input: 1, output: 1 };
    const config = {
      limits: { requestsPerMinute: REQUESTS_PER_MINUTE, tokensPerMinute: 1000, concurrentRequests: 50 },
      providers: [{ id: "up", kind: "openai-compatible", baseUrl: upstream.baseUrl }],
      models: [
        { id: "quick", routes: route("quick"), price },
        { id: "few", routes: route("quick"), price, limits: { requestsPerMinute: 3 } },
        { id: "small", routes: route("quick"), price, limits: { tokensPerMinute: 200 } },
        { id: "narrow", routes: route("held"), price, limits: { concurrentRequests: 2 } },
      ],
    };
    const start = (environment: Record<string, string>, own: object = {}) =>
      startService({ databaseUrl: database.url, config: { ...config, ...own }, environment });
    const first = await start({ REDIS_URL: redis.url });
    services = [first, await start({}, { redis: redis.url })];
    await vi.waitFor(async () => expect(await modes()).toEqual(BOTH_SHARED), PATIENCE);
  });
  afterAll(async () => {
    await Promise.all((services ?? []).map((service) => service.end()));
    await upstream?.close();
    await database?.drop();
    await redis?.close();
  });

  const serviceOf = (index: number) => services[index % 2] as RunningService;
  const ask = (index: number, token: string, body: object = {}) =>
    send(serviceOf(index), COMPLETIONS, token, {
      model: "quick",
      messages: [{ role: "user", content: "hello" }],
      max_tokens: 10,
      ...body,
    });
  const statusesOf = async (answers: Promise<Response>[]) => {
    const statuses = (await Promise.all(answers)).map(({ status }) => status);
    return { ok: statuses.filter((status) => status === 200).length, statuses: new Set(statuses) };
  };
  const modes = async () =>
    Promise.all(
      services.map(async ({ url }) => {
        const ready = await fetch(`${url}/readyz`);
        return [ready.status, ((await ready.json()) as { limits: string }).limits];
      }),
    );

  test("answer exactly the limit of requests per minute together", async () => {
    const { token } = await makeOrganization(services[0], "100");
    const outcome = await statusesOf(Array.from({ length: 40 }, (_, index) => ask(index, token)));
    expect(outcome).toEqual({ ok: REQUESTS_PER_MINUTE, statuses: new Set([200, 429]) });
    const models = await makeOrganization(services[0], "100");
    const lists = Array.from({ length: 40 }, (_, index) => send(serviceOf(index), "/v1/models", models.token));
    expect(await statusesOf(lists)).toEqual({ ok: REQUESTS_PER_MINUTE, statuses: new Set([200, 429]) });
  });

  test("count invalid requests, state exactly what is left, and answer 429 above the limit", async () => {
    const { token } = await makeOrganization(services[0], "100");
    for (let index = 0; index < REQUESTS_PER_MINUTE; index += 1) {
      const remaining = REQUESTS_PER_MINUTE - 1 - index;
      const { status, headers } = await ask(index, token, index % 3 === 0 ? {} : { model: "gone" });
      expect([status, headers.get("x-ratelimit-remaining-requests")]).toEqual([
        index % 3 === 0 ? 200 : 404,
        String(remaining),
      ]);
      expect(headers.get("ratelimit")).toMatch(new RegExp(`^"requests";r=${remaining};t=\\d+`));
      expect(headers.get("ratelimit-policy")).toContain(`"requests";q=${REQUESTS_PER_MINUTE};w=60`);
    }
    for (let index = 0; index < 4; index += 1) {
      const refused = await ask(index, token, { messages: "none" });
      expect(refused.status).toBe(429);
      expect(await refused.json()).toMatchObject({
        error: { message: expect.stringContaining("requests per minute of this token: limit 12.") },
      });
    }
  });

  test("state exactly how many tokens are left", async () => {
    const { id, token } = await makeOrganization(services[0], "100");
    const used = () => redis.send("HGET", `{tollgate}:tokens:organization:${id}`, "used");
    const remaining: number[] = [];
    for (let index = 0; index < 4; index += 1) {
      const { headers } = await ask(index, token);
      remaining.push(Number(headers.get("x-ratelimit-remaining-tokens")));
      expect(headers.get("ratelimit")).toContain(`"tokens";r=${remaining.at(-1)};t=`);
      // No answer waits until its unused tokens are returned.
      await expect.poll(used, PATIENCE).toBe(String(TOKENS_USED * (index + 1)));
    }
    const [first = 0] = remaining;
    expect(remaining).toEqual([0, 1, 2, 3].map((before) => first - before * TOKENS_USED));
  });

  test("apply the limits of a model to all callers together, and name them", async () => {
    const [one, other] = [await makeOrganization(services[0], "100"), await makeOrganization(services[0], "100")];
    const tokens = [one.token, other.token];
    const asked = Array.from({ length: 8 }, (_, index) =>
      ask(index, tokens[index % 3 === 0 ? 0 : 1] ?? "", { model: "few" }),
    );
    expect((await statusesOf(asked)).ok).toBe(3);
    const messageOf = async (response: Promise<Response>) =>
      ((await (await response).json()) as { error: { message: string } }).error.message;
    expect(await messageOf(ask(0, one.token, { model: "few" }))).toContain(
      "requests per minute of this model: limit 3.",
    );
    const large = { model: "small", max_tokens: 180 };
    upstream.behave("held", () => undefined);
    expect(await messageOf(ask(0, one.token, { ...large, max_tokens: 300 }))).toContain(
      "tokens per minute of this model: limit 200. The request alone counts",
    );
    expect((await ask(1, other.token, large)).status).toBe(200);
    const held: UpstreamRequest[] = [];
    upstream.behave("held", (request) => void held.push(request));
    const running = [ask(0, one.token, { model: "narrow" }), ask(1, other.token, { model: "narrow" })];
    await expect.poll(() => held.length, PATIENCE).toBe(2);
    expect(await messageOf(ask(0, other.token, { model: "narrow" }))).toContain(
      "concurrent requests of this model: limit 2.",
    );
    for (const { response } of held) answer(response);
    for (const response of await Promise.all(running)) expect(response.status).toBe(200);
    upstream.behave("held", ({ response }) => answer(response));
    expect((await ask(1, one.token, { model: "narrow" })).status).toBe(200);
  });

  test("apply the limits of a budget to each of its values together, and name both", async () => {
    const { id, token } = await makeOrganization(services[0], "100");
    const draft = { name: "Users", each: "metadata.user", limits: { requests_per_minute: 3, concurrent_requests: 6 } };
    const made = await operator(services[0]).call("POST", `/organizations/${id}/budgets`, draft);
    expect(made.status).toBe(201);
    const askAs = (index: number, user: string, rest: object = {}) => ask(index, token, { user, ...rest });
    const outcome = await statusesOf(Array.from({ length: 6 }, (_, index) => askAs(index, "ada", { model: "quick" })));
    expect(outcome).toEqual({ ok: 3, statuses: new Set([200, 429]) });
    expect((await askAs(1, "bob")).status).toBe(200);
    for (const index of [0, 1]) {
      const { error } = (await (await askAs(index, "ada")).json()) as { error: object };
      expect(error).toMatchObject({ limit_source: "budget", budget: { name: "Users", value: "ada" } });
    }
    const keys = (await redis.send("KEYS", `*budget:${id}*`)) as string[];
    const expiries = await Promise.all(keys.map((key) => redis.send("PTTL", key)));
    expect(keys.length).toBeGreaterThan(0);
    expect(expiries.filter((leftMs) => Number(leftMs) <= 0)).toEqual([]);
  });

  test("limit guests by their address", async () => {
    const { token } = await makeToken(services[0], "org_playground");
    const guests = Array.from({ length: 30 }, (_, index) => send(serviceOf(index), "/v1/models", token));
    expect((await statusesOf(guests)).ok).toBe(10);
  });

  test("limit attempts to sign in by their address", async () => {
    const attempts = Array.from({ length: 16 }, (_, index) =>
      send(serviceOf(index), "/admin/v1/organizations", "wrong").then(({ status }) => status),
    );
    const statuses = await Promise.all(attempts);
    expect(statuses.filter((status) => status === 401)).toHaveLength(10);
    expect(statuses.filter((status) => status === 429)).toHaveLength(6);
  });

  test("apply their share while Redis is away, report it, and return by themselves", async () => {
    const { token } = await makeOrganization(services[0], "100");
    await redis.kill();
    await expect.poll(modes, PATIENCE).toEqual([
      [200, "local"],
      [200, "local"],
    ]);
    const share = REQUESTS_PER_MINUTE / 2;
    for (const [index] of services.entries()) {
      const { status, headers } = await ask(index, token);
      expect([status, headers.get("x-ratelimit-limit-requests")]).toEqual([200, String(share)]);
      expect(headers.get("ratelimit")).toMatch(new RegExp(`^"requests";r=${share - 1};t=60, "tokens";r=\\d+;t=60$`));
      const more = Array.from({ length: share }, () => ask(index, token));
      expect((await statusesOf(more)).ok).toBe(share - 1);
    }
    await redis.start();
    await expect.poll(modes, PATIENCE).toEqual(BOTH_SHARED);
    for (const service of services) {
      await expect.poll(() => service.output(), PATIENCE).toContain(OUTAGE_ENDS);
      expect(service.output().split(OUTAGE_BEGINS)).toHaveLength(2);
      expect(service.output()).not.toContain("redis-secret");
    }
  });
});

/** Answers a completion that used 9 tokens. */
function answer(response: UpstreamRequest["response"]): void {
  sendJson(response, 200, {
    id: "1",
    object: "chat.completion",
    created: 1,
    model: "m",
    choices: [{ index: 0, message: { role: "assistant", content: "Hi." }, finish_reason: "stop" }],
    usage: { prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 },
  });
}
