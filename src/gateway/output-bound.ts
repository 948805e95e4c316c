import { MAX_TOKENS_DEFAULT } from "../api/chat/request.ts";
import type { Principal } from "../api/principal.ts";
import type { StatedOutput } from "../api/wire.ts";
import { isUndescribed, type OutputLimits } from "../catalog/model.ts";
import { OUTPUT_TOKENS_LEAST, type PromptEstimate } from "../credits/estimate.ts";
import { ApiError } from "../errors.ts";
import type { Gateway, GatewayCall } from "./gateway.ts";
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
 * Returns the output tokens that a request wants before its prompt is considered, at most the model's maximum: those that it
 * states, or `completions.maxTokens`. A model of which neither maximum nor context window is known gets the contract's default.
 */
export function wantedOutputTokens(
  { completionMaxTokens: setting }: OutputSetting,
  model: OutputLimits,
  asked: number | undefined,
): number {
  if (asked === undefined && typeof setting === "string" && isUndescribed(model)) return MAX_TOKENS_DEFAULT;
  return Math.min(asked ?? (typeof setting === "number" ? setting : Infinity), model.maxOutputTokens);
}

/**
 * Returns the wanted output tokens, lowered to what fits with the prompt into the context window: an upstream refuses a request
 * whose prompt and `max_tokens` do not. A bound that the request states is kept where it is likely to fit.
 */
export function fittingOutputTokens(
  wanted: number,
  isStated: boolean,
  { contextWindow }: OutputLimits,
  estimate: PromptEstimate,
): number {
  const { likely, cautious } = promptTokens(estimate);
  // An estimate that leaves no room is not certain. Where what is certain leaves none, the request is refused.
  const isLikely = contextWindow - likely >= ANSWER_TOKENS_LEAST;
  const room = contextWindow - (isLikely ? likely : estimate.least);
  if (isStated && wanted <= room) return wanted;
  // Media may fill what the text leaves.
  const halfMost = estimate.hasMedia && !isStated ? MAX_TOKENS_DEFAULT : Infinity;
  const half = Math.min(halfMost, Math.floor(room / 2));
  return Math.min(wanted, Math.max(contextWindow - cautious, half, ANSWER_TOKENS_LEAST));
}

/** Tokens of an answer that a prompt leaves room for, unless the request states fewer. */
const ANSWER_TOKENS_LEAST = 16;
/** Factors by which a prompt may exceed its estimate, and its count: tokenizers differ. */
const CAUTION = 2;
const CAUTION_COUNTED = 1.08;
/** Part of a count that the text has with every tokenizer in wide use. */
const CERTAIN_PART = 0.75;
/** Part of the context window that a prompt may have by a cautious estimate without being counted. */
const WINDOW_PART_UNCOUNTED = 1 / 32;

/** Estimates of a prompt's tokens, by the count of its text where there is one. The bytes of media say little of their tokens. */
function promptTokens(estimate: PromptEstimate) {
  const { hasMedia, least, most, lowDetailSavings = 0, textTokens } = estimate;
  const [likely, beside] = [estimate.likely - lowDetailSavings, estimate.likelyBesideText - lowDetailSavings];
  if (textTokens === undefined) {
    return { likely: hasMedia ? least : likely, cautious: Math.min(most, likely * CAUTION) };
  }
  const cautious = Math.ceil(textTokens * CAUTION_COUNTED + beside * (hasMedia ? CAUTION : CAUTION_COUNTED));
  return { likely: textTokens + (hasMedia ? 0 : beside), cautious };
}

/**
 * Tells whether the bound of an answer depends on the exact length of the prompt, so that its text has to be counted. Prompts
 * are not counted where a cautious estimate costs little of the context window.
 */
export function needsCount(gateway: OutputSetting, { operation, model, output, estimate }: Plan): boolean {
  const { cautious } = promptTokens(estimate);
  const wanted = wantedOutputTokens(gateway, model, output.tokens);
  const isLong = cautious > model.contextWindow * WINDOW_PART_UNCOUNTED;
  return operation === "chat" && isLong && wanted > model.contextWindow - cautious;
}

/**
 * Returns the plan with its text counted, where it can be counted in time. Throws context_length_exceeded, except for a request
 * with a key, whose answer may be stored; or the reason of the signal if it is aborted meanwhile.
 */
export async function withCount(gateway: Gateway, call: GatewayCall, plan: Plan): Promise<Plan> {
  const { principal, signal, idempotency } = call;
  const count = await gateway.tokenCounter.countPrompt(principal.organizationId, plan.promptTexts(), signal);
  signal.throwIfAborted();
  if (count === undefined) return plan;
  const certain = count.isWhole ? Math.floor(count.tokens * CERTAIN_PART) : 0;
  const least = Math.max(plan.estimate.least, certain);
  const counted = { ...plan, estimate: { ...plan.estimate, least, textTokens: count.tokens } };
  if (idempotency === null) refuseAboveWindow(gateway, counted);
  return counted;
}

/**
 * Refuses a prompt that does not fit into the model's context window, alone with the shortest answer or with a bound that is not
 * lowered. Throws context_length_exceeded.
 */
export function refuseAboveWindow(setting: OutputSetting, { model, output, estimate: { least } }: Plan): void {
  const asked = isRefusedAbove(setting, output) ? output.tokens : undefined;
  if (least + (asked ?? Math.min(output.tokens ?? model.maxOutputTokens, ANSWER_TOKENS_LEAST)) <= model.contextWindow)
    return;
  const completion = asked === undefined ? "" : `, and ${asked} for the completion`;
  throw new ApiError(
    "context_length_exceeded",
    `This model's maximum context length is ${model.contextWindow} tokens. However, your messages come to at least ${least} tokens${completion}. Please shorten the messages or the completion.`,
    { param: "messages" },
  );
}

type OutputSetting = Pick<Gateway, "completionMaxTokens">;

/** Output tokens that each choice of a request is admitted with. */
export interface OutputRange {
  /** Tokens that the credits must cover. */
  least: number;
  most: number;
  /** The bound that the request states, or the model's default. */
  requested: number;
  choices: number;
}

/** Returns the output tokens of a request: as it states them, or as settings, model, limits and context window allow. */
export function outputRange(gateway: Gateway, principal: Principal, plan: Plan): OutputRange {
  const { model, output, estimate } = plan;
  const { tokens: asked } = output;
  const { choices } = estimate;
  const unit = "tokensPerMinute";
  const limits = [...limitKeys(gateway, principal, unit), ...callLimits(principal, plan, unit)];
  const minuteLimit = gateway.limits.partOf(Math.min(...limits.map(({ limit }) => limit)));
  const minuteRoom = Math.max(ANSWER_TOKENS_LEAST, Math.floor((minuteLimit - estimate.likely) / choices));
  const wanted = wantedOutputTokens(gateway, model, asked);
  const isKept = asked !== undefined && isRefusedAbove(gateway, output);
  const fitting = isKept ? wanted : fittingOutputTokens(wanted, asked !== undefined, model, estimate);
  const allowed = asked === undefined ? Math.min(fitting, minuteRoom) : fitting;
  const playgroundMost = Math.max(1, Math.floor(gateway.playground.maxTokens / choices));
  const most = principal.organizationKind === "playground" ? Math.min(allowed, playgroundMost) : allowed;
  const least = asked === undefined ? Math.min(most, OUTPUT_TOKENS_LEAST) : most;
  return { least, most, requested: asked ?? wanted, choices };
}
