import { LLMock } from "@copilotkit/aimock";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  completion,
  DONE,
  event,
  finish,
  hear,
  hearBytes,
  requestOf,
  STREAM_HEAD,
  settingsOf,
  startWire,
  whole,
} from "../../test/support/wire.ts";
import { OperatorError } from "../errors.ts";
import { createProvider } from "./index.ts";
import type { Provider } from "./provider.ts";

const TOOL = { type: "function" as const, function: { name: "weather", parameters: { type: "object" } } };

describe("A compatible server from an npm package", () => {
  let mock: LLMock;
  let provider: Provider;

  beforeAll(async () => {
    mock = new LLMock({ port: 0 });
    const usage = { prompt_tokens: 11, completion_tokens: 7 };
    mock.onMessage("hello", { content: "Hello from the other side of the wire.", usage, model: "model-of-theirs" });
    mock.onMessage("weather", { toolCalls: [{ name: "weather", arguments: '{"city":"Bern"}' }], usage });
    mock.onMessage("refuse", { error: { message: "No thanks", type: "invalid_request_error" }, status: 400 });
    await mock.start();
    provider = createProvider(settingsOf(`${mock.url}/v1`), {});
  });

  afterAll(async () => {
    await provider.close();
    await mock.stop();
  });

  test.each([true, false])("answers with text and usage (streamed: %s).", async (stream) => {
    const heard = await hear(provider, { stream });
    expect(heard.error).toBeUndefined();
    expect(heard.text).toBe("Hello from the other side of the wire.");
    expect(heard.chunks.filter(({ finish_reason }) => finish_reason !== undefined)).toHaveLength(1);
    expect(heard.chunks.flatMap(({ usage }) => usage ?? [])).toEqual([
      expect.objectContaining({ prompt_tokens: 11, completion_tokens: 7 }),
    ]);
  });

  test.each([true, false])("calls a tool (streamed: %s).", async (stream) => {
    const heard = await hear(provider, { stream, messages: [{ role: "user", content: "weather" }], tools: [TOOL] });
    const calls = heard.chunks.flatMap(({ delta }) => delta?.tool_calls ?? []);
    expect(heard.error).toBeUndefined();
    expect(calls[0]).toMatchObject({ index: 0, id: expect.any(String), type: "function" });
    expect(calls.map((call) => call.function?.name ?? "").join("")).toBe("weather");
    expect(JSON.parse(calls.map((call) => call.function?.arguments ?? "").join(""))).toEqual({ city: "Bern" });
    expect(heard.chunks.find(({ finish_reason }) => finish_reason)?.finish_reason).toBe("tool_calls");
  });

  test.each([true, false])("refuses with a reason (streamed: %s).", async (stream) => {
    const { error } = await hear(provider, { stream, messages: [{ role: "user", content: "refuse" }] });
    expect(error).toMatchObject({ failure: "rejected", publicReason: "No thanks" });
  });

  test("is rate limited for the time that it states.", async () => {
    mock.nextRequestError(429, { message: "Slow down", type: "rate_limit_error" });
    expect((await hear(provider)).error).toMatchObject({ failure: "rate_limited", retryAfterSeconds: 1 });
  });

  test("lists its models.", async () => {
    expect(await provider.listModels?.(new AbortController().signal)).toContain("gpt-4o");
  });
});

describe("The request", () => {
  async function sent(
    fields: Parameters<typeof requestOf>[0],
    settings: Parameters<typeof settingsOf>[1] & { query?: string } = {},
  ) {
    const wire = await startWire((socket) => socket.end(whole(200, completion("ok"))));
    const provider = createProvider(settingsOf(`${wire.baseUrl}/${settings.query ?? ""}`, settings), {});
    await hear(provider, { stream: false, ...fields });
    await provider.close();
    await wire.end();
    const [top = "", body = ""] = (wire.requests[0] ?? "").split("\r\n\r\n");
    return { head: top.toLowerCase(), body: JSON.parse(body) };
  }

  test("has its key and its headers and accepts no encoding.", async () => {
    const { head, body } = await sent({ temperature: 0.5 }, { apiKey: "key-1", headers: { "X-Team": "seven" } });
    expect(head).toMatch(/^post \/v1\/chat\/completions http\/1.1\r\n/);
    expect(head).toContain("authorization: bearer key-1");
    expect(head).toContain("x-team: seven");
    expect(head).toContain("accept-encoding: identity");
    expect(body).toEqual({ ...requestOf({ stream: false }), temperature: 0.5 });
  });

  test("has no authorization without a key, and keeps the address's query.", async () => {
    const { head } = await sent({}, { query: "?version=2" });
    expect(head).not.toContain("authorization");
    expect(head).toMatch(/^post \/v1\/chat\/completions\?version=2 /);
  });

  test("always includes usage if it is streamed.", async () => {
    const wished = { stream_options: { include_usage: false } };
    expect((await sent({ ...wished, stream: true })).body.stream_options).toEqual({ include_usage: true });
    expect((await sent(wished)).body).not.toHaveProperty("stream_options");
  });

  test("has the role system instead of developer.", async () => {
    const { body } = await sent({
      messages: [
        { role: "developer", content: "a" },
        { role: "user", content: "é" },
      ],
    });
    expect(body.messages).toEqual([
      { role: "system", content: "a" },
      { role: "user", content: "é" },
    ]);
  });
});

describe("An unstreamed answer:", () => {
  test("only the first choice is read, and its unknown fields are passed on.", async () => {
    const heard = await hearBytes(
      STREAM_HEAD +
        event({
          choices: [
            { index: 1, delta: { content: "other" } },
            { index: 0, delta: { content: "a", x: 1 } },
          ],
        }) +
        event({ choices: [{ delta: { content: 5, role: "user", tool_calls: null } }], extra: [1] }) +
        event({
          choices: [
            { index: 0, delta: { content: [{ type: "text", text: "b" }, { type: "x" }] }, logprobs: { content: [] } },
          ],
        }) +
        event({ choices: [{ index: 0, delta: { reasoning: "why", refusal: "no" }, finish_reason: "" }] }) +
        finish("end_of_the_world") +
        DONE,
    );
    expect(heard.error).toBeUndefined();
    expect(heard.chunks).toEqual([
      { delta: { content: "a", others: { x: 1 } } },
      { delta: {}, whole: { extra: [1] } },
      { delta: { content: "b", others: { content_parts: [{ type: "x" }] } }, logprobs: { content: [] } },
      { delta: { reasoning_content: "why", refusal: "no" } },
      { delta: {}, finish_reason: "stop" },
    ]);
  });

  test("calls with the same index are distinguished by their ids, and an empty id counts as missing.", async () => {
    const call = (fields: object) => event({ choices: [{ index: 0, delta: { tool_calls: [fields] } }] });
    const heard = await hearBytes(
      STREAM_HEAD +
        call({ index: 0, id: "a", function: { name: "f", arguments: '{"x"' } }) +
        call({ index: 0, id: "", function: { arguments: ":1" } }) +
        call({ index: 0, id: "a", function: { arguments: "}" } }) +
        call({ index: 0, id: "b", function: { name: "g", arguments: "{" } }) +
        call({ index: 0, function: { arguments: "}" } }) +
        finish("tool_calls"),
    );
    const fold = new Map<number, string>();
    for (const { index, function: called } of heard.chunks.flatMap(({ delta }) => delta?.tool_calls ?? [])) {
      fold.set(index, (fold.get(index) ?? "") + (called?.name ?? "") + (called?.arguments ?? ""));
    }
    expect([...fold]).toEqual([
      [0, 'f{"x":1}'],
      [1, "g{}"],
    ]);
  });

  test("tool calls without an index are distinguished by their ids.", async () => {
    const call = (fields: object) => event({ choices: [{ index: 0, delta: { tool_calls: [fields] } }] });
    const heard = await hearBytes(
      STREAM_HEAD +
        call({ id: "a", type: "function", function: { name: "one", arguments: "{" } }) +
        call({ function: { arguments: "}" } }) +
        call({ id: "b", function: { name: "two", arguments: { x: 1 } }, extra_content: { sign: "s" } }) +
        finish("odd") +
        DONE,
    );
    const calls = heard.chunks.flatMap(({ delta }) => delta?.tool_calls ?? []);
    expect(calls).toEqual([
      { index: 0, id: "a", type: "function", function: { name: "one", arguments: "{" } },
      { index: 0, function: { arguments: "}" } },
      {
        index: 1,
        id: "b",
        type: "function",
        function: { name: "two", arguments: '{"x":1}' },
        extra_content: { sign: "s" },
      },
    ]);
    expect(heard.chunks.at(-1)?.finish_reason).toBe("tool_calls");
  });

  test.each([
    ["odd values", { prompt_tokens: -1, completion_tokens: 2.5 }, { prompt_tokens: -1, completion_tokens: 2.5 }],
    ["texts", { prompt_tokens: "9", completion_tokens: null }, { prompt_tokens: "9", completion_tokens: null }],
    ["nothing", {}, { prompt_tokens: undefined, completion_tokens: undefined }],
    ["huge values", { prompt_tokens: 2 ** 63, completion_tokens: 1 }, { prompt_tokens: 2 ** 63, completion_tokens: 1 }],
    [
      "details",
      {
        prompt_tokens: 5,
        completion_tokens: 4,
        prompt_tokens_details: { cached_tokens: 9, cache_write_tokens: 1 },
        completion_tokens_details: { reasoning_tokens: 3 },
      },
      { prompt_tokens: 5, completion_tokens: 4, cached_tokens: 9, cache_write_tokens: 1, reasoning_tokens: 3 },
    ],
    [
      "another name for cached tokens",
      { prompt_tokens: 5, completion_tokens: 4, prompt_cache_hit_tokens: 2 },
      { prompt_tokens: 5, completion_tokens: 4, cached_tokens: 2 },
    ],
  ])("usage as it came: %s", async (_name, usage, expected) => {
    const unstreamed = await hearBytes(whole(200, completion("a", { usage })), { stream: false });
    const streamed = await hearBytes(
      STREAM_HEAD + event({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }], usage }) + DONE,
    );
    expect(unstreamed.chunks[0]?.usage).toEqual(expected);
    expect(streamed.chunks[0]?.usage).toEqual(expected);
  });

  test.each([null, undefined, "many", 7])("usage that is %s is ignored.", async (usage) => {
    const heard = await hearBytes(whole(200, completion("a", { usage })), { stream: false });
    expect(heard.error).toBeUndefined();
    expect(heard.chunks[0]).not.toHaveProperty("usage");
  });
});

describe("Wrong settings are refused:", () => {
  test.each([
    ["no address", { baseUrl: null }, /needs baseUrl/],
    [
      "a header that belongs to the connection",
      { headers: { "Content-Length": "1" } },
      /must not set 'Content-Length'/,
    ],
    ["a key with a line break", { apiKey: "secret\nkey" }, /^((?!secret).)*apiKey/],
    [
      "an unknown kind",
      { kind: "carrier-pigeon" },
      /kind is 'carrier-pigeon', but must be one of: openai-compatible, anthropic, .*sandbox/,
    ],
  ])("%s", (_name, fields, message) => {
    const settings = settingsOf("http://127.0.0.1/v1", fields);
    expect(() => createProvider(settings, {})).toThrow(OperatorError);
    expect(() => createProvider(settings, {})).toThrow(message);
  });
});
