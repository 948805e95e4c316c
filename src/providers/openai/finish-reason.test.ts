import { expect, test } from "vitest";
import { toFinishReason } from "./finish-reason.ts";

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
])("%s, after tool calls %s, is %s", (word, hasToolCalls, expected) => {
  expect(toFinishReason(word, hasToolCalls)).toBe(expected);
});
