import { describe, expect, test } from "vitest";
import { requestOf } from "../../../../test/support/wire.ts";
import type { RequestMessage } from "../../../api/chat/request.ts";
import type { UpstreamRequest } from "../../provider.ts";
import { claudeFit } from "./anthropic.ts";

const OLDER = "claude-haiku-4-5-20251001";
const fitted = (fields: Partial<UpstreamRequest>) => {
  return claudeFit(requestOf({ model: OLDER, max_tokens: 4_096, reasoning_effort: "medium", ...fields }), "anthropic");
};
const named = { type: "function" as const, function: { name: "f" } };

describe("A thinking budget", () => {
  test("is a part of max_tokens and leaves the larger part to the answer.", () => {
    const { options, budget, ignored } = fitted({});
    expect(budget).toBe(1_433);
    expect(options).toEqual({ reasoning: "provider-default", maxOutputTokens: 4_096 - 1_433 });
    expect(ignored).toEqual([]);
    expect(fitted({ reasoning_effort: "low" }).budget).toBe(1_024);
  });

  const unsigned: RequestMessage[] = [
    { role: "user", content: "hello" },
    { role: "assistant", tool_calls: [{ id: "a", type: "function", function: { name: "f", arguments: "{}" } }] },
    { role: "tool", tool_call_id: "a", content: "1" },
  ];
  test.each([
    ["there is no room for it", { max_tokens: 2_047 }],
    ["a tool is forced", { tool_choice: "required" as const }],
    ["a certain tool is forced", { tool_choice: named }],
    ["the turn began without signed thinking", { messages: unsigned }],
  ])("is left out and named if %s.", (_why, fields) => {
    expect(fitted(fields)).toMatchObject({ budget: undefined, ignored: ["reasoning_effort"] });
  });

  test("is set if signed thinking was sent back, and in the next turn.", () => {
    const signed = structuredClone(unsigned);
    const [call] = signed[1]?.tool_calls ?? [];
    if (call !== undefined) call.extra_content = { anthropic: { reasoning: [{ text: "hm", signature: "s" }] } };
    expect(fitted({ messages: signed }).budget).toBeDefined();
    expect(
      fitted({ messages: [...unsigned, { role: "assistant", content: "1" }, { role: "user", content: "and?" }] })
        .budget,
    ).toBeDefined();
  });
});

describe("Thinking in Anthropic's form", () => {
  const thinking = (type: "enabled" | "disabled" | "adaptive", budget_tokens?: number) => ({
    reasoning_effort: undefined,
    thinking: { type, ...(budget_tokens !== undefined && { budget_tokens }) },
  });

  test("has its own budget within max_tokens.", () => {
    expect(fitted(thinking("enabled", 3_000))).toMatchObject({ budget: 3_000, options: { maxOutputTokens: 1_096 } });
    expect(fitted(thinking("enabled", 9_000))).toMatchObject({ budget: 4_095, options: { maxOutputTokens: 1 } });
    expect(fitted(thinking("adaptive")).budget).toBe(1_433);
  });

  test("is left out and named if the budget is too small, or a tool is forced.", () => {
    for (const fields of [thinking("enabled", 1_000), { ...thinking("enabled", 2_000), tool_choice: named }]) {
      expect(fitted(fields)).toMatchObject({ budget: undefined, ignored: ["thinking"] });
    }
  });

  test("is adaptive on later models, and can be turned off.", () => {
    const model = "claude-opus-4-7";
    expect(fitted({ ...thinking("enabled", 2_000), model })).toMatchObject({ isAdaptive: true, budget: undefined });
    expect(fitted({ ...thinking("disabled"), model })).toMatchObject({ options: { reasoning: "none" }, ignored: [] });
    expect(fitted(thinking("disabled"))).toMatchObject({ options: { reasoning: "none" }, budget: undefined });
    expect(fitted({ ...thinking("enabled"), model, tool_choice: named }).ignored).toEqual(["thinking"]);
  });
});

test.each([
  "claude-3-7-sonnet-20250219",
  "claude-sonnet-4-20250514",
  "claude-opus-4-1",
  "claude-opus-4-5-20251101",
  "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
  "claude-opus-4@20250514",
])("%s needs a thinking budget.", (model) => {
  expect(fitted({ model }).budget).toBeDefined();
});

test.each([
  "claude-sonnet-4-6",
  "claude-opus-4-7",
  "claude-opus-5",
  "claude-sonnet-5-5",
  "eu.anthropic.claude-sonnet-4-6",
  "my-model",
])("%s takes the effort unchanged.", (model) => {
  expect(fitted({ model })).toEqual({ options: {}, budget: undefined, isAdaptive: false, ignored: [] });
});

test("A forced tool is refused on a model that does not support it.", () => {
  expect(() => fitted({ model: "claude-opus-5-5", tool_choice: "required" })).toThrow(
    expect.objectContaining({ failure: "unsupported" }),
  );
  expect(fitted({ model: "claude-opus-5-5", tool_choice: "auto" }).ignored).toEqual([]);
});
