import { detailsOf } from "../../../api/json.ts";
import { translating } from "../../fields.ts";
import { type UpstreamRequest, type UpstreamUsage, unsupportedField } from "../../provider.ts";
import { GEMINI_REASONING } from "../reasoning.ts";
import { type Fit, keyed, REASONING_SHARES, type Wire } from "../wire.ts";

/** The differences of Gemini, on each of Google's APIs. */
export const gemini = {
  fields: translating(
    ...(["modalities", "top_k", "thinking", "web_search_options"] as const),
    ...(["content.file", "content.input_audio", "content.video_url"] as const),
  ),
  fit: geminiFit,
  prompt: { isSystemFirst: true },
  reasoning: GEMINI_REASONING,
  partsOf: geminiParts,
  searchesIn: geminiSearches,
} satisfies Partial<Wire>;

/** The Gemini API: https://ai.google.dev/api/generate-content */
export const google: Wire = {
  ...keyed("@ai-sdk/google", async () => (await import("@ai-sdk/google")).createGoogle),
  ...gemini,
  embedding: {},
  fields: { ...gemini.fields, service_tier: "translated" },
  metadataKey: "google",
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
  return {
    input_audio_tokens: tokensOf("AUDIO", ...prompt),
    cached_audio_tokens: tokensOf("AUDIO", "cacheTokensDetails"),
    input_image_tokens: images && Math.max(0, images - cachedImages),
    output_audio_tokens: tokensOf("AUDIO", "candidatesTokensDetails"),
    output_image_tokens: tokensOf("IMAGE", "candidatesTokensDetails"),
  };
}

/** Counts the searches of an answer ("GroundingMetadata" in the Gemini API's reference). */
export function geminiSearches(metadata: unknown): number {
  const { webSearchQueries: queries } = detailsOf(detailsOf(metadata).groundingMetadata);
  return Array.isArray(queries) ? queries.length : 0;
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
 * does not fit, the model answers without thinking, or with the minimum if thinking cannot be turned off.
 */
export function geminiFit(request: UpstreamRequest): Fit {
  const { modalities, service_tier: tier, web_search_options: search } = request;
  const { own, options, ignored = [] } = thinkingFit(request);
  const responseModalities = modalities?.map((one) => one.toUpperCase());
  return {
    options: { ...options, ...(search && searchOf(request)) },
    own: { ...own, responseModalities, serviceTier: tier === "flex" ? tier : undefined },
    ignored: [...ignored, ...Object.keys(search ?? {}).map((name) => `web_search_options.${name}`)],
  };
}

/** Most models refuse a search beside functions. The others want the steps of a search back, which no other wire has. */
function searchOf({ tools = [] }: UpstreamRequest): Fit["options"] {
  if (tools.length === 0)
    return { tools: [{ type: "provider", id: "google.google_search", name: "google_search", args: {} }] };
  throw unsupportedField("web_search_options", "this model does not search the web in a request with functions");
}

function thinkingFit(request: UpstreamRequest): Fit {
  const { thinking } = request;
  const isOff = thinking?.type === "disabled";
  // A stated budget is that of a caller who names no effort.
  const usual = thinking === undefined ? undefined : isOff ? "none" : "medium";
  const { reasoning_effort: effort = usual, max_tokens: maxTokens, model } = request;
  if (effort === undefined) return {};
  const withConfig = (thinkingConfig: Record<string, number | boolean>, ignored: string[] = []): Fit => {
    const isNumber = thinkingConfig.thinkingBudget !== undefined;
    return { options: { reasoning: isNumber ? "provider-default" : effort }, own: { thinkingConfig }, ignored };
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
