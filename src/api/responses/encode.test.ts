import { expect, test } from "vitest";
import { type AnswerPiece, NATIVE_DOCUMENT } from "../answer.ts";
import { AnswerFold } from "../answer-fold.ts";
import type { FinishReason } from "../chat/completion.ts";
import type { DecodedCompletion } from "../wire.ts";
import { decodeResponses } from "./decode.ts";

const HEAD = { id: "0".repeat(31).concat("1"), created: 1_800_000_000, model: "m", organizationId: "org", headers: {} };
const USAGE = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5, cost: 0.5 };
const end = (finishReason: FinishReason) => ({ finishReason, usage: USAGE, headers: {} });

function decoded(fields: object = {}): DecodedCompletion {
  return decodeResponses({ model: "m", input: "Go", ...fields });
}

type Event = { type: string; sequence_number: number; [field: string]: unknown };

/** Returns the events of a streamed answer, each checked against its `event:` line and its place. */
function eventsOf(
  request: DecodedCompletion,
  pieces: readonly AnswerPiece[],
  finishReason: FinishReason | Error,
): Event[] {
  const events: Event[] = [];
  const add = (text: string) => {
    const [, type, json = ""] = /^event: (.*)\ndata: (.*)\n\n$/.exec(text) ?? [];
    const event = JSON.parse(json) as Event;
    expect([event.type, event.sequence_number]).toEqual([type, events.length]);
    events.push(event);
  };
  const encoder = request.events(HEAD, add);
  for (const piece of pieces) encoder.push([piece]);
  if (typeof finishReason === "string") encoder.close(end(finishReason));
  else
    encoder.fail({
      status: 504,
      code: "upstream_timeout",
      type: "server_error",
      message: "Late.",
      param: null,
      fields: {},
    });
  return events;
}

function documentOf(
  request: DecodedCompletion,
  pieces: readonly AnswerPiece[],
  finishReason: FinishReason,
): object | string {
  const fold = new AnswerFold();
  fold.add(pieces);
  return request.document(HEAD, fold, end(finishReason));
}

const PIECES: AnswerPiece[] = [
  { delta: { role: "assistant", reasoning_content: "Hm" } },
  { delta: { reasoning_content: "." } },
  { delta: { reasoning_details: [{ type: "reasoning.text", format: "f", text: "Hm.", signature: "s" }] } },
  { delta: { content: "One" }, logprobs: { content: [{ token: "One" }] } },
  { delta: { content: " two" } },
  { delta: { tool_calls: [{ index: 0, id: "a", type: "function", function: { name: "f", arguments: "{" } }] } },
  { delta: { tool_calls: [{ index: 1, id: "b", type: "function", function: { name: "c", arguments: '{"input":' } }] } },
  { delta: { tool_calls: [{ index: 0, function: { arguments: "}" }, extra_content: { key: 1 } }] } },
  { delta: { tool_calls: [{ index: 1, function: { arguments: '"x"}' } }] } },
];
const TOOLS = { tools: [{ type: "custom", name: "c" }], top_logprobs: 1 };

test("A streamed answer ends with the document of the same answer.", () => {
  const request = decoded(TOOLS);
  const events = eventsOf(request, PIECES, "tool_calls");
  const last = events.at(-1);
  expect(last?.type).toBe("response.completed");
  expect(last?.response).toEqual(documentOf(request, PIECES, "tool_calls"));
  expect(last?.response).toMatchObject({
    id: `resp_${HEAD.id}`,
    status: "completed",
    usage: { input_tokens: 3, output_tokens: 2, total_tokens: 5, cost: 0.5 },
    output: [
      { type: "reasoning", summary: [{ type: "summary_text", text: "Hm." }], encrypted_content: expect.any(String) },
      { type: "message", content: [{ type: "output_text", text: "One two", logprobs: [{ token: "One" }] }] },
      { type: "function_call", call_id: "a", name: "f", arguments: "{}" },
      { type: "custom_tool_call", call_id: "b", name: "c", input: "x" },
      { type: "reasoning", summary: [], encrypted_content: expect.any(String) },
    ],
  });
});

test("Each item is added once, and done once with its final form.", () => {
  const events = eventsOf(decoded(TOOLS), PIECES, "tool_calls");
  const { output } = documentOf(decoded(TOOLS), PIECES, "tool_calls") as { output: object[] };
  const of = (type: string) => events.filter((event) => event.type === type);
  expect(of("response.output_item.added").map(({ output_index }) => output_index)).toEqual([0, 1, 2, 3, 4]);
  const done = of("response.output_item.done").map(({ output_index, item }) => [output_index, item]);
  expect(done).toEqual(output.map((item, index) => [index, item]));
  expect(of("response.function_call_arguments.delta").map(({ delta }) => delta)).toEqual(["{", "}"]);
  expect(of("response.custom_tool_call_input.done").map(({ input }) => input)).toEqual(["x"]);
});

test("The output, sent back as input, is the message that the provider gave.", () => {
  const { output } = documentOf(decoded(TOOLS), PIECES, "tool_calls") as { output: object[] };
  const fold = new AnswerFold();
  fold.add(PIECES);
  const { refusal: _none, content, ...message } = fold.message();
  expect(decoded({ ...TOOLS, input: output }).request.messages).toEqual([
    { ...message, content: [{ type: "text", text: content }] },
  ]);
});

test("An empty answer has an empty message, unless it was cut before its first token.", () => {
  expect(documentOf(decoded(), [], "stop")).toMatchObject({
    output: [{ type: "message", status: "completed", content: [{ type: "output_text", text: "" }] }],
  });
  expect(documentOf(decoded(), [], "length")).toMatchObject({ status: "incomplete", output: [] });
});

test("A refusal is a part of its own.", () => {
  const types = eventsOf(decoded(), [{ delta: { refusal: "No." } }], "stop").map(({ type }) => type);
  expect(types).toContain("response.refusal.delta");
  expect(types).toContain("response.refusal.done");
});

test("Citations become annotations of the text, and calls of custom tools keep their input as it is.", () => {
  const source = { url: "https://a.example/b", title: "B", start_index: 0, end_index: 2 };
  const called = { index: 0, id: "c", function: { name: "sh", arguments: '{"input":1}' }, isCustom: true as const };
  const pieces: AnswerPiece[] = [
    { delta: { content: "Hi" } },
    { delta: { annotations: [{ type: "url_citation", url_citation: source }] } },
    { delta: { tool_calls: [called] } },
  ];
  const annotation = { type: "url_citation", ...source };
  expect(eventsOf(decoded(), pieces, "stop")).toContainEqual(
    expect.objectContaining({ type: "response.output_text.annotation.added", annotation_index: 0, annotation }),
  );
  expect(documentOf(decoded(), pieces, "stop")).toMatchObject({
    output: [
      { content: [{ text: "Hi", annotations: [annotation] }] },
      { type: "custom_tool_call", name: "sh", input: '{"input":1}' },
    ],
  });
});

test("A failure ends the stream with the output so far.", () => {
  const last = eventsOf(decoded(), [{ delta: { content: "Half" } }], new Error()).at(-1);
  expect(last).toMatchObject({
    type: "response.failed",
    response: {
      status: "failed",
      error: { code: "server_error", message: "Late." },
      output: [{ status: "in_progress", content: [{ text: "Half" }] }],
    },
  });
});

test("Events of an upstream on this wire pass through with the ids, the model and the usage of the service.", () => {
  const item = {
    id: "msg_up",
    type: "message",
    role: "assistant",
    status: "completed",
    content: [],
    phase: "commentary",
  };
  const upstream = { id: "resp_up", model: "up-2026", output: [item], usage: { input_tokens: 99 } };
  const native = (type: string, fields: object) => ({
    native: [{ type, data: { type, sequence_number: 70, ...fields } }],
  });
  const pieces: AnswerPiece[] = [
    { native: [] },
    { delta: { content: "Hi" }, ...native("response.output_text.delta", { item_id: "msg_up", delta: "Hi" }) },
    native("response.output_item.done", { output_index: 0, item }),
    { native: [] },
  ];
  const request = decoded();
  const events = eventsOf(request, pieces, "stop");
  expect(events.map(({ type }) => type)).toEqual([
    "response.created",
    "response.in_progress",
    "response.output_text.delta",
    "response.output_item.done",
    "response.completed",
  ]);
  const expected = { id: `resp_${HEAD.id}`, model: "m", output: [item], usage: { input_tokens: 3 } };
  expect(events.at(-1)?.response).toMatchObject(expected);
  const document = { type: NATIVE_DOCUMENT, data: upstream };
  expect(documentOf(request, [{ native: [document] }], "stop")).toEqual(events.at(-1)?.response);
});
