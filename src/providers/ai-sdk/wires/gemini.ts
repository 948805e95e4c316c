import type { UpstreamRequest } from "../../provider.ts";
import { type Fit, REASONING_SHARES } from "../wire.ts";

/** Takes a number of tokens, where later models take a level ("Thinking" of the Gemini API's guide). */
const NEEDS_BUDGET = /gemini-2\.5/;
/** "128 to 32768", "cannot disable thinking". */
const ALWAYS_THINKS = /gemini-2\.5-pro/;
const BUDGET_TOKENS_MIN = 512;

/** How much Gemini thinks, of what `max_tokens` allows: its thoughts count to its output. */
export function geminiFit(
  { reasoning_effort: effort, max_tokens: maxTokens, model }: UpstreamRequest,
  key: string,
): Fit {
  if (effort === undefined) return { options: {}, ignored: [] };
  const includeThoughts = effort !== "none";
  if (!NEEDS_BUDGET.test(model)) {
    return { options: { providerOptions: { [key]: { thinkingConfig: { includeThoughts } } } }, ignored: [] };
  }
  const least = ALWAYS_THINKS.test(model) ? 128 : 0;
  const share = effort === "none" ? 0 : REASONING_SHARES[effort];
  const wanted = Math.floor(maxTokens * share);
  const thinkingBudget = effort === "none" ? least : Math.max(least, Math.min(wanted, maxTokens), BUDGET_TOKENS_MIN);
  const thinkingConfig = { thinkingBudget, includeThoughts };
  return { options: { reasoning: "provider-default", providerOptions: { [key]: { thinkingConfig } } }, ignored: [] };
}
