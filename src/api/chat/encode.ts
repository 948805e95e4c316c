import type { AnswerEnd, AnswerHead, AnswerPiece } from "../answer.ts";
import type { AnswerFold } from "../answer-fold.ts";
import { isShortWord } from "../sent-text.ts";
import type { AddEvent, EventEncoder, PublicError } from "../wire.ts";
import type {
  ChatCompletion,
  CompletionUsage,
  Delta,
  FinishReason,
  OtherFields,
  ResultingMessage,
  ToolCallDelta,
} from "./completion.ts";
import type { RequestMessage, ToolCall } from "./request.ts";
import { toSentCall, withSentCalls } from "./translate.ts";

const ID_PREFIX = "chatcmpl-";

/** Returns the body of a complete answer; `conversation` are the messages before the reply. */
export function toChatCompletion(
  { id, created, model, organizationId }: AnswerHead,
  answer: AnswerFold,
  { finishReason, reasons = [], usage }: AnswerEnd,
  conversation: readonly RequestMessage[],
  isLegacy = false,
): ChatCompletion {
  const choices = answer.choices.map(
    ([index, one]): Choice => ({
      ...one.choice,
      index,
      message: toSent(one.message(), isLegacy, toSentCall) as Choice["message"],
      logprobs: one.logprobs,
      finish_reason: sentReason(reasons[index] ?? finishReason, isLegacy),
    }),
  );
  const message = choices[0]?.message as Choice["message"];
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
    choices,
    usage,
  };
}

type Choice = ChatCompletion["choices"][number];

function sentReason(reason: FinishReason, isLegacy: boolean): Choice["finish_reason"] {
  return isLegacy && reason === "tool_calls" ? "function_call" : reason;
}

/** Converts a message of an answer, or a piece of one. A legacy request has a field of its own for the first call. */
function toSent<Call extends ToolCall | ToolCallDelta, Message extends { others?: OtherFields; tool_calls?: Call[] }>(
  message: Message,
  isLegacy: boolean,
  toCall: (call: Call) => object,
): object {
  if (message.others === undefined && message.tool_calls === undefined) return message;
  const { others, tool_calls: calls = [], ...named } = message;
  const [first] = calls;
  const isFirst = isLegacy && first !== undefined && (!("index" in first) || first.index === 0);
  const sent = (isFirst ? calls.slice(1) : calls).map(toCall);
  return {
    ...others,
    ...named,
    ...(isFirst && { function_call: first.function }),
    ...(sent.length > 0 && { tool_calls: sent }),
  };
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

export class ChatEventEncoder implements EventEncoder {
  readonly keepAlive = ": keep-alive\n\n";
  readonly #options: ChatStreamOptions;
  readonly #add: AddEvent;
  /** Fields at the beginning of every event; those of the upstream are added when they arrive. */
  readonly #common: Record<string, unknown>;
  /** The JSON of these fields, which most events share. */
  #prefix = "";
  readonly #choices = new Map<number, SentChoice>();

  constructor({ id, created, model, organizationId }: AnswerHead, add: AddEvent, options: ChatStreamOptions) {
    const object = "chat.completion.chunk";
    this.#common = { id: `${ID_PREFIX}${id}`, object, created, model, organization_id: organizationId };
    this.#prefix = prefixOf(this.#common);
    this.#options = options;
    this.#add = add;
    this.#choice(0);
  }

  push(pieces: readonly AnswerPiece[]): void {
    for (const piece of pieces) this.#pushPiece(piece);
  }

  /** Returns what was sent of a choice, which begins with its role. */
  #choice(index: number): SentChoice {
    const known = this.#choices.get(index);
    if (known !== undefined) return known;
    // Without content, because only text has content, and tool calls or a refusal may follow.
    this.#addEvent(choiceOf(index, { role: "assistant" }, null));
    const begun: SentChoice = { hasContent: false, customCalls: new Set() };
    this.#choices.set(index, begun);
    return begun;
  }

  #pushPiece({ index = 0, delta, logprobs, whole, choice }: AnswerPiece): void {
    const state = this.#choice(index);
    const isPlain = logprobs === undefined && whole === undefined && choice === undefined;
    const content = isPlain && delta !== undefined ? onlyContentOf(delta) : undefined;
    if (content !== undefined) {
      state.hasContent = true;
      this.#addEvent(`{"index":${index},"delta":{"content":${JSON.stringify(content)}},"finish_reason":null}`);
      return;
    }
    const once = whole && this.#addCommon(whole);
    const sent = delta && withoutRole(delta);
    if ((sent ?? logprobs ?? once ?? choice ?? null) === null) return;
    if (sent?.content || sent?.refusal || sent?.tool_calls || sent?.audio || sent?.images) state.hasContent = true;
    const fields = sent ? toSent(sent, this.#options.isLegacy, (call: ToolCallDelta) => toSentDelta(call, state)) : {};
    this.#addEvent(choiceOf(index, fields, null, { logprobs, choice }), { once });
  }

  /** Adds the fields that every event has. Returns the others, which are sent once; undefined if there are none. */
  #addCommon(whole: OtherFields): OtherFields | undefined {
    const once = { ...whole };
    for (const name of ["system_fingerprint", "service_tier"]) {
      if (once[name] === undefined || !isShortWord(once[name])) continue;
      this.#common[name] = once[name];
      delete once[name];
    }
    this.#prefix = prefixOf(this.#common);
    return Object.keys(once).length === 0 ? undefined : once;
  }

  /** Sends the finish reasons, which some upstreams repeat, or follow with more content. */
  close({ finishReason, reasons = [], usage }: AnswerEnd): void {
    const { includeUsage } = this.#options;
    for (const index of this.#choices.keys()) {
      if (index > 0) this.#addEvent(this.#endOf(index, reasons[index] ?? finishReason));
    }
    // The first choice ends last, with the usage.
    const last = this.#endOf(0, finishReason);
    if (includeUsage) this.#addEvent(last);
    this.#addEvent(includeUsage ? "" : last, { usage });
    this.#add("data: [DONE]\n\n");
  }

  /** Returns the end of a choice. An empty one has empty content, as in a response that is not streamed. */
  #endOf(index: number, reason: FinishReason): string {
    if (!this.#choice(index).hasContent) this.#addEvent(choiceOf(index, { content: "" }, null));
    return choiceOf(index, {}, sentReason(reason, this.#options.isLegacy));
  }

  fail(error: PublicError): void {
    this.#add(`data: ${JSON.stringify(toErrorEnvelope(error))}\n\n`);
  }

  /** Adds an event. `choice` is JSON, `once` has fields of the whole answer that are sent once. */
  #addEvent(choice: string, { once, usage }: { once?: OtherFields | undefined; usage?: CompletionUsage } = {}): void {
    const prefix = once === undefined ? this.#prefix : prefixOf({ ...once, ...this.#common });
    // With `include_usage`, every event has the field.
    const isCounted = usage !== undefined || this.#options.includeUsage;
    this.#add(`${prefix}${choice}]${isCounted ? `,"usage":${JSON.stringify(usage ?? null)}` : ""}}\n\n`);
  }
}

/** A choice as far as it was sent. */
interface SentChoice {
  hasContent: boolean;
  customCalls: Set<number>;
}

function toSentDelta({ isCustom, ...call }: ToolCallDelta, { customCalls }: SentChoice): object {
  const { index, id, function: called } = call;
  if (isCustom === true) customCalls.add(index);
  // The schemas of Vercel's clients require the field in every piece.
  if (!customCalls.has(index)) return { ...call, function: called ?? { arguments: "" } };
  const custom = { ...(called?.name && { name: called.name }), input: called?.arguments ?? "" };
  return { index, ...(id !== undefined && { id, type: "custom" }), custom };
}

export interface ChatStreamOptions {
  includeUsage: boolean;
  isLegacy: boolean;
}

function prefixOf(fields: object): string {
  return `data: ${JSON.stringify(fields).slice(0, -1)},"choices":[`;
}

function choiceOf(index: number, delta: object, reason: string | null, { logprobs, choice }: AnswerPiece = {}) {
  return JSON.stringify({ ...choice, index, delta, logprobs: logprobs ?? undefined, finish_reason: reason });
}

/** Returns the content of a delta with no other field, as most have; undefined for another delta. */
function onlyContentOf(delta: Delta): string | undefined {
  for (const field in delta) if (field !== "content") return undefined;
  return delta.content || undefined;
}

/** Removes the role, which was sent before, and empty content, which would replace a `null`. May return undefined. */
function withoutRole({ role: _sent, content, ...rest }: Delta): Delta | undefined {
  const hasOther = Object.values(rest).some((value) => value !== undefined && value !== null && value !== "");
  if (!content && !hasOther) return undefined;
  return content ? { content, ...rest } : rest;
}
