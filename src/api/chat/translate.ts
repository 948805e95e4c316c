import { isObject, type JsonObject } from "../json.ts";
import { refuseIf, together } from "../validation.ts";
import type {
  ChatCompletionRequest,
  RequestMessage,
  SentMessage,
  SentRequest,
  SentTool,
  SentToolCall,
  SentToolChoice,
  Tool,
  ToolCall,
} from "./request.ts";

/** Converts a valid request to the internal form, and may change it. Throws InvalidRequestError for a contradiction. */
export function translateRequest(sent: SentRequest): ChatCompletionRequest {
  refuseIf(twoFormsIssue(sent));
  translateMessages(sent.messages as unknown as SentMessage[]);
  const request = sent.functions === undefined && sent.function_call === undefined ? sent : withTools(sent);
  if (request.tools !== undefined) request.tools = (request.tools as SentTool[]).map(toTool);
  translateChoice(request);
  return request;
}

/** Returns a body whose tools have the form of this wire: Cursor and others send that of the Responses API. */
export function withNestedTools(body: JsonObject): JsonObject {
  const { tools, tool_choice: choice } = body;
  if (tools === undefined && choice === undefined) return body;
  return {
    ...body,
    ...(Array.isArray(tools) && { tools: tools.map(nested) }),
    ...(choice !== undefined && { tool_choice: nested(choice) }),
  };
}

function nested(tool: unknown): unknown {
  if (!isObject(tool) || typeof tool.name !== "string") return tool;
  const { type, cache_control, ...fields } = tool;
  if ((type !== "function" && type !== "custom") || tool[type] !== undefined) return tool;
  return { type, [type]: fields, ...(cache_control !== undefined && { cache_control }) };
}

/** Converts the fields of the time before `tools`. */
function withTools({ functions, function_call: called, ...request }: SentRequest): ChatCompletionRequest {
  if (functions !== undefined) {
    request.tools = functions.map((definition) => ({ type: "function", function: definition }));
    // The answer has a place for one call.
    if (functions.length > 0) request.parallel_tool_calls = false;
  }
  if (called !== undefined) {
    request.tool_choice = typeof called === "string" ? called : { type: "function", function: { name: called.name } };
  }
  return request;
}

function twoFormsIssue({ functions, tools, function_call: called, tool_choice: choice }: SentRequest) {
  if (functions !== undefined && tools !== undefined) return together("functions", "tools", " Send only 'tools'.");
  if (called === undefined || choice === undefined) return undefined;
  return together("function_call", "tool_choice", " Send only 'tool_choice'.");
}

function toTool(sent: SentTool): Tool {
  if (sent.type === "function") return sent;
  const { format, ...named } = sent.custom;
  return { type: "function", function: named, custom: { format }, cache_control: sent.cache_control };
}

function translateChoice(sent: ChatCompletionRequest): void {
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
      delete message.function_call;
    }
    if (message.role === "function") {
      message.role = "tool";
      message.tool_call_id ??= lastCallId;
    }
    if (message.tool_calls !== undefined) {
      message.tool_calls = (message.tool_calls as SentToolCall[]).map(toCall);
    }
  }
}

function toCall(sent: SentToolCall): ToolCall {
  if (sent.type === "function") return sent;
  const { id, custom } = sent;
  return { id, type: "function", function: { name: custom.name, arguments: custom.input }, isCustom: true };
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
  return { type: "custom", custom: { name, description, ...custom }, cache_control: tool.cache_control };
}

/** Returns messages whose tool calls are in the form that callers see. */
export function withSentCalls<T extends Pick<RequestMessage, "tool_calls">>(message: T): T {
  if (!message.tool_calls?.some(({ isCustom }) => isCustom === true)) return message;
  return { ...message, tool_calls: message.tool_calls.map(toSentCall) };
}
