import { describe, expect, test } from "vitest";
import { ChunkReader } from "./chunks.ts";
import { ReasoningDetails } from "./reasoning-details.ts";
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

describe("details of reasoning", () => {
  test("of a stream come with the first call, its pieces joined", () => {
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

  test("of a whole answer come with the first call", () => {
    const message = { content: null, reasoning: "x", reasoning_details: [TEXT], tool_calls: [CALL] };
    const chunk = new ChunkReader().readAnswer({ choices: [{ index: 0, message, finish_reason: "tool_calls" }] });
    expect(chunk.delta?.tool_calls?.at(-1)).toEqual({ index: 0, extra_content: { reasoning_details: [TEXT] } });
  });

  test("are not told where no tool is called", () => {
    const message = { content: "hello", reasoning_details: [TEXT] };
    const chunk = new ChunkReader().readAnswer({ choices: [{ index: 0, message, finish_reason: "stop" }] });
    expect(chunk.delta).toEqual({ content: "hello" });
  });

  test("go back as a field of the message", () => {
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

  test("are given up where they are too long, or none", () => {
    const details = new ReasoningDetails();
    expect(details.all()).toBeUndefined();
    for (let count = 0; count < 20; count += 1) details.add([{ ...TEXT, text: "x".repeat(100_000) }]);
    expect(details.all()).toBeUndefined();
    const odd = new ReasoningDetails();
    for (const pieces of [undefined, "x", [1, null, "x"], {}]) odd.add(pieces);
    expect(odd.all()).toBeUndefined();
  });
});
