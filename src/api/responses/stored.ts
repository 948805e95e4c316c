import type { AnswerEnd } from "../answer.ts";
import type { FinishReason, ReplyMessage } from "../chat/completion.ts";
import { partFault } from "../chat/image-address.ts";
import type { ChatCompletionRequest, RequestMessage, ToolCall } from "../chat/request.ts";
import { pick } from "../json.ts";
import { endFields, type Lifecycle, outputOf, RUNNING, responseOf } from "./encode.ts";
import type { OutputItem, ResponseObject } from "./response.ts";
import { SAME_SETTINGS, settingsOf } from "./settings.ts";
import { calledTools, toCustomArguments, toResponsesTools } from "./tools.ts";

/** A response of an organization that stores its conversations. */
export interface StoredResponse {
  request: ChatCompletionRequest;
  /** The delivered part; null if there is none. */
  answer: { message: ReplyMessage; finish_reason: FinishReason | null } | null;
  is_truncated: boolean;
}

/** Stored responses by the 32 hexadecimal digits of their ids. */
export type StoredResponses = ReadonlyMap<string, StoredResponse>;

const RESPONSE_ID = /^resp_([0-9a-f]{32})$/;
const ITEM_ID = /^(?:rs|msg|fc|ctc|tsc)_([0-9a-f]{32})[0-9a-f]{4}$/;

/** Returns the digits of a response's id; undefined for another text. */
export function answerIdOf(responseId: string): string | undefined {
  return RESPONSE_ID.exec(responseId)?.[1];
}

/** Returns the digits of the responses that ids refer to: their own ids, or those of their items. */
export function referencedAnswers(ids: readonly string[]): string[] {
  const all = ids.map((id) => answerIdOf(id) ?? ITEM_ID.exec(id)?.[1]);
  return [...new Set(all.filter((id) => id !== undefined))];
}

/** Returns the conversation of a stored response with its answer; undefined if a part of it is not stored. */
export function conversationOf({ request, answer, is_truncated }: StoredResponse): RequestMessage[] | undefined {
  if (is_truncated || answer === null || answer.finish_reason === null) return undefined;
  if (!request.messages.every(isWhole)) return undefined;
  const { content, refusal, tool_calls: calls, ...message } = answer.message;
  return [
    ...request.messages,
    {
      ...message,
      ...(calls && { tool_calls: calls.map(asFunction) }),
      ...(content !== null && { content }),
      ...(refusal !== null && { refusal }),
    },
  ];
}

/** Converts a call of a custom tool to that of the function that stands for it in the next request. */
function asFunction({ isCustom, ...call }: ToolCall): ToolCall {
  if (isCustom !== true) return call;
  const { name, arguments: input } = call.function;
  return { ...call, function: { name, arguments: toCustomArguments(input) } };
}

/** Tests whether a message has all its parts: the store replaces the bytes of images and files by a note. */
function isWhole({ content }: RequestMessage): boolean {
  if (!Array.isArray(content)) return true;
  return content.every((part) => partFault(part) === undefined);
}

/** Returns the stored item with an id; undefined if there is none. */
export function storedItem(id: string, stored: StoredResponses | undefined): OutputItem | undefined {
  const answerId = ITEM_ID.exec(id)?.[1];
  const response = answerId === undefined ? undefined : stored?.get(answerId);
  if (answerId === undefined || response === undefined || response.is_truncated) return undefined;
  return itemsOf(answerId, response).find((item) => item.id === id);
}

function itemsOf(answerId: string, { request, answer }: StoredResponse): OutputItem[] {
  if (answer === null) return [];
  const tools = calledTools({ tools: toResponsesTools(request.tools), input: [] });
  const fold = { message: () => answer.message, logprobs: null };
  return outputOf({ tools, hasLogprobs: false }, answerId, fold, answer.finish_reason ?? "stop");
}

/** Returns a stored response. The settings that have no field in the stored form are those of a request without them. */
export function toStoredResponse(
  answerId: string,
  stored: StoredResponse,
  end: Pick<AnswerEnd, "usage" | "ended">,
): ResponseObject {
  const { request, answer } = stored;
  const { model, max_completion_tokens, tools, reasoning_effort, verbosity, response_format: format } = request;
  const text = format?.type === "json_schema" ? { type: format.type, schema: {}, ...format.json_schema } : format;
  const settings = settingsOf(
    {
      ...pick(request, SAME_SETTINGS),
      input: [],
      ...(max_completion_tokens !== undefined && { max_output_tokens: max_completion_tokens }),
      ...(tools !== undefined && { tools: toResponsesTools(tools) }),
      ...(reasoning_effort !== undefined && { reasoning: { effort: reasoning_effort } }),
      text: { ...(text && { format: text }), ...(verbosity && { verbosity }) },
    },
    true,
  );
  const head = { id: answerId, created: createdAt(answerId), model };
  const finishReason = answer?.finish_reason ?? null;
  const lifecycle: Lifecycle = finishReason === null ? INTERRUPTED : endFields({ ...end, finishReason });
  return responseOf({ settings }, head, itemsOf(answerId, stored), lifecycle);
}

const INTERRUPTED: Lifecycle = {
  ...RUNNING,
  status: "failed",
  error: { code: "server_error", message: "The response was interrupted." },
};

const TIME_DIGITS = 12;

/** Returns the Unix seconds in the digits of a UUIDv7 (RFC 9562, section 5.7). */
function createdAt(answerId: string): number {
  return Math.floor(Number.parseInt(answerId.slice(0, TIME_DIGITS), 16) / 1000);
}
