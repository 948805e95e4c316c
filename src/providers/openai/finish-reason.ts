import type { FinishReason } from "../../api/completion.ts";

/** Words that upstreams of this wire are known to use beside OpenAI's own four. */
const KNOWN: Readonly<Record<string, FinishReason | "failed">> = {
  stop: "stop",
  length: "length",
  tool_calls: "tool_calls",
  content_filter: "content_filter",
  function_call: "tool_calls",
  tool_call: "tool_calls",
  tool_use: "tool_calls",
  max_tokens: "length",
  model_length: "length",
  safety: "content_filter",
  sensitive: "content_filter",
  refusal: "content_filter",
  recitation: "content_filter",
  error: "failed",
  abort: "failed",
  insufficient_system_resource: "failed",
};

/**
 * An upstream's finish reason in the contract's words; `failed` where the upstream says that it broke off. A word that
 * nobody here knows ends an answer like any other: after tool calls with `tool_calls`, else with `stop`.
 */
export function toFinishReason(value: string, hasToolCalls: boolean): FinishReason | "failed" {
  const word = value.toLowerCase();
  const known = Object.hasOwn(KNOWN, word) ? KNOWN[word] : undefined;
  return known ?? (hasToolCalls ? "tool_calls" : "stop");
}
