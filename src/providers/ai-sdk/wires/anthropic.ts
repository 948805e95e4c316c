import { detailsOf } from "../../../api/json.ts";
import { UpstreamError, type UpstreamRequest } from "../../provider.ts";
import { CLAUDE_SCHEMAS } from "../../schemas.ts";
import { CLAUDE_REASONING, fieldsOfDetail } from "../reasoning.ts";
import { type Fit, KEYED, optionsOf, REASONING_SHARES, readExtraContent, USUAL_PROMPT, type Wire } from "../wire.ts";

/** Anthropic's Messages API: https://platform.claude.com/docs/en/api/messages */
export const anthropic: Wire = {
  packages: ["@ai-sdk/anthropic"],
  ...KEYED,
  connect: (settings) => async (fetch) => {
    const { createAnthropic } = await import("@ai-sdk/anthropic");
    return createAnthropic(optionsOf(settings, fetch));
  },
  takes: ["user", "parallel_tool_calls"],
  fields: {
    top_k: "translated",
    thinking: "translated",
    safety_identifier: "translated",
    cache_control: "translated",
    "content.file": "translated",
    "content.file.file_url": "translated",
  },
  schemas: CLAUDE_SCHEMAS,
  fit(request) {
    const { parallel_tool_calls: isParallel, tools, safety_identifier } = request;
    const user = request.user ?? safety_identifier;
    const { options, budget, isAdaptive, ignored } = claudeFit(request, "anthropic");
    const own = {
      ...(user !== undefined && { metadata: { userId: user } }),
      ...(isAdaptive && { thinking: { type: "adaptive" } }),
      ...(tools !== undefined && isParallel === false && { disableParallelToolUse: true }),
      ...(budget !== undefined && { thinking: { type: "enabled", budgetTokens: budget } }),
    };
    return { options: { ...options, providerOptions: { anthropic: own } }, ignored };
  },
  prompt: {
    ...USUAL_PROMPT,
    isSystemFirst: true,
    takesToolImages: true,
    takesToolMarks: true,
    cacheMark: (cacheControl) => ({ anthropic: { cacheControl } }),
  },
  reasoningFormat: CLAUDE_REASONING,
  metadataKey: "anthropic",
  reasoningFields: ["signature", "redactedData"],
  closing: 'data: {"type":"message_stop"}\n\n',
  // Writes that are kept for an hour cost more ("Prompt caching", "Pricing").
  partsOf(raw) {
    const { ephemeral_1h_input_tokens: written } = detailsOf(detailsOf(raw).cache_creation);
    return typeof written === "number" ? { cache_write_1h_tokens: written } : {};
  },
};

/**
 * Models that need a number of tokens for thinking; later models take an effort. This and the rules below are from the pages
 * "Extended thinking" and "Effort" of Anthropic's documentation.
 */
const NEEDS_BUDGET = /claude-(3-7|(sonnet|opus)-4-(0|1|5|20\d{6})\b|(sonnet|opus)-4(@|$)|haiku-4-5)/;
/** Models that refuse a forced tool. The packages would silently let the model choose. */
const NEVER_FORCED = /claude-(sonnet-5-5|opus-5-5|fable-5-[12])/;
/** "The minimum budget is 1,024 tokens." */
const BUDGET_TOKENS_MIN = 1_024;

interface ClaudeFit extends Fit {
  /** Tokens for thinking, subtracted from `maxOutputTokens`, because the packages add them to it. */
  budget: number | undefined;
  /** True if the model shall choose how much it thinks. */
  isAdaptive: boolean;
}

/**
 * Sets how much Claude thinks. A hold covers no more than `max_tokens`, so the budget is a share of it. If the budget would
 * be too small, or the conversation does not allow one, `reasoning_effort` is ignored. `key` is the provider's key in
 * `extra_content`. Throws UpstreamError `unsupported` if `tool_choice` forces a tool on a model that refuses it.
 */
export function claudeFit(request: UpstreamRequest, key: string): ClaudeFit {
  if (forcesTool(request) && NEVER_FORCED.test(request.model)) {
    const publicReason = "This model cannot be made to call a tool: 'tool_choice' may be 'auto' or 'none'.";
    throw new UpstreamError("unsupported", "The model takes no forced tool", { publicReason });
  }
  const { reasoning_effort: effort, thinking, model } = request;
  const none = { options: {}, budget: undefined, isAdaptive: false, ignored: [] };
  const off = { ...none, options: { reasoning: "none" as const } };
  if (thinking?.type === "disabled") return off;
  if (!NEEDS_BUDGET.test(model)) {
    // Later models take no number of tokens.
    const isAdaptive = thinking !== undefined && !forcesTool(request) && !isUnsignedTurn(request, key);
    return { ...none, isAdaptive, ignored: thinking !== undefined && !isAdaptive ? ["thinking"] : [] };
  }
  if (thinking === undefined && effort === undefined) return none;
  if (thinking === undefined && effort === "none") return off;
  return budgetFit(request, key);
}

/** Sets the tokens for thinking: those that the caller states, or a share of `max_tokens`, within which both have to be. */
function budgetFit(request: UpstreamRequest, key: string): ClaudeFit {
  const { reasoning_effort: effort = "medium", thinking, max_tokens: maxTokens } = request;
  const share = Math.floor(maxTokens * REASONING_SHARES[effort === "none" ? "medium" : effort]);
  const stated = thinking?.budget_tokens;
  const budget = stated === undefined ? Math.max(BUDGET_TOKENS_MIN, share) : Math.min(stated, maxTokens - 1);
  const isEnough = stated === undefined ? budget * 2 <= maxTokens : budget >= BUDGET_TOKENS_MIN;
  const isAllowed = isEnough && !forcesTool(request) && !isUnsignedTurn(request, key);
  const options = { reasoning: "provider-default" as const };
  const field = thinking === undefined ? "reasoning_effort" : "thinking";
  if (!isAllowed) return { options, budget: undefined, isAdaptive: false, ignored: [field] };
  return { options: { ...options, maxOutputTokens: maxTokens - budget }, budget, isAdaptive: false, ignored: [] };
}

/** Tests whether the model must call a tool. "Tool choice any or tool is not supported with thinking." */
function forcesTool({ tool_choice: choice }: UpstreamRequest): boolean {
  return choice === "required" || typeof choice === "object";
}

/** Tests whether the turn continues after tool calls without their signed thinking. Claude then refuses a budget. */
function isUnsignedTurn({ messages }: UpstreamRequest, key: string): boolean {
  const lastUser = messages.findLastIndex(({ role }) => role === "user");
  const first = messages.slice(lastUser + 1).find(({ role, tool_calls }) => role === "assistant" && tool_calls);
  if (first === undefined) return false;
  if (first.reasoning_details?.some((detail) => fieldsOfDetail(detail, CLAUDE_REASONING))) return false;
  const calls = first.tool_calls ?? [];
  return !calls.some(
    ({ extra_content: extra }) =>
      readExtraContent(extra, key, ["signature", "redactedData", "redactedContent"]).reasoning.length > 0,
  );
}
