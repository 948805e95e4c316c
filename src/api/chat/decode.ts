import { compileCheck, type ValidationIssue } from "../validation.ts";
import type { DecodedCompletion, StatedOutput } from "../wire.ts";
import { typeOf, UnknownFields } from "../wording.ts";
import { ChatEventEncoder, toChatCompletion } from "./encode.ts";
import { partFault } from "./image-address.ts";
import {
  type ChatCompletionRequest,
  type ContentPart,
  MESSAGES_MAX,
  type RequestMessage,
  SentMessage,
  SentRequest,
  TOOLS_MAX,
  type Tool,
  type ToolCall,
} from "./request.ts";
import { translateRequest } from "./translate.ts";

const checkSchema = compileCheck(SentRequest);
/** Fields that `translateRequest` has read; the internal form has others for them. */
const TRANSLATED = new Set(["functions", "function_call"]);
const REQUEST_FIELDS = new Set(Object.keys(SentRequest.properties));
const MESSAGE_FIELDS = new Set(Object.keys(SentMessage.properties));
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
const TOOL_FIELDS = new Set(["type", "function", "custom", "cache_control"]);
const CALL_FIELDS = new Set(["id", "type", "function", "custom", "extra_content", "isCustom", "index"]);

/**
 * Reads the body of a chat completion, which it may change. `responseMessages` is the content of `messages` in the
 * response: only the reply, or the conversation with it. Returns the first issue of an invalid body.
 */
export function decodeChatCompletion(
  body: unknown,
  responseMessages: "reply" | "conversation",
): DecodedCompletion | { issue: ValidationIssue } {
  const checked = checkRequest(body);
  if ("issue" in checked) return checked;
  const { request, ignored, isLegacy } = checked;
  const conversation = responseMessages === "conversation" ? request.messages : [];
  return {
    kind: "completion",
    request,
    output: statedOutput(request),
    ignored,
    paramOf: (param) => param,
    events: () => new ChatEventEncoder(request.stream_options?.include_usage === true, isLegacy),
    document: (head, answer, end) => toChatCompletion(head, answer, end, conversation, isLegacy),
  };
}

/** Reads the bound that a request states for its answer; `max_tokens` names it if there is none. */
export function statedOutput({ max_tokens, max_completion_tokens }: ChatCompletionRequest): StatedOutput {
  if (max_completion_tokens === undefined) return { param: "max_tokens", tokens: max_tokens, isLimitedBySetting: true };
  return { param: "max_completion_tokens", tokens: max_completion_tokens, isLimitedBySetting: false };
}

/** A valid request. */
interface CheckedRequest {
  request: ChatCompletionRequest;
  /** Names of the fields that the schema does not have. */
  ignored: readonly string[];
  /** True if the request has `functions`, so that its answer has `function_call`. */
  isLegacy: boolean;
}

/**
 * Validates a parsed body against the schema and the rules beyond it. Returns the request in the internal form with only
 * the fields of the schema, or the first issue. `null` counts as absent, so nulls are first removed from the body, in place.
 */
export function checkRequest(body: unknown): CheckedRequest | { issue: ValidationIssue } {
  if (!isRecord(body)) {
    const message = `Invalid type for the request body: expected an object, but got ${typeOf(body)} instead.`;
    return { issue: { code: "invalid_type", param: null, message } };
  }
  const excess = excessIssue(body, "messages", MESSAGES_MAX) ?? excessIssue(body, "tools", TOOLS_MAX);
  if (excess !== undefined) return { issue: excess };
  removeNulls(body);
  const issue = checkSchema(body);
  if (issue !== undefined) return { issue };
  const isLegacy = body.functions !== undefined;
  const translated = translateRequest(body as unknown as SentRequest);
  if ("issue" in translated) return translated;
  const further = checkTogether(translated.request) ?? firstIssue(translated.request.messages);
  if (further !== undefined) return { issue: further };
  const unknown = new UnknownFields();
  return { request: knownRequest(translated.request, unknown), ignored: unknown.names(), isLegacy };
}

/** Copies only the fields of the schema, so that others reach neither an upstream nor the store; notes the others. */
function knownRequest(request: ChatCompletionRequest, unknown: UnknownFields): ChatCompletionRequest {
  const picker = (place: string) => (field: string) => unknown.add(place, field);
  const inMessage = picker("messages.");
  const inCall = picker("messages.tool_calls.");
  const inPart = picker("messages.content.");
  const inTool = picker("tools.");
  const messages = request.messages.map((message) => {
    const picked = pick(message, MESSAGE_FIELDS, inMessage);
    if (picked.tool_calls !== undefined) picked.tool_calls = picked.tool_calls.map((call) => knownCall(call, inCall));
    if (Array.isArray(picked.content)) picked.content = picked.content.map((part) => knownPart(part, inPart));
    return picked;
  });
  const picked = { ...pick(request, REQUEST_FIELDS, picker("")), messages };
  if (picked.tools !== undefined) picked.tools = picked.tools.map((tool) => knownTool(tool, inTool));
  return picked;
}

type NoteUnknown = (field: string) => void;

function knownPart(part: ContentPart, note: NoteUnknown): ContentPart {
  const picked = pick(part, PART_FIELDS, note);
  if (picked.type === "image_url") picked.image_url = pick(picked.image_url, IMAGE_FIELDS, note);
  if (picked.type !== "file") return picked;
  const file = pick(picked.file, FILE_FIELDS, note);
  // OpenRouter's clients send an address as data.
  if (file.file_data?.startsWith("data:") === false) {
    file.file_url = file.file_data;
    delete file.file_data;
  }
  return { ...picked, file };
}

function knownTool(tool: Tool, note: NoteUnknown): Tool {
  const { type, function: named, cache_control, custom } = pick(tool, TOOL_FIELDS, note);
  return {
    type,
    function: pick(named, FUNCTION_FIELDS, note),
    ...(custom && { custom }),
    ...(cache_control && { cache_control }),
  };
}

function knownCall(call: ToolCall, note: NoteUnknown): ToolCall {
  const { id, type, function: called, extra_content, isCustom } = pick(call, CALL_FIELDS, note);
  const { name, arguments: text } = called;
  return {
    id,
    type,
    function: { name, arguments: text },
    ...(extra_content !== undefined && { extra_content }),
    ...(isCustom && { isCustom }),
  };
}

/** Returns a copy with only these fields. It iterates over the value, because most requests have few of the fields. */
export function pick<T extends object>(value: T, fields: ReadonlySet<string>, note: NoteUnknown = () => {}): T {
  const picked: Partial<T> = {};
  for (const field in value) {
    if (value[field] === undefined || TRANSLATED.has(field)) continue;
    if (fields.has(field)) picked[field] = value[field];
    else note(field);
  }
  return picked as T;
}

function removeNulls(body: Record<string, unknown>): void {
  dropNulls(body);
  for (const message of recordsIn(body.messages)) {
    dropNulls(message);
    for (const call of recordsIn(message.tool_calls)) dropNulls(call);
    for (const detail of recordsIn(message.reasoning_details)) dropNulls(detail);
    for (const part of recordsIn(message.content)) {
      dropNulls(part);
      for (const inner of [part.image_url, part.file]) if (isRecord(inner)) dropNulls(inner);
    }
  }
  for (const tool of recordsIn(body.tools)) {
    dropNulls(tool);
    for (const inner of [tool.function, tool.custom]) if (isRecord(inner)) dropNulls(inner);
  }
  for (const definition of recordsIn(body.functions)) dropNulls(definition);
  for (const inner of [body.stream_options, body.thinking, body.audio]) if (isRecord(inner)) dropNulls(inner);
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
    const partIssue = firstPartIssue(message, index);
    if (partIssue !== undefined) return partIssue;
  }
  return undefined;
}

function firstPartIssue({ content }: RequestMessage, messageIndex: number): ValidationIssue | undefined {
  if (!Array.isArray(content)) return undefined;
  for (const [index, part] of content.entries()) {
    const found = partFault(part);
    if (found === undefined) continue;
    const param = `messages[${messageIndex}].content[${index}].${found.field}`;
    const code = found.isUnsupported ? "unsupported_value" : "invalid_value";
    return { code, param, message: `Invalid '${param}': ${found.fault}.` };
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
