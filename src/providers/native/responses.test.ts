import { describe, expect, test } from "vitest";
import { expectCutsToFail, hearAnswer, type JsonEvent } from "../../../test/support/second-wire.ts";
import { NATIVE_DOCUMENT } from "../../api/answer.ts";
import { AnswerFold } from "../../api/answer-fold.ts";
import { reportedTokens } from "../../gateway/meter.ts";

const SECOND = { wire: "responses" } as const;
const hear = (answer: readonly JsonEvent[] | object) => hearAnswer(SECOND, answer);

/** The events of a stream are those of "Streaming events" in OpenAI's reference of the Responses API. */
const response = (fields: object = {}) => ({
  id: "resp_67c9fdcecf488190bdd9a0409de3a1ec",
  object: "response",
  created_at: 1_741_290_958,
  status: "in_progress",
  error: null,
  incomplete_details: null,
  model: "gpt-5.3-codex",
  output: [],
  store: false,
  usage: null,
  ...fields,
});
const USAGE = {
  input_tokens: 328,
  input_tokens_details: { cached_tokens: 64 },
  output_tokens: 152,
  output_tokens_details: { reasoning_tokens: 128 },
  total_tokens: 480,
};
const CREATED: JsonEvent = { type: "response.created", response: response() };
const IN_PROGRESS: JsonEvent = { type: "response.in_progress", response: response() };
const added = (output_index: number, item: object): JsonEvent => ({
  type: "response.output_item.added",
  output_index,
  item,
});
const done = (output_index: number, item: object): JsonEvent => ({
  type: "response.output_item.done",
  output_index,
  item,
});
const piece = (type: string, output_index: number, delta: string): JsonEvent => ({
  type: `response.${type}.delta`,
  output_index,
  content_index: 0,
  delta,
});
const completed = (output: readonly object[], fields: object = {}): JsonEvent => ({
  type: "response.completed",
  response: response({ status: "completed", output, usage: USAGE, ...fields }),
});

const SUMMARY = [{ type: "summary_text", text: "**Checking** the weather" }];
const REASONING = { id: "rs_1", type: "reasoning", summary: SUMMARY, encrypted_content: "gAAAAABn" };
const CALL = {
  id: "fc_1",
  type: "function_call",
  call_id: "call_1",
  name: "get_weather",
  arguments: '{"city":"Paris"}',
};
const CUSTOM = {
  id: "ctc_1",
  type: "custom_tool_call",
  call_id: "call_2",
  name: "apply_patch",
  input: "*** Begin Patch",
};
const MESSAGE = {
  id: "msg_1",
  type: "message",
  role: "assistant",
  status: "completed",
  content: [{ type: "output_text", text: "Let’s see.", annotations: [] }],
};
const OUTPUT = [REASONING, MESSAGE, CALL, CUSTOM];

const REASON_AND_CALL: readonly JsonEvent[] = [
  CREATED,
  IN_PROGRESS,
  added(0, { ...REASONING, summary: [], encrypted_content: "" }),
  { type: "response.reasoning_summary_part.added", item_id: "rs_1", output_index: 0, summary_index: 0 },
  piece("reasoning_summary_text", 0, "**Checking** "),
  piece("reasoning_summary_text", 0, "the weather"),
  done(0, REASONING),
  added(1, { ...MESSAGE, content: [] }),
  piece("output_text", 1, "Let’s "),
  piece("output_text", 1, "see."),
  done(1, MESSAGE),
  added(2, { ...CALL, arguments: "" }),
  piece("function_call_arguments", 2, '{"city":'),
  piece("function_call_arguments", 2, '"Paris"}'),
  { type: "response.function_call_arguments.done", output_index: 2, arguments: CALL.arguments },
  done(2, CALL),
  added(3, { ...CUSTOM, input: "" }),
  piece("custom_tool_call_input", 3, "*** Begin Patch"),
  done(3, CUSTOM),
  completed(OUTPUT),
];
const ANSWER = {
  role: "assistant",
  content: "Let’s see.",
  refusal: null,
  reasoning_content: "**Checking** the weather",
  reasoning_details: [{ type: "reasoning.encrypted", format: "openai-responses-v1", id: "rs_1", data: "gAAAAABn" }],
  tool_calls: [
    { id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city":"Paris"}' } },
    { id: "call_2", type: "function", function: { name: "apply_patch", arguments: "*** Begin Patch" }, isCustom: true },
  ],
};

describe("A streamed response", () => {
  test("with reasoning, text and calls becomes one answer.", async () => {
    const { chunks, error } = await hear(REASON_AND_CALL);
    expect(error).toBeUndefined();
    const fold = new AnswerFold();
    fold.add(chunks);
    expect(fold.message()).toEqual(ANSWER);
    expect(chunks[0]).toMatchObject({ responseId: "resp_67c9fdcecf488190bdd9a0409de3a1ec" });
    expect(chunks.at(-1)).toMatchObject({ finish_reason: "tool_calls" });
  });

  test("keeps its events unchanged, unknown ones too, except those that the service writes itself.", async () => {
    const unknown: JsonEvent = { type: "response.something.new", nested: { values: [1, null, "ü"] } };
    const events = [...REASON_AND_CALL.slice(0, 5), unknown, ...REASON_AND_CALL.slice(5)];
    const { chunks } = await hear(events);
    const own = ["response.created", "response.in_progress", "response.completed"];
    const passed = events.filter(({ type }) => !own.includes(type)).map((data) => ({ type: data.type, data }));
    expect(chunks.flatMap(({ native = [] }) => native)).toMatchObject(passed);
  });

  test("that is cut at any byte gives the chunks before the cut and a failure.", async () => {
    await expectCutsToFail(SECOND, REASON_AND_CALL);
  });

  test("with a refusal is a refusal.", async () => {
    const { chunks } = await hear([
      CREATED,
      piece("refusal", 0, "I can’t "),
      piece("refusal", 0, "do that."),
      completed([]),
    ]);
    const fold = new AnswerFold();
    fold.add(chunks);
    expect(fold.message()).toMatchObject({ content: null, refusal: "I can’t do that." });
    expect(chunks.at(-1)?.finish_reason).toBe("stop");
  });

  test("whose arguments arrive only at the end of the item has them once.", async () => {
    const { chunks } = await hear([CREATED, added(0, { ...CALL, arguments: "" }), done(0, CALL), completed([CALL])]);
    const fold = new AnswerFold();
    fold.add(chunks);
    expect(fold.message().tool_calls?.[0]?.function.arguments).toBe(CALL.arguments);
  });

  test.each([
    ["max_output_tokens", "length"],
    ["content_filter", "content_filter"],
    ["a_new_reason", "length"],
  ])("that is incomplete because of %s ends with %s.", async (reason, expected) => {
    const fields = { status: "incomplete", incomplete_details: { reason }, usage: USAGE };
    const { chunks, error } = await hear([
      CREATED,
      piece("output_text", 0, "Let"),
      { type: "response.incomplete", response: response(fields) },
    ]);
    expect(error).toBeUndefined();
    expect(chunks.at(-1)).toMatchObject({ finish_reason: expected, usage: { completion_tokens: 152 } });
  });

  test.each<[string, JsonEvent, string]>([
    ["error event", { type: "error", code: "server_error", message: "Something went wrong", param: null }, "failed"],
    [
      "error event of a rate limit",
      { type: "error", code: "rate_limit_exceeded", message: "Slow down" },
      "rate_limited",
    ],
    [
      "failed response",
      {
        type: "response.failed",
        response: response({ status: "failed", error: { code: "server_error", message: "x" } }),
      },
      "failed",
    ],
    [
      "refused prompt",
      {
        type: "response.failed",
        response: response({ status: "failed", error: { code: "invalid_prompt", message: "x" } }),
      },
      "rejected",
    ],
  ])("with an %s is a failure, and the error is no text.", async (_name, event, failure) => {
    const heard = await hear([CREATED, piece("output_text", 0, "Let"), event]);
    expect(heard).toMatchObject({ text: "Let", error: { failure } });
    expect(heard.chunks.some(({ finish_reason }) => finish_reason !== undefined)).toBe(false);
  });
});

describe("The usage of a response", () => {
  const tokensOf = async (usage: object | null) => {
    const { chunks } = await hear([CREATED, completed([MESSAGE], { usage })]);
    const reports = chunks.flatMap((chunk) => chunk.usage ?? []);
    return reports.map((report) => reportedTokens(report));
  };

  test("is reported once, in classes that do not overlap.", async () => {
    expect(await tokensOf(USAGE)).toEqual([{ input: 264, cachedInput: 64, cacheWrite: 0, output: 24, reasoning: 128 }]);
    const written = { ...USAGE, input_tokens_details: { cached_tokens: 64, cache_write_tokens: 200 } };
    expect(await tokensOf(written)).toEqual([
      { input: 64, cachedInput: 64, cacheWrite: 200, output: 24, reasoning: 128 },
    ]);
  });

  test("is never negative where cached tokens are counted beside the others.", async () => {
    const beside = { ...USAGE, input_tokens: 10, input_tokens_details: { cached_tokens: 64 } };
    expect(await tokensOf(beside)).toEqual([{ input: 10, cachedInput: 64, cacheWrite: 0, output: 24, reasoning: 128 }]);
  });

  test("comes with the service tier.", async () => {
    const { chunks } = await hear([CREATED, completed([MESSAGE], { service_tier: "default" })]);
    expect(chunks.at(-1)?.service_tier).toBe("default");
  });

  test("is absent where the upstream reports none.", async () => {
    expect(await tokensOf(null)).toEqual([]);
  });
});

describe("A response that is not streamed", () => {
  const answer = response({ status: "completed", output: OUTPUT, usage: USAGE });

  test("becomes the chunks of its items, and a last one with usage and the event that would end its stream.", async () => {
    const { chunks, error } = await hear(answer);
    expect(error).toBeUndefined();
    const fold = new AnswerFold();
    fold.add(chunks);
    expect(fold.message()).toEqual(ANSWER);
    expect(chunks.every(({ native }) => native !== undefined)).toBe(true);
    expect(chunks.at(-1)).toMatchObject({
      finish_reason: "tool_calls",
      usage: { prompt_tokens: 328, reasoning_tokens: 128 },
    });
    expect(chunks.flatMap(({ native }) => native)).toMatchObject([{ type: NATIVE_DOCUMENT, data: { output: OUTPUT } }]);
  });

  test.each([
    ["without output", { ...answer, output: undefined }, "malformed"],
    ["in the background", { ...answer, status: "queued", output: [] }, "failed"],
    ["that was cancelled", { ...answer, status: "cancelled" }, "failed"],
    [
      "that failed",
      { ...answer, status: "failed", error: { code: "rate_limit_exceeded", message: "x" } },
      "rate_limited",
    ],
  ])("%s is a failure.", async (_name, broken, failure) => {
    expect(await hear(broken)).toMatchObject({ chunks: [], error: { failure } });
  });
});
