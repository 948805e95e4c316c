import Anthropic, {
  AuthenticationError,
  BadRequestError,
  NotFoundError,
  OverloadedError,
  PaymentRequiredError,
  PermissionDeniedError,
} from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { exchangeRaw } from "../hostile/raw-http.ts";
import {
  makeOrganization,
  makeToken,
  type Organization,
  type RunningService,
  send,
  startService,
} from "../support/service.ts";
import { answering, sendJson, startUpstream, type Upstream } from "../support/upstream.ts";

const PROMPT = "Good morning, wide world";

let upstream: Upstream;
let service: RunningService;
let rich: Organization;
let poor: Organization;

beforeAll(async () => {
  upstream = await startUpstream();
  const price = { input: 2, cachedInput: 1, output: 8 };
  const ids = ["plain", "failing", "reasoning", "calling"];
  service = await startService({
    config: {
      limits: { requestsPerMinute: 1000 },
      providers: [{ id: "up", kind: "openai-compatible", baseUrl: upstream.baseUrl, apiKey: "key" }],
      models: ids.map((id) => ({ id, price, maxOutputTokens: 8000, routes: [{ provider: "up", model: id }] })),
    },
  });
  const usage = { prompt_tokens: 10, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 4 } };
  upstream.behave("plain", answering({ words: ["one ", "two ", "three"], usage }));
  upstream.behave("failing", ({ response }) => sendJson(response, 429, { error: { message: "too many" } }));
  upstream.behave("reasoning", ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const event = (delta: object, finish_reason: string | null = null) =>
      response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] })}\n\n`);
    event({ reasoning_content: "Let me " });
    event({ reasoning_content: "think." });
    event({ content: "Done." });
    event({}, "stop");
    response.end(
      `data: ${JSON.stringify({ choices: [], usage: { ...usage, prompt_tokens_details: undefined } })}\n\ndata: [DONE]\n\n`,
    );
  });
  rich = await makeOrganization(service, "100");
  poor = await makeOrganization(service, "0");
});

afterAll(async () => {
  await service?.end();
  await upstream?.close();
});

function connect(token = rich.token): Anthropic {
  return new Anthropic({ apiKey: token, authToken: null, baseURL: service.url, maxRetries: 0 });
}

const CITED = {
  type: "document",
  source: { type: "text", media_type: "text/plain", data: "x" },
  citations: { enabled: true },
};
const asking = (content = PROMPT, model = "sandbox/echo") => ({
  model,
  max_tokens: 100,
  messages: [{ role: "user" as const, content }],
});

describe("The SDK", () => {
  test("receives a message.", async () => {
    const { data: message, response } = await connect().messages.create(asking()).withResponse();
    expect(message).toMatchObject({
      type: "message",
      role: "assistant",
      model: "sandbox/echo",
      stop_reason: "end_turn",
    });
    expect(message.id).toMatch(/^msg_[0-9a-f]{32}$/);
    expect(message.content).toEqual([{ type: "text", text: PROMPT }]);
    expect(response.headers.get("request-id")).toBe(response.headers.get("x-request-id"));
    expect(response.headers.get("request-id")).not.toBeNull();
    expect(response.headers.get("x-credits-charged")).not.toBeNull();
  });

  test("receives the same message as a stream.", async () => {
    const stream = connect().messages.stream(asking());
    const texts: string[] = [];
    stream.on("text", (text) => texts.push(text));
    const streamed = await stream.finalMessage();
    const whole = await connect().messages.create(asking());
    expect(texts.length).toBeGreaterThan(1);
    expect({ ...streamed, id: "" }).toMatchObject({ content: whole.content, stop_reason: whole.stop_reason });
    const { input_tokens, output_tokens } = whole.usage;
    expect(streamed.usage).toMatchObject({ input_tokens, output_tokens });
  });

  test("sends its token as an API key or as a bearer token.", async () => {
    const client = new Anthropic({ apiKey: null, authToken: rich.token, baseURL: service.url, maxRetries: 0 });
    expect((await client.messages.create(asking())).stop_reason).toBe("end_turn");
  });

  test("runs tools until the model answers.", async () => {
    const inputs: unknown[] = [];
    const weather = betaTool({
      name: "get_weather",
      description: "Returns the weather of a city.",
      inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
      run: (input) => {
        inputs.push(input);
        return "sunny";
      },
    });
    const last = await connect().beta.messages.toolRunner({ ...asking("get_weather"), tools: [weather] });
    expect(inputs).toEqual([{ city: expect.any(String) }]);
    expect(last.stop_reason).toBe("end_turn");
  });

  test("streams a tool call.", async () => {
    const tools = [
      {
        name: "lookup",
        input_schema: { type: "object" as const, properties: { a: { type: "string" } }, required: ["a"] },
      },
    ];
    const message = await connect()
      .messages.stream({ ...asking("lookup"), tools })
      .finalMessage();
    expect(message.stop_reason).toBe("tool_use");
    expect(message.content).toEqual([
      {
        type: "tool_use",
        id: expect.stringMatching(/^[a-zA-Z0-9_-]+$/),
        name: "lookup",
        input: { a: expect.any(String) },
      },
    ]);
  });

  test("receives the reasoning of a model as thinking.", async () => {
    const thinking = { type: "thinking", thinking: "Let me think.", signature: "" };
    const streamed = await connect().messages.stream(asking("x", "reasoning")).finalMessage();
    const whole = await connect().messages.create(asking("x", "reasoning"));
    expect(streamed.content).toEqual([thinking, { type: "text", text: "Done." }]);
    expect(whole.content).toEqual(streamed.content);
  });

  test("counts tokens without a charge.", async () => {
    const before = await creditsOf(rich);
    const count = await connect().messages.countTokens({ model: "sandbox/echo", messages: asking().messages });
    expect(count.input_tokens).toBeGreaterThan(3);
    expect(count.input_tokens).toBeLessThan(30);
    expect(await creditsOf(rich)).toBe(before);
  });

  test("counts the tokens of a count towards the caller's tokens per minute.", async () => {
    const { token } = await makeOrganization(service, "0", { limits: { tokens_per_minute: 1_000 } });
    const body = { model: "sandbox/echo", messages: [{ role: "user", content: "漢字".repeat(400) }] };
    const count = () => send(service, "/v1/messages/count_tokens", token, body);
    const first = await count();
    const { input_tokens: counted } = (await first.json()) as { input_tokens: number };
    expect(counted).toBeGreaterThan(400);
    expect(first.headers.get("x-ratelimit-limit-tokens")).toBe("1000");
    const refused = await count();
    expect(refused.status).toBe(429);
    expect(await refused.json()).toMatchObject({ error: { type: "rate_limit_error" } });
  });

  test("lists models in pages, without embedding models.", async () => {
    const ids: string[] = [];
    for await (const model of connect().models.list({ limit: 2 })) {
      expect(model).toMatchObject({ type: "model", display_name: expect.any(String) });
      ids.push(model.id);
    }
    const listed = (await (await send(service, "/v1/models", rich.token)).json()) as { data: { id: string }[] };
    expect(ids).toEqual(
      listed.data
        .map(({ id }) => id)
        .filter((id) => !["sandbox/embed", "sandbox/image", "sandbox/speech", "sandbox/transcribe"].includes(id)),
    );
    await expect(connect().models.retrieve("sandbox/embed")).rejects.toThrow(NotFoundError);
    expect(await connect().models.retrieve("sandbox/echo")).toMatchObject({ type: "model", id: "sandbox/echo" });
    await expect(connect().models.list({ limit: 0 })).rejects.toThrow(BadRequestError);
  });
});

describe("Errors", () => {
  test.each([
    [
      "an invalid token",
      AuthenticationError,
      "authentication_error",
      "invalid_token",
      () => connect("sk-tg-x").messages.create(asking()),
    ],
    [
      "an unknown model",
      NotFoundError,
      "not_found_error",
      "model_not_found",
      () => connect().messages.create(asking("x", "none")),
    ],
    [
      "no credits",
      PaymentRequiredError,
      "billing_error",
      "insufficient_credits",
      () => connect(poor.token).messages.create(asking()),
    ],
    [
      "an overloaded upstream",
      OverloadedError,
      "overloaded_error",
      "overloaded",
      () => connect().messages.create(asking("x", "failing")),
    ],
    ["an unknown path", NotFoundError, "not_found_error", "not_found", () => connect().messages.batches.list()],
  ] as const)("%s has the SDK's own class.", async (_name, errorClass, type, code, ask) => {
    const error = await Promise.resolve(ask()).then(
      () => undefined,
      (reason) => reason,
    );
    expect(error).toBeInstanceOf(errorClass);
    expect(error).toMatchObject({ type, errorCode: code, requestID: expect.any(String) });
    expect(error.error).toMatchObject({ type: "error", request_id: error.requestID });
  });

  test("A missing scope is a permission error.", async () => {
    const { token } = await makeToken(service, rich.id, { scopes: ["models:read"] });
    await expect(connect(token).messages.create(asking())).rejects.toThrow(PermissionDeniedError);
  });

  test("A failure in the middle of a stream ends it with an error event and without message_stop.", async () => {
    const body = { ...asking("error event after 3 tokens", "sandbox/fault"), stream: true };
    const answer = await send(service, "/v1/messages", rich.token, body);
    const types = [...(await answer.text()).matchAll(/^event: (.*)$/gm)].map(([, type]) => type);
    expect(types[0]).toBe("message_start");
    expect(types.at(-1)).toBe("error");
    expect(types).not.toContain("message_stop");
    const stream = connect().messages.stream(asking("error event after 3 tokens", "sandbox/fault"));
    await expect(stream.finalMessage()).rejects.toThrow(Anthropic.APIError);
  });

  test.each([
    ["max_tokens", { max_tokens: undefined }],
    ["tools[0].type", { tools: [{ type: "web_search_20250305", name: "web_search" }] }],
    ["mcp_servers", { mcp_servers: [{ type: "url", url: "https://a.com", name: "a" }] }],
    ["max_tokens", { max_tokens: 0 }],
    ["temperature", { temperature: 1.5 }],
    ["messages[0].content[0].citations", { system: "Rules", messages: [{ role: "user", content: [CITED] }] }],
  ])("An error names the field '%s'.", async (param, fields) => {
    const answer = await send(service, "/v1/messages", rich.token, { ...asking(), ...fields });
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({
      type: "error",
      error: { type: "invalid_request_error", details: { param } },
    });
  });

  test("An unknown version of the wire is refused.", async () => {
    const headers = { "anthropic-version": "2030-01-01" };
    for (const path of ["/v1/messages", "/v1/models"]) {
      const body = path === "/v1/models" ? undefined : asking();
      const answer = await send(service, path, rich.token, body, { headers });
      expect([answer.status, await answer.json()]).toMatchObject([
        400,
        { error: { details: { param: "anthropic-version" } } },
      ]);
    }
  });
});

describe("Usage and charge", () => {
  test.each(["plain", "sandbox/echo"])(
    "They equal those of the chat completion of the same request: %s.",
    async (model) => {
      const chat = await send(service, "/v1/chat/completions", rich.token, { ...asking(PROMPT, model) });
      const { usage } = (await chat.json()) as {
        usage: Record<string, number> & { prompt_tokens_details?: { cached_tokens: number } };
      };
      const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
      const expected = {
        input_tokens: (usage.prompt_tokens ?? 0) - cached,
        cache_read_input_tokens: cached,
        output_tokens: usage.completion_tokens,
        cost: usage.cost,
      };
      const { data: message, response } = await connect().messages.create(asking(PROMPT, model)).withResponse();
      expect(message.usage).toMatchObject(expected);
      expect(response.headers.get("x-credits-charged")).toBe(chat.headers.get("x-credits-charged"));
      const before = await creditsOf(rich);
      const stream = await send(service, "/v1/messages", rich.token, { ...asking(PROMPT, model), stream: true });
      const [, delta = ""] = /^data: (.*"message_delta".*)$/m.exec(await stream.text()) ?? [];
      expect(JSON.parse(delta).usage).toMatchObject(expected);
      expect(before - (await creditsOf(rich))).toBeCloseTo(usage.cost ?? 0, 9);
    },
  );

  test("The charge of a message can be refunded by its id.", async () => {
    const { id } = await connect().messages.create(asking(PROMPT, "plain"));
    const before = await creditsOf(rich);
    await service.tollgate("credits", "credit", "0.00001", "--org", rich.id, "--completion", id);
    expect((await creditsOf(rich)) - before).toBeCloseTo(0.00001, 9);
  });

  test("max_tokens is not limited by completions.maxTokens.", async () => {
    const message = await connect().messages.create({ ...asking(PROMPT, "plain"), max_tokens: 8000 });
    expect(message.content).toEqual([{ type: "text", text: "one two three" }]);
    expect(upstream.requests.at(-1)?.body).toMatchObject({ max_tokens: 8000 });
  });
});

test("Hints that the upstream cannot take are listed by their names on the wire.", async () => {
  const fields = { top_k: 5, service_tier: "auto", invented: 1, thinking: { type: "adaptive" } };
  const headers = { "anthropic-beta": "some-beta-2026-01-01" };
  const answer = await send(service, "/v1/messages", rich.token, { ...asking(), ...fields }, { headers });
  expect(answer.headers.get("x-tollgate-ignored")?.split(", ").sort()).toEqual([
    "anthropic-beta",
    "invented",
    "service_tier",
    "thinking",
    "top_k",
  ]);
});

test("The header x-api-key takes a token; several headers may have the same one, and no other one.", async () => {
  const ask = (headers: Record<string, string>) =>
    send(service, "/v1/messages", null, asking(), { headers: { ...headers, "content-type": "application/json" } });
  const authorization = `Bearer ${rich.token}`;
  expect((await ask({ "x-api-key": rich.token })).status).toBe(200);
  expect((await ask({ "x-api-key": rich.token, authorization })).status).toBe(200);
  const different = await ask({ "x-api-key": poor.token, authorization });
  expect([different.status, await different.json()]).toMatchObject([
    400,
    { error: { type: "invalid_request_error", details: { param: "x-api-key" } } },
  ]);
  const [one, other] = [`x-api-key: ${rich.token}`, `x-api-key: ${poor.token}`];
  const google = (token: string) => `x-goog-api-key: ${token}`;
  const statusOf = async (...headers: string[]) => {
    const head = ["GET /v1/models HTTP/1.1", "Host: x", ...headers].join("\r\n");
    return (await exchangeRaw(service.url, `${head}\r\n\r\n`))[0]?.status;
  };
  expect(await statusOf(one, one, google(rich.token))).toBe(200);
  expect(await statusOf(one, other)).toBe(400);
  expect(await statusOf(one, google(poor.token))).toBe(400);
  expect(await statusOf(`Authorization: ${authorization}`, one, google(poor.token))).toBe(400);
  expect((await ask({ "x-api-key": "not a token" })).status).toBe(401);
});

test("HEAD / answers 200 to clients that probe the service.", async () => {
  expect((await fetch(service.url, { method: "HEAD" })).status).toBe(200);
});

async function creditsOf({ token }: Organization): Promise<number> {
  const answer = await send(service, "/v1/usage", token);
  return ((await answer.json()) as { creditsAvailable: number }).creditsAvailable;
}
