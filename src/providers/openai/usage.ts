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
  const cached = prompt.cached_tokens ?? value.prompt_cache_hit_tokens;
  if (cached !== undefined && cached !== null) usage.cached_tokens = cached;
  const written = prompt.cache_write_tokens;
  if (written !== undefined && written !== null) usage.cache_write_tokens = written;
  const reasoning = completion.reasoning_tokens;
  if (reasoning !== undefined && reasoning !== null) usage.reasoning_tokens = reasoning;
  return usage;
}
