import type { ContentPart, RequestMessage } from "../../api/chat/request.ts";
import { toSentCall, toSentTool } from "../../api/chat/translate.ts";
import { detailsOf, isObject, type JsonObject, objectsIn } from "../../api/json.ts";
import { type FieldSupport, isMedium, LOWERED_EFFORT, MOVED_MEDIA, passing, thinkingWithin } from "../fields.ts";
import type { UpstreamRequest } from "../provider.ts";
import type { SchemaLimits } from "../schemas.ts";

/** Differences between OpenAI-compatible APIs in the requests that they accept. */
export interface RequestFormat {
  /** The name of the field that limits the tokens of an answer. */
  maxTokensField: "max_tokens" | "max_completion_tokens";
  /** False or absent: messages with the role `developer` are sent as `system`. */
  acceptsDeveloperRole?: boolean;
  /** False: the `name` of a message is left out. */
  acceptsNames: boolean;
  /** False: the `refusal` of an assistant's message is sent as content. */
  acceptsRefusals: boolean;
  /** The name of the field that returns a message's reasoning; null: reasoning is not sent back. */
  reasoningField: "reasoning_content" | "reasoning" | null;
  /** True: `reasoning_details` are sent back as they were received in `extra_content`. */
  acceptsReasoningDetails?: boolean;
  /** False: `extra_content` of tool calls is left out. */
  acceptsExtraContent: boolean;
  /** Fields that replace `reasoning_effort: none`; absent: it is sent unchanged. */
  reasoningOff?: Readonly<Record<string, unknown>>;
  /** False or absent: the effort `max` is lowered to `xhigh`. */
  acceptsMaxEffort?: boolean;
  /** True: embeddings may be asked for in base64, which is a third as long. */
  encodesEmbeddings?: boolean;
  /** True: it serves the completions API, which continues a text, in addition to chat completions. */
  servesTexts: boolean;
  /** The fields and parts that not every API takes, and that this one does. */
  fields: FieldSupport;
  schemas?: SchemaLimits;
}

/** The format that most APIs accept. */
export const DEFAULT_REQUEST_FORMAT: RequestFormat = {
  maxTokensField: "max_tokens",
  acceptsNames: true,
  acceptsRefusals: true,
  reasoningField: "reasoning_content",
  acceptsExtraContent: true,
  servesTexts: true,
  // A server that no row describes is most likely one that serves open models, such as vLLM, SGLang or LiteLLM.
  fields: {
    ...passing("n", "modalities", "audio", "thinking", "verbosity", "service_tier", "safety_identifier", "store"),
    ...passing("prompt_cache_key", "prompt_cache_retention", "cache_control"),
    ...passing("top_k", "min_p", "repetition_penalty", "chat_template_kwargs", "enable_thinking"),
    ...passing("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
    ...passing("tools.custom", "content.file", "content.input_audio", "content.video_url"),
  },
};

/** Writes the body of a request in the format of an API. A stream always includes usage, which the charge is based on. */
export function toRequestBody(request: UpstreamRequest, format: RequestFormat): string {
  const { max_tokens, instructions, messages, reasoning_effort: effort, tools, tool_choice: choice } = request;
  const replaced = { stream_options: undefined, instructions: undefined, reasoning_effort: undefined };
  const body: Record<string, unknown> = { ...request, ...replaced, max_tokens: undefined };
  const sent = withResultsAsText(messages).map((message) => toMessage(message, format));
  body.messages = instructions === undefined ? sent : [{ role: "system", content: instructions }, ...sent];
  if (tools !== undefined) body.tools = tools.map(toSentTool);
  const custom = isObject(choice)
    ? tools?.find((tool) => tool.custom && tool.function.name === choice.function.name)
    : undefined;
  if (custom !== undefined) body.tool_choice = { type: "custom", custom: { name: custom.function.name } };
  body[format.maxTokensField] = max_tokens;
  Object.assign(body, thinkingWithin(request.thinking, max_tokens));
  if (effort === "none" && format.reasoningOff !== undefined) Object.assign(body, format.reasoningOff);
  else if (effort !== undefined) body.reasoning_effort = lowersEffort(request, format) ? "xhigh" : effort;
  if (request.stream) body.stream_options = { include_usage: true };
  return JSON.stringify(body);
}

/** Moves media of tool results to a message of the user: OpenAI's API takes only texts in a result. */
function withResultsAsText(messages: readonly RequestMessage[]): readonly RequestMessage[] {
  const mediaOf = ({ role, content }: RequestMessage) =>
    role === "tool" && Array.isArray(content) ? content.filter(isMedium) : [];
  if (!messages.some((message) => mediaOf(message).length > 0)) return messages;
  let moved: ContentPart[] = [];
  return messages.flatMap((message, index) => {
    const media = mediaOf(message);
    moved.push(...media);
    const texts = Array.isArray(message.content) ? message.content.filter((part) => !isMedium(part)) : [];
    const content = texts.length > 0 ? texts : MOVED_MEDIA;
    const sent = [media.length > 0 ? { ...message, content } : message];
    if (moved.length === 0 || messages[index + 1]?.role === "tool") return sent;
    sent.push({ role: "user", content: moved });
    moved = [];
    return sent;
  });
}

function lowersEffort({ reasoning_effort: effort }: UpstreamRequest, { acceptsMaxEffort }: RequestFormat): boolean {
  return effort === "max" && !acceptsMaxEffort;
}

/** Returns the names of the hints that are left out or lowered because the API refuses them. */
export function refusedHints(request: UpstreamRequest, format: RequestFormat): string[] {
  const has = (field: keyof RequestMessage) => request.messages.some((message) => message[field] !== undefined);
  const refused: string[] = [];
  if (!format.acceptsNames && has("name")) refused.push("messages.name");
  if (!format.acceptsReasoningDetails && has("reasoning_details")) refused.push("messages.reasoning_details");
  if (format.fields.audio !== "passed" && has("audio")) refused.push("messages.audio");
  if (lowersEffort(request, format)) refused.push(LOWERED_EFFORT);
  return refused;
}

type SentMessage = Omit<RequestMessage, "content" | "reasoning_details" | "tool_calls"> & {
  content?: RequestMessage["content"] | null;
  reasoning?: string;
  reasoning_details?: readonly JsonObject[] | undefined;
  tool_calls?: readonly object[] | undefined;
};

/** Fields of messages that not every API takes as they are. */
const TRANSLATED = ["name", "refusal", "reasoning_content", "tool_calls", "reasoning_details", "audio"] as const;

function toMessage(message: RequestMessage, format: RequestFormat): SentMessage {
  const isSystem = message.role === "developer" && !format.acceptsDeveloperRole;
  const isPlain = !isSystem && TRANSLATED.every((field) => message[field] === undefined);
  const parts = Array.isArray(message.content) ? message.content : [];
  const isSent = message.content !== undefined && !parts.some(({ type }) => type === "refusal" || type === "file");
  if (isPlain && isSent) return message;
  const { role, content, name, refusal, tool_calls: calls, audio, ...rest } = message;
  const { reasoning_content: reasoning, reasoning_details: signed, ...others } = rest;
  // OpenAI's clients send the key even if there is no text, and some upstreams need it.
  const text = toContent(content, format);
  const isRefusalText = refusal !== undefined && !format.acceptsRefusals;
  return {
    role: isSystem ? "system" : role,
    content: isRefusalText ? withRefusal(text ?? undefined, refusal) : text,
    ...others,
    name: format.acceptsNames ? name : undefined,
    refusal: isRefusalText ? undefined : refusal,
    audio: format.fields.audio === "passed" ? audio : undefined,
    ...(format.reasoningField !== null && { [format.reasoningField]: reasoning }),
    reasoning_details: format.acceptsReasoningDetails ? (signed ?? detailsIn(calls)) : undefined,
    tool_calls: calls?.map(({ extra_content: extra, ...call }) =>
      toSentCall({ ...call, extra_content: format.acceptsExtraContent ? withoutReasoning(extra) : undefined }),
    ),
  };
}

/** Leaves out signed reasoning, which only its provider can read. Returns undefined if nothing else is in it. */
function withoutReasoning(extra: unknown): unknown {
  if (!isObject(extra)) return extra;
  const { reasoning_details: _signed, ...others } = extra;
  return Object.keys(others).length === 0 ? undefined : others;
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
function detailsIn(calls: RequestMessage["tool_calls"] = []): JsonObject[] | undefined {
  const details = calls.map(({ extra_content: extra }) => objectsIn(detailsOf(extra).reasoning_details));
  return details.find(({ length }) => length > 0);
}

function withRefusal(content: RequestMessage["content"], refusal: string): RequestMessage["content"] {
  return Array.isArray(content) ? [...content, { type: "text", text: refusal }] : `${content ?? ""}${refusal}`;
}
