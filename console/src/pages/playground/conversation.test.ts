import { describe, expect, test } from "vitest";
import {
  type Conversation,
  conversationAfter,
  EMPTY_CONVERSATION,
  type Event,
  figuresLine,
  messagesOf,
} from "./conversation.ts";

const figures = { model: "m", firstMs: 10, durationMs: 20, usage: null, finishReason: "stop" };
const converseAll = (...events: Event[]): Conversation => events.reduce(conversationAfter, EMPTY_CONVERSATION);
const said = ({ turns }: Conversation) => turns.map(({ role, content, state }) => `${role} ${state}: ${content}`);

describe("a conversation", () => {
  test("A conversation grows by a question and the pieces of its answer.", () => {
    const whole = converseAll(
      { kind: "asked", content: "Hello" },
      { kind: "piece", text: "Good " },
      { kind: "piece", text: "day" },
      { kind: "ended", figures, state: "done" },
    );
    expect(said(whole)).toEqual(["user done: Hello", "assistant done: Good day"]);
    expect(whole.turns[1]?.figures).toEqual(figures);
  });

  test("A stopped answer keeps the text so far and ignores later pieces.", () => {
    const stopped = converseAll(
      { kind: "asked", content: "Hello" },
      { kind: "piece", text: "Go" },
      { kind: "ended", figures, state: "stopped" },
      { kind: "piece", text: "od" },
    );
    expect(said(stopped)).toEqual(["user done: Hello", "assistant stopped: Go"]);
  });

  test("An edited question removes everything after it.", () => {
    const first = converseAll(
      { kind: "asked", content: "One" },
      { kind: "ended", figures, state: "done" },
      { kind: "asked", content: "Two" },
      { kind: "ended", figures, state: "done" },
    );
    const edited = conversationAfter(first, { kind: "edited", question: 0, content: "Uno" });
    expect(said(edited)).toEqual(["user done: Uno", "assistant streaming: "]);
    expect(new Set(edited.turns.map(({ key }) => key)).size).toBe(2);
    expect(conversationAfter(first, { kind: "edited", question: 2, content: "x" })).toBe(first);
  });

  test("A retry removes the last answer only, and asks the same question.", () => {
    const failed = converseAll({ kind: "asked", content: "Hello" }, { kind: "failed", failure: new Error("no") });
    expect(said(conversationAfter(failed, { kind: "retried" }))).toEqual(["user done: Hello", "assistant streaming: "]);
    expect(conversationAfter(EMPTY_CONVERSATION, { kind: "retried" })).toBe(EMPTY_CONVERSATION);
  });

  test("Calls of tools and their results are sent to the model in their order.", () => {
    const call = { id: "call_1", type: "function", function: { name: "get_weather", arguments: "{}" } } as const;
    const whole = converseAll(
      { kind: "asked", content: "Weather?" },
      { kind: "piece", toolCalls: [call] },
      { kind: "ended", figures, state: "done" },
      { kind: "resulted", results: { call_1: "sunny" } },
      { kind: "piece", text: "It is sunny." },
    );
    expect(messagesOf(whole.turns)).toEqual([
      { role: "user", content: "Weather?" },
      { role: "assistant", content: "", tool_calls: [call] },
      { role: "tool", content: "sunny", tool_call_id: "call_1" },
      { role: "assistant", content: "It is sunny." },
    ]);
  });

  test("Images and files are parts of a message, text files are text, and an edited question keeps them.", () => {
    const attachments = [
      { name: "a.png", type: "image/png", url: "data:image/png;base64,AA==" },
      { name: "b.pdf", type: "application/pdf", url: "data:application/pdf;base64,AA==" },
      { name: "c.md", type: "text/plain", url: "", text: "# Title" },
    ];
    const first = converseAll({ kind: "asked", content: "What is it?", attachments });
    const edited = conversationAfter(first, { kind: "edited", question: 0, content: "What are they?" });
    expect(messagesOf(edited.turns)).toEqual([
      {
        role: "user",
        content: [
          { type: "text", text: "What are they?" },
          { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } },
          { type: "file", file: { filename: "b.pdf", file_data: "data:application/pdf;base64,AA==" } },
          { type: "text", text: "c.md:\n# Title" },
        ],
      },
    ]);
  });

  test("The cost of an incomplete answer is added to its own figures.", () => {
    const stopped = converseAll(
      { kind: "asked", content: "One" },
      { kind: "ended", figures, state: "stopped" },
      { kind: "asked", content: "Two" },
    );
    const after = conversationAfter(stopped, { kind: "charged", key: stopped.turns[1]?.key ?? -1, charged: 2 });
    expect(after.turns.map((turn) => turn.figures?.charged)).toEqual([undefined, 2, undefined, undefined]);
  });

  test("An empty answer is not sent to the model.", () => {
    const failed = converseAll({ kind: "asked", content: "Hello" }, { kind: "failed", failure: new Error("no") });
    expect(messagesOf(failed.turns)).toEqual([{ role: "user", content: "Hello" }]);
    expect(messagesOf(conversationAfter(failed, { kind: "cleared" }).turns)).toEqual([]);
  });
});

const usage = { prompt_tokens: 12, completion_tokens: 100, total_tokens: 112, cost: 0.00042 };

test("The line under an answer shows tokens, cost and speed.", () => {
  const figures = { model: "m", firstMs: 250, durationMs: 2250, usage, finishReason: "length" };
  expect(figuresLine(figures, "done")).toBe(
    "m · 12 tokens in, 100 tokens out · 0.00042 credits · first token after 250 ms · 50 tokens/s · Stopped at max tokens",
  );
});

test("The line under an answer that arrived at once shows no speed.", () => {
  const figures = { model: "m", firstMs: 5, durationMs: 6, usage, finishReason: "stop" };
  expect(figuresLine(figures, "done")).toBe(
    "m · 12 tokens in, 100 tokens out · 0.00042 credits · first token after 5 ms",
  );
});

test("The line under a stopped answer says that generated tokens are charged.", () => {
  const figures = { model: "m", firstMs: null, durationMs: 900, usage: null, finishReason: null };
  expect(figuresLine(figures, "stopped")).toBe("m · Stopped: tokens generated so far are charged");
  const charged = "m · Stopped: tokens generated so far are charged · 0.25 credits charged";
  expect(figuresLine({ ...figures, charged: 0.25 }, "stopped")).toBe(charged);
  expect(figuresLine(figures, "failed")).toBe("m · Tokens generated so far are charged");
  expect(figuresLine({ ...figures, charged: 0 }, "failed")).toBe("m · 0 credits charged");
});
