import type { UpstreamUsage } from "../provider.ts";
import { isObject } from "./json.ts";

/**
 * The counters of an upstream's `usage`, as they came: whoever charges them checks them. Undefined where there is no
 * usage object.
 */
export function toUsage(value: unknown): UpstreamUsage | undefined {
  if (!isObject(value)) return undefined;
  const usage: UpstreamUsage = { prompt_tokens: value.prompt_tokens, completion_tokens: value.completion_tokens };
  const prompt = isObject(value.prompt_tokens_details) ? value.prompt_tokens_details : {};
  const completion = isObject(value.completion_tokens_details) ? value.completion_tokens_details : {};
  const cached = prompt.cached_tokens ?? value.prompt_cache_hit_tokens ?? value.cached_tokens;
  if (cached !== undefined && cached !== null) usage.cached_tokens = cached;
  const written = prompt.cache_write_tokens;
  if (written !== undefined && written !== null) usage.cache_write_tokens = written;
  const reasoning = completion.reasoning_tokens;
  if (reasoning !== undefined && reasoning !== null) usage.reasoning_tokens = reasoning;
  if (value.cost !== undefined && value.cost !== null) usage.cost = value.cost;
  return withReasoningBeside(usage, value.total_tokens);
}

/**
 * Some count reasoning beside the completion, and tell so by their total alone: xAI with its count, Gemini without. What a
 * total has beyond its two parts is reasoning.
 */
function withReasoningBeside(usage: UpstreamUsage, total: unknown): UpstreamUsage {
  const { prompt_tokens: prompt, completion_tokens: completion, reasoning_tokens: reasoning } = usage;
  if (typeof prompt !== "number" || typeof completion !== "number" || typeof total !== "number") return usage;
  const beside = total - prompt - completion;
  if (beside <= 0 || (reasoning !== undefined && reasoning !== 0 && reasoning !== beside)) return usage;
  return { ...usage, completion_tokens: completion + beside, reasoning_tokens: beside };
}
