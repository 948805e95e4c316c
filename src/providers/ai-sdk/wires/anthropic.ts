import { UpstreamError, type UpstreamRequest } from "../../provider.ts";
import { type Fit, missing, optionsOf, REASONING_SHARES, readExtraContent, USUAL_PROMPT, type Wire } from "../wire.ts";

/** Anthropic's Messages API: https://platform.claude.com/docs/en/api/messages */
export const anthropic: Wire = {
  package: "@ai-sdk/anthropic",
  keys: ["apiKey", "baseUrl"],
  fault: (settings) => missing(settings, "apiKey"),
  connect: (settings) => async (fetch) => {
    const { createAnthropic } = await import("@ai-sdk/anthropic");
    return createAnthropic(optionsOf(settings, fetch));
  },
  takes: ["user", "parallel_tool_calls"],
  fit(request) {
    const { parallel_tool_calls: isParallel, tools, user } = request;
    const { options, budget, ignored } = claudeFit(request, "anthropic");
    const own = {
      ...(user !== undefined && { metadata: { userId: user } }),
      ...(tools !== undefined && isParallel === false && { disableParallelToolUse: true }),
      ...(budget !== undefined && { thinking: { type: "enabled", budgetTokens: budget } }),
    };
    return { options: { ...options, providerOptions: { anthropic: own } }, ignored };
  },
  prompt: { ...USUAL_PROMPT, isSystemFirst: true, takesToolImages: true },
  metadataKey: "anthropic",
  reasoningFields: ["signature", "redactedData"],
  closing: 'data: {"type":"message_stop"}\n\n',
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
  const { reasoning_effort: effort, max_tokens: maxTokens, model } = request;
  if (effort === undefined || !NEEDS_BUDGET.test(model)) return { options: {}, budget: undefined, ignored: [] };
  if (effort === "none") return { options: { reasoning: "none" }, budget: undefined, ignored: [] };
  const budget = Math.max(BUDGET_TOKENS_MIN, Math.floor(maxTokens * REASONING_SHARES[effort]));
  const isAllowed = budget * 2 <= maxTokens && !forcesTool(request) && !isUnsignedTurn(request, key);
  const options = { reasoning: "provider-default" as const };
  if (!isAllowed) return { options, budget: undefined, ignored: ["reasoning_effort"] };
  return { options: { ...options, maxOutputTokens: maxTokens - budget }, budget, ignored: [] };
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
  const calls = first.tool_calls ?? [];
  return !calls.some(
    ({ extra_content: extra }) =>
      readExtraContent(extra, key, ["signature", "redactedData", "redactedContent"]).reasoning.length > 0,
  );
}
