import { detailsOf } from "../../../api/json.ts";
import { translating } from "../../fields.ts";
import { UpstreamError, type UpstreamRequest } from "../../provider.ts";
import { CLAUDE_SCHEMAS } from "../../schemas.ts";
import { CLAUDE_REASONING, fieldsOfDetail, readExtraContent } from "../reasoning.ts";
import { type Fit, keyed, REASONING_SHARES, type Wire } from "../wire.ts";

/** Anthropic's Messages API: https://platform.claude.com/docs/en/api/messages */
export const anthropic: Wire = {
  ...keyed("@ai-sdk/anthropic", async () => (await import("@ai-sdk/anthropic")).createAnthropic),
  fields: translating(
    ...(["user", "parallel_tool_calls", "top_k", "thinking", "safety_identifier", "cache_control"] as const),
    ...(["content.file", "content.file.file_url"] as const),
  ),
  schemas: CLAUDE_SCHEMAS,
  fit(request) {
    const { parallel_tool_calls: isParallel, tools, safety_identifier } = request;
    const user = request.user ?? safety_identifier;
    const { options, thinking, ignored } = claudeFit(request);
    const own = {
      metadata: user === undefined ? undefined : { userId: user },
      disableParallelToolUse: tools !== undefined && isParallel === false ? true : undefined,
      thinking,
    };
    return { options, own, ignored };
  },
  prompt: {
    isSystemFirst: true,
    takesToolImages: true,
    takesToolMarks: true,
    cacheMark: (cacheControl) => ({ anthropic: { cacheControl } }),
  },
  metadataKey: "anthropic",
  reasoning: CLAUDE_REASONING,
  closing: 'data: {"type":"message_stop"}\n\n',
  // Writes that are kept for an hour cost more ("Prompt caching", "Pricing").
  partsOf: (raw) => ({ cache_write_1h_tokens: detailsOf(detailsOf(raw).cache_creation).ephemeral_1h_input_tokens }),
};

/**
 * Models that take an effort; earlier ones, and those of other makers on this wire, need a number of tokens for thinking. This
 * and the rules below are from the pages "Extended thinking" and "Effort" of Anthropic's documentation.
 */
const TAKES_EFFORT = /claude-(?!\d|instant|v\d|haiku-[34]|sonnet-[34](?![-.]6)|opus-[34](?![-.][6-8]))/;
const CANNOT_THINK = /claude-(instant|v?[12]\b|3(?![-.]7)|(haiku|sonnet|opus)-3)/;
/** Models that refuse a forced tool. The packages would silently let the model choose. */
const NEVER_FORCED = /claude-(sonnet-5-5|opus-5-5|fable-5-[12])/;
/** "The minimum budget is 1,024 tokens." */
const BUDGET_TOKENS_MIN = 1_024;

interface ClaudeFit extends Pick<Fit, "options" | "ignored"> {
  /** Extent of the thinking; tokens are subtracted from `maxOutputTokens`, because the packages add them. */
  thinking?: { type: "adaptive" } | { type: "enabled"; budgetTokens: number };
}

/**
 * Sets how much Claude thinks. A hold covers no more than `max_tokens`, so the budget is a share of it. If the budget would
 * be too small, or the conversation does not allow one, `reasoning_effort` is ignored. Throws UpstreamError `unsupported` if
 * `tool_choice` forces a tool on a model that refuses it.
 */
export function claudeFit(request: UpstreamRequest): ClaudeFit {
  if (forcesTool(request) && NEVER_FORCED.test(request.model)) {
    const publicReason = "This model cannot be made to call a tool: 'tool_choice' may be 'auto' or 'none'.";
    throw new UpstreamError("unsupported", "The model takes no forced tool", { publicReason });
  }
  const { reasoning_effort: effort, thinking, model } = request;
  const off = { options: { reasoning: "none" as const } };
  if (thinking?.type === "disabled") return off;
  if (TAKES_EFFORT.test(model)) {
    if (thinking === undefined) return {};
    // Later models take no number of tokens.
    return mayThink(request) ? { thinking: { type: "adaptive" } } : { ignored: ["thinking"] };
  }
  if (thinking === undefined && effort === undefined) return {};
  if (thinking === undefined && effort === "none") return off;
  return budgetFit(request);
}

/** Sets the tokens for thinking: those that the caller states, or a share of `max_tokens`, within which both have to be. */
function budgetFit(request: UpstreamRequest): ClaudeFit {
  const { reasoning_effort: effort = "medium", thinking, max_tokens: maxTokens } = request;
  const share = Math.floor(maxTokens * REASONING_SHARES[effort === "none" ? "medium" : effort]);
  const stated = thinking?.budget_tokens;
  const budget = stated === undefined ? Math.max(BUDGET_TOKENS_MIN, share) : Math.min(stated, maxTokens - 1);
  const isEnough = stated === undefined ? budget * 2 <= maxTokens : budget >= BUDGET_TOKENS_MIN;
  const reasoning = "provider-default" as const;
  if (isEnough && mayThink(request) && !CANNOT_THINK.test(request.model)) {
    const enabled = { type: "enabled" as const, budgetTokens: budget };
    return { options: { reasoning, maxOutputTokens: maxTokens - budget }, thinking: enabled };
  }
  return { options: { reasoning }, ignored: [thinking === undefined ? "reasoning_effort" : "thinking"] };
}

function mayThink(request: UpstreamRequest): boolean {
  return !forcesTool(request) && !isUnsignedTurn(request);
}

/** Tests whether the model must call a tool. "Tool choice any or tool is not supported with thinking." */
function forcesTool({ tool_choice: choice }: UpstreamRequest): boolean {
  return choice === "required" || typeof choice === "object";
}

/** Tests whether the turn continues after tool calls without their signed thinking. Claude then refuses a budget. */
function isUnsignedTurn({ messages }: UpstreamRequest): boolean {
  const lastUser = messages.findLastIndex(({ role }) => role === "user");
  const first = messages.slice(lastUser + 1).find(({ role, tool_calls }) => role === "assistant" && tool_calls);
  if (first === undefined) return false;
  const { reasoning_details: details = [], tool_calls: calls = [] } = first;
  const all = [...details, ...calls.flatMap((call) => readExtraContent(call.extra_content).details)];
  return !all.some((detail) => fieldsOfDetail(detail, CLAUDE_REASONING));
}
