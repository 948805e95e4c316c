import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operator } from "../support/admin.ts";
import { cutOffMs } from "../support/patience.ts";
import {
  freePort,
  makeOrganization,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const usage = { prompt_tokens: 100, completion_tokens: 1, total_tokens: 101 };
/** So many credits for the prompt of that usage; routes differ in it. */
const priced = (credits: number) => ({ input: credits * 10_000, output: 0 });

let upstream: Upstream;
let service: RunningService;
let rich: Organization;

const route = (provider: string, model: string, fields: object = {}) => ({ provider, model, ...fields });
/** Each model is served by a first route that does what its name says, and a second one that answers. */
const pair = (id: string, fields: object = {}) => ({
  id,
  routes: [
    route(id === "silent" ? "hasty" : "up", id, { price: priced(1) }),
    route("up", "spare", { price: priced(2) }),
  ],
  ...fields,
});

const FAILING = { busy: 429, limited: 429, keyless: 401, moneyless: 402, absent: 404, broken: 500, unavailable: 503 };
const REFUSING = { rejecting: "x", filtering: "content_filter", overlong: "context_length_exceeded" };

beforeAll(async () => {
  upstream = await startUpstream();
  upstream.behave("spare", answering({ words: ["from ", "the spare"], usage }));
  upstream.behave("well", answering({ words: ["well"], usage }));
  for (const [model, status] of Object.entries(FAILING)) {
    const headers: Record<string, string> = model === "limited" ? { "retry-after": "40" } : {};
    upstream.behave(model, ({ response }) => sendJson(response, status, { error: { message: "no" } }, headers));
  }
  for (const [model, code] of Object.entries(REFUSING)) {
    upstream.behave(model, ({ response }) => sendJson(response, 400, { error: { message: "no", code } }));
  }
  upstream.behave("silent", () => {});
  upstream.behave("hanging", () => {});
  upstream.behave("erring", ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write('data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n');
    response.end('data: {"error":{"message":"overloaded","type":"overloaded_error"}}\n\n');
  });
  upstream.behave("breaking", ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write('data: {"choices":[{"index":0,"delta":{"content":"half"}}]}\n\n');
    setTimeout(() => response.destroy(), 50);
  });
  const unused = `http://127.0.0.1:${await freePort()}/v1`;
  const at = (id: string, baseUrl: string, firstByteMs: number) => {
    return { id, kind: "openai-compatible", baseUrl, apiKey: "k", timeouts: { firstByteMs } };
  };
  const names = [...Object.keys(FAILING), ...Object.keys(REFUSING), "well", "silent", "erring", "breaking"];
  service = await startService({
    config: {
      limits: { requestsPerMinute: 100_000, tokensPerMinute: 1_000_000_000 },
      providers: [at("up", upstream.baseUrl, 60_000), at("hasty", upstream.baseUrl, 300), at("down", unused, 60_000)],
      models: [
        ...names.map((name) => pair(name)),
        { id: "refused", price: priced(1), routes: [route("down", "any"), route("up", "spare")] },
        { id: "alone", price: priced(1), routes: [route("down", "alone")] },
        { id: "hanging", price: priced(1), routes: [route("up", "hanging"), route("up", "spare")] },
        {
          id: "weighted",
          price: priced(1),
          routes: [route("up", "well", { weight: 1 }), route("up", "spare", { weight: 3 })],
        },
        {
          id: "limited-alone",
          price: priced(1),
          routes: [route("up", "limited")],
        },
        {
          id: "dated",
          price: [
            { from: "2001-01-01", ...priced(4) },
            { from: "2002-01-01", ...priced(5) },
            { from: "2999-01-01", ...priced(6) },
          ],
          routes: [route("up", "well")],
        },
        { id: "trial", price: priced(1), routes: [route("sandbox", "fault"), route("sandbox", "echo")] },
        { id: "all-down", price: priced(1), routes: [route("down", "a"), route("up", "broken")] },
      ],
    },
  });
  rich = await makeOrganization(service, "1000000");
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const calls = (model: string) => upstream.requests.filter(({ body }) => body.model === model).length;
const ask = (model: string, stream: boolean, token = rich.token, options?: RequestInit) =>
  send(
    service,
    "/v1/chat/completions",
    token,
    { model, messages: [{ role: "user", content: "go" }], max_tokens: 10, stream },
    options,
  );

interface Charge {
  model: string;
  route: string;
  ending: string | null;
}

describe.each([false, true])("streamed: %s", (stream) => {
  test.each([...Object.keys(FAILING), "silent", "erring", "refused"])(
    "%s: the next route serves, and the record and the charge name it",
    async (model) => {
      const answer = await ask(model, stream);
      const text = await answer.text();
      expect([answer.status, answer.headers.get("x-tollgate-route")]).toEqual([200, "up/spare"]);
      expect(text).toContain("the spare");
      expect(text).toContain(`"model":"${model}"`);
      expect(text).not.toContain('"error"');
      expect(text).toContain(`"cost":${model === "refused" ? 1 : 2}}`);
    },
  );

  test.each([
    ["rejecting", "upstream_rejected"],
    ["filtering", "content_filter"],
    ["overlong", "context_length_exceeded"],
  ])("%s is the request's own fault: no other route is asked", async (model, code) => {
    const before = calls("spare");
    const answer = await ask(model, stream);
    expect([answer.status, await answer.json()]).toMatchObject([400, { error: { code } }]);
    expect(calls("spare")).toBe(before);
  });

  test("a first route that serves is the only one that is called", async () => {
    const before = calls("spare");
    const answer = await ask("well", stream);
    expect(await answer.text()).toContain("well");
    expect(answer.headers.get("x-tollgate-route")).toBe("up/well");
    expect(calls("spare")).toBe(before);
  });

  test("if all routes fail, the client receives the last failure", async () => {
    const answer = await ask("all-down", stream);
    expect([answer.status, await answer.json()]).toMatchObject([502, { error: { code: "upstream_error" } }]);
  });

  test("a client that leaves during the first attempt ends it, and no other is made", async () => {
    const before = { hanging: calls("hanging"), spare: calls("spare") };
    const leaving = new AbortController();
    const answer = ask("hanging", stream, rich.token, { signal: leaving.signal }).catch(() => "left");
    while (calls("hanging") === before.hanging) await sleep(5);
    const request = upstream.requests.findLast(({ body }) => body.model === "hanging");
    expect(await cutOffMs(service, request, () => leaving.abort())).toBeLessThan(500);
    expect(await answer).toBe("left");
    expect(calls("spare")).toBe(before.spare);
  });
});

test("a stream that has begun is not begun again elsewhere", async () => {
  const before = calls("spare");
  const text = await (await ask("breaking", true)).text();
  expect(text).toContain("half");
  expect(text).toContain('"code":"upstream_error"');
  expect(calls("spare")).toBe(before);
});

test("an unstreamed answer that breaks off is asked for elsewhere: the client has nothing of it", async () => {
  const answer = await ask("breaking", false);
  const { choices } = (await answer.json()) as { choices: { message: { content: string } }[] };
  expect([answer.status, choices[0]?.message.content]).toEqual([200, "from the spare"]);
});

test("an upstream that names a time is left alone until then, and the answer tells it where there is no other", async () => {
  await ask("limited", false);
  const before = calls("limited");
  const answer = await ask("limited-alone", false);
  expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, expect.stringMatching(/^([1-3]?\d|40)$/)]);
  expect(await answer.json()).toMatchObject({ error: { code: "overloaded" } });
  expect((await ask("limited", true)).headers.get("x-tollgate-route")).toBe("up/spare");
  expect(calls("limited")).toBe(before);
});

test("a charge is made, and its request kept, at the price that is in force", async () => {
  const answer = await ask("dated", false);
  expect(await answer.json()).toMatchObject({ usage: { cost: 5 } });
  const admin = operator(service);
  const { body } = await admin.call<{ data: { id: string }[] }>("GET", `/requests?organization_id=${rich.id}&limit=1`);
  const record = await admin.call("GET", `/requests/${body.data[0]?.id}`);
  expect(record.body).toMatchObject({ model: "dated", prices: { input: 50_000, output: 0 } });
});

test("a sandbox model that fails because its message says so is asked again every time", async () => {
  const body = { model: "trial", messages: [{ role: "user", content: "status 503 retry-after 60" }] };
  for (let count = 0; count < 8; count += 1) {
    const failing = await send(service, "/v1/chat/completions", rich.token, body);
    expect(failing.headers.get("x-tollgate-route")).toBe("sandbox/echo");
  }
  const fine = { ...body, messages: [{ role: "user", content: "3 tokens" }] };
  const answer = await send(service, "/v1/chat/completions", rich.token, fine);
  expect(answer.headers.get("x-tollgate-route")).toBe("sandbox/fault");
});

test("weights share the requests among the routes", async () => {
  const taken = new Map<string, number>();
  for (let count = 0; count < 80; count += 1) {
    const name = (await ask("weighted", false)).headers.get("x-tollgate-route") ?? "";
    taken.set(name, (taken.get(name) ?? 0) + 1);
  }
  // In 80 draws at one in four, fewer than 4 or more than 40 are less likely than one in a million.
  expect(taken.get("up/well")).toBeGreaterThan(3);
  expect(taken.get("up/well")).toBeLessThan(41);
  expect((taken.get("up/well") ?? 0) + (taken.get("up/spare") ?? 0)).toBe(80);
});

test("credits are held for the dearest route", async () => {
  const poor = await makeOrganization(service, "0.00001");
  const required = async (model: string) => {
    const refused = await ask(model, false, poor.token);
    const { error } = (await refused.json()) as { error: { credits_required: number } };
    return error.credits_required * 1_000_000;
  };
  expect(await required("well")).toBe(2 * (await required("all-down")));
});

test("an operator's mistakes are loud in the log though another route has served", async () => {
  await expect.poll(() => service.output()).toContain("an upstream refused the service's own credentials");
  await expect.poll(() => service.output()).toContain("an upstream has no such model or address");
});

test("the request's record contains each attempt", async () => {
  await (await ask("keyless", true)).text();
  const admin = operator(service);
  const newest = `/requests?organization_id=${rich.id}&limit=1`;
  const { body } = await admin.call<{ data: { id: string }[] }>("GET", newest);
  const record = await admin.call<{ attempts: object[] }>("GET", `/requests/${body.data[0]?.id}`);
  const took = { duration_ms: expect.any(Number) };
  expect(record.body.attempts).toEqual([
    { route: "up/keyless", outcome: "credentials", ...took },
    { route: "up/spare", outcome: "answered", ...took },
  ]);
});

test("models list shows the health of the routes of the running service", async () => {
  for (let count = 0; count < 5; count += 1) await ask("broken", false);
  const healthOf = async (name: string) => {
    const models = await service.tollgate<{ routes: { route: string; health: object | null }[] }[]>("models", "list");
    return models.flatMap(({ routes }) => routes).find(({ route }) => route === name);
  };
  await expect
    .poll(() => healthOf("up/broken"))
    .toMatchObject({
      weight: null,
      prices: { input: 10_000, cached_input: 10_000, cache_write: 10_000, output: 0, reasoning: 0 },
      health: { state: "open", last_failure: { failure: "failed" }, limited_until: null },
    });
  expect(await healthOf("up/spare")).toMatchObject({ health: { state: "closed", recent: { failures: 0 } } });
  expect(await healthOf("up/moneyless")).toMatchObject({ health: { last_failure: { failure: "credentials" } } });
  expect(await healthOf("sandbox/story")).toMatchObject({ health: null });
});

test("each charge names the route that was taken, and the books balance", async () => {
  const statement = await service.tollgate<{ entries: Charge[] }>("credits", "statement", "--org", rich.id);
  const complete = statement.entries.filter(({ ending }) => ending === "complete");
  expect(complete.length).toBeGreaterThan(100);
  const models = ["well", "weighted", "trial", "dated"];
  const wrong = complete.filter((charge) => charge.route !== "up/spare" && !models.includes(charge.model));
  expect(wrong).toEqual([]);
  expect(await service.tollgate("ledger", "verify")).toMatchObject({ ok: true });
});
