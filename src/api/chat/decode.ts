import { detailsOf, isObject } from "../json.ts";
import { compileReader } from "../known-fields.ts";
import { invalid, missing, outOfRange, refuseIf, together, type ValidationIssue } from "../validation.ts";
import type { DecodedCompletion, StatedOutput } from "../wire.ts";
import { ChatEventEncoder, type ChatStreamOptions, toChatCompletion } from "./encode.ts";
import { checkParts } from "./image-address.ts";
import { type ChatCompletionRequest, MESSAGES_MAX, type RequestMessage, SentRequest, TOOLS_MAX } from "./request.ts";
import { translateRequest, withNestedTools } from "./translate.ts";

/** The `max_tokens` by which clients of local servers, such as LM Studio, say that they state none. */
const NO_BOUND = -1;

/** Fields of an answer that clients send back with its message, and that no provider needs. */
const SILENT = ["tool_calls.index", "audio.data", "audio.transcript", "audio.expires_at"];
const readRequest = compileReader(SentRequest, { silent: SILENT.map((name) => `messages.${name}`) });

/** The operator's settings of chat completions. */
export interface ChatSettings {
  /** Contents of `messages` in a response: only the reply, or the conversation with it. */
  messages: "reply" | "conversation";
  maxTemperature: number;
}

const DEFAULT_SETTINGS: ChatSettings = { messages: "reply", maxTemperature: 1 };

/** Reads the body of a chat completion into the internal form. Throws InvalidRequestError. */
export function decodeChatCompletion(body: unknown, settings: ChatSettings = DEFAULT_SETTINGS): DecodedCompletion {
  const { messages, tools, max_tokens } = detailsOf(body);
  refuseIf(excessIssue(messages, "messages", MESSAGES_MAX) ?? excessIssue(tools, "tools", TOOLS_MAX));
  const nested = isObject(body) ? withNestedTools(body) : body;
  const { read: sent, unknown } = readRequest(
    max_tokens === NO_BOUND ? { ...detailsOf(nested), max_tokens: null } : nested,
  );
  refuseIf(temperatureIssue(sent.temperature, settings));
  const isLegacy = sent.functions !== undefined;
  const request = translateRequest(sent);
  refuseIf(checkTogether(request) ?? firstIssue(request.messages));
  checkParts(request.messages, (param) => param);
  return {
    kind: "completion",
    request,
    output: statedOutput(request),
    ignored: unknown.names(),
    paramOf: (param) => param,
    ...chatAnswer(request, settings, { includeUsage: request.stream_options?.include_usage === true, isLegacy }),
  };
}

/** Returns the encoders of an answer in the form of chat completions. */
export function chatAnswer(
  request: ChatCompletionRequest,
  settings: ChatSettings,
  options: ChatStreamOptions,
): Pick<DecodedCompletion, "events" | "document"> {
  const conversation = settings.messages === "conversation" ? request.messages : [];
  return {
    events: (head, add) => new ChatEventEncoder(head, add, options),
    document: (head, answer, end) => toChatCompletion(head, answer, end, conversation, options.isLegacy),
  };
}

/** Reads the bound that a request states for its answer; `max_tokens` names it if there is none. */
export function statedOutput({ max_tokens, max_completion_tokens }: ChatCompletionRequest): StatedOutput {
  if (max_completion_tokens === undefined) return { param: "max_tokens", tokens: max_tokens, isLimitedBySetting: true };
  return { param: "max_completion_tokens", tokens: max_completion_tokens, isLimitedBySetting: false };
}

/** Returns the issue of a temperature that the operator does not allow. */
export function temperatureIssue(temperature = 0, { maxTemperature: most }: ChatSettings): ValidationIssue | undefined {
  if (temperature <= most) return undefined;
  const { message, ...issue } = outOfRange("temperature", "decimal", "above", most, temperature);
  return { ...issue, message: `${message} The service's setting completions.maxTemperature bounds it.` };
}

function checkTogether(request: ChatCompletionRequest): ValidationIssue | undefined {
  if (request.max_tokens !== undefined && request.max_completion_tokens !== undefined) {
    return together("max_tokens", "max_completion_tokens", " Send only one of them.");
  }
  const choice = request.tool_choice;
  const tools = request.tools ?? [];
  if (choice !== undefined && choice !== "none" && choice !== "auto" && tools.length === 0) return choiceWithoutTools();
  if (typeof choice === "object" && !tools.some((tool) => tool.function.name === choice.function.name)) {
    return invalid("tool_choice.function.name", "'tools' has no function with this name");
  }
  return undefined;
}

/** Returns the issue of a choice that demands a tool where there is none. */
export function choiceWithoutTools(): ValidationIssue {
  return invalid("tool_choice", "it is only allowed when 'tools' are specified");
}

/** Largest budgets of thinking tokens of the efforts below the highest one. */
const LOW_BUDGET_TOKENS = 4_096;
const MEDIUM_BUDGET_TOKENS = 16_384;

/** Returns the effort for a budget of thinking tokens, which most models do not take. */
export function effortOfBudget(tokens: number): "low" | "medium" | "high" {
  if (tokens <= LOW_BUDGET_TOKENS) return "low";
  return tokens <= MEDIUM_BUDGET_TOKENS ? "medium" : "high";
}

/** Checks the length of a list before anything iterates over it. */
export function excessIssue(list: unknown, param: string, limit: number): ValidationIssue | undefined {
  if (!Array.isArray(list) || list.length <= limit) return undefined;
  const message = `Invalid '${param}': array too long. Expected at most ${limit} items, but got ${list.length}.`;
  return { code: "body_too_large", param, message };
}

function firstIssue(messages: RequestMessage[]): ValidationIssue | undefined {
  for (const [index, message] of messages.entries()) {
    const hasOtherContent = (message.tool_calls?.length ?? 0) > 0 || (message.refusal ?? message.audio) !== undefined;
    if (message.content === undefined && !(message.role === "assistant" && hasOtherContent))
      return missing(`messages[${index}].content`);
    if (message.role === "tool" && message.tool_call_id === undefined)
      return missing(`messages[${index}].tool_call_id`);
  }
  return undefined;
}
