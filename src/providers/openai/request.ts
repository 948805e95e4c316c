import type { RequestMessage } from "../../api/chat/request.ts";
import { toSentTool, withSentCalls } from "../../api/chat/translate.ts";
import { isObject, type JsonObject } from "../../api/json.ts";
import { type FieldSupport, passing, thinkingWithin } from "../fields.ts";
import type { UpstreamRequest } from "../provider.ts";
import type { SchemaLimits } from "../schemas.ts";

/** Differences between OpenAI-compatible APIs in the requests that they accept. */
export interface RequestFormat {
  /** The name of the field that limits the tokens of an answer. */
  maxTokensField: "max_tokens" | "max_completion_tokens";
  /** False: messages with the role `developer` are sent as `system`. */
  acceptsDeveloperRole: boolean;
  /** False: the `name` of a message is left out. */
  acceptsNames: boolean;
  /** False: the `refusal` of an assistant's message is sent as content. */
  acceptsRefusals: boolean;
  /** The name of the field that returns a message's reasoning; null: reasoning is not sent back. */
  reasoningField: "reasoning_content" | "reasoning" | null;
  /** True: `reasoning_details` are sent back as they were received in `extra_content`. */
  acceptsReasoningDetails: boolean;
  /** False: `extra_content` of tool calls is left out. */
  acceptsExtraContent: boolean;
  /** Fields that replace `reasoning_effort: none`; null: it is sent unchanged. */
  reasoningOff: Readonly<Record<string, unknown>> | null;
  /** True: embeddings may be asked for in base64, which is a third as long. */
  encodesEmbeddings: boolean;
  /** The fields and parts that not every API takes, and that this one does. */
  fields: FieldSupport;
  /** Limits on the JSON schemas that the API enforces; absent: none. */
  schemas?: SchemaLimits;
}

/** The format that most APIs accept. */
export const DEFAULT_REQUEST_FORMAT: RequestFormat = {
  maxTokensField: "max_tokens",
  acceptsDeveloperRole: false,
  acceptsNames: true,
  acceptsRefusals: true,
  reasoningField: "reasoning_content",
  acceptsReasoningDetails: false,
  acceptsExtraContent: true,
  reasoningOff: null,
  encodesEmbeddings: false,
  // A server that no row describes is most likely one that serves open models, such as vLLM, SGLang or LiteLLM.
  fields: passing(
    "modalities",
    "audio",
    "top_k",
    "thinking",
    "verbosity",
    "chat_template_kwargs",
    "tools.custom",
    "content.file",
    "content.input_audio",
    "content.video_url",
  ),
};

/** Writes the body of a request in the format of an API. A stream always includes usage, which the charge is based on. */
export function toRequestBody(request: UpstreamRequest, format: RequestFormat): string {
  const { max_tokens, stream_options: _replaced, messages, reasoning_effort: effort, ...rest } = request;
  const { tools, tool_choice: choice } = rest;
  const body: Record<string, unknown> = rest;
  body.messages = messages.map((message) => toMessage(message, format));
  if (tools !== undefined) body.tools = tools.map(toSentTool);
  const custom = isObject(choice)
    ? tools?.find((tool) => tool.custom && tool.function.name === choice.function.name)
    : undefined;
  if (custom !== undefined) body.tool_choice = { type: "custom", custom: { name: custom.function.name } };
  body[format.maxTokensField] = max_tokens;
  Object.assign(body, thinkingWithin(rest.thinking, max_tokens));
  if (effort === "none" && format.reasoningOff !== null) Object.assign(body, format.reasoningOff);
  else if (effort !== undefined) body.reasoning_effort = effort;
  if (request.stream) body.stream_options = { include_usage: true };
  return JSON.stringify(body);
}

/** Returns the names of the hints of messages that are left out because the API refuses them. */
export function refusedHints(
  { messages }: UpstreamRequest,
  { acceptsNames, acceptsReasoningDetails }: RequestFormat,
): string[] {
  const hasNames = !acceptsNames && messages.some(({ name }) => name !== undefined);
  const hasDetails = !acceptsReasoningDetails && messages.some((message) => message.reasoning_details !== undefined);
  return [...(hasNames ? ["messages.name"] : []), ...(hasDetails ? ["messages.reasoning_details"] : [])];
}

type SentMessage = Omit<RequestMessage, "content" | "reasoning_details"> & {
  content?: RequestMessage["content"] | null;
  reasoning?: string;
  reasoning_details?: readonly JsonObject[];
};

function toMessage(message: RequestMessage, format: RequestFormat): SentMessage {
  const { role, content, name, refusal, reasoning_content: reasoning, tool_calls: calls } = message;
  const others = [name, refusal, reasoning, calls, message.reasoning_details];
  const isPlain = content !== undefined && others.every((field) => field === undefined) && !hasTranslatedPart(content);
  if (isPlain && (role !== "developer" || format.acceptsDeveloperRole)) return message;
  // OpenAI's clients send the key even if there is no text, and some upstreams need it.
  const { reasoning_details: signed, ...rest } = message;
  const sent: SentMessage = { ...withSentCalls(rest), content: toContent(content, format) };
  if (role === "developer" && !format.acceptsDeveloperRole) sent.role = "system";
  if (!format.acceptsNames) delete sent.name;
  if (refusal !== undefined && !format.acceptsRefusals) {
    delete sent.refusal;
    sent.content = withRefusal(sent.content ?? undefined, refusal);
  }
  if (reasoning !== undefined && format.reasoningField !== "reasoning_content") {
    delete sent.reasoning_content;
    if (format.reasoningField !== null) sent[format.reasoningField] = reasoning;
  }
  const details = format.acceptsReasoningDetails ? (signed ?? detailsOf(calls)) : undefined;
  if (details !== undefined) sent.reasoning_details = details;
  if (sent.tool_calls !== undefined) {
    sent.tool_calls = sent.tool_calls.map(({ extra_content: extra, ...call }) => {
      const own = format.acceptsExtraContent ? withoutReasoning(extra) : undefined;
      return { ...call, ...(own !== undefined && { extra_content: own }) };
    });
  }
  return sent;
}

/**
 * Leaves out signed reasoning, which this service adds to `extra_content` and only the provider that signed it can read.
 * Returns undefined if nothing else is in it.
 */
function withoutReasoning(extra: unknown): unknown {
  if (!isObject(extra)) return extra;
  const { reasoning_details: _signed, ...others } = extra;
  return Object.keys(others).length === 0 ? undefined : others;
}

function hasTranslatedPart(content: RequestMessage["content"]): boolean {
  return Array.isArray(content) && content.some(({ type }) => type === "refusal" || type === "file");
}

/** Converts the parts whose form differs between APIs: refusals, and addresses of files. */
function toContent(content: RequestMessage["content"], format: RequestFormat): SentMessage["content"] {
  if (!Array.isArray(content)) return content ?? null;
  return content.map((part) => {
    if (part.type === "refusal" && !format.acceptsRefusals) return { type: "text", text: part.refusal };
    if (part.type !== "file" || part.file.file_url === undefined) return part;
    const { file_url, ...file } = part.file;
    return { ...part, file: { ...file, file_data: file_url } };
  });
}

/** Returns the reasoning details that the tool calls of a message carry in `extra_content`; undefined if there are none. */
function detailsOf(calls: RequestMessage["tool_calls"]): JsonObject[] | undefined {
  for (const { extra_content: extra } of calls ?? []) {
    const details = isObject(extra) ? extra.reasoning_details : undefined;
    if (Array.isArray(details) && details.every(isObject)) return details;
  }
  return undefined;
}

function withRefusal(content: RequestMessage["content"], refusal: string): RequestMessage["content"] {
  return Array.isArray(content) ? [...content, { type: "text", text: refusal }] : `${content ?? ""}${refusal}`;
}
