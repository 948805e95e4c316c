import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { endpoints } from "../../src/http/routing.ts";
import {
  eventsOf,
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";
import { answering, startUpstream, type Upstream } from "../support/upstream.ts";
import {
  expectChunk,
  expectCompletion,
  expectError,
  expectModel,
  expectModelList,
  expectUsage,
} from "./contract-checks.ts";

const COMPLETIONS = "/v1/chat/completions";
const user = (content: string) => [{ role: "user", content }];

let upstream: Upstream;
let service: RunningService;
let organization: Organization;

beforeAll(async () => {
  upstream = await startUpstream();
  service = await startService({
    config: {
      providers: [upstream.provider],
      models: [
        {
          id: "priced",
          price: { input: 2, cachedInput: 0.5, output: 8 },
          routes: [{ provider: "up", model: "inner" }],
        },
        { id: "unreported", price: { input: 2, output: 8 }, routes: [{ provider: "up", model: "unreported" }] },
      ],
    },
  });
  organization = await makeOrganization(service, "100");
  const usage = {
    prompt_tokens: 100,
    completion_tokens: 3,
    total_tokens: 103,
    prompt_tokens_details: { cached_tokens: 40 },
    completion_tokens_details: { reasoning_tokens: 1 },
  };
  upstream.behave("inner", answering({ words: ["one ", "two ", "three"], usage }));
  upstream.behave("unreported", answering({ words: ["one ", "two ", "three"] }));
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

const ask = (fields: object, token = organization.token) =>
  send(service, COMPLETIONS, token, { model: "sandbox/echo", messages: user("Hello there, world"), ...fields });
const usageNow = async (token = organization.token) =>
  expectUsage(await (await send(service, "/v1/usage", token)).json());

describe("POST /v1/chat/completions", () => {
  test("The response has the fields of the contract and of OpenAI.", async () => {
    const answer = await ask({});
    expect(answer.status).toBe(200);
    const completion = expectCompletion(await answer.json());
    expect(completion.model).toBe("sandbox/echo");
    expect(completion.organization_id).toBe(organization.id);
    expect(completion.messages).toHaveLength(1);
    expect(completion.messages[0]?.content).toBe("Hello there, world");
    expect(completion.choices[0]?.finish_reason).toBe("stop");
    expect(Math.abs(completion.created - Date.now() / 1000)).toBeLessThan(60);
  });

  test("The headers have the available credits, the charge and the rate limits.", async () => {
    const before = await usageNow();
    const answer = await ask({});
    const completion = expectCompletion(await answer.json());
    const after = await usageNow();
    expect(Number(answer.headers.get("x-credits-charged"))).toBe(completion.usage.cost);
    expect(Number(answer.headers.get("x-credits-available"))).toBe(after.creditsAvailable);
    expect(after.creditsUsed).toBeCloseTo(before.creditsUsed + (completion.usage.cost ?? 0), 9);
    expect(answer.headers.get("x-tollgate-route")).toBe("sandbox/echo");
    expect(answer.headers.get("x-ratelimit-limit-requests")).toBe("600");
    expect(Number(answer.headers.get("x-ratelimit-remaining-tokens"))).toBeLessThan(1_000_000);
    expect(answer.headers.get("ratelimit-policy")).toBe('"requests";q=600;w=60, "tokens";q=1000000;w=60');
    expect(answer.headers.get("ratelimit")).toMatch(/^"requests";r=\d+;t=\d+, "tokens";r=\d+;t=\d+$/);
  });

  test("The charge is the reported usage at the configured prices, with cached tokens at their own.", async () => {
    const completion = expectCompletion(await (await ask({ model: "priced" })).json());
    expect(completion.usage).toEqual({
      prompt_tokens: 100,
      completion_tokens: 3,
      total_tokens: 103,
      prompt_tokens_details: { cached_tokens: 40 },
      completion_tokens_details: { reasoning_tokens: 1 },
      cost: (60 * 2 + 40 * 0.5 + 3 * 8) / 1e6,
    });
    expect(completion.model).toBe("priced");
  });

  test("Delivered tokens are counted if the upstream reports no usage.", async () => {
    const completion = expectCompletion(await (await ask({ model: "unreported" })).json());
    expect(completion.usage.completion_tokens).toBeGreaterThan(0);
    expect(completion.usage.cost).toBeGreaterThan(0);
  });

  test("Instructions precede all messages, are counted, and are not echoed.", async () => {
    const before = upstream.requests.length;
    await ask({
      model: "priced",
      instructions: "Be brief.",
      messages: [{ role: "system", content: "S" }, ...user("U")],
    });
    expect(upstream.requests[before]?.body.messages).toEqual([
      { role: "system", content: "Be brief." },
      { role: "system", content: "S" },
      { role: "user", content: "U" },
    ]);
    const plain = expectCompletion(await (await ask({})).json());
    const instructed = expectCompletion(await (await ask({ instructions: "Be very brief indeed." })).json());
    expect(instructed.usage.prompt_tokens).toBeGreaterThan(plain.usage.prompt_tokens);
    expect(JSON.stringify(instructed.messages)).not.toContain("brief");
  });

  test("No field of a request selects the upstream's address or key, and unknown fields are not forwarded.", async () => {
    const before = upstream.requests.length;
    const messages = [{ role: "user", content: "x", api_key: "evil" }];
    await ask({
      model: "priced",
      messages,
      base_url: "http://127.0.0.1:9",
      api_key: "evil",
      metadata: { a: "b" },
      seed: 7,
    });
    const received = upstream.requests[before];
    expect(received?.headers.authorization).toBe("Bearer k");
    expect(received?.body).toMatchObject({ model: "inner", seed: 7 });
    const fields = Object.keys(received?.body ?? {});
    for (const field of ["base_url", "api_key", "metadata", "instructions"]) expect(fields).not.toContain(field);
    expect(received?.body.messages).toEqual([{ role: "user", content: "x" }]);
  });

  test("Both names of max_tokens limit the answer.", async () => {
    for (const name of ["max_tokens", "max_completion_tokens"]) {
      const completion = expectCompletion(await (await ask({ model: "sandbox/story", [name]: 5 })).json());
      expect(completion.usage.completion_tokens).toBe(5);
      expect(completion.choices[0]?.finish_reason).toBe("length");
    }
  });

  test("Null counts as absent in every optional field.", async () => {
    const fields = ["temperature", "max_tokens", "stream", "instructions", "tools", "stop", "seed", "user", "metadata"];
    const answer = await ask(Object.fromEntries(fields.map((field) => [field, null])));
    expect(answer.status).toBe(200);
  });

  test("Tool calls and their results work.", async () => {
    const tools = [
      {
        type: "function",
        function: {
          name: "weather",
          parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
        },
      },
    ];
    const called = expectCompletion(await (await ask({ tools, tool_choice: "required" })).json());
    const call = called.choices[0]?.message.tool_calls?.[0];
    expect(called.choices[0]).toMatchObject({ finish_reason: "tool_calls", message: { content: null } });
    expect(called.messages.at(-1)?.content).toBe("");
    expect(JSON.parse(call?.function.arguments ?? "")).toHaveProperty("city", expect.any(String));
    const messages = [
      ...user("Weather?"),
      called.choices[0]?.message,
      { role: "tool", tool_call_id: call?.id, content: "sunny" },
    ];
    const answered = expectCompletion(await (await ask({ tools, messages })).json());
    expect(answered.choices[0]?.message.content).toEqual(expect.any(String));
  });
});

describe("POST /v1/chat/completions, streamed", () => {
  async function stream(fields: object) {
    const answer = await ask({ stream: true, ...fields });
    expect(answer.status).toBe(200);
    expect(answer.headers.get("content-type")).toContain("text/event-stream");
    const events = eventsOf(await answer.text());
    expect(events.at(-1)).toBe("[DONE]");
    return { answer, chunks: events.slice(0, -1).map((event) => expectChunk(JSON.parse(event))) };
  }

  test("Events have the fields of the contract: the first has the role, and one the finish reason with the usage.", async () => {
    const { answer, chunks } = await stream({});
    expect(chunks[0]?.choices[0]?.delta).toMatchObject({ role: "assistant" });
    expect(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("")).toBe("Hello there, world");
    const finished = chunks.filter((chunk) => chunk.choices[0]?.finish_reason !== null);
    expect(finished).toHaveLength(1);
    expect(finished[0]).toBe(chunks.at(-1));
    expect(finished[0]?.usage).toMatchObject({ completion_tokens: 3, cost: expect.any(Number) });
    expect(new Set(chunks.map((chunk) => chunk.id)).size).toBe(1);
    expect(chunks.every((chunk) => chunk.model === "sandbox/echo")).toBe(true);
    expect(chunks.every((chunk) => chunk.organization_id === organization.id)).toBe(true);
    expect(answer.headers.get("x-credits-available")).not.toBeNull();
    expect(answer.headers.has("x-credits-charged")).toBe(false);
  });

  test("With include_usage, the usage is on the last event, which has no choices, and null on the others.", async () => {
    const { chunks } = await stream({ stream_options: { include_usage: true } });
    const last = chunks.at(-1);
    expect(last?.choices).toEqual([]);
    expect(last?.usage).toMatchObject({ completion_tokens: 3 });
    expect(chunks.slice(0, -1).every((chunk) => chunk.usage === null)).toBe(true);
  });

  test("A streamed response is charged like one that is not streamed.", async () => {
    const before = await usageNow();
    const { chunks } = await stream({ model: "priced" });
    const after = await usageNow();
    expect(chunks.at(-1)?.usage?.cost).toBe((60 * 2 + 40 * 0.5 + 3 * 8) / 1e6);
    expect(after.creditsUsed - before.creditsUsed).toBeCloseTo((60 * 2 + 40 * 0.5 + 3 * 8) / 1e6, 9);
    expect(after.creditsHeld).toBe(0);
  });

  test("Tool calls are streamed.", async () => {
    const tools = [{ type: "function", function: { name: "now", parameters: { type: "object", properties: {} } } }];
    const { chunks } = await stream({ tools, tool_choice: "required" });
    const calls = chunks.flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? []);
    expect(calls[0]).toMatchObject({ index: 0, type: "function", function: { name: "now" } });
    expect(chunks.at(-1)?.choices[0]?.finish_reason).toBe("tool_calls");
  });

  test("A failure after the first event is an event without choices, and [DONE] is missing.", async () => {
    const answer = await ask({ stream: true, model: "sandbox/fault", messages: user("reset after 3 tokens") });
    const events = eventsOf(await answer.text());
    expect(events).not.toContain("[DONE]");
    const last = JSON.parse(events.at(-1) ?? "");
    expect(last).not.toHaveProperty("choices");
    expect(expectError(last)).toMatchObject({ code: "upstream_error", type: "server_error" });
  });
});

describe("GET /v1/models", () => {
  test("The list has every model, and every field has its type.", async () => {
    const list = expectModelList(await (await send(service, "/v1/models", organization.token)).json());
    const ids = list.data.map((model) => model.id);
    expect(ids).toEqual(expect.arrayContaining(["priced", "sandbox/echo", "sandbox/fault", "sandbox/story"]));
    const priced = list.data.find((model) => model.id === "priced");
    expect(priced?.pricing).toBe("2.00 credits per million input tokens, 8.00 per million output tokens");
    expect(priced?.pricing_details).toEqual({
      unit: "credits_per_million_tokens",
      input: 2,
      cached_input: 0.5,
      cache_write: 2,
      output: 8,
      reasoning: 8,
    });
  });

  test("A model is found with its id encoded or not.", async () => {
    for (const id of ["sandbox/echo", encodeURIComponent("sandbox/echo")]) {
      const answer = await send(service, `/v1/models/${id}`, organization.token);
      expect(expectModel(await answer.json()).id).toBe("sandbox/echo");
    }
    expect((await send(service, "/v1/models/nope", organization.token)).status).toBe(404);
  });

  test("A model that the token may not use is not listed.", async () => {
    const { token } = await makeToken(service, organization.id, { models: ["priced"] });
    const list = expectModelList(await (await send(service, "/v1/models", token)).json());
    expect(list.data.map((model) => model.id)).toEqual(["priced"]);
    expect((await send(service, "/v1/models/sandbox/echo", token)).status).toBe(404);
  });
});

describe("GET /v1/usage", () => {
  test("The report has the credits of the token's organization.", async () => {
    const other = await makeOrganization(service, "12.5");
    expect(await usageNow(other.token)).toEqual({
      object: "usage",
      organization_id: other.id,
      creditsAvailable: 12.5,
      creditsTotal: 12.5,
      creditsUsed: 0,
      creditsHeld: 0,
      ...{ creditsSpendable: 12.5, budgets: [] },
    });
  });
});

describe("The playground organization", () => {
  test("Guests use the playground's models free of charge, within the limits.", async () => {
    const { token } = await makeToken(service, "org_playground");
    const answer = await ask({ model: "sandbox/story", max_tokens: 4096 }, token);
    const completion = expectCompletion(await answer.json());
    expect(completion.usage.cost).toBe(0);
    expect(completion.usage.completion_tokens).toBe(512);
    expect(answer.headers.get("x-tollgate-max-tokens")).toBe("512");
    const list = expectModelList(await (await send(service, "/v1/models", token)).json());
    expect(list.data.map((model) => model.id)).not.toContain("priced");
    const refused = await ask({ model: "priced" }, token);
    expect(refused.status).toBe(403);
  });

  test("Guests are limited to a number of requests per minute and address.", async () => {
    const { token } = await makeToken(service, "org_playground");
    const statuses: number[] = [];
    for (let count = 0; count < 11; count += 1) statuses.push((await send(service, "/v1/models", token)).status);
    expect(statuses.at(-1)).toBe(429);
  });
});

describe("Other endpoints", () => {
  test("CORS allows every requested header, without credentials.", async () => {
    const preflight = await fetch(`${service.url}${COMPLETIONS}`, {
      method: "OPTIONS",
      headers: {
        origin: "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-lang",
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-origin")).toBe("*");
    expect(preflight.headers.get("access-control-allow-headers")).toContain("x-stainless-lang");
    expect(preflight.headers.has("access-control-allow-credentials")).toBe(false);
    const headers = { origin: "https://app.example", authorization: `Bearer ${organization.token}` };
    for (const body of [undefined, { model: "sandbox/echo", stream: true, messages: user("x") }]) {
      const path = body === undefined ? "/v1/models" : COMPLETIONS;
      const answer = await send(service, path, organization.token, body, { headers });
      expect(answer.headers.get("access-control-allow-origin")).toBe("*");
      expect(answer.headers.get("access-control-expose-headers")).toContain("x-credits-available");
      expect(answer.headers.get("vary")).toBe("Origin");
      expect(answer.headers.get("x-request-id")).toMatch(/^req_/);
      await answer.text();
    }
    // Other clients do not get the long list, so caches must tell the two apart.
    const { headers: others } = await send(service, "/v1/models", organization.token);
    expect(others.get("access-control-allow-origin")).toBe("*");
    expect(others.has("access-control-expose-headers")).toBe(false);
    expect(others.get("vary")).toBe("Origin");
  });

  test("A cookie has no effect on /v1.", async () => {
    const answer = await send(service, "/v1/models", null, undefined, {
      headers: { cookie: `token=${organization.token}` },
    });
    expect(answer.status).toBe(401);
  });

  test("The OpenAPI document has every operation, and the reference page loads nothing from other hosts.", async () => {
    const document = (await (await fetch(`${service.url}/openapi.json`)).json()) as {
      openapi: string;
      paths: Record<string, Record<string, { operationId: string }>>;
    };
    expect(document.openapi).toMatch(/^3\.1/);
    const shapes = Object.keys(document.paths).map((path) => path.replaceAll(/{[^}]*}/g, "{}"));
    expect(new Set(shapes).size).toBe(shapes.length);
    const operations = Object.entries(document.paths)
      .filter(([path]) => !path.startsWith("/admin/"))
      .flatMap(([, methods]) => Object.values(methods).map(({ operationId }) => operationId));
    expect(operations.sort()).toEqual(endpoints.map(({ operationId }) => operationId).sort());
    const page = await fetch(`${service.url}/docs/`);
    expect(page.status).toBe(200);
    const html = await page.text();
    expect(html).not.toMatch(/(src|href)="https?:/);
    expect(page.headers.get("content-security-policy")).toMatch(/^default-src 'none'; script-src 'self'; /);
  });

  test("The health checks report the state of the service.", async () => {
    expect((await fetch(`${service.url}/healthz`)).status).toBe(200);
    expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
  });
});
