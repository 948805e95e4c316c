import { MAX_TOKENS_DEFAULT } from "../api/chat/request.ts";
import type { Principal } from "../api/principal.ts";
import type { StatedOutput } from "../api/wire.ts";
import type { CatalogModel } from "../catalog/model.ts";
import { OUTPUT_TOKENS_LEAST, type PromptEstimate } from "../credits/estimate.ts";
import { ApiError } from "../errors.ts";
import type { Gateway } from "./gateway.ts";
import { limitKeys, modelLimit } from "./wanted-limits.ts";

/** Refuses a `max_tokens` above the setting `completions.maxTokens`, whatever the model. Throws invalid_value. */
export function refuseAboveSetting(
  { completionMaxTokens: bound }: OutputSetting,
  { param, tokens, isLimitedBySetting }: StatedOutput,
): void {
  if (bound === "model" || !isLimitedBySetting || tokens === undefined || tokens <= bound) return;
  const message = `max_tokens is too large: ${tokens}. This service allows at most ${bound} (its setting completions.maxTokens). Use max_completion_tokens to ask for up to the model's own maximum.`;
  throw new ApiError("invalid_value", message, { param });
}

/** Refuses a bound above the model's own maximum, under either name. Throws invalid_value. */
export function refuseAboveModel({ param, tokens }: StatedOutput, { maxOutputTokens }: OutputLimits): void {
  if (tokens === undefined || tokens <= maxOutputTokens) return;
  // The wording that OpenAI's clients know.
  const message = `${param} is too large: ${tokens}. This model supports at most ${maxOutputTokens} completion tokens, whereas you provided ${tokens}.`;
  throw new ApiError("invalid_value", message, { param });
}

/**
 * Returns the most output tokens of a request that states no bound: the smallest of `completions.maxTokens`, the model's
 * maximum, and the rest of the context window. Up to the contract's default the likely length of the prompt is subtracted
 * from the window; beyond it a cautious one, because an upstream refuses a request whose prompt and `max_tokens` do not
 * fit together.
 */
export function defaultOutputTokens(
  { completionMaxTokens }: OutputSetting,
  { maxOutputTokens, contextWindow }: OutputLimits,
  { likely, most }: PromptEstimate,
): number {
  const allowed = completionMaxTokens === "model" ? maxOutputTokens : Math.min(completionMaxTokens, maxOutputTokens);
  const likelyRoom = Math.min(MAX_TOKENS_DEFAULT, contextWindow - likely);
  const cautiousRoom = contextWindow - Math.min(most, likely * CAUTION);
  return Math.max(1, Math.min(allowed, Math.max(likelyRoom, cautiousRoom)));
}

/** Factor by which a prompt may exceed its likely length: code and text in scripts of few bytes make more tokens. */
const CAUTION = 2;

type OutputSetting = Pick<Gateway, "completionMaxTokens">;
type OutputLimits = Pick<CatalogModel, "maxOutputTokens" | "contextWindow">;

/** Output tokens that a request is admitted with. */
export interface OutputRange {
  /** Tokens that the credits must cover. */
  least: number;
  most: number;
  /** The bound before that of the playground. */
  requested: number;
}

/** Returns the output tokens of a request: as it states them, or as settings, model, limits and context window allow. */
export function outputRange(
  gateway: Gateway,
  principal: Principal,
  model: CatalogModel,
  { tokens: asked }: StatedOutput,
  estimate: PromptEstimate,
): OutputRange {
  const requested =
    asked ?? Math.min(defaultOutputTokens(gateway, model, estimate), minuteRoom(gateway, principal, model, estimate));
  const bound = principal.organizationKind === "playground" ? gateway.playground.maxTokens : requested;
  const most = Math.min(requested, bound);
  return { least: asked === undefined ? Math.min(most, OUTPUT_TOKENS_LEAST) : most, most, requested };
}

/** Returns the output tokens that the limit of tokens per minute allows in addition to the prompt. */
function minuteRoom(gateway: Gateway, principal: Principal, model: CatalogModel, { likely }: PromptEstimate): number {
  const keys = [...limitKeys(gateway, principal, "tokensPerMinute"), ...modelLimit(model, "tokensPerMinute")];
  const limits = keys.map(({ limit }) => limit);
  return Math.max(1, gateway.limits.partOf(Math.min(...limits)) - likely);
}
