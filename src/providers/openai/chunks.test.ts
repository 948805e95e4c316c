import { describe, expect, test } from "vitest";
import { Meter } from "../../gateway/meter.ts";
import { ChoicesReader, ChunkReader, ReasoningDetails, toFinishReason, toUsage } from "./chunks.ts";
import { DEFAULT_REQUEST_FORMAT, toRequestBody } from "./request.ts";

const TEXT = {
  type: "reasoning.text",
  text: "They ask for Bern.",
  signature: "sig",
  format: "anthropic-claude-v1",
  index: 0,
};
const SEALED = { type: "reasoning.encrypted", data: "abcd", id: "call_1", format: "google-gemini-v1", index: 1 };
const FORMAT = { ...DEFAULT_REQUEST_FORMAT, acceptsReasoningDetails: true, acceptsExtraContent: false };
const CALL = { index: 0, id: "call_1", type: "function", function: { name: "weather", arguments: "{}" } };

test.each([
  ["OpenAI", { completion_tokens: 30, total_tokens: 130, completion_tokens_details: { reasoning_tokens: 12 } }, 30, 12],
  ["xAI", { completion_tokens: 18, total_tokens: 130, completion_tokens_details: { reasoning_tokens: 12 } }, 30, 12],
  ["Gemini", { completion_tokens: 18, total_tokens: 130 }, 30, 12],
  ["an upstream without a total", { completion_tokens: 30 }, 30, undefined],
  ["an upstream whose total is too small", { completion_tokens: 30, total_tokens: 7 }, 30, undefined],
  [
    "an upstream whose total does not add up",
    { completion_tokens: 30, total_tokens: 999, completion_tokens_details: { reasoning_tokens: 12 } },
    30,
    12,
  ],
  ["an upstream whose total is not a number", { completion_tokens: 30, total_tokens: "130" }, 30, undefined],
])("Usage of %s counts reasoning in the completion.", (_who, counters, completion, reasoning) => {
  const usage = toUsage({ prompt_tokens: 100, ...counters });
  expect(usage).toMatchObject({ prompt_tokens: 100, completion_tokens: completion });
  expect(usage?.reasoning_tokens).toBe(reasoning);
});

test.each([
  ["OpenAI", { prompt_tokens_details: { cached_tokens: 80 } }],
  ["DeepSeek", { prompt_cache_hit_tokens: 80 }],
  ["Moonshot", { cached_tokens: 80 }],
])("Cached tokens in the usage of %s are found.", (_who, counters) => {
  const usage = toUsage({ prompt_tokens: 100, completion_tokens: 30, ...counters });
  expect(usage).toEqual({ prompt_tokens: 100, completion_tokens: 30, cached_tokens: 80 });
});

test.each([
  ["stop", false, "stop"],
  ["stop", true, "tool_calls"],
  ["length", false, "length"],
  ["tool_calls", true, "tool_calls"],
  ["content_filter", false, "content_filter"],
  ["function_call", true, "tool_calls"],
  ["MAX_TOKENS", false, "length"],
  ["safety", false, "content_filter"],
  ["end_turn", true, "tool_calls"],
  ["length", true, "length"],
  ["eos", false, "stop"],
  ["eos", true, "tool_calls"],
  ["constructor", false, "stop"],
  ["__proto__", false, "stop"],
])("The finish reason %s becomes, with tool calls %s, %s.", (word, hasToolCalls, expected) => {
  expect(toFinishReason(word, hasToolCalls)).toBe(expected);
});

test.each([["error"], ["insufficient_system_resource"]])("The finish reason %s is a failure.", (word) => {
  expect(() => toFinishReason(word, true)).toThrow(expect.objectContaining({ failure: "failed" }));
});

test("A call in the field of the time before `tools` becomes a tool call, whole and in pieces.", () => {
  const function_call = { name: "f", arguments: '{"a":1}' };
  const choice = { index: 0, finish_reason: "function_call" };
  const call = { index: 0, function: function_call };
  const message = { role: "assistant", content: null, tool_calls: [], function_call };
  const [whole] = new ChunkReader().readAnswer({ choices: [{ ...choice, message }] });
  expect(whole).toMatchObject({ delta: { tool_calls: [call] }, finish_reason: "tool_calls" });
  const reader = new ChunkReader();
  const pieces = [{ name: "f", arguments: '{"a"' }, { arguments: ":1}" }].map((piece) => {
    return reader.readEvent({ choices: [{ index: 0, delta: { function_call: piece } }] })?.delta?.tool_calls;
  });
  expect(pieces).toEqual([
    [{ index: 0, function: { name: "f", arguments: '{"a"' } }],
    [{ index: 0, function: { arguments: ":1}" } }],
  ]);
});

test("A streamed event with a whole message is read, unless pieces came before it.", () => {
  const message = { role: "assistant", content: "hello" };
  const whole = { choices: [{ index: 0, message, finish_reason: "stop" }] };
  expect(new ChunkReader().readEvent(whole)?.delta).toEqual(message);
  const reader = new ChunkReader();
  reader.readEvent({ choices: [{ index: 0, delta: { content: "hello" } }] });
  expect(reader.readEvent(whole)).toEqual({ finish_reason: "stop" });
});

test("An unknown field of any length is passed on once where each event repeats it.", () => {
  const reader = new ChunkReader();
  const read = (info: string) => reader.readEvent({ info, choices: [{ index: 0, delta: {} }] })?.whole;
  for (const info of ["short", "a".repeat(200_000), "b".repeat(200_000)]) {
    expect(read(info)).toEqual({ info });
    expect(read(info)).toBeUndefined();
  }
});

describe("Of several choices,", () => {
  const end = { finish_reason: "stop" };
  const textOf = (content: string, fields: object = {}) => ({ message: { content }, ...end, ...fields });
  const contents = (answer: object, count = 3) =>
    new ChoicesReader(count).readAnswer({ ...answer }).map(({ index, delta }) => [index, delta?.content]);

  test("an event has at most as many as were asked for.", () => {
    const choices = Array.from({ length: 150_000 }, () => ({ index: 0, delta: { content: "a" } }));
    expect(new ChoicesReader(2).readEvent({ choices })).toHaveLength(2);
    expect(new ChoicesReader(2).readAnswer({ choices: choices.map(() => textOf("a")) })).toHaveLength(2);
  });

  test.each([
    ["the same index", [0, 0, 0], [0, 1, 2]],
    ["indexes from 1 on", [1, 2, 3], [0, 1, 2]],
    ["no index", [undefined, null, undefined], [0, 1, 2]],
    ["an index that is none", ["", [], false], [0, 1, 2]],
    ["an object as index", [{ valueOf: 1, toString: 1 }, 1, 2], [0, 1, 2]],
    ["indexes as text", ["2", "0", "1"], [2, 0, 1]],
    ["gaps between them", [0, 2], [0, 2]],
  ])("those of a whole answer that have %s are all read.", (_which, given, expected) => {
    const choices = given.map((index, place) => textOf(`text ${place}`, { index }));
    expect(contents({ choices })).toEqual(expected.map((index, place) => [index, `text ${place}`]));
  });

  test.each([[{ valueOf: 1, toString: 1 }], [""], [[]], [false], [0.5], [-1], [3], ["1e0"], ["x"]])(
    "a streamed one with the index %j is ignored.",
    (index) => {
      const choices = [{ index, delta: { content: "a" } }, { delta: { content: "b" } }];
      expect(new ChoicesReader(3).readEvent({ choices })).toEqual([{ index: 1, delta: { content: "b" } }]);
    },
  );

  test("the fields of the whole answer are read once, also where the first one is ignored.", () => {
    const reader = new ChoicesReader(2);
    const whole = { id: "u", service_tier: "flex", citations: ["a"] };
    const usage = { prompt_tokens: 1, completion_tokens: 2 };
    const unusable = { index: 9, delta: { content: "x" } };
    const piece = (index: number) => ({ index, delta: { content: "a" } });
    const report = { usage: expect.objectContaining(usage) };
    expect(reader.readEvent({ ...whole, usage, choices: [unusable, piece(1)] })).toEqual([
      { responseId: "u", service_tier: "flex", whole: { service_tier: "flex", citations: ["a"] } },
      piece(1),
      report,
    ]);
    expect(reader.readEvent({ ...whole, choices: [piece(0), piece(1)] })).toEqual([
      { service_tier: "flex" },
      piece(0),
      piece(1),
    ]);
    expect(reader.readEvent({ ...whole, choices: [], usage })).toEqual([report]);
    expect(reader.readEvent({ ...whole, choices: [] })).toEqual([]);
  });

  test("the texts of all are metered once, and a report counts those of its event.", () => {
    const chunks = new ChoicesReader(2).readAnswer({
      citations: ["cited"],
      usage: { prompt_tokens: 1, completion_tokens: 2 },
      choices: [textOf("one "), textOf("two ")],
    });
    const meter = new Meter(1_000);
    meter.add(chunks);
    expect(meter.output.text()).toBe("one two ");
    expect(meter.other.text().split("cited")).toHaveLength(2);
    expect(meter.report()).toMatchObject({ tokens: { output: 2 } });
  });

  test("an answer without any is malformed.", () => {
    for (const choices of [undefined, [], [1], [end]]) {
      expect(() => new ChoicesReader(2).readAnswer({ choices })).toThrow(
        expect.objectContaining({ failure: "malformed" }),
      );
    }
  });

  test("each keeps an equal part of the reasoning details.", () => {
    const long = { ...TEXT, text: "x".repeat(40_000) };
    const message = { content: null, reasoning_details: [long], tool_calls: [CALL] };
    const answer = (count: number) =>
      new ChoicesReader(count).readAnswer({
        choices: Array.from({ length: count }, () => ({ message, finish_reason: "tool_calls" })),
      });
    const isKept = ({ delta }: { delta?: object }) => JSON.stringify(delta).includes(long.text);
    expect(answer(2).map(isKept)).toEqual([true, true]);
    expect(answer(4).map(isKept)).toEqual([false, false, false, false]);
  });
});

describe("Reasoning details", () => {
  test("of a stream are joined and added to the first call.", () => {
    const reader = new ChunkReader();
    const read = (delta: object, finish_reason?: string) =>
      reader.readEvent({ choices: [{ index: 0, delta, finish_reason }] });
    read({ reasoning: "They ask ", reasoning_details: [{ ...TEXT, text: "They ask ", signature: null }] });
    read({ reasoning: "for Bern.", reasoning_details: [{ ...TEXT, text: "for Bern.", signature: null }] });
    read({
      reasoning_details: [
        { ...TEXT, text: "" },
        { ...SEALED, data: "ab" },
      ],
    });
    read({ reasoning_details: [{ ...SEALED, data: "cd" }], tool_calls: [CALL] });
    const last = read({}, "tool_calls");
    expect(last?.delta?.tool_calls).toEqual([{ index: 0, extra_content: { reasoning_details: [TEXT, SEALED] } }]);
  });

  test("of an unstreamed answer are added to the first call.", () => {
    const message = { content: null, reasoning: "x", reasoning_details: [TEXT], tool_calls: [CALL] };
    const [chunk = {}] = new ChunkReader().readAnswer({
      choices: [{ index: 0, message, finish_reason: "tool_calls" }],
    });
    expect(chunk.delta?.tool_calls?.at(-1)).toEqual({ index: 0, extra_content: { reasoning_details: [TEXT] } });
  });

  test.each([
    ["once where they repeat the reasoning", TEXT.text, 0],
    ["as further text where they do not", "Other words.", 2],
  ])("are metered %s.", (_how, reasoning, times) => {
    const message = { content: null, reasoning, reasoning_details: [TEXT], tool_calls: [CALL] };
    const [chunk = {}] = new ChunkReader().readAnswer({
      choices: [{ index: 0, message, finish_reason: "tool_calls" }],
    });
    const meter = new Meter(1_000);
    meter.add([chunk]);
    expect(meter.reasoning.text()).toBe(reasoning);
    expect(meter.other.text().split(TEXT.text)).toHaveLength(times + 1);
  });

  test("come as complete blocks of the message.", () => {
    const message = { content: "hello", reasoning_details: [TEXT] };
    const [chunk = {}] = new ChunkReader().readAnswer({ choices: [{ index: 0, message, finish_reason: "stop" }] });
    expect(chunk.delta).toEqual({ content: "hello", reasoning_details: [TEXT] });
  });

  test("that grow after they were passed on are continued, not repeated, and metered once.", () => {
    const reader = new ChunkReader();
    const meter = new Meter(1_000);
    const read = (delta: object, finish_reason?: string) => {
      const chunk = reader.readEvent({ choices: [{ index: 0, delta, finish_reason }] }) ?? {};
      meter.add([chunk]);
      return chunk.delta?.reasoning_details;
    };
    const block = (text: string) => ({ reasoning: text, reasoning_details: [{ ...TEXT, text }] });
    expect(read({ ...block("They ask "), content: "a" })).toEqual([{ ...TEXT, text: "They ask " }]);
    expect(read({ content: "b" })).toBeUndefined();
    expect(read(block("for "))).toBeUndefined();
    expect(read(block("Bern."))).toBeUndefined();
    expect(read({ content: "c" })).toEqual([{ ...TEXT, text: "for Bern." }]);
    expect(read({ ...block(" Not Basel."), tool_calls: [CALL] }, "tool_calls")).toEqual([
      { ...TEXT, text: " Not Basel." },
    ]);
    expect(meter.reasoning.text()).toBe("They ask for Bern. Not Basel.");
    expect(meter.other.text()).not.toMatch(/They|Bern|Basel/);
  });

  test("are sent back as a field of the message.", () => {
    const { id, function: called } = CALL;
    const calls = [{ id, type: "function" as const, function: called, extra_content: { reasoning_details: [TEXT] } }];
    const request = {
      model: "m",
      max_tokens: 1,
      stream: false,
      messages: [{ role: "assistant" as const, tool_calls: calls }],
    };
    expect(JSON.parse(toRequestBody(request, FORMAT)).messages).toEqual([
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id, type: "function", function: called }],
        reasoning_details: [TEXT],
      },
    ]);
    expect(JSON.parse(toRequestBody(request, DEFAULT_REQUEST_FORMAT)).messages[0]).not.toHaveProperty(
      "reasoning_details",
    );
  });

  test("are undefined if there are none or they are too long.", () => {
    const details = new ReasoningDetails(100_000);
    expect(details.all()).toBeUndefined();
    for (let count = 0; count < 20; count += 1) details.add([{ ...TEXT, text: "x".repeat(100_000) }]);
    expect(details.all()).toBeUndefined();
    const odd = new ReasoningDetails(100_000);
    for (const pieces of [undefined, "x", [1, null, "x"], {}]) odd.add(pieces);
    expect(odd.all()).toBeUndefined();
  });
});
