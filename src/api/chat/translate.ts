import type { ValidationIssue } from "../validation.ts";
import type {
  ChatCompletionRequest,
  RequestMessage,
  SentMessage,
  SentRequest,
  SentToolChoice,
  Tool,
  ToolCall,
} from "./request.ts";

type Mutable = Record<string, unknown>;

/**
 * Converts a valid request to the internal form, in place: functions and their calls to tools, custom tools to functions
 * that are marked, and the allowed tools of a choice to the tools that are offered. Returns the first issue of fields that
 * contradict each other.
 */
export function translateRequest(sent: SentRequest): { request: ChatCompletionRequest } | { issue: ValidationIssue } {
  const issue = refuseTwoForms(sent);
  if (issue !== undefined) return { issue };
  const { functions, function_call: called } = sent;
  if (functions !== undefined) {
    sent.tools = functions.map((definition) => ({ type: "function", function: definition }));
    // The answer has a place for one call.
    if (functions.length > 0) sent.parallel_tool_calls = false;
  }
  if (called !== undefined) {
    sent.tool_choice = typeof called === "string" ? called : { type: "function", function: { name: called.name } };
  }
  for (const tool of sent.tools ?? []) translateTool(tool as unknown as Mutable);
  translateChoice(sent);
  translateMessages(sent.messages as unknown as SentMessage[]);
  return { request: sent };
}

function refuseTwoForms({ functions, tools, function_call: called, tool_choice: choice }: SentRequest) {
  if (functions !== undefined && tools !== undefined) return twoForms("functions", "tools");
  return called !== undefined && choice !== undefined ? twoForms("function_call", "tool_choice") : undefined;
}

function twoForms(param: string, other: string): ValidationIssue {
  const message = `Setting '${param}' and '${other}' at the same time is not supported. Send only '${other}'.`;
  return { code: "invalid_value", param, message };
}

function translateTool(tool: Mutable): void {
  if (tool.type !== "custom") {
    // Only this function marks a tool.
    tool.custom = undefined;
    return;
  }
  const { name, description, format } = tool.custom as { name: string; description?: string; format?: object };
  tool.type = "function";
  tool.function = { name, description };
  tool.custom = { format };
}

function translateChoice(sent: SentRequest): void {
  const choice = sent.tool_choice as SentToolChoice | undefined;
  if (typeof choice !== "object") return;
  if (choice.type === "custom") sent.tool_choice = { type: "function", function: choice.custom };
  if (choice.type !== "allowed_tools") return;
  const { mode, tools: allowed } = choice.allowed_tools;
  const names = new Set(allowed.map((one) => (one.type === "custom" ? one.custom.name : one.function.name)));
  sent.tools = sent.tools?.filter((tool: Tool) => names.has(tool.function.name));
  sent.tool_choice = mode;
}

/** Converts calls of functions and of custom tools, and gives the calls of functions ids by which their results name them. */
function translateMessages(messages: SentMessage[]): void {
  let lastCallId = "";
  for (const [index, message] of messages.entries()) {
    if (message.function_call !== undefined) {
      lastCallId = message.tool_calls?.[0]?.id ?? `call_${index}`;
      message.tool_calls ??= [{ id: lastCallId, type: "function", function: message.function_call }];
    }
    if (message.role === "function") {
      message.role = "tool";
      message.tool_call_id ??= lastCallId;
    }
    for (const call of message.tool_calls ?? []) translateCall(call as unknown as Mutable);
  }
}

function translateCall(call: Mutable): void {
  if (call.type !== "custom") {
    call.isCustom = undefined;
    return;
  }
  const { name, input } = call.custom as { name: string; input: string };
  call.type = "function";
  call.function = { name, arguments: input };
  call.isCustom = true;
}

/** Returns a tool call in the form that callers see. */
export function toSentCall({ isCustom, ...call }: ToolCall): object {
  if (isCustom !== true) return call;
  const { id, function: called } = call;
  return { id, type: "custom", custom: { name: called.name, input: called.arguments } };
}

/** Returns a tool in the form that callers and OpenAI's API use. */
export function toSentTool({ custom, ...tool }: Tool): object {
  if (custom === undefined) return tool;
  const { name, description } = tool.function;
  const { cache_control } = tool;
  return { type: "custom", custom: { name, description, ...custom }, ...(cache_control && { cache_control }) };
}

/** Returns messages whose tool calls are in the form that callers see. */
export function withSentCalls<T extends Pick<RequestMessage, "tool_calls">>(message: T): T {
  if (!message.tool_calls?.some(({ isCustom }) => isCustom === true)) return message;
  return { ...message, tool_calls: message.tool_calls.map(toSentCall) };
}
