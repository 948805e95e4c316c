import type { UpstreamRequest } from "../../provider.ts";
import { type Fit, REASONING_SHARES } from "../wire.ts";

/** Takes a number of tokens, where later models take a level ("Thinking" of the Gemini API's guide, as all figures here). */
const NEEDS_BUDGET = /gemini-2\.5/;
const LEAST_BUDGETS: readonly [RegExp, number][] = [
  // Thinking cannot be turned off.
  [/gemini-2\.5-pro/, 128],
  [/gemini-2\.5-flash-lite/, 512],
];

/**
 * Sets how much Gemini thinks. Thoughts count towards `max_tokens`, so a budget takes at most half of it. If the minimum
 * does not fit, the model answers without thinking, or with the minimum where thinking cannot be turned off.
 */
export function geminiFit(request: UpstreamRequest, key: string): Fit {
  const { reasoning_effort: effort, max_tokens: maxTokens, model } = request;
  if (effort === undefined) return { options: {}, ignored: [] };
  const withConfig = (thinkingConfig: Record<string, number | boolean>, ignored: string[] = []): Fit => {
    const isNumber = thinkingConfig.thinkingBudget !== undefined;
    const providerOptions = { [key]: { thinkingConfig } };
    return { options: { providerOptions, ...(isNumber && { reasoning: "provider-default" }) }, ignored };
  };
  const includeThoughts = effort !== "none";
  if (!NEEDS_BUDGET.test(model)) return withConfig({ includeThoughts });
  const alwaysThinks = model.includes("pro");
  const least = LEAST_BUDGETS.find(([names]) => names.test(model))?.[1] ?? 1;
  if (effort === "none") return withConfig({ thinkingBudget: alwaysThinks ? least : 0 });
  const budget = Math.max(least, Math.floor(maxTokens * REASONING_SHARES[effort]));
  if (budget * 2 <= maxTokens || alwaysThinks) return withConfig({ thinkingBudget: budget, includeThoughts });
  return withConfig({ thinkingBudget: 0 }, ["reasoning_effort"]);
}
