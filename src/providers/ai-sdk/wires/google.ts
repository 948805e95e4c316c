import { detailsOf } from "../../../api/json.ts";
import type { UpstreamRequest, UpstreamUsage } from "../../provider.ts";
import { GEMINI_REASONING } from "../reasoning.ts";
import { type Fit, KEYED, optionsOf, REASONING_SHARES, USUAL_PROMPT, type Wire } from "../wire.ts";

/** The Gemini API: https://ai.google.dev/api/generate-content */
export const google: Wire = {
  packages: ["@ai-sdk/google"],
  ...KEYED,
  connect: (settings) => async (fetch) => {
    const { createGoogle } = await import("@ai-sdk/google");
    return createGoogle(optionsOf(settings, fetch));
  },
  embedding: {},
  takes: [],
  fields: {
    modalities: "translated",
    top_k: "translated",
    thinking: "translated",
    service_tier: "translated",
    "content.file": "translated",
    "content.input_audio": "translated",
    "content.video_url": "translated",
  },
  fit: (request) => geminiFit(request, "google"),
  prompt: { ...USUAL_PROMPT, isSystemFirst: true },
  metadataKey: "google",
  reasoningFields: ["thoughtSignature"],
  reasoningFormat: GEMINI_REASONING,
  partsOf: geminiParts,
};

/** Reads the tokens of each modality ("UsageMetadata" in the Gemini API's reference); a modality without tokens is left out. */
export function geminiParts(raw: unknown): UpstreamUsage {
  const usage = detailsOf(raw);
  const tokensOf = (modality: string, ...lists: readonly string[]) => {
    const details = lists.flatMap((name) => (Array.isArray(usage[name]) ? usage[name].map(detailsOf) : []));
    const counts = details.flatMap(({ modality: own, tokenCount }) => {
      return own === modality && typeof tokenCount === "number" ? [tokenCount] : [];
    });
    return counts.length === 0 ? undefined : counts.reduce((sum, count) => sum + count, 0);
  };
  const prompt = ["promptTokensDetails", "toolUsePromptTokensDetails"] as const;
  const images = tokensOf("IMAGE", ...prompt);
  // Cached images cost as much as other cached input.
  const cachedImages = tokensOf("IMAGE", "cacheTokensDetails") ?? 0;
  const parts: UpstreamUsage = {
    input_audio_tokens: tokensOf("AUDIO", ...prompt),
    cached_audio_tokens: tokensOf("AUDIO", "cacheTokensDetails"),
    input_image_tokens: images && Math.max(0, images - cachedImages),
    output_audio_tokens: tokensOf("AUDIO", "candidatesTokensDetails"),
    output_image_tokens: tokensOf("IMAGE", "candidatesTokensDetails"),
  };
  return Object.fromEntries(Object.entries(parts).filter(([, count]) => count !== undefined));
}

/** Models that need a number of tokens for thinking; later models take a level. All figures are from the page "Thinking" of the Gemini API's guide. */
const NEEDS_BUDGET = /gemini-2\.5/;
/** Smallest budgets, in tokens; 1 for other models. */
const LEAST_BUDGETS: readonly [RegExp, number][] = [
  // Thinking cannot be turned off.
  [/gemini-2\.5-pro/, 128],
  [/gemini-2\.5-flash-lite/, 512],
];

/**
 * Sets how much Gemini thinks. Thoughts count towards `max_tokens`, so a budget takes at most half of it. If the minimum
 * does not fit, the model answers without thinking, or with the minimum if thinking cannot be turned off. `key` is the
 * provider's key in the package's options.
 */
export function geminiFit(request: UpstreamRequest, key: string): Fit {
  const { modalities, service_tier: tier } = request;
  const { options, ...fit } = thinkingFit(request, key);
  const own = {
    ...options.providerOptions?.[key],
    ...(modalities !== undefined && { responseModalities: modalities.map((one) => one.toUpperCase()) }),
    ...(tier === "flex" && { serviceTier: tier }),
  };
  const providerOptions = Object.keys(own).length > 0 ? { providerOptions: { [key]: own } } : {};
  return { ...fit, options: { ...options, ...providerOptions } };
}

function thinkingFit(request: UpstreamRequest, key: string): Fit {
  const { thinking } = request;
  const isOff = thinking?.type === "disabled";
  // A stated budget is that of a caller who names no effort.
  const usual = thinking === undefined ? undefined : isOff ? "none" : "medium";
  const { reasoning_effort: effort = usual, max_tokens: maxTokens, model } = request;
  if (effort === undefined) return { options: {} };
  const withConfig = (thinkingConfig: Record<string, number | boolean>, ignored: string[] = []): Fit => {
    const isNumber = thinkingConfig.thinkingBudget !== undefined;
    const providerOptions = { [key]: { thinkingConfig } };
    return { options: { providerOptions, reasoning: isNumber ? "provider-default" : effort }, ignored };
  };
  const includeThoughts = effort !== "none";
  if (!NEEDS_BUDGET.test(model)) return withConfig({ includeThoughts });
  const alwaysThinks = model.includes("pro");
  const least = LEAST_BUDGETS.find(([names]) => names.test(model))?.[1] ?? 1;
  if (effort === "none") return withConfig({ thinkingBudget: alwaysThinks ? least : 0 });
  const share = thinking?.budget_tokens ?? Math.floor(maxTokens * REASONING_SHARES[effort]);
  const budget = Math.max(least, Math.min(share, Math.floor(maxTokens / 2)));
  if (budget * 2 <= maxTokens || alwaysThinks) return withConfig({ thinkingBudget: budget, includeThoughts });
  return withConfig({ thinkingBudget: 0 }, [thinking === undefined ? "reasoning_effort" : "thinking"]);
}
