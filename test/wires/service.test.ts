import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { CompletionUsage } from "../../src/api/chat/completion.ts";
import { makeOrganization, type Organization, type RunningService, send, startService } from "../support/service.ts";
import { converse } from "./conversation.ts";
import { REASONING, TEXT } from "./fixture.ts";
import { FIXTURES } from "./fixtures.ts";
import { type ScriptedServer, scripted, startScriptedServer } from "./scripted-server.ts";

/** Prices of three digits after the point, so that a class that is charged as another shows. */
const PRICE = { input: 1.251, cachedInput: 0.127, cacheWrite: 1.567, output: 10.003, reasoning: 12.347 };
const MODES = [false, true];

let upstream: ScriptedServer;
let service: RunningService;
let token: string;
let poor: Organization;
let client: OpenAI;

beforeAll(async () => {
  upstream = await startScriptedServer();
  const providers = FIXTURES.map(({ kind, basePath, settings }) => {
    return { id: kind, kind, baseUrl: `${upstream.origin}${basePath}`, ...settings };
  });
  const capabilities = ["tools", "structured_output", "vision", "reasoning"];
  const routesOf = (kinds: string[]) =>
    FIXTURES.filter(({ kind }) => kinds.includes(kind)).map(({ kind, model }) => ({ provider: kind, model }));
  const models = FIXTURES.flatMap(({ kind }) => [
    { id: `by-${kind}`, capabilities, price: PRICE, routes: routesOf([kind]) },
    // The one that can stands last.
    { id: `by-${kind}-or-own`, capabilities, price: PRICE, routes: routesOf([kind, "openai-compatible"]).reverse() },
  ]);
  service = await startService({ config: { providers, models } });
  ({ token } = await makeOrganization(service, "10"));
  poor = await makeOrganization(service, "0");
  client = new OpenAI({ apiKey: token, baseURL: service.baseUrl, maxRetries: 0 });
});
afterAll(async () => {
  await service?.end();
  await upstream?.end();
});
beforeEach(() => upstream.reset());

const ask = (kind: string, fields: object = {}) => {
  const messages = [{ role: "user", content: "hello" }];
  return send(service, "/v1/chat/completions", token, { model: `by-${kind}`, messages, ...fields });
};

test.each(MODES)("Bedrock's logs get the id of a request as its metadata; streamed: %s", async (stream) => {
  const bedrock = FIXTURES.find(({ kind }) => kind === "bedrock") as (typeof FIXTURES)[number];
  upstream.answer(scripted(bedrock, bedrock.text, stream));
  const response = await ask("bedrock", { stream, metadata: { customer: "secret" } });
  await response.text();
  const body = upstream.requests[0]?.body as { requestMetadata?: unknown };
  expect(body.requestMetadata).toEqual({ tollgate_request_id: response.headers.get("x-request-id") });
  expect(JSON.stringify(body)).not.toContain("secret");
});

describe.each(FIXTURES)("$kind", (fixture) => {
  const { kind } = fixture;

  test.each(MODES)("each class of tokens is charged at its own price; streamed: %s", async (stream) => {
    upstream.answer(scripted(fixture, fixture.text, stream));
    const answer = await (await ask(kind, { stream })).text();
    const usage: CompletionUsage = JSON.parse(answer.match(/"usage":(\{(?:[^{}]|\{[^{}]*\})*\})/)?.[1] ?? "");
    const counted = fixture.text.usage;
    const { prompt_tokens: prompt, completion_tokens: completion } = usage;
    const { cached_tokens: cached = 0, cache_write_tokens: written = 0 } = usage.prompt_tokens_details ?? {};
    const { reasoning_tokens: reasoning = 0 } = usage.completion_tokens_details ?? {};
    expect({ prompt, completion, cached, written, reasoning }).toEqual({
      prompt: counted.prompt_tokens,
      completion: counted.completion_tokens,
      cached: counted.cached_tokens ?? 0,
      written: counted.cache_write_tokens ?? 0,
      reasoning: counted.reasoning_tokens ?? 0,
    });
    const input = (prompt - cached - written) * 1_251 + cached * 127 + written * 1_567;
    const output = (completion - reasoning) * 10_003 + reasoning * 12_347;
    expect(usage.cost).toBe(Math.ceil((input + output) / 1_000) / 1e6);
  });

  test("what its wire cannot take is refused before it is asked", async () => {
    const refused = [
      ...(fixture.logprobs === undefined ? [{ logprobs: true }] : []),
      ...(kind === "xai" ? [{ stop: ["END"] }] : []),
      ...(["anthropic", "bedrock"].includes(kind) ? [{ response_format: { type: "json_object" } }] : []),
      ...(fixture.imageAddress === undefined ? [{ messages: [imageMessage] }] : []),
    ];
    for (const fields of refused) {
      const answer = await ask(kind, fields);
      expect(answer.status).toBe(400);
      expect(await answer.json()).toMatchObject({ error: { code: "unsupported_value" } });
    }
    expect(upstream.requests).toEqual([]);
  });

  test("what only its wire knows is refused before anything is held, and another route takes it", async () => {
    const words = { messages: [{ role: "user", content: "go" }, resultOfNothing], max_tokens: 10 };
    const body = { model: `by-${kind}`, ...words };
    const answer = await send(service, "/v1/chat/completions", poor.token, body);
    const isOwn = ["openai-compatible", "azure"].includes(kind);
    // Who has no credits is told of them where a hold is tried.
    expect(answer.status).toBe(isOwn ? 402 : 400);
    const refused = { code: "unsupported_value", message: expect.stringContaining("messages[1].tool_call_id") };
    if (!isOwn) expect(await answer.json()).toMatchObject({ error: refused });
    expect(upstream.requests).toEqual([]);
    const own = FIXTURES.find((one) => one.kind === "openai-compatible") ?? fixture;
    upstream.answer(scripted(own, own.text, false));
    const served = await ask(kind, { model: `by-${kind}-or-own`, ...words });
    expect(served.status).toBe(200);
    const taken = isOwn ? fixture : own;
    expect(served.headers.get("x-tollgate-route")).toBe(`${taken.kind}/${taken.model}`);
  });

  test("a bad key is the operator's: 502, a loud line, and no word of it", async () => {
    const bad = fixture.errors.find(({ failure }) => failure === "credentials");
    upstream.answer({ status: bad?.status ?? 0, headers: bad?.headers ?? {}, body: JSON.stringify(bad?.body) });
    const answer = await ask(kind);
    expect(answer.status).toBe(502);
    expect(await answer.json()).toMatchObject({ error: { code: "upstream_error", type: "server_error" } });
    await expect
      .poll(() => service.output())
      .toMatch(new RegExp(`"level":"error".*"route":"${kind}/.*an upstream refused the service's own`));
    expect(service.output()).not.toContain(String(fixture.settings.apiKey ?? fixture.settings.secretAccessKey));
  });
});

const resultOfNothing = { role: "tool", tool_call_id: "call_of_nobody", content: "12 degrees" };
const imageMessage = {
  role: "user",
  content: [{ type: "image_url", image_url: { url: "https://images.example.com/cat.png" } }],
};

test("a hint that only the wire turns out not to take is named", async () => {
  const anthropic = FIXTURES.find(({ kind }) => kind === "anthropic");
  if (anthropic === undefined) throw new Error("There is no such wire");
  upstream.answer(scripted(anthropic, anthropic.text, false));
  const answer = await ask("anthropic", { reasoning_effort: "high", temperature: 0.5, seed: 7 });
  expect(answer.status).toBe(200);
  expect(answer.headers.get("x-tollgate-ignored")).toBe("seed, temperature");
});

describe("what a provider wants back survives a client that knows nothing of it", () => {
  const fixtures = FIXTURES.filter(({ kind }) => ["anthropic", "google", "bedrock", "xai"].includes(kind));
  test.each(fixtures.flatMap((fixture) => [false, true].map((stream) => ({ kind: fixture.kind, stream, fixture }))))(
    "$kind, streamed: $stream",
    async ({ kind, stream, fixture }) => {
      upstream.answer(scripted(fixture, fixture.tools, stream), scripted(fixture, fixture.text, stream));
      const [first, second] = await converse(client, `by-${kind}`, stream);
      // The client's helper for streams keeps only the last piece of a field that it does not know.
      const said = stream ? expect.stringContaining("for two cities.") : REASONING;
      expect(first?.choices[0]?.message).toMatchObject({ reasoning_content: said });
      expect(second?.choices[0]?.message.content).toBe(TEXT);
      expect(second?.usage).toMatchObject({ prompt_tokens: 100, completion_tokens: 30, total_tokens: 130 });
      expect(upstream.requests[1]?.body).toMatchObject(fixture.secondTurn);
    },
  );
});
