import { type ChatCompletionRequest, MAX_TOKENS_DEFAULT } from "../api/request.ts";
import type { CatalogModel } from "../catalog/model.ts";
import type { PromptEstimate } from "../credits/estimate.ts";
import { ApiError } from "../errors.ts";
import type { Gateway } from "./gateway.ts";

type OutputParam = "max_tokens" | "max_completion_tokens";

/** The field by which a request bounds its answer; `max_tokens` where it states neither. */
export function outputParam(request: ChatCompletionRequest): OutputParam {
  return request.max_completion_tokens === undefined ? "max_tokens" : "max_completion_tokens";
}

/** Refuses a `max_tokens` above the setting `completions.maxTokens`, whatever the model. Throws invalid_value. */
export function refuseAboveSetting(
  { completionMaxTokens: bound }: Bound,
  { max_tokens: asked }: ChatCompletionRequest,
) {
  if (bound === "model" || asked === undefined || asked <= bound) return;
  const message = `max_tokens is too large: ${asked}. This service allows at most ${bound} (its setting completions.maxTokens). Use max_completion_tokens to ask for up to the model's own maximum.`;
  throw new ApiError("invalid_value", message, { param: "max_tokens" });
}

/** Refuses what is above the model's own maximum, under either name. Throws invalid_value. */
export function refuseAboveModel(request: ChatCompletionRequest, { maxOutputTokens }: OutputLimits): void {
  const param = outputParam(request);
  const asked = request[param];
  if (asked === undefined || asked <= maxOutputTokens) return;
  // The wording that OpenAI's clients know.
  const message = `${param} is too large: ${asked}. This model supports at most ${maxOutputTokens} completion tokens, whereas you provided ${asked}.`;
  throw new ApiError("invalid_value", message, { param });
}

/**
 * Most output tokens of a request that states no bound, before its credits are asked: the smallest of
 * `completions.maxTokens`, the model's maximum, and what is left of the context window. Up to the contract's default the
 * likely length of the prompt is taken off the window; beyond it a cautious one, because an upstream refuses a request
 * whose prompt and `max_tokens` do not fit together.
 */
export function defaultOutputTokens(
  { completionMaxTokens }: Bound,
  { maxOutputTokens, contextWindow }: OutputLimits,
  { likely, most }: PromptEstimate,
): number {
  const allowed = completionMaxTokens === "model" ? maxOutputTokens : Math.min(completionMaxTokens, maxOutputTokens);
  const likelyRoom = Math.min(MAX_TOKENS_DEFAULT, contextWindow - likely);
  const cautiousRoom = contextWindow - Math.min(most, likely * CAUTION);
  return Math.max(1, Math.min(allowed, Math.max(likelyRoom, cautiousRoom)));
}

/** How many times its likely length a prompt may have: text in few-byte scripts and code make more tokens. */
const CAUTION = 2;

type Bound = Pick<Gateway, "completionMaxTokens">;
type OutputLimits = Pick<CatalogModel, "maxOutputTokens" | "contextWindow">;
