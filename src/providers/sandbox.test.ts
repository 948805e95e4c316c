import { describe, expect, test } from "vitest";
import { hear, requestOf, settingsOf } from "../../test/support/wire.ts";
import type { RequestMessage, Tool } from "../api/chat/request.ts";
import { createProvider } from "./index.ts";
import type { UpstreamChunk, UpstreamRequest } from "./provider.ts";

const timeouts = { connectMs: 1_000, firstByteMs: 300, idleMs: 300 };
const sandbox = createProvider(settingsOf("", { kind: "sandbox", baseUrl: null, timeouts }), {});

const user = (content: RequestMessage["content"]): RequestMessage => ({ role: "user", content });
const say = (model: string, content: RequestMessage["content"], fields: Partial<UpstreamRequest> = {}) =>
  hear(sandbox, { model, messages: [user(content)], ...fields });

const pieces = (chunks: readonly UpstreamChunk[]) => chunks.flatMap(({ delta }) => delta?.content ?? []);
const usage = (chunks: readonly UpstreamChunk[]) => chunks.flatMap(({ usage }) => usage ?? []);
const reason = (chunks: readonly UpstreamChunk[]) => chunks.flatMap(({ finish_reason }) => finish_reason ?? []);

describe("The model echo", () => {
  test("answers with the last user message, word by word.", async () => {
    const { chunks } = await hear(sandbox, {
      model: "echo",
      messages: [
        { role: "system", content: "be brief" },
        user("first"),
        { role: "assistant", content: "a b c" },
        user("  one two\n three"),
      ],
    });
    expect(chunks[0]).toEqual({ delta: { role: "assistant" } });
    expect(pieces(chunks)).toEqual(["  one ", "two\n ", "three"]);
    expect(reason(chunks)).toEqual(["stop"]);
    expect(usage(chunks)).toEqual([{ prompt_tokens: 9, completion_tokens: 3 }]);
  });

  test("counts the instructions as part of the prompt.", async () => {
    const { chunks } = await hear(sandbox, { ...{ model: "echo", instructions: "be very brief" }, stream: true });
    expect(usage(chunks)).toEqual([{ prompt_tokens: 4, completion_tokens: 1 }]);
  });

  test("joins the text parts of a message and ignores images.", async () => {
    const image = { type: "image_url" as const, image_url: { url: "data:image/png;base64,AAAA" } };
    const { text, chunks } = await say("echo", [{ type: "text", text: "one" }, image, { type: "text", text: "two" }]);
    expect(text.split(/\s+/)).toEqual(["one", "two"]);
    expect(usage(chunks)).toEqual([{ prompt_tokens: 2, completion_tokens: 2 }]);
  });

  test("stops after max_tokens words.", async () => {
    const { text, chunks } = await say("echo", "one two three", { max_tokens: 2 });
    expect([text, reason(chunks)]).toEqual(["one two ", ["length"]]);
    expect(usage(chunks)[0]?.completion_tokens).toBe(2);
    expect(reason((await say("echo", "one two", { max_tokens: 2 })).chunks)).toEqual(["stop"]);
  });

  test.each([
    ["two", "one "],
    [["four", "re"], "one two th"],
    ["nine", "one two three"],
    [["one"], ""],
  ])("stops before %j", async (stop, expected) => {
    const { text, chunks } = await say("echo", "one two three", { stop });
    expect([text, reason(chunks)]).toEqual([expected, ["stop"]]);
  });

  test("sends an empty answer if there is no user message.", async () => {
    const { text, chunks } = await hear(sandbox, { model: "echo", messages: [{ role: "system", content: "x" }] });
    expect([text, reason(chunks), usage(chunks)]).toEqual(["", ["stop"], [{ prompt_tokens: 1, completion_tokens: 0 }]]);
  });
});

describe("The model story", () => {
  test("writes until max_tokens, the same text for the same seed.", async () => {
    const [first, again, other] = await Promise.all([
      say("story", "go", { max_tokens: 500 }),
      say("story", "go", { max_tokens: 500, seed: 0 }),
      say("story", "go", { max_tokens: 500, seed: -7 }),
    ]);
    expect(first.text).toBe(again.text);
    expect(first.text).not.toBe(other.text);
    expect(first.text.trim().split(/\s+/)).toHaveLength(500);
    expect(reason(first.chunks)).toEqual(["length"]);
    expect(usage(first.chunks)).toEqual([{ prompt_tokens: 1, completion_tokens: 500 }]);
    expect(first.items).toBeGreaterThan(1);
  });

  test("writes at most 65,536 tokens.", async () => {
    const { chunks } = await say("story", "go", { max_tokens: 1_000_000 });
    expect([pieces(chunks).length, reason(chunks)]).toEqual([65_536, ["length"]]);
  });

  test("stops at a stop sequence.", async () => {
    const { text, chunks } = await say("story", "go", { stop: ".", max_tokens: 4096 });
    expect(text).not.toContain(".");
    expect(reason(chunks)).toEqual(["stop"]);
  });

  test("stops when its signal aborts.", async () => {
    const leaving = new AbortController();
    const answer = await sandbox.complete({
      request: requestOf({ model: "story", max_tokens: 4096 }),
      signal: leaving.signal,
    });
    const read = async () => {
      for await (const _chunks of answer.chunks) leaving.abort(new Error("left"));
    };
    await expect(read()).rejects.toThrow("left");
  });
});

test("A request for an unknown sandbox model is refused.", async () => {
  expect((await say("gpt", "hello")).error).toMatchObject({
    failure: "misconfigured",
    said: expect.stringContaining("echo, story, fault"),
  });
});

test("The provider lists the sandbox models.", async () => {
  expect(await sandbox.listModels?.(new AbortController().signal)).toEqual([
    "echo",
    "story",
    "fault",
    "embed",
    "image",
    "speech",
    "transcribe",
  ]);
});

describe("A sandbox model with tools", () => {
  const tool = (name: string, parameters?: Record<string, unknown>): Tool => ({
    type: "function",
    function: { name, ...(parameters && { parameters }) },
  });
  const parameters = {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer", minimum: 2 } },
    required: ["days"],
  };
  const tools = [tool("weather", parameters), tool("clock")];
  const calls = (chunks: readonly UpstreamChunk[]) => {
    const deltas = chunks.flatMap(({ delta }) => delta?.tool_calls ?? []);
    const text = (of: (delta: (typeof deltas)[number]) => string | undefined) =>
      deltas.map((delta) => of(delta) ?? "").join("");
    return {
      id: text(({ id }) => id),
      name: text((d) => d.function?.name),
      arguments: text((d) => d.function?.arguments),
    };
  };

  test.each([
    ["the first", "will it rain?", undefined, "weather"],
    ["the one that the message names", "ask the clock", "auto" as const, "clock"],
    ["one, when it must", "hello", "required" as const, "weather"],
    ["the named one", "weather?", { type: "function" as const, function: { name: "clock" } }, "clock"],
  ])("calls %s.", async (_name, content, tool_choice, name) => {
    const { chunks } = await say("echo", content, { tools, ...(tool_choice && { tool_choice }) });
    expect(calls(chunks).name).toBe(name);
    expect(calls(chunks).id).toBe("call_sandbox_1");
    expect(JSON.parse(calls(chunks).arguments)).toEqual(name === "weather" ? { days: 2 } : {});
    expect(reason(chunks)).toEqual(["tool_calls"]);
    expect(pieces(chunks)).toEqual([]);
    const told = chunks.filter(({ delta }) => delta?.tool_calls !== undefined).length;
    expect(usage(chunks)[0]?.completion_tokens).toBe(told);
  });

  test("answers with text if it must not call a tool, and after a tool's result.", async () => {
    expect((await say("echo", "weather", { tools, tool_choice: "none" })).text).toBe("weather");
    const call = { id: "call_sandbox_1", type: "function" as const, function: { name: "weather", arguments: "{}" } };
    const messages: RequestMessage[] = [
      user("weather"),
      { role: "assistant", tool_calls: [call] },
      { role: "tool", tool_call_id: "call_sandbox_1", content: "rain" },
    ];
    expect((await hear(sandbox, { model: "echo", messages, tools })).text).toBe("weather");
    const next = await hear(sandbox, { model: "echo", messages: [...messages, user("again")], tools });
    expect(calls(next.chunks).id).toBe("call_sandbox_2");
  });

  test("stops a tool call after max_tokens.", async () => {
    const { chunks } = await say("echo", "x", { tools, max_tokens: 1 });
    expect([calls(chunks).arguments, reason(chunks)]).toEqual(["", ["length"]]);
  });

  test("finds a tool's name in a sentence, with or without punctuation around it.", async () => {
    for (const content of ["what does the clock say?", "call clock().", "Use 'clock'", "the clock."]) {
      expect(calls((await say("echo", content, { tools })).chunks).name).toBe("clock");
    }
  });

  test("refuses an unsupported schema by its keyword, before it is asked for an answer.", async () => {
    const odd = [tool("plain"), tool("odd", { not: {} })];
    const refused = {
      failure: "unsupported",
      param: "tools[1].function.parameters",
      publicReason: "Invalid 'tools[1].function.parameters': the sandbox does not support the keyword 'not' (at #).",
    };
    const converted = (content: string) =>
      sandbox.convert?.(requestOf({ model: "echo", messages: [user(content)], tools: odd }));
    expect(() => converted("odd")).toThrow(expect.objectContaining(refused));
    expect((await say("echo", "odd", { tools: odd })).error).toMatchObject(refused);
    // Only the tool that is called has to be understood.
    expect(() => converted("plain")).not.toThrow();
  });
});

describe("Structured output", () => {
  test.each(["echo", "story"])("of %s is the smallest value that the schema allows.", async (model) => {
    const schema = { type: "object", required: ["n"], properties: { n: { type: "integer", minimum: 4 } } };
    const asked = { type: "json_schema" as const, json_schema: { name: "x", schema } };
    expect(JSON.parse((await say(model, "x", { response_format: asked })).text)).toEqual({ n: 4 });
    expect((await say(model, "x", { response_format: { type: "json_object" } })).text).toBe("{}");
    expect((await say("echo", "x y", { response_format: { type: "text" } })).text).toBe("x y");
  });
});

describe("The model fault", () => {
  test.each([
    ["status 429 retry-after 3", { failure: "rate_limited", retryAfterSeconds: 3 }],
    ["status 503", { failure: "overloaded", retryAfterSeconds: undefined }],
    ["status 400", { failure: "rejected", publicReason: "The sandbox simulates the status 400." }],
    ["status 401", { failure: "credentials", publicReason: undefined }],
    ["Status 500.", { failure: "failed" }],
    ["timeout", { failure: "timeout" }],
    ["unavailable", { failure: "unavailable" }],
    ["context_length", { failure: "context_length" }],
    ["content_filter prompt", { failure: "content_filter" }],
    ["delay 10ms, status 502", { failure: "failed" }],
    ["delay 9s", { failure: "timeout" }],
    ["delay 0.35s then no usage", { failure: "timeout" }],
  ])("fails instead of answering: %s.", async (message, error) => {
    const heard = await say("fault", message);
    expect(heard).toMatchObject({ error, chunks: [] });
  });

  test.each([
    ["reset after 5 tokens", 5, "failed"],
    ["reset", 1, "failed"],
    ["reset after 0 tokens", 0, "failed"],
    ["reset after 20 tokens", 20, "failed"],
    ["malformed event after 3 tokens", 3, "malformed"],
    ["error event after 1 token", 1, "failed"],
    ["silence after 2 tokens 30s", 2, "timeout"],
    ["silence after 2 tokens 10ms; reset after 4 tokens", 4, "failed"],
    ["reset after 4 tokens and silence after 2 tokens 10ms", 4, "failed"],
  ])("fails in the middle of an answer: %s.", async (message, tokens, failure) => {
    const heard = await say("fault", message);
    expect(heard.error).toMatchObject({ failure });
    expect(pieces(heard.chunks)).toHaveLength(tokens);
    expect([...reason(heard.chunks), ...usage(heard.chunks)]).toEqual([]);
  });

  test.each([
    ["no usage", { usage: 0, reason: "stop", count: 10 }],
    ["20 tokens", { usage: 1, reason: "stop", count: 20 }],
    ["length", { usage: 1, reason: "length", count: 10 }],
    ["content_filter, 3 tokens, no usage", { usage: 0, reason: "content_filter", count: 3 }],
    ["silence after 2 tokens 10ms", { usage: 1, reason: "stop", count: 10 }],
    ["reset after 9 tokens, 5 tokens", { usage: 1, reason: "stop", count: 5 }],
  ])("a whole answer: %s", async (message, expected) => {
    const { chunks, error } = await say("fault", message);
    expect(error).toBeUndefined();
    expect({ usage: usage(chunks).length, reason: reason(chunks)[0], count: pieces(chunks).length }).toEqual(expected);
  });

  test("sends a refusal instead of content.", async () => {
    const { chunks, text } = await say("fault", "refusal");
    expect(text).toBe("");
    expect(chunks.flatMap(({ delta }) => delta?.refusal ?? [])).toHaveLength(10);
  });

  test.each(["make me a sandwich", "", "status 200", "status 429 retry-after soon", "no usage, please", "delay 5"])(
    "refuses an unknown phrase and lists the known ones: '%s'.",
    async (message) => {
      const { error } = await say("fault", message);
      expect(error).toMatchObject({
        failure: "rejected",
        publicReason: expect.stringMatching(/does not understand .*'status 429 retry-after 3'.*'no usage'/),
      });
    },
  );

  test("ends a delay when its signal aborts.", async () => {
    const leaving = new AbortController();
    const messages = [user("delay 200ms")];
    const heard = hear(sandbox, { model: "fault", messages }, leaving.signal);
    leaving.abort(new Error("left"));
    expect((await heard).error).toEqual(new Error("left"));
  });
});
