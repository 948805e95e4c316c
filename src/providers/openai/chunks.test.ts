import { expect, test } from "vitest";
import { toFinishReason, toUsage } from "./chunks.ts";

test.each([
  ["OpenAI", { completion_tokens: 30, total_tokens: 130, completion_tokens_details: { reasoning_tokens: 12 } }, 30, 12],
  ["xAI", { completion_tokens: 18, total_tokens: 130, completion_tokens_details: { reasoning_tokens: 12 } }, 30, 12],
  ["Gemini", { completion_tokens: 18, total_tokens: 130 }, 30, 12],
  ["an upstream without a total", { completion_tokens: 30 }, 30, undefined],
  ["an upstream whose total is too small", { completion_tokens: 30, total_tokens: 7 }, 30, undefined],
  [
    "an upstream whose total does not add up",
    { completion_tokens: 30, total_tokens: 999, completion_tokens_details: { reasoning_tokens: 12 } },
    30,
    12,
  ],
  ["an upstream whose total is not a number", { completion_tokens: 30, total_tokens: "130" }, 30, undefined],
])("Usage of %s counts reasoning in the completion.", (_who, counters, completion, reasoning) => {
  const usage = toUsage({ prompt_tokens: 100, ...counters });
  expect(usage).toMatchObject({ prompt_tokens: 100, completion_tokens: completion });
  expect(usage?.reasoning_tokens).toBe(reasoning);
});

test.each([
  ["OpenAI", { prompt_tokens_details: { cached_tokens: 80 } }],
  ["DeepSeek", { prompt_cache_hit_tokens: 80 }],
  ["Moonshot", { cached_tokens: 80 }],
])("Cached tokens in the usage of %s are found.", (_who, counters) => {
  const usage = toUsage({ prompt_tokens: 100, completion_tokens: 30, ...counters });
  expect(usage).toEqual({ prompt_tokens: 100, completion_tokens: 30, cached_tokens: 80 });
});

test.each([
  ["stop", false, "stop"],
  ["stop", true, "stop"],
  ["length", false, "length"],
  ["tool_calls", true, "tool_calls"],
  ["content_filter", false, "content_filter"],
  ["function_call", true, "tool_calls"],
  ["MAX_TOKENS", false, "length"],
  ["safety", false, "content_filter"],
  ["error", false, "failed"],
  ["insufficient_system_resource", true, "failed"],
  ["eos", false, "stop"],
  ["eos", true, "tool_calls"],
  ["constructor", false, "stop"],
  ["__proto__", false, "stop"],
])("The finish reason %s becomes, with tool calls %s, %s.", (word, hasToolCalls, expected) => {
  expect(toFinishReason(word, hasToolCalls)).toBe(expected);
});
