import type { AnswerEnd, AnswerHead, AnswerPiece } from "../answer.ts";
import type { AnswerFold } from "../answer-fold.ts";
import { isShortWord } from "../sent-text.ts";
import type { AddEvent, EventEncoder, PublicError } from "../wire.ts";
import type {
  ChatCompletion,
  Delta,
  OtherFields,
  ReplyMessage,
  ResultingMessage,
  ToolCallDelta,
} from "./completion.ts";
import type { RequestMessage } from "./request.ts";
import { withSentCalls } from "./translate.ts";

const ID_PREFIX = "chatcmpl-";

/**
 * Returns the body of a complete answer; `conversation` are the messages before the reply in `messages`. `isLegacy`: the
 * request has `functions`.
 */
export function toChatCompletion(
  { id, created, model, organizationId }: AnswerHead,
  answer: Pick<AnswerFold, "message" | "logprobs" | "whole" | "choice">,
  { finishReason, usage }: AnswerEnd,
  conversation: readonly RequestMessage[],
  isLegacy = false,
): ChatCompletion {
  const message = toSentMessage(answer.message(), isLegacy);
  return {
    ...answer.whole,
    id: `${ID_PREFIX}${id}`,
    object: "chat.completion",
    created,
    model,
    organization_id: organizationId,
    messages: [
      ...conversation.map(toResultingMessage),
      message.content === null ? { ...message, content: "" } : (message as ResultingMessage),
    ],
    choices: [
      {
        ...answer.choice,
        index: 0,
        message,
        logprobs: answer.logprobs,
        finish_reason: isLegacy && finishReason === "tool_calls" ? "function_call" : finishReason,
      },
    ],
    usage,
  };
}

/** Converts a message of an answer to the form that callers see: custom tools, and the first call of a legacy request. */
function toSentMessage(message: ReplyMessage, isLegacy: boolean): ChatCompletion["choices"][number]["message"] {
  if (message.others === undefined && message.tool_calls === undefined) return message;
  const { others, ...named } = message;
  const sent = { ...others, ...withSentCalls(named) };
  if (!isLegacy || named.tool_calls === undefined) return sent;
  const { tool_calls: [first, ...more] = [], ...rest } = sent;
  return { ...rest, ...(first && { function_call: first.function }), ...(more.length > 0 && { tool_calls: more }) };
}

/** Converts a message of the request for the response: its content becomes text, and images are left out. */
function toResultingMessage(message: RequestMessage): ResultingMessage {
  const { role, content, ...rest } = withSentCalls(message);
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
  /** True when any text, refusal, tool call or other content was sent. */
  #hasContent = false;
  readonly #isLegacy: boolean;
  #customCalls: Set<number> | undefined;
  /** Fields at the beginning of every event; those of the upstream are added when they arrive. */
  #common: Record<string, unknown> = {};

  /** `isLegacy`: the request has `functions`. */
  constructor(includeUsage: boolean, isLegacy = false) {
    this.#includeUsage = includeUsage;
    this.#isLegacy = isLegacy;
    this.#suffix = includeUsage ? '],"usage":null}\n\n' : "]}\n\n";
  }

  open({ id, created, model, organizationId }: AnswerHead, add: AddEvent): void {
    const object = "chat.completion.chunk";
    this.#common = { id: `${ID_PREFIX}${id}`, object, created, model, organization_id: organizationId };
    this.#setPrefix();
    // Without content, because only text has content, and tool calls or a refusal may follow.
    this.#addChoice(add, { role: "assistant" }, null);
  }

  #setPrefix(): void {
    this.#prefix = `data: ${JSON.stringify(this.#common).slice(0, -1)},"choices":[`;
    this.#beforeContent = `${this.#prefix}{"index":0,"delta":{"content":`;
    this.#afterContent = `},"finish_reason":null}${this.#suffix}`;
  }

  push(pieces: readonly AnswerPiece[], add: AddEvent): void {
    for (const { delta, logprobs, whole, choice } of pieces) {
      const once = whole === undefined ? undefined : this.#addCommon(whole);
      const isPlain = logprobs === undefined && once === undefined && choice === undefined;
      const content = delta === undefined || !isPlain ? undefined : onlyContentOf(delta);
      if (content !== undefined) this.#addContent(add, content);
      else this.#addDelta(add, delta, { logprobs, once, choice });
    }
  }

  /** Adds the fields that every event has. Returns the others, which are sent once; undefined if there are none. */
  #addCommon(whole: OtherFields): OtherFields | undefined {
    const once = { ...whole };
    for (const name of ["system_fingerprint", "service_tier"]) {
      if (once[name] === undefined || !isShortWord(once[name])) continue;
      this.#common[name] = once[name];
      delete once[name];
      this.#setPrefix();
    }
    return Object.keys(once).length === 0 ? undefined : once;
  }

  close({ finishReason: reason, usage }: AnswerEnd, add: AddEvent): void {
    const finishReason = this.#isLegacy && reason === "tool_calls" ? "function_call" : reason;
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
    add(this.#beforeContent + JSON.stringify(content) + this.#afterContent);
  }

  #addDelta(add: AddEvent, delta: Delta | undefined, beside: Beside): void {
    const sent = delta === undefined ? undefined : withoutRole(delta);
    const isEmpty = (value: unknown) => value === undefined || value === null;
    if (sent === undefined && isEmpty(beside.logprobs) && isEmpty(beside.once) && isEmpty(beside.choice)) return;
    if (sent?.content || sent?.refusal || sent?.tool_calls || sent?.audio || sent?.images) this.#hasContent = true;
    this.#addChoice(add, sent === undefined ? {} : this.#toSentDelta(sent), null, beside);
  }

  #toSentDelta({ others, tool_calls: calls, ...named }: Delta): object {
    if (calls === undefined) return { ...others, ...named };
    const sent = calls.map((call) => this.#toSentCall(call));
    if (!this.#isLegacy) return { ...others, ...named, tool_calls: sent };
    const [first, ...more] = calls;
    const isFirst = first?.index === 0;
    const rest = isFirst ? more : calls;
    const function_call = isFirst ? first.function : undefined;
    return {
      ...others,
      ...named,
      ...(function_call && { function_call }),
      ...(rest.length > 0 && { tool_calls: rest }),
    };
  }

  #toSentCall({ isCustom, ...call }: ToolCallDelta): object {
    const { index, id, function: called } = call;
    if (isCustom === true) {
      this.#customCalls ??= new Set();
      this.#customCalls.add(index);
    }
    if (this.#customCalls?.has(index) !== true) return call;
    const custom = { ...(called?.name && { name: called.name }), input: called?.arguments ?? "" };
    return { index, ...(id !== undefined && { id, type: "custom" }), custom };
  }

  #addChoice(add: AddEvent, delta: object, finishReason: string | null, beside: Beside = {}): void {
    const { once } = beside;
    const choice = choiceOf(delta, finishReason, beside);
    if (once === undefined) add(`${this.#prefix}${choice}${this.#suffix}`);
    else {
      const prefix = `data: ${JSON.stringify({ ...once, ...this.#common }).slice(0, -1)},"choices":[`;
      add(`${prefix}${choice}${this.#suffix}`);
    }
  }
}

/** Fields of an event beside its delta. */
interface Beside {
  logprobs?: unknown;
  /** Fields of the whole answer, sent once. */
  once?: OtherFields | undefined;
  choice?: OtherFields | undefined;
}

function choiceOf(delta: object, finishReason: string | null, { logprobs, choice }: Beside = {}): string {
  const logprobsField = logprobs === undefined || logprobs === null ? "" : `,"logprobs":${JSON.stringify(logprobs)}`;
  // A reader takes the last of two fields with one name.
  const others = choice === undefined ? "" : `${JSON.stringify(choice).slice(1, -1)},`;
  const reason = finishReason === null ? "null" : `"${finishReason}"`;
  return `{${others}"index":0,"delta":${JSON.stringify(delta)}${logprobsField},"finish_reason":${reason}}`;
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
  const hasOther = Object.values(rest).some((value) => value !== undefined && value !== null && value !== "");
  if (!content && !hasOther) return undefined;
  return content ? { content, ...rest } : rest;
}
