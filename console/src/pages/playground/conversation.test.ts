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
    const edited = conversationAfter(first, { kind: "edited", key: first.turns[0]?.key ?? -1, content: "Uno" });
    expect(said(edited)).toEqual(["user done: Uno", "assistant streaming: "]);
    expect(new Set(edited.turns.map(({ key }) => key)).size).toBe(2);
    expect(conversationAfter(first, { kind: "edited", key: 99, content: "x" })).toBe(first);
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
  expect(figuresLine(figures, false)).toBe(
    "m · 12 tokens in, 100 tokens out · 0.00042 credits · first token after 250 ms · 50 tokens/s · Stopped at max tokens",
  );
});

test("The line under a stopped answer says that generated tokens are charged.", () => {
  const figures = { model: "m", firstMs: null, durationMs: 900, usage: null, finishReason: null };
  expect(figuresLine(figures, true)).toBe("m · Stopped: tokens generated so far are charged");
});
