import { compileCheck, type ValidationIssue } from "../validation.ts";
import type { DecodedRequest, StatedOutput } from "../wire.ts";
import { typeOf } from "../wording.ts";
import { ChatEventEncoder, toChatCompletion } from "./encode.ts";
import { imageAddressFault } from "./image-address.ts";
import {
  ChatCompletionRequest,
  type ContentPart,
  MESSAGES_MAX,
  RequestMessage,
  TOOLS_MAX,
  type Tool,
  type ToolCall,
} from "./request.ts";

const checkSchema = compileCheck(ChatCompletionRequest);
const REQUEST_FIELDS = new Set(Object.keys(ChatCompletionRequest.properties));
const MESSAGE_FIELDS = new Set(Object.keys(RequestMessage.properties));
const IMAGE_FIELDS = new Set(["url", "detail"]);
const FILE_FIELDS = new Set(["filename", "file_data", "file_url", "file_id"]);
const PART_FIELDS = new Set([
  "type",
  "text",
  "image_url",
  "file",
  "input_audio",
  "video_url",
  "refusal",
  "cache_control",
]);
const FUNCTION_FIELDS = new Set(["name", "description", "parameters", "strict"]);

/**
 * Reads the body of a chat completion, which it may change. `responseMessages` is the content of `messages` in the
 * response: only the reply, or the conversation with it. Returns the first issue of an invalid body.
 */
export function decodeChatCompletion(
  body: unknown,
  responseMessages: "reply" | "conversation",
): DecodedRequest | { issue: ValidationIssue } {
  const checked = checkRequest(body);
  if ("issue" in checked) return checked;
  const { request } = checked;
  const conversation = responseMessages === "conversation" ? request.messages : [];
  return {
    request,
    output: statedOutput(request),
    events: () => new ChatEventEncoder(request.stream_options?.include_usage === true),
    document: (head, answer, end) => toChatCompletion(head, answer, end, conversation),
  };
}

/** Reads the bound that a request states for its answer; `max_tokens` names it if there is none. */
export function statedOutput({ max_tokens, max_completion_tokens }: ChatCompletionRequest): StatedOutput {
  if (max_completion_tokens === undefined) return { param: "max_tokens", tokens: max_tokens, isLimitedBySetting: true };
  return { param: "max_completion_tokens", tokens: max_completion_tokens, isLimitedBySetting: false };
}

/**
 * Validates a parsed body against the schema and the rules beyond it. Returns the request with only the fields of the
 * schema, or the first issue. `null` counts as absent, so nulls are first removed from the body, in place.
 */
export function checkRequest(body: unknown): { request: ChatCompletionRequest } | { issue: ValidationIssue } {
  if (!isRecord(body)) {
    const message = `Invalid type for the request body: expected an object, but got ${typeOf(body)} instead.`;
    return { issue: { code: "invalid_type", param: null, message } };
  }
  const excess = excessIssue(body, "messages", MESSAGES_MAX) ?? excessIssue(body, "tools", TOOLS_MAX);
  if (excess !== undefined) return { issue: excess };
  removeNulls(body);
  const issue = checkSchema(body);
  if (issue !== undefined) return { issue };
  const request = body as unknown as ChatCompletionRequest;
  const further = checkTogether(request) ?? firstIssue(request.messages);
  return further === undefined ? { request: knownRequest(request) } : { issue: further };
}

/** Copies only the fields of the schema, so that others reach neither an upstream nor the store. */
function knownRequest(request: ChatCompletionRequest): ChatCompletionRequest {
  const messages = request.messages.map((message) => {
    const picked = pick(message, MESSAGE_FIELDS);
    if (picked.tool_calls !== undefined) picked.tool_calls = picked.tool_calls.map(knownCall);
    if (Array.isArray(picked.content)) picked.content = picked.content.map(knownPart);
    return picked;
  });
  const picked = { ...pick(request, REQUEST_FIELDS), messages };
  if (picked.tools !== undefined) picked.tools = picked.tools.map(knownTool);
  return picked;
}

function knownPart(part: ContentPart): ContentPart {
  switch (part.type) {
    case "image_url":
      return { ...pick(part, PART_FIELDS), image_url: pick(part.image_url, IMAGE_FIELDS) };
    case "file":
      return { ...pick(part, PART_FIELDS), file: pick(part.file, FILE_FIELDS) };
    default:
      return pick(part, PART_FIELDS);
  }
}

function knownTool({ function: named, cache_control }: Tool): Tool {
  const tool: Tool = { type: "function", function: pick(named, FUNCTION_FIELDS) };
  return cache_control === undefined ? tool : { ...tool, cache_control };
}

function knownCall({ id, type, function: { name, arguments: text }, extra_content }: ToolCall): ToolCall {
  const call = { id, type, function: { name, arguments: text } };
  return extra_content === undefined ? call : { ...call, extra_content };
}

/** Returns a copy with only these fields. It iterates over the value, because most requests have few of the fields. */
export function pick<T extends object>(value: T, fields: ReadonlySet<string>): T {
  const picked: Partial<T> = {};
  for (const field in value) {
    if (fields.has(field) && value[field] !== undefined) picked[field] = value[field];
  }
  return picked as T;
}

function removeNulls(body: Record<string, unknown>): void {
  dropNulls(body);
  for (const message of recordsIn(body.messages)) {
    dropNulls(message);
    for (const call of recordsIn(message.tool_calls)) dropNulls(call);
  }
  for (const tool of recordsIn(body.tools)) if (isRecord(tool.function)) dropNulls(tool.function);
  if (isRecord(body.stream_options)) dropNulls(body.stream_options);
  const format = body.response_format;
  if (isRecord(format) && isRecord(format.json_schema)) dropNulls(format.json_schema);
}

/** Sets nulls to undefined, which counts as absent for the validator and JSON.stringify and keeps the object's shape. */
export function dropNulls(record: Record<string, unknown>): void {
  for (const field in record) if (record[field] === null) record[field] = undefined;
}

function checkTogether(request: ChatCompletionRequest): ValidationIssue | undefined {
  if (request.max_tokens !== undefined && request.max_completion_tokens !== undefined) {
    const message =
      "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported. Send only one of them.";
    return { code: "invalid_value", param: "max_tokens", message };
  }
  if (request.n !== undefined && request.n > 1) {
    const message = `Invalid 'n': ${request.n} choices are not supported. Expected 1.`;
    return { code: "unsupported_value", param: "n", message };
  }
  const choice = request.tool_choice;
  const tools = request.tools ?? [];
  if (choice !== undefined && choice !== "none" && choice !== "auto" && tools.length === 0) {
    const message = "Invalid 'tool_choice': it is only allowed when 'tools' are specified.";
    return { code: "invalid_value", param: "tool_choice", message };
  }
  if (typeof choice === "object" && !tools.some((tool) => tool.function.name === choice.function.name)) {
    const message = "Invalid 'tool_choice.function.name': 'tools' has no function with this name.";
    return { code: "invalid_value", param: "tool_choice.function.name", message };
  }
  return undefined;
}

/** Checks the length of a list before anything iterates over it. */
export function excessIssue(body: Record<string, unknown>, param: string, limit: number): ValidationIssue | undefined {
  const list = body[param];
  if (!Array.isArray(list) || list.length <= limit) return undefined;
  const message = `Invalid '${param}': array too long. Expected at most ${limit} items, but got ${list.length}.`;
  return { code: "body_too_large", param, message };
}

function firstIssue(messages: RequestMessage[]): ValidationIssue | undefined {
  for (const [index, message] of messages.entries()) {
    const hasOtherContent = (message.tool_calls?.length ?? 0) > 0 || message.refusal !== undefined;
    if (message.content === undefined && !(message.role === "assistant" && hasOtherContent))
      return missing(`messages[${index}].content`);
    if (message.role === "tool" && message.tool_call_id === undefined)
      return missing(`messages[${index}].tool_call_id`);
    const imageIssue = firstImageIssue(message, index);
    if (imageIssue !== undefined) return imageIssue;
  }
  return undefined;
}

function firstImageIssue({ content }: RequestMessage, messageIndex: number): ValidationIssue | undefined {
  if (!Array.isArray(content)) return undefined;
  for (const [index, part] of content.entries()) {
    const fault = part.type === "image_url" ? imageAddressFault(part.image_url.url) : undefined;
    if (fault === undefined) continue;
    const param = `messages[${messageIndex}].content[${index}].image_url.url`;
    return { code: "invalid_value", param, message: `Invalid '${param}': ${fault}.` };
  }
  return undefined;
}

function missing(param: string): ValidationIssue {
  return { code: "missing_required_parameter", param, message: `Missing required parameter: '${param}'.` };
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function recordsIn(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value) ? value.filter(isRecord) : [];
}
