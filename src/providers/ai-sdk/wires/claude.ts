import { UpstreamError, type UpstreamRequest } from "../../provider.ts";
import { readExtraContent } from "../extra-content.ts";
import { type Fit, REASONING_SHARES } from "../wire.ts";

/** The models that think only when told how many tokens; all later ones take an effort ("Extended thinking", "Effort"). */
const NEEDS_BUDGET = /claude-(3-7|(sonnet|opus)-4-(0|1|5|20\d{6})\b|(sonnet|opus)-4(@|$)|haiku-4-5)/;
/** The models that refuse a forced tool; asked all the same, the packages would leave it to the model. */
const NEVER_FORCED = /claude-(sonnet-5-5|opus-5-5|fable-5-[12])/;
/** "The minimum budget is 1,024 tokens" ("Extended thinking"). */
const BUDGET_TOKENS_MIN = 1_024;

interface ClaudeFit extends Fit {
  /** Tokens that may go into thinking, taken off `maxOutputTokens`, because the packages put it on top of that. */
  budget: number | undefined;
}

/**
 * Sets how much Claude thinks. A hold covers no more than `max_tokens`, so the budget is a share of it. If the budget would
 * be too small, or the conversation does not allow one, `reasoning_effort` is ignored. `key` is the provider's key in
 * `extra_content`. Throws UpstreamError if `tool_choice` forces a tool on a model that does not support that.
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

/** "Tool choice any or tool is not supported with thinking" ("Extended thinking"). */
function forcesTool({ tool_choice: choice }: UpstreamRequest): boolean {
  return choice === "required" || typeof choice === "object";
}

/** True if the turn continues after tool calls without their signed thinking. Claude refuses a budget then. */
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
