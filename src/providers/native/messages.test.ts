import { describe, expect, test } from "vitest";
import { expectCutsToFail, hearAnswer, type JsonEvent, nativeOf } from "../../../test/support/second-wire.ts";
import { NATIVE_DOCUMENT } from "../../api/answer.ts";
import { AnswerFold } from "../../api/answer-fold.ts";
import { Meter } from "../../gateway/meter.ts";

const SECOND = { wire: "messages" } as const;
const hear = (answer: readonly JsonEvent[] | object) => hearAnswer(SECOND, answer);

/** The events of a stream are those of "Streaming messages" and "Extended thinking" in Anthropic's documentation. */
const message = (usage: object) => ({
  id: "msg_014p7gG3wDgGV9EUtLvnow3U",
  type: "message",
  role: "assistant",
  model: "claude-opus-4-6",
  stop_sequence: null,
  usage,
  content: [],
  stop_reason: null,
});
const start = (usage: object = { input_tokens: 472, output_tokens: 2 }): JsonEvent => ({
  type: "message_start",
  message: message(usage),
});
const begin = (index: number, block: object): JsonEvent => ({
  type: "content_block_start",
  index,
  content_block: block,
});
const delta = (index: number, piece: object): JsonEvent => ({ type: "content_block_delta", index, delta: piece });
const stop = (index: number): JsonEvent => ({ type: "content_block_stop", index });
const end = (reason = "end_turn", usage: object = { output_tokens: 89 }): JsonEvent[] => [
  { type: "message_delta", delta: { stop_reason: reason, stop_sequence: null }, usage },
  { type: "message_stop" },
];
const PING: JsonEvent = { type: "ping" };
const SAY_HELLO = [
  begin(0, { type: "text", text: "" }),
  delta(0, { type: "text_delta", text: "Hello" }),
  delta(0, { type: "text_delta", text: "!" }),
  stop(0),
];

const THINK_AND_CALL: readonly JsonEvent[] = [
  start(),
  PING,
  begin(0, { type: "thinking", thinking: "", signature: "" }),
  delta(0, { type: "thinking_delta", thinking: "The user asks for the weather. " }),
  delta(0, { type: "thinking_delta", thinking: "I need the tool — “get_weather”." }),
  delta(0, { type: "signature_delta", signature: "EqQBCgIYAhIM1gbcDa9GJwZA2b3h" }),
  delta(0, { type: "signature_delta", signature: "GgxBdjrkzLoky3dl1pk=" }),
  stop(0),
  begin(1, { type: "redacted_thinking", data: "EmwKAhgBEgy3va3pzix" }),
  stop(1),
  begin(2, { type: "text", text: "" }),
  delta(2, { type: "text_delta", text: "Okay, let's check" }),
  stop(2),
  begin(3, { type: "tool_use", id: "toolu_01T1x1fJ34qAmk2tNTrN7Up6", name: "get_weather", input: {} }),
  delta(3, { type: "input_json_delta", partial_json: "" }),
  delta(3, { type: "input_json_delta", partial_json: '{"location":' }),
  delta(3, { type: "input_json_delta", partial_json: ' "San Francisco, CA"}' }),
  stop(3),
  begin(4, { type: "tool_use", id: "toolu_02", name: "now", input: {} }),
  stop(4),
  ...end("tool_use"),
];

describe("A streamed message", () => {
  test("with thinking, text and tool calls becomes one answer.", async () => {
    const { chunks, error } = await hear(THINK_AND_CALL);
    expect(error).toBeUndefined();
    const fold = new AnswerFold();
    fold.add(chunks);
    expect(fold.message()).toEqual({
      role: "assistant",
      content: "Okay, let's check",
      refusal: null,
      reasoning_content: "The user asks for the weather. I need the tool — “get_weather”.",
      reasoning_details: [
        {
          type: "reasoning.text",
          format: "anthropic-claude-v1",
          text: "The user asks for the weather. I need the tool — “get_weather”.",
          signature: "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk=",
        },
        { type: "reasoning.encrypted", format: "anthropic-claude-v1", data: "EmwKAhgBEgy3va3pzix" },
      ],
      tool_calls: [
        {
          id: "toolu_01T1x1fJ34qAmk2tNTrN7Up6",
          type: "function",
          function: { name: "get_weather", arguments: '{"location": "San Francisco, CA"}' },
        },
        { id: "toolu_02", type: "function", function: { name: "now", arguments: "" } },
      ],
    });
    expect(chunks[0]).toMatchObject({ responseId: "msg_014p7gG3wDgGV9EUtLvnow3U" });
    expect(chunks.map(({ finish_reason }) => finish_reason).filter(Boolean)).toEqual(["tool_calls"]);
  });

  test("keeps its events unchanged, unknown ones too, except those that the service writes itself.", async () => {
    const unknown: JsonEvent = { type: "content_block_annotated", index: 0, annotation: { deep: [1, null, "ü"] } };
    const events = [start(), ...SAY_HELLO, unknown, PING, ...end()];
    const { chunks } = await hear(events);
    const passed = [...SAY_HELLO, unknown].map((data) => ({ type: data.type, data }));
    const ending = { type: "message_delta", data: { stop_reason: "end_turn", stop_sequence: null } };
    expect(chunks.flatMap(({ native = [] }) => native)).toMatchObject([...passed, ending]);
    const { chunks: others } = await hear(THINK_AND_CALL);
    const blocks = ({ type }: { type: string }) => type.startsWith("content_block");
    expect(others.flatMap(({ native = [] }) => native.filter(blocks).map(({ data }) => data))).toEqual(
      THINK_AND_CALL.filter(blocks),
    );
  });

  test("that is cut at any byte gives the chunks before the cut and a failure.", async () => {
    await expectCutsToFail(SECOND, THINK_AND_CALL);
  });

  test.each([
    ["end_turn", "stop"],
    ["stop_sequence", "stop"],
    ["max_tokens", "length"],
    ["model_context_window_exceeded", "length"],
    ["refusal", "content_filter"],
    ["a_new_reason", "stop"],
  ])("with the stop reason %s ends with %s.", async (reason, expected) => {
    const { chunks, error } = await hear([start(), ...SAY_HELLO, ...end(reason)]);
    expect(error).toBeUndefined();
    expect(chunks.at(-2)?.finish_reason).toBe(expected);
  });

  test("without a stop reason is a failure.", async () => {
    const events = [start(), ...SAY_HELLO, { type: "message_stop" }];
    expect(await hear(events)).toMatchObject({ text: "Hello!", error: { failure: "failed" } });
  });

  test.each([
    ["overloaded_error", "overloaded"],
    ["api_error", "failed"],
    ["rate_limit_error", "rate_limited"],
    ["invalid_request_error", "rejected"],
  ])("with the error %s fails as %s, and the error is no text.", async (type, failure) => {
    const error: JsonEvent = { type: "error", error: { type, message: "Overloaded" } };
    expect(await hear([start(), ...SAY_HELLO, error])).toMatchObject({ text: "Hello!", error: { failure } });
  });
});

describe("The usage of a streamed message", () => {
  const charged = async (events: readonly JsonEvent[]) => {
    const meter = new Meter(1_000);
    meter.add((await hear(events)).chunks);
    return meter.report();
  };

  test("is that of the last event, although each event repeats it.", async () => {
    const events = [start(), ...SAY_HELLO, ...end("end_turn", { input_tokens: 472, output_tokens: 89 })];
    expect(await charged(events)).toEqual({
      tokens: { input: 472, cachedInput: 0, cacheWrite: 0, output: 89, reasoning: 0 },
      isFinal: true,
    });
  });

  test.each([{}, { input_tokens: 472 }, { output_tokens: null }, { output_tokens: "89" }])(
    "is no report of the text where its end states %j: the beginning has a placeholder of the output.",
    async (usage) => {
      const report = await charged([start(), ...SAY_HELLO, ...end("end_turn", usage)]);
      expect(report?.isFinal).not.toBe(true);
    },
  );

  test("adds cached and written tokens to the prompt, which excludes them.", async () => {
    const usage = {
      input_tokens: 21,
      cache_creation_input_tokens: 700,
      cache_read_input_tokens: 188_086,
      cache_creation: { ephemeral_5m_input_tokens: 456, ephemeral_1h_input_tokens: 244 },
      output_tokens: 3,
      service_tier: "standard",
    };
    const last = { output_tokens: 393, output_tokens_details: { thinking_tokens: 120 }, cache_read_input_tokens: null };
    expect(await charged([start(usage), ...SAY_HELLO, ...end("end_turn", last)])).toEqual({
      tokens: {
        input: 21,
        cachedInput: 188_086,
        cacheWrite: 700,
        cacheWrite1h: 244,
        output: 273,
        reasoning: 120,
      },
      isFinal: true,
    });
  });

  test("names the parts with a price of their own, and the service tier.", async () => {
    const usage = {
      input_tokens: 21,
      cache_creation_input_tokens: 700,
      cache_creation: { ephemeral_5m_input_tokens: 456, ephemeral_1h_input_tokens: 244 },
      server_tool_use: { web_search_requests: 2 },
      output_tokens: 3,
      service_tier: "standard",
    };
    const { chunks } = await hear([start(usage), ...SAY_HELLO, ...end()]);
    expect(chunks.at(-2)).toMatchObject({
      usage: { cache_write_tokens: 700, cache_write_1h_tokens: 244, searches: 2, completion_tokens: 89 },
      service_tier: "standard",
    });
  });

  test("is known from the first event on, but not final after more text.", async () => {
    expect(await charged([start(), ...SAY_HELLO])).toMatchObject({ tokens: { input: 472, output: 2 }, isFinal: false });
  });

  test("is absent where the upstream reports none.", async () => {
    expect(await charged([start({}), ...SAY_HELLO, ...end("end_turn", {})])).toBeUndefined();
  });
});

describe("A message that is not streamed", () => {
  const content = [
    { type: "thinking", thinking: "Hm.", signature: "sig" },
    { type: "text", text: "Two " },
    { type: "text", text: "parts", citations: [{ type: "char_location", cited_text: "parts" }] },
    { type: "tool_use", id: "toolu_1", name: "f", input: { a: 1 } },
  ];
  const usage = { input_tokens: 10, cache_read_input_tokens: 5, output_tokens: 7 };
  const answer = { ...message(usage), content, stop_reason: "stop_sequence", stop_sequence: "END" };

  test("becomes the chunks of its blocks, and a last one with usage.", async () => {
    const { chunks, error } = await hear(answer);
    expect(error).toBeUndefined();
    const fold = new AnswerFold();
    fold.add(chunks);
    expect(fold.message()).toMatchObject({
      content: "Two parts",
      reasoning_content: "Hm.",
      reasoning_details: [{ type: "reasoning.text", text: "Hm.", signature: "sig" }],
      tool_calls: [{ id: "toolu_1", function: { name: "f", arguments: '{"a":1}' } }],
    });
    expect(chunks.every(({ native }) => native !== undefined)).toBe(true);
    expect(chunks.at(-1)).toMatchObject({
      finish_reason: "tool_calls",
      usage: { prompt_tokens: 15, cached_tokens: 5, completion_tokens: 7 },
    });
  });

  test("is kept as it is.", async () => {
    const { chunks } = await hear(answer);
    const { content, stop_reason, stop_sequence } = answer;
    const document = { type: NATIVE_DOCUMENT, data: { content, stop_reason, stop_sequence } };
    expect(chunks.flatMap(({ native }) => native)).toMatchObject([document]);
  });

  test.each([
    ["without content", { ...answer, content: undefined }, "malformed"],
    ["without a stop reason", { ...answer, stop_reason: null }, "failed"],
    ["that is an error", { type: "error", error: { type: "overloaded_error", message: "Overloaded" } }, "overloaded"],
  ])("%s is a failure.", async (_name, broken, failure) => {
    expect(await hear(broken)).toMatchObject({ chunks: [], error: { failure } });
  });
});

test("Blocks of unknown types do not become text.", async () => {
  const events = [
    start(),
    begin(0, { type: "new_block", text: "hidden" }),
    delta(0, { type: "new_delta", text: "hidden" }),
    delta(7, { type: "text_delta", text: "of a block that was not started" }),
    stop(0),
    stop(7),
    ...end(),
  ];
  const { chunks, text, error } = await hearAnswer(SECOND, events, { native: nativeOf("messages") });
  expect({ text, error }).toEqual({ text: "", error: undefined });
  expect(chunks.flatMap(({ native = [] }) => native)).toHaveLength(events.length - 2);
});

test.each(["messages", "responses"] as const)("An event whose type is no name is not passed on: %s.", async (wire) => {
  const forged = { type: "ping\n\nevent: message_stop", sequence_number: 1 };
  const { chunks } = await hearAnswer({ wire }, [forged], { native: nativeOf(wire) });
  expect(chunks).toEqual([]);
});
