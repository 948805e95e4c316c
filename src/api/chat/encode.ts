import type { AnswerEnd, AnswerHead, AnswerPiece } from "../answer.ts";
import type { AnswerFold } from "../answer-fold.ts";
import type { AddEvent, EventEncoder, PublicError } from "../wire.ts";
import type { ChatCompletion, Delta, ResultingMessage } from "./completion.ts";
import type { RequestMessage } from "./request.ts";

const ID_PREFIX = "chatcmpl-";

/** Returns the body of a complete answer; `conversation` are the messages before the reply in `messages`. */
export function toChatCompletion(
  { id, created, model, organizationId }: AnswerHead,
  answer: Pick<AnswerFold, "message" | "logprobs">,
  { finishReason, usage }: AnswerEnd,
  conversation: readonly RequestMessage[],
): ChatCompletion {
  const message = answer.message();
  return {
    id: `${ID_PREFIX}${id}`,
    object: "chat.completion",
    created,
    model,
    organization_id: organizationId,
    messages: [...conversation.map(toResultingMessage), { ...message, content: message.content ?? "" }],
    choices: [{ index: 0, message, logprobs: answer.logprobs, finish_reason: finishReason }],
    usage,
  };
}

/** Converts a message of the request for the response: its content becomes text, and images are left out. */
function toResultingMessage({ role, content, ...rest }: RequestMessage): ResultingMessage {
  if (content === undefined || typeof content === "string") return { role, content: content ?? "", ...rest };
  return { role, content: content.map((part) => (part.type === "text" ? part.text : "")).join(""), ...rest };
}

/** Returns the body of an error response in OpenAI's format. */
export function toErrorEnvelope({ message, type, param, code, fields }: PublicError) {
  return { error: { message, type, param, code, ...fields } };
}

/** Writes a streamed answer in the format of OpenAI's chat completions. */
export class ChatEventEncoder implements EventEncoder {
  readonly keepAlive = ": keep-alive\n\n";
  readonly #includeUsage: boolean;
  /** Text after the choice of an event before the last one. */
  readonly #suffix: string;
  /** Beginning of every event, before its choice. */
  #prefix = "";
  /** Text around the content of an event with only content, which most events are. */
  #beforeContent = "";
  #afterContent = "";
  #aroundContentBytes = 0;
  /** True when any text, refusal or tool call was sent. */
  #hasContent = false;

  constructor(includeUsage: boolean) {
    this.#includeUsage = includeUsage;
    this.#suffix = includeUsage ? '],"usage":null}\n\n' : "]}\n\n";
  }

  open({ id, created, model, organizationId }: AnswerHead, add: AddEvent): void {
    const object = "chat.completion.chunk";
    const common = { id: `${ID_PREFIX}${id}`, object, created, model, organization_id: organizationId };
    this.#prefix = `data: ${JSON.stringify(common).slice(0, -1)},"choices":[`;
    this.#beforeContent = `${this.#prefix}{"index":0,"delta":{"content":`;
    this.#afterContent = `},"finish_reason":null}${this.#suffix}`;
    this.#aroundContentBytes = Buffer.byteLength(this.#beforeContent + this.#afterContent);
    // Without content, because only text has content, and tool calls or a refusal may follow.
    this.#addChoice(add, { role: "assistant" }, null);
  }

  push(pieces: readonly AnswerPiece[], add: AddEvent): void {
    for (const { delta, logprobs } of pieces) {
      const content = delta === undefined || logprobs !== undefined ? undefined : onlyContentOf(delta);
      if (content !== undefined) this.#addContent(add, content);
      else this.#addDelta(add, delta, logprobs);
    }
  }

  close({ finishReason, usage }: AnswerEnd, add: AddEvent): void {
    // An empty answer has empty content, as in a response that is not streamed.
    if (!this.#hasContent) this.#addContent(add, "");
    if (this.#includeUsage) {
      this.#addChoice(add, {}, finishReason);
      add(`${this.#prefix}],"usage":${JSON.stringify(usage)}}\n\n`);
    } else {
      add(`${this.#prefix}${choiceOf({}, finishReason)}],"usage":${JSON.stringify(usage)}}\n\n`);
    }
    add("data: [DONE]\n\n");
  }

  fail(error: PublicError, add: AddEvent): void {
    add(`data: ${JSON.stringify(toErrorEnvelope(error))}\n\n`);
  }

  #addContent(add: AddEvent, content: string): void {
    this.#hasContent = true;
    const text = JSON.stringify(content);
    const byteLength = this.#aroundContentBytes + Buffer.byteLength(text);
    add(this.#beforeContent + text + this.#afterContent, byteLength);
  }

  #addDelta(add: AddEvent, delta: Delta | undefined, logprobs: unknown): void {
    const sent = delta === undefined ? undefined : withoutRole(delta);
    if (sent === undefined && (logprobs === undefined || logprobs === null)) return;
    if (sent?.content || sent?.refusal || sent?.tool_calls) this.#hasContent = true;
    this.#addChoice(add, sent ?? {}, null, logprobs);
  }

  #addChoice(add: AddEvent, delta: Delta, finishReason: string | null, logprobs?: unknown): void {
    add(`${this.#prefix}${choiceOf(delta, finishReason, logprobs)}${this.#suffix}`);
  }
}

function choiceOf(delta: Delta, finishReason: string | null, logprobs?: unknown): string {
  const logprobsField = logprobs === undefined || logprobs === null ? "" : `,"logprobs":${JSON.stringify(logprobs)}`;
  const reason = finishReason === null ? "null" : `"${finishReason}"`;
  return `{"index":0,"delta":${JSON.stringify(delta)}${logprobsField},"finish_reason":${reason}}`;
}

/** Returns the content of a delta with no other field, else undefined. */
function onlyContentOf(delta: Delta): string | undefined {
  for (const field in delta) if (field !== "content") return undefined;
  return delta.content || undefined;
}

/**
 * Removes from a delta the role, which was sent when the stream opened, and empty content, which would turn the `null` of
 * a tool call or a refusal into an empty text. Returns undefined when nothing is left.
 */
function withoutRole({ role: _sent, content, ...rest }: Delta): Delta | undefined {
  const hasOther = rest.reasoning_content || rest.refusal || rest.reasoning_details || rest.tool_calls;
  if (!content && !hasOther) return undefined;
  return content ? { content, ...rest } : rest;
}
