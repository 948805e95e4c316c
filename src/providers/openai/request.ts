import type { RequestMessage } from "../../api/chat/request.ts";
import type { UpstreamRequest } from "../provider.ts";
import type { JsonObject } from "./json.ts";
import { detailsOf } from "./reasoning-details.ts";

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
};

/** Writes the body of a request in the format of an API. It always asks for usage, which the charge is based on. */
export function toRequestBody(request: UpstreamRequest, format: RequestFormat): string {
  const { max_tokens, stream_options: _asked, messages, reasoning_effort: effort, ...rest } = request;
  const body: Record<string, unknown> = rest;
  body.messages = messages.map((message) => toMessage(message, format));
  body[format.maxTokensField] = max_tokens;
  if (effort === "none" && format.reasoningOff !== null) Object.assign(body, format.reasoningOff);
  else if (effort !== undefined) body.reasoning_effort = effort;
  if (request.stream) body.stream_options = { include_usage: true };
  return JSON.stringify(body);
}

/** Returns the names of the fields that are left out because the API refuses them; undefined if there are none. */
export function refusedHints({ messages }: UpstreamRequest, { acceptsNames }: RequestFormat): string[] | undefined {
  if (acceptsNames || messages.every(({ name }) => name === undefined)) return undefined;
  return ["messages.name"];
}

type ToldMessage = Omit<RequestMessage, "content" | "reasoning_details"> & {
  content?: RequestMessage["content"] | null;
  reasoning?: string;
  reasoning_details?: readonly JsonObject[];
};

function toMessage(message: RequestMessage, format: RequestFormat): ToldMessage {
  const { role, content, name, refusal, reasoning_content: reasoning, tool_calls: calls } = message;
  const others = [name, refusal, reasoning, calls, message.reasoning_details];
  const isPlain = content !== undefined && others.every((field) => field === undefined);
  if (isPlain && (role !== "developer" || format.acceptsDeveloperRole)) return message;
  // OpenAI's clients send the key also where there is no text, and some upstreams need it.
  const { reasoning_details: _signed, ...sent } = message;
  const told: ToldMessage = { ...sent, content: content ?? null };
  if (role === "developer" && !format.acceptsDeveloperRole) told.role = "system";
  if (!format.acceptsNames) delete told.name;
  if (refusal !== undefined && !format.acceptsRefusals) {
    delete told.refusal;
    told.content = withRefusal(content, refusal);
  }
  if (reasoning !== undefined && format.reasoningField !== "reasoning_content") {
    delete told.reasoning_content;
    if (format.reasoningField !== null) told[format.reasoningField] = reasoning;
  }
  const details = format.acceptsReasoningDetails ? (message.reasoning_details ?? detailsOf(calls)) : undefined;
  if (details !== undefined) told.reasoning_details = details;
  if (calls !== undefined && !format.acceptsExtraContent) {
    told.tool_calls = calls.map(({ id, type, function: called }) => ({ id, type, function: called }));
  }
  return told;
}

function withRefusal(content: RequestMessage["content"], refusal: string): RequestMessage["content"] {
  return Array.isArray(content) ? [...content, { type: "text", text: refusal }] : `${content ?? ""}${refusal}`;
}
