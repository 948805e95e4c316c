import { expect, test } from "vitest";
import { requestOf } from "../../../../test/support/wire.ts";
import { geminiFit } from "./google.ts";

test.each([
  ["gemini-3-flash-preview", "low", 100, { includeThoughts: true }, []],
  ["gemini-3-flash-preview", "none", 100, { includeThoughts: false }, []],
  ["gemini-2.5-flash", "none", 100, { thinkingBudget: 0 }, []],
  ["gemini-2.5-flash", "medium", 1_000, { thinkingBudget: 350, includeThoughts: true }, []],
  ["gemini-2.5-flash", "medium", 1, { thinkingBudget: 0 }, ["reasoning_effort"]],
  ["gemini-2.5-flash-lite", "high", 4_096, { thinkingBudget: 1_843, includeThoughts: true }, []],
  ["gemini-2.5-flash-lite", "low", 1_000, { thinkingBudget: 0 }, ["reasoning_effort"]],
  ["gemini-2.5-pro", "none", 1_000, { thinkingBudget: 128 }, []],
  ["gemini-2.5-pro", "low", 100, { thinkingBudget: 128, includeThoughts: true }, []],
] as const)("%s with effort %s and %d tokens", (model, effort, maxTokens, thinkingConfig, ignored) => {
  const fitted = geminiFit(requestOf({ model, reasoning_effort: effort, max_tokens: maxTokens }));
  expect(fitted).toMatchObject({ own: { thinkingConfig }, ignored });
});

test.each([
  [{ type: "enabled" as const, budget_tokens: 600 }, 4_096, { thinkingBudget: 600, includeThoughts: true }, []],
  [{ type: "enabled" as const, budget_tokens: 4_000 }, 4_096, { thinkingBudget: 2_048, includeThoughts: true }, []],
  [{ type: "adaptive" as const }, 1_000, { thinkingBudget: 350, includeThoughts: true }, []],
  [{ type: "disabled" as const }, 1_000, { thinkingBudget: 0 }, []],
  [{ type: "enabled" as const, budget_tokens: 10 }, 1, { thinkingBudget: 0 }, ["thinking"]],
])(
  "Thinking %j of gemini-2.5-flash with %d tokens stays within half of them.",
  (thinking, max_tokens, config, ignored) => {
    const fitted = geminiFit(requestOf({ model: "gemini-2.5-flash", thinking, max_tokens }));
    expect(fitted).toMatchObject({ own: { thinkingConfig: config }, ignored });
  },
);
