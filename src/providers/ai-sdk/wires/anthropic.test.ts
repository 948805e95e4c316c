import { describe, expect, test } from "vitest";
import { requestOf } from "../../../../test/support/wire.ts";
import type { RequestMessage } from "../../../api/chat/request.ts";
import type { UpstreamRequest } from "../../provider.ts";
import { claudeFit } from "./anthropic.ts";

const OLDER = "claude-haiku-4-5-20251001";
const fitted = (fields: Partial<UpstreamRequest>) => {
  return claudeFit(requestOf({ model: OLDER, max_tokens: 4_096, reasoning_effort: "medium", ...fields }));
};
const budgetOf = (fields: Partial<UpstreamRequest>) => {
  const { thinking } = fitted(fields);
  return thinking?.type === "enabled" ? thinking.budgetTokens : undefined;
};
const named = { type: "function" as const, function: { name: "f" } };

describe("A thinking budget", () => {
  test("is a part of max_tokens and leaves the larger part to the answer.", () => {
    expect(fitted({})).toEqual({
      options: { reasoning: "provider-default", maxOutputTokens: 4_096 - 1_433 },
      thinking: { type: "enabled", budgetTokens: 1_433 },
    });
    expect(budgetOf({ reasoning_effort: "low" })).toBe(1_024);
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
    expect(fitted(fields)).toEqual({ options: { reasoning: "provider-default" }, ignored: ["reasoning_effort"] });
  });

  test("is set if signed thinking was sent back, and in the next turn.", () => {
    const signed = structuredClone(unsigned);
    const [call] = signed[1]?.tool_calls ?? [];
    const block = { type: "reasoning.text", format: "anthropic-claude-v1", text: "hm", signature: "s" };
    if (call !== undefined) call.extra_content = { reasoning_details: [block] };
    expect(budgetOf({ messages: signed })).toBeDefined();
    expect(
      budgetOf({ messages: [...unsigned, { role: "assistant", content: "1" }, { role: "user", content: "and?" }] }),
    ).toBeDefined();
  });
});

describe("Thinking in Anthropic's form", () => {
  const thinking = (type: "enabled" | "disabled" | "adaptive", budget_tokens?: number) => ({
    reasoning_effort: undefined,
    thinking: { type, ...(budget_tokens !== undefined && { budget_tokens }) },
  });

  test("has its own budget within max_tokens.", () => {
    for (const [stated, budgetTokens, maxOutputTokens] of [
      [3_000, 3_000, 1_096],
      [9_000, 4_095, 1],
    ] as const) {
      const expected = { thinking: { type: "enabled", budgetTokens }, options: { maxOutputTokens } };
      expect(fitted(thinking("enabled", stated))).toMatchObject(expected);
    }
    expect(budgetOf(thinking("adaptive"))).toBe(1_433);
  });

  test("is left out and named if the budget is too small, or a tool is forced.", () => {
    for (const fields of [thinking("enabled", 1_000), { ...thinking("enabled", 2_000), tool_choice: named }]) {
      expect(fitted(fields)).toEqual({ options: { reasoning: "provider-default" }, ignored: ["thinking"] });
    }
  });

  test("is adaptive on later models, and can be turned off.", () => {
    const model = "claude-opus-4-7";
    expect(fitted({ ...thinking("enabled", 2_000), model })).toEqual({ thinking: { type: "adaptive" } });
    expect(fitted({ ...thinking("disabled"), model })).toEqual({ options: { reasoning: "none" } });
    expect(fitted(thinking("disabled"))).toEqual({ options: { reasoning: "none" } });
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
  expect(budgetOf({ model })).toBeDefined();
});

test.each([
  "claude-sonnet-4-6",
  "claude-opus-4-7",
  "claude-opus-5",
  "claude-sonnet-5-5",
  "eu.anthropic.claude-sonnet-4-6",
])("%s takes the effort unchanged.", (model) => {
  expect(fitted({ model })).toEqual({});
});

test("A forced tool is refused on a model that does not support it.", () => {
  expect(() => fitted({ model: "claude-opus-5-5", tool_choice: "required" })).toThrow(
    expect.objectContaining({ failure: "unsupported" }),
  );
  expect(fitted({ model: "claude-opus-5-5", tool_choice: "auto" })).toEqual({});
});
