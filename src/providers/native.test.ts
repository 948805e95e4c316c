import { describe, expect, test } from "vitest";
import { hearAnswer, type JsonEvent, nativeOf, secondWireSettings, sse } from "../../test/support/second-wire.ts";
import {
  completion,
  finish,
  hear,
  hearBytes,
  requestOf,
  STREAM_HEAD,
  startWire,
  whole,
  word,
} from "../../test/support/wire.ts";
import { deviationsOf } from "../catalog/known-providers.ts";
import { createProvider } from "./index.ts";

const MESSAGES = { wire: "messages" } as const;
const RESPONSES = { wire: "responses", servesOnly: /codex|-pro(-\d|$)/ } as const;
const MESSAGE = { type: "message", content: [], stop_reason: "end_turn", usage: { input_tokens: 1, output_tokens: 1 } };
const RESPONSE = { status: "completed", output: [], usage: { input_tokens: 1, output_tokens: 1 } };
const COMPLETED: JsonEvent = { type: "response.completed", response: RESPONSE };

describe("A request on the second wire of its upstream", () => {
  test("goes to the Messages API with the key, the version and its own headers.", async () => {
    const headers = { "anthropic-version": "2023-01-01", "anthropic-beta": "interleaved-thinking-2025-05-14" };
    const { received } = await hearAnswer(MESSAGES, MESSAGE, { native: nativeOf("messages", { headers }) });
    expect(received.head).toMatch(/^POST \/v1\/messages HTTP/);
    expect(received.head).toContain("x-api-key: sk-of-the-operator\r\n");
    expect(received.head).toContain("anthropic-beta: interleaved-thinking-2025-05-14");
    expect(received.head.match(/anthropic-version: .*/g)).toEqual(["anthropic-version: 2023-01-01"]);
    expect(received.head).not.toContain("authorization");
    const { received: plain } = await hearAnswer(MESSAGES, MESSAGE);
    expect(plain.head).toContain("anthropic-version: 2023-06-01");
  });

  test("goes to the Responses API, which stores nothing.", async () => {
    const body = { input: "Hi", store: true, reasoning: { effort: "low" }, max_output_tokens: 9_999, model: "gpt-5.6" };
    const fields = { model: "gpt-5.6-sol", max_tokens: 50 };
    const { received } = await hearAnswer(RESPONSES, RESPONSE, { fields, native: nativeOf("responses", { body }) });
    expect(received.head).toMatch(/^POST \/v1\/responses HTTP/);
    expect(received.head).toContain("authorization: Bearer sk-of-the-operator");
    expect(received.body).toEqual({
      input: "Hi",
      store: false,
      reasoning: { effort: "low" },
      max_output_tokens: 50,
      model: "gpt-5.6-sol",
      stream: false,
    });
  });

  test("has the model and the bound of the gateway, and is otherwise unchanged.", async () => {
    const body = { system: "Be brief.", model: "claude", max_tokens: 100, top_k: 5, thinking: { type: "adaptive" } };
    const { received } = await hearAnswer(MESSAGES, MESSAGE, {
      fields: { model: "claude-opus-4-6", max_tokens: 60 },
      native: nativeOf("messages", { body }),
    });
    expect(received.body).toEqual({ ...body, model: "claude-opus-4-6", max_tokens: 60, stream: false });
  });

  test.each([
    ["is lowered with the bound", 4_000, 8_000, { type: "enabled", budget_tokens: 2_000 }],
    ["is never below the minimum", 1_500, 8_000, { type: "enabled", budget_tokens: 1_024 }],
    ["is disabled where the bound is too small", 1_000, 8_000, { type: "disabled" }],
    ["above the client's own bound is lowered too", 4_000, 4_000, { type: "enabled", budget_tokens: 2_000 }],
    ["below the bound is unchanged", 7_000, 8_000, { type: "enabled", budget_tokens: 6_000 }],
  ])("has a thinking budget that %s.", async (_name, bound, stated, thinking) => {
    const body = { max_tokens: stated, thinking: { type: "enabled", budget_tokens: 6_000 } };
    const asked = { fields: { max_tokens: bound }, native: nativeOf("messages", { body }) };
    expect((await hearAnswer(MESSAGES, MESSAGE, asked)).received.body.thinking).toEqual(thinking);
  });

  test.each([
    ["context-1m-2025-08-07", undefined, ["context-1m-2025-08-07"]],
    [
      "interleaved-thinking-2025-05-14, fast-mode-2026-02-01,",
      "interleaved-thinking-2025-05-14",
      ["fast-mode-2026-02-01"],
    ],
    ["claude-code-20250219,context-management-2025-06-27", "claude-code-20250219,context-management-2025-06-27", []],
    [
      "code-execution-2025-08-25,mcp-client-2025-11-20",
      undefined,
      ["code-execution-2025-08-25", "mcp-client-2025-11-20"],
    ],
    ["a-new-beta-2027-01-01", "a-new-beta-2027-01-01", []],
  ])("takes out the betas that its hold does not cover: %s.", async (sent, passed, ignored) => {
    const heard = await hearAnswer(MESSAGES, MESSAGE, {
      native: nativeOf("messages", { headers: { "anthropic-beta": sent } }),
    });
    expect(heard.received.head.match(/anthropic-beta: (.*)\r/)?.[1]).toBe(passed);
    expect(heard.ignored).toEqual(ignored.map((beta) => `anthropic-beta.${beta}`));
  });

  test("does not override the headers that the operator states.", async () => {
    const wire = await startWire((socket) => socket.end(whole(200, MESSAGE)));
    const settings = { ...secondWireSettings(MESSAGES, wire.baseUrl), headers: { "Anthropic-Beta": "ours" } };
    const provider = createProvider(settings, {});
    const native = nativeOf("messages", { headers: { "anthropic-beta": "theirs" } });
    await hear(provider, { stream: false }, undefined, native);
    expect(wire.requests[0]?.match(/anthropic-beta: .*/g)).toEqual(["anthropic-beta: ours"]);
    await provider.close();
    await wire.end();
  });

  test.each([
    [401, { type: "error", error: { type: "authentication_error", message: "invalid x-api-key" } }, "credentials"],
    [429, { type: "error", error: { type: "rate_limit_error", message: "slow down" } }, "rate_limited"],
    [529, { type: "error", error: { type: "overloaded_error", message: "Overloaded" } }, "overloaded"],
    [400, { type: "error", error: { type: "invalid_request_error", message: "prompt is too long" } }, "context_length"],
    [400, { type: "error", error: { type: "invalid_request_error", message: "max_tokens: too large" } }, "rejected"],
  ])("fails with the status %i and %o as %s.", async (status, body, failure) => {
    const wire = await startWire((socket) => socket.end(whole(status, body)));
    const provider = createProvider(secondWireSettings(MESSAGES, wire.baseUrl), {});
    const heard = await hear(provider, {}, undefined, nativeOf("messages"));
    expect(heard).toMatchObject({ chunks: [], error: { failure } });
    await provider.close();
    await wire.end();
  });

  test.each([
    ["a document in place of a stream", whole(200, MESSAGE), true],
    ["a stream in place of a document", STREAM_HEAD + sse([COMPLETED]), false],
    ["HTML", whole(200, "<html>", { "content-type": "text/html" }), true],
  ])("fails with %s.", async (_name, answer, stream) => {
    const wire = await startWire((socket) => socket.end(answer));
    const provider = createProvider(secondWireSettings(MESSAGES, wire.baseUrl), {});
    const heard = await hear(provider, { stream }, undefined, nativeOf("messages"));
    expect(heard).toMatchObject({ chunks: [], error: { failure: "malformed" } });
    await provider.close();
    await wire.end();
  });
});

describe("A chat completion", () => {
  test("of a model that only the Responses API serves is translated, and its answer contains no events of that API.", async () => {
    const events: JsonEvent[] = [
      { type: "response.created", response: { id: "resp_1", model: "gpt-5.3-codex-2026-02-05" } },
      { type: "response.in_progress", response: {} },
      { type: "response.output_text.delta", output_index: 0, delta: "Hello" },
      COMPLETED,
    ];
    const heard = await hearAnswer(RESPONSES, events, { fields: { model: "gpt-5.3-codex" } });
    expect(heard.received.head).toMatch(/^POST \/v1\/responses HTTP/);
    expect(heard.chunks).toEqual([
      { responseId: "resp_1" },
      { delta: { content: "Hello" } },
      { finish_reason: "stop", usage: { prompt_tokens: 1, completion_tokens: 1 } },
    ]);
    const unstreamed = await hearAnswer(RESPONSES, RESPONSE, { fields: { model: "gpt-5-pro" } });
    expect(unstreamed.chunks).toHaveLength(1);
    expect(unstreamed.chunks[0]).not.toHaveProperty("native");
  });

  test("of another model goes to chat completions.", async () => {
    const answer = STREAM_HEAD + word("Hello") + finish();
    expect(await hearBytes(answer, { model: "gpt-5.6-sol" }, { secondWire: RESPONSES })).toMatchObject({
      text: "Hello",
    });
    const { received } = await hearAnswer(RESPONSES, completion("Hello"), { fields: { model: "gpt-5.6-sol" } });
    expect(received.head).toMatch(/^POST \/v1\/chat\/completions HTTP/);
  });

  test("that its model's API cannot express is refused before it is sent.", () => {
    const provider = createProvider(secondWireSettings(RESPONSES, "http://127.0.0.1:9/v1"), {});
    const convert = (model: string, stop?: string) => provider.convert?.(requestOf({ model, ...(stop && { stop }) }));
    const refusal = expect.objectContaining({ failure: "unsupported", param: "stop" });
    expect(() => convert("gpt-5-pro", "END")).toThrow(refusal);
    expect(() => convert("gpt-5-pro")).not.toThrow();
    expect(() => convert("gpt-5.6-sol", "END")).not.toThrow();
  });

  test("keeps what the provider besides its second wire can do.", async () => {
    const wire = await startWire((socket) => socket.end(whole(200, { data: [{ id: "gpt-5.6-sol" }] })));
    const provider = createProvider(secondWireSettings(RESPONSES, wire.baseUrl), {});
    expect(provider).toMatchObject({ id: "upstream", nativeWire: "responses", isPrivate: true });
    expect(await provider.listModels?.(new AbortController().signal)).toEqual(["gpt-5.6-sol"]);
    await provider.close();
    await wire.end();
  });
});

describe("The second wire of a provider", () => {
  const own = (kind: string, baseUrl: string | null) => deviationsOf({ kind, baseUrl }).secondWire?.wire;

  test.each([
    ["openai-compatible", "https://api.openai.com/v1", "responses"],
    ["openai-compatible", "https://eu.api.openai.com/v1", "responses"],
    ["openai-compatible", "https://api.anthropic.com/v1", undefined],
    ["openai-compatible", "https://openrouter.ai/api/v1", undefined],
    ["anthropic", null, "messages"],
    ["anthropic", "https://proxy.example/v1", "messages"],
    ["xai", null, "responses"],
    ["bedrock", null, undefined],
    ["google-vertex", null, undefined],
    ["azure", null, undefined],
  ])("of the kind %s at %s is %s.", (kind, baseUrl, wire) => {
    expect(own(kind, baseUrl)).toBe(wire);
  });

  test.each(["gpt-5.3-codex", "gpt-5-pro", "o3-pro-2025-06-10", "gpt-5.5-pro"])(
    "of OpenAI is the only one of %s.",
    (model) => {
      const second = deviationsOf({ kind: "openai-compatible", baseUrl: "https://api.openai.com/v1" }).secondWire;
      expect(second?.wire === "responses" && second.servesOnly?.test(model)).toBe(true);
      expect(second?.wire === "responses" && second.servesOnly?.test("gpt-5.6-sol")).toBe(false);
    },
  );
});
