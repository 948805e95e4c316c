import { MAX_TOKENS_DEFAULT } from "../api/chat/request.ts";
import type { Principal } from "../api/principal.ts";
import type { StatedOutput } from "../api/wire.ts";
import { type CatalogModel, isUndescribed } from "../catalog/model.ts";
import { OUTPUT_TOKENS_LEAST, type PromptEstimate } from "../credits/estimate.ts";
import { ApiError } from "../errors.ts";
import type { Gateway } from "./gateway.ts";
import { callLimits, limitKeys } from "./limits.ts";
import type { Plan } from "./plan.ts";

/** Refuses a `max_tokens` above the setting `completions.maxTokens`, whatever the model. Throws invalid_value. */
export function refuseAboveSetting({ completionMaxTokens: bound }: OutputSetting, output: StatedOutput): void {
  const { param, tokens, isLimitedBySetting } = output;
  if (typeof bound === "string" || !isLimitedBySetting || tokens === undefined || tokens <= bound) return;
  const message = `max_tokens is too large: ${tokens}. This service allows at most ${bound} (its setting completions.maxTokens). Use max_completion_tokens to ask for up to the model's own maximum.`;
  throw new ApiError("invalid_value", message, { param });
}

/** Tells whether a bound above what model and context window allow is refused. All others are lowered. */
export function isRefusedAbove({ completionMaxTokens }: OutputSetting, { isLimitedBySetting }: StatedOutput): boolean {
  return isLimitedBySetting && completionMaxTokens !== "clamp";
}

/** Refuses a `max_tokens` above the model's own maximum, unless it is lowered. Throws invalid_value. */
export function refuseAboveModel(
  setting: OutputSetting,
  output: StatedOutput,
  { maxOutputTokens }: OutputLimits,
): void {
  const { param, tokens } = output;
  if (!isRefusedAbove(setting, output) || tokens === undefined || tokens <= maxOutputTokens) return;
  // The wording that OpenAI's clients know.
  const message = `${param} is too large: ${tokens}. This model supports at most ${maxOutputTokens} completion tokens, whereas you provided ${tokens}.`;
  throw new ApiError("invalid_value", message, { param });
}

/**
 * Returns the most output tokens of a request that states no bound: the smallest of `completions.maxTokens`, the model's
 * maximum, and the rest of the context window. A model of which neither is known gets the contract's default.
 */
export function defaultOutputTokens(
  { completionMaxTokens: setting }: OutputSetting,
  model: OutputLimits,
  estimate: PromptEstimate,
): number {
  const ofModel = isUndescribed(model) ? MAX_TOKENS_DEFAULT : model.maxOutputTokens;
  const allowed = typeof setting === "number" ? Math.min(setting, model.maxOutputTokens) : ofModel;
  return Math.min(allowed, restOfWindow(model, estimate));
}

/** Returns a stated bound, lowered to what the model writes and, where they hardly fit together, to the rest of the window. */
export function loweredOutputTokens(asked: number, model: OutputLimits, estimate: PromptEstimate): number {
  const tokens = Math.min(asked, model.maxOutputTokens);
  if (tokens <= model.contextWindow - expectedPrompt(estimate)) return tokens;
  return Math.min(tokens, restOfWindow(model, estimate));
}

/**
 * Returns the output tokens for which a prompt leaves room. Up to the contract's default the likely length of the prompt is
 * subtracted from the window; beyond it a cautious one, because an upstream refuses a request whose prompt and `max_tokens`
 * do not fit together.
 */
function restOfWindow({ contextWindow }: OutputLimits, estimate: PromptEstimate): number {
  const likelyRoom = Math.min(MAX_TOKENS_DEFAULT, contextWindow - expectedPrompt(estimate));
  const cautiousRoom = contextWindow - Math.min(estimate.most, estimate.likely * CAUTION);
  return Math.max(1, likelyRoom, cautiousRoom);
}

/** The bytes of a file, a sound or a video say little of its tokens, which may be few. */
function expectedPrompt({ hasAudio: hasMedia, least, likely }: PromptEstimate): number {
  return hasMedia ? least : likely;
}

/** Factor by which a prompt may exceed its likely length: code and text in scripts of few bytes make more tokens. */
const CAUTION = 2;

type OutputSetting = Pick<Gateway, "completionMaxTokens">;
type OutputLimits = Pick<CatalogModel, "maxOutputTokens" | "contextWindow" | "hasUnknownWindow">;

/** Output tokens that a request is admitted with. */
export interface OutputRange {
  /** Tokens that the credits must cover. */
  least: number;
  most: number;
  /** The bound before those of the playground, the model and its context window. */
  requested: number;
}

/** Returns the output tokens of a request: as it states them, or as settings, model, limits and context window allow. */
export function outputRange(gateway: Gateway, principal: Principal, plan: Plan): OutputRange {
  const { model, output, estimate } = plan;
  const { tokens: asked } = output;
  const unit = "tokensPerMinute";
  const limits = [...limitKeys(gateway, principal, unit), ...callLimits(principal, plan, unit)];
  const minuteLimit = gateway.limits.partOf(Math.min(...limits.map(({ limit }) => limit)));
  const minuteRoom = Math.max(1, minuteLimit - estimate.likely);
  const requested = asked ?? Math.min(defaultOutputTokens(gateway, model, estimate), minuteRoom);
  const isAllowed = asked === undefined || isRefusedAbove(gateway, output);
  const allowed = isAllowed ? requested : loweredOutputTokens(requested, model, estimate);
  const most = principal.organizationKind === "playground" ? Math.min(allowed, gateway.playground.maxTokens) : allowed;
  return { least: asked === undefined ? Math.min(most, OUTPUT_TOKENS_LEAST) : most, most, requested };
}
