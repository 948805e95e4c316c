import { describe, expect, test } from "vitest";
import { type Conversation, converse, type Event, messagesOf, NO_TURNS } from "./conversation.ts";

const figures = { model: "m", firstMs: 10, durationMs: 20, usage: null, finishReason: "stop" };
const converseAll = (...events: Event[]): Conversation => events.reduce(converse, NO_TURNS);
const said = ({ turns }: Conversation) => turns.map(({ role, content, state }) => `${role} ${state}: ${content}`);

describe("a conversation", () => {
  test("grows by a question and the pieces of its answer", () => {
    const whole = converseAll(
      { kind: "asked", content: "Hello" },
      { kind: "piece", text: "Good " },
      { kind: "piece", text: "day" },
      { kind: "ended", figures, state: "done" },
    );
    expect(said(whole)).toEqual(["user done: Hello", "assistant done: Good day"]);
    expect(whole.turns[1]?.figures).toEqual(figures);
  });

  test("keeps what had come when it was stopped, and takes nothing after it", () => {
    const stopped = converseAll(
      { kind: "asked", content: "Hello" },
      { kind: "piece", text: "Go" },
      { kind: "ended", figures, state: "stopped" },
      { kind: "piece", text: "od" },
    );
    expect(said(stopped)).toEqual(["user done: Hello", "assistant stopped: Go"]);
  });

  test("is cut at a question that is edited", () => {
    const first = converseAll(
      { kind: "asked", content: "One" },
      { kind: "ended", figures, state: "done" },
      { kind: "asked", content: "Two" },
      { kind: "ended", figures, state: "done" },
    );
    const edited = converse(first, { kind: "edited", key: first.turns[0]?.key ?? -1, content: "Uno" });
    expect(said(edited)).toEqual(["user done: Uno", "assistant streaming: "]);
    expect(new Set(edited.turns.map(({ key }) => key)).size).toBe(2);
    expect(converse(first, { kind: "edited", key: 99, content: "x" })).toBe(first);
  });

  test("sends no answer that came to nothing", () => {
    const failed = converseAll({ kind: "asked", content: "Hello" }, { kind: "failed", failure: new Error("no") });
    expect(messagesOf(failed.turns)).toEqual([{ role: "user", content: "Hello" }]);
    expect(messagesOf(converse(failed, { kind: "cleared" }).turns)).toEqual([]);
  });
});
