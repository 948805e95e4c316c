import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, test } from "vitest";
import { type AnswerPiece, NATIVE_DOCUMENT, type NativeEvent } from "../answer.ts";
import { AnswerFold } from "../answer-fold.ts";
import { messageEvents, toMessage } from "./encode.ts";

const HEAD = { id: "0".repeat(32), created: 0, model: "m", organizationId: "org", headers: {} };
const USAGE = {
  prompt_tokens: 100,
  completion_tokens: 20,
  total_tokens: 120,
  prompt_tokens_details: { cached_tokens: 60, cache_write_tokens: 10, cache_write_1h_tokens: 4 },
  completion_tokens_details: { reasoning_tokens: 5 },
  cost: 0.5,
};
const END = { finishReason: "stop" as const, usage: USAGE, headers: {} };

type Event = { type: string } & Record<string, unknown>;

/** Returns the events of an answer, each of whose names equals its type. */
function eventsOf(
  pieces: readonly AnswerPiece[],
  end: typeof END | { finishReason: "tool_calls" | "length"; usage: typeof USAGE; headers: object } = END,
): Event[] {
  const events: Event[] = [];
  const add = (text: string) => {
    const [, type, data = ""] = /^event: (.*)\ndata: (.*)\n\n$/s.exec(text) ?? [];
    const event = JSON.parse(data) as Event;
    expect(event.type).toBe(type);
    events.push(event);
  };
  const encoder = messageEvents(HEAD, add);
  for (const piece of pieces) encoder.push([piece]);
  encoder.close({ headers: {}, finishReason: end.finishReason, usage: end.usage });
  return events;
}

/** Folds the events of content blocks, and checks that the blocks follow one another. */
function blocksOf(events: readonly Event[]): Record<string, unknown>[] {
  const blocks: Record<string, unknown>[] = [];
  let open = -1;
  for (const { type, index, content_block, delta } of events) {
    if (type === "content_block_start") {
      expect([open, index]).toEqual([-1, blocks.length]);
      open = blocks.length;
      blocks.push({ ...(content_block as object) });
    } else if (type === "content_block_delta" || type === "content_block_stop") {
      expect(index).toBe(open);
      const block = blocks[open] ?? {};
      const { type: _kind, ...fields } = (delta ?? {}) as Record<string, string>;
      for (const [name, value] of Object.entries(fields)) block[name] = `${block[name] ?? ""}${value}`;
      if (type === "content_block_stop") open = -1;
    }
  }
  expect(open).toBe(-1);
  return blocks;
}

function documentOf(pieces: readonly AnswerPiece[], finishReason: "stop" | "length" | "tool_calls" = "stop") {
  const fold = new AnswerFold();
  fold.add(pieces);
  return toMessage(HEAD, fold, { ...END, finishReason });
}

const call = (index: number, id: string, text: string, name = "look"): AnswerPiece => ({
  delta: { tool_calls: [{ index, id, type: "function", function: { name, arguments: text } }] },
});
const more = (index: number, text: string): AnswerPiece => ({
  delta: { tool_calls: [{ index, function: { arguments: text } }] },
});
const signed = { type: "reasoning.text", format: "anthropic-claude-v1", text: "I think.", signature: "s+/=" } as const;
const thinking: AnswerPiece[] = [
  { delta: { reasoning_content: "I " } },
  { delta: { reasoning_content: "think." } },
  { delta: { reasoning_details: [signed] } },
  { delta: { reasoning_details: [{ type: "reasoning.encrypted", format: "anthropic-claude-v1", data: "opaque" }] } },
];

describe("A stream", () => {
  test("keeps no text of its answer.", () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const encoder = messageEvents(HEAD, () => {});
    const mebibyte = 1024 * 1024;
    collect();
    const before = process.memoryUsage().heapUsed;
    for (let piece = 0; piece < 64; piece += 1) {
      encoder.push([{ delta: { reasoning_content: `${piece}`.repeat(mebibyte / 2) } }]);
    }
    for (let piece = 0; piece < 64; piece += 1) encoder.push([{ delta: { content: `${piece}`.repeat(mebibyte / 2) } }]);
    collect();
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(16 * mebibyte);
    encoder.close(END);
  });

  test("begins with the message and ends with its usage.", () => {
    const events = eventsOf([{ delta: { content: "Hello" } }, { delta: { content: " you" } }]);
    expect(events.map(({ type }) => type)).toEqual([
      "message_start",
      "content_block_start",
      "content_block_delta",
      "content_block_delta",
      "content_block_stop",
      "message_delta",
      "message_stop",
    ]);
    expect(events[0]?.message).toMatchObject({ id: `msg_${HEAD.id}`, role: "assistant", model: "m", content: [] });
    expect(events.at(-2)).toEqual({
      type: "message_delta",
      delta: { stop_reason: "end_turn", stop_sequence: null },
      usage: {
        input_tokens: 30,
        cache_creation_input_tokens: 10,
        cache_creation: { ephemeral_5m_input_tokens: 6, ephemeral_1h_input_tokens: 4 },
        cache_read_input_tokens: 60,
        output_tokens: 20,
        output_tokens_details: { thinking_tokens: 5 },
        cost: 0.5,
      },
    });
  });

  test("names the sources of its text, and so does a document.", () => {
    const source = { url: "https://a.example/b", title: "B" };
    const annotations = [{ type: "url_citation", url_citation: source }];
    const pieces: AnswerPiece[] = [{ delta: { content: "Hi" } }, { delta: { annotations } }];
    expect(eventsOf(pieces)).toContainEqual(
      expect.objectContaining({ delta: { type: "citations_delta", citation: expect.objectContaining(source) } }),
    );
    expect(documentOf(pieces, "stop")).toMatchObject({ content: [{ text: "Hi", citations: [source] }] });
  });

  test("has the same blocks as a document.", () => {
    const pieces = [...thinking, { delta: { content: "Done." } }, call(0, "a b", '{"x":'), more(0, "1}")];
    const blocks = [
      { type: "thinking", thinking: "I think.", signature: "s+/=" },
      { type: "redacted_thinking", data: "opaque" },
      { type: "text", text: "Done." },
    ];
    const tool = { type: "tool_use", id: "a_b", name: "look" };
    const events = eventsOf(pieces, { ...END, finishReason: "tool_calls" });
    expect(blocksOf(events)).toEqual([...blocks, { ...tool, input: {}, partial_json: '{"x":1}' }]);
    expect(documentOf(pieces, "tool_calls")).toMatchObject({
      content: [...blocks, { ...tool, input: { x: 1 } }],
      stop_reason: "tool_use",
    });
  });

  test("keeps the signature with its text if whole blocks come in one piece, as in a repeated answer.", () => {
    const other = { ...signed, text: "Again.", signature: "t" };
    const delta = { reasoning_content: "I think.Again.", reasoning_details: [signed, other], content: "Done." };
    expect(blocksOf(eventsOf([{ delta }]))).toEqual([
      { type: "thinking", thinking: "I think.", signature: "s+/=" },
      { type: "thinking", thinking: "Again.", signature: "t" },
      { type: "text", text: "Done." },
    ]);
  });

  test("writes tool calls one after the other, however their parts arrive.", () => {
    const pieces = [call(0, "a", '{"x":'), call(1, "b", '{"y"'), more(0, "1}"), more(1, ":2}"), call(2, "c", "{}")];
    const written = blocksOf(eventsOf(pieces, { ...END, finishReason: "tool_calls" }));
    const byId = Object.fromEntries(written.map(({ id, partial_json }) => [id, partial_json]));
    expect(byId).toEqual({ a: '{"x":1}', b: '{"y":2}', c: "{}" });
  });

  test("ends with an error event after a failure.", () => {
    const events: string[] = [];
    const error = { status: 503, code: "overloaded", type: "server_error", message: "Busy", param: null, fields: {} };
    messageEvents(HEAD, (event) => events.push(event)).fail(error);
    expect(events.at(-1)).toBe(
      'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Busy","details":{"error_code":"overloaded","param":null}}}\n\n',
    );
  });
});

describe("An ending", () => {
  test.each([
    ["length", [{ delta: { content: "x" } }], "max_tokens"],
    ["stop", [call(0, "a", "{}")], "tool_use"],
    ["stop", [{ delta: { refusal: "No." } }], "refusal"],
  ] as const)("of '%s' with %j is '%s'.", (finishReason, pieces, reason) => {
    expect(documentOf(pieces, finishReason).stop_reason).toBe(reason);
    const [ending] = eventsOf(pieces, { ...END, finishReason: finishReason as "length" }).slice(-2);
    expect(ending?.delta).toMatchObject({ stop_reason: reason });
  });

  test("in the middle of a tool call keeps its text.", () => {
    const { content } = documentOf([call(0, "a", '{"x":')], "length");
    expect(content).toEqual([{ type: "tool_use", id: "a", name: "look", input: { INVALID_JSON: '{"x":' } }]);
  });
});

describe("Events of an upstream of this wire", () => {
  const native = (data: Event): AnswerPiece => ({
    delta: { content: "metered" },
    native: [{ type: data.type, data } as NativeEvent],
  });
  const citation = { type: "char_location", cited_text: "x" };
  const pieces = [
    { native: [] },
    native({ type: "content_block_start", index: 0, content_block: { type: "thinking", thinking: "", signature: "" } }),
    native({ type: "content_block_delta", index: 0, delta: { type: "thinking_delta", thinking: "Hm" } }),
    native({ type: "content_block_delta", index: 0, delta: { type: "signature_delta", signature: "sig" } }),
    native({ type: "content_block_stop", index: 0 }),
    native({ type: "content_block_start", index: 1, content_block: { type: "text", text: "" } }),
    native({ type: "content_block_delta", index: 1, delta: { type: "text_delta", text: "Hello" } }),
    native({ type: "content_block_delta", index: 1, delta: { type: "citations_delta", citation } }),
    native({ type: "content_block_stop", index: 1 }),
    native({
      type: "content_block_start",
      index: 2,
      content_block: { type: "tool_use", id: "toolu_1", name: "look", input: {} },
    }),
    native({ type: "content_block_delta", index: 2, delta: { type: "input_json_delta", partial_json: '{"a":1}' } }),
    native({ type: "content_block_stop", index: 2 }),
    { native: [{ type: "message_delta", data: { stop_reason: "stop_sequence", stop_sequence: "END" } }] },
    { native: [] },
  ];
  const ending = { stop_reason: "stop_sequence", stop_sequence: "END" };

  test("pass with the service's own id, model and usage.", () => {
    const events = eventsOf(pieces);
    const passed = pieces.flatMap((piece) => piece.native ?? []).filter(({ type }) => type.startsWith("content_block"));
    expect(events.filter(({ type }) => type.startsWith("content_block"))).toEqual(passed.map(({ data }) => data));
    expect(events[0]?.message).toMatchObject({ id: `msg_${HEAD.id}`, model: "m" });
    expect(events.at(-2)).toMatchObject({ delta: ending, usage: { input_tokens: 30, output_tokens: 20 } });
    expect(events.filter(({ type }) => type === "message_stop")).toHaveLength(1);
  });
});

test("An unstreamed answer of an upstream of this wire keeps its blocks and its stop sequence.", () => {
  const content = [
    { type: "thinking", thinking: "Hm", signature: "sig" },
    { type: "server_block", data: "unknown" },
    { type: "text", text: "Hello" },
  ];
  const data = { id: "msg_up", model: "up", content, stop_reason: "stop_sequence", stop_sequence: "END" };
  const document = documentOf([{ delta: { content: "Hello" }, native: [{ type: NATIVE_DOCUMENT, data }] }]);
  const expected = { id: `msg_${HEAD.id}`, model: "m", content, stop_reason: "stop_sequence", stop_sequence: "END" };
  expect(document).toMatchObject(expected);
});
