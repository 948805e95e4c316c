import type { AnswerEnd, AnswerHead, AnswerPiece, NativeEvent } from "../answer.ts";
import type { AnswerFold } from "../answer-fold.ts";
import type { CompletionUsage } from "../chat/completion.ts";
import type { AddEvent, EventEncoder, PublicError } from "../wire.ts";
import { OutputBuilder, type OutputOptions } from "./output.ts";
import type { OutputItem, ResponseObject, ResponseSettings, ResponseUsage } from "./response.ts";

const ID_PREFIX = "resp_";

/** The facts of a request that its answer depends on. */
export interface EncoderOptions extends Omit<OutputOptions, "answerId"> {
  settings: ResponseSettings;
}

/** Returns the body of a complete answer that is not streamed. */
export function toResponse(
  options: EncoderOptions,
  head: AnswerHead,
  answer: Pick<AnswerFold, "message" | "logprobs" | "document">,
  end: AnswerEnd,
): ResponseObject {
  const lifecycle = endFields(end);
  const native = answer.document?.output;
  if (Array.isArray(native)) return responseOf(options, head, native, lifecycle);
  const { tool_calls: calls, ...message } = answer.message();
  const builder = new OutputBuilder({ ...options, answerId: head.id });
  const delta = { ...message, ...(calls && { tool_calls: calls.map((call, index) => ({ index, ...call })) }) };
  builder.add({ delta, logprobs: answer.logprobs });
  builder.end(lifecycle.status === "incomplete");
  return responseOf(options, head, builder.items, lifecycle);
}

/** Fields of a response that change while it is created. */
type Lifecycle = Pick<ResponseObject, "status" | "completed_at" | "error" | "incomplete_details" | "usage">;

/** The fields of a response that has begun. */
const RUNNING: Lifecycle = {
  status: "in_progress",
  completed_at: null,
  error: null,
  incomplete_details: null,
  usage: null,
};

/** Returns the fields of a response that has ended. */
function endFields({ finishReason, usage, ended }: AnswerEnd): Lifecycle {
  const reason =
    finishReason === "length" ? "max_output_tokens" : finishReason === "content_filter" ? finishReason : undefined;
  return {
    status: reason === undefined ? "completed" : "incomplete",
    completed_at: reason === undefined ? (ended ?? null) : null,
    error: null,
    incomplete_details: reason === undefined ? null : { reason },
    usage: toResponseUsage(usage),
  };
}

function toResponseUsage(usage: CompletionUsage): ResponseUsage {
  const { prompt_tokens, completion_tokens, total_tokens, cost } = usage;
  const { cached_tokens = 0, cache_write_tokens = 0 } = usage.prompt_tokens_details ?? {};
  return {
    input_tokens: prompt_tokens,
    input_tokens_details: { cached_tokens, cache_write_tokens },
    output_tokens: completion_tokens,
    output_tokens_details: { reasoning_tokens: usage.completion_tokens_details?.reasoning_tokens ?? 0 },
    total_tokens,
    ...(cost !== undefined && { cost }),
  };
}

/** Puts a response together. */
function responseOf(
  { settings }: EncoderOptions,
  { id, created, model }: AnswerHead,
  output: OutputItem[],
  lifecycle: Lifecycle,
): ResponseObject {
  return {
    id: `${ID_PREFIX}${id}`,
    object: "response",
    created_at: created,
    background: false,
    model,
    ...lifecycle,
    output,
    ...settings,
  };
}

/** Writes a streamed answer in the format of OpenAI's Responses API. */
export class ResponsesEventEncoder implements EventEncoder {
  readonly keepAlive = ": keep-alive\n\n";
  readonly #options: EncoderOptions;
  readonly #head: AnswerHead;
  readonly #add: AddEvent;
  readonly #builder: OutputBuilder;
  /** Ended items of an upstream that speaks this wire; undefined for other upstreams. */
  #nativeItems: OutputItem[] | undefined;
  #sequenceNumber = 0;
  /** The place of the last piece of text, and its JSON. */
  #place: object | undefined;
  #placeText = "";

  constructor(options: EncoderOptions, head: AnswerHead, add: AddEvent) {
    this.#options = options;
    this.#head = head;
    this.#add = add;
    this.#builder = new OutputBuilder({ ...options, answerId: head.id }, (...event) => this.#emit(...event));
    const response = this.#response(RUNNING);
    for (const type of ["response.created", "response.in_progress"]) this.#emit(type, { response });
  }

  push(pieces: readonly AnswerPiece[]): void {
    for (const piece of pieces) {
      if (piece.native !== undefined) this.#passOn(piece.native);
      else if (this.#nativeItems === undefined) this.#builder.add(piece);
    }
  }

  close(end: AnswerEnd): ResponseObject {
    const fields = endFields(end);
    if (this.#nativeItems === undefined) this.#builder.end(fields.status === "incomplete");
    const response = this.#response(fields);
    this.#emit(`response.${fields.status}`, { response });
    return response;
  }

  /** Ends with two events: OpenAI's and Vercel's clients throw at the first, Codex reads the second. */
  fail({ status, code: ownCode, message, param, type }: PublicError): void {
    const code = status === 429 ? "rate_limit_exceeded" : status < 500 ? "invalid_prompt" : "server_error";
    const failed: Lifecycle = { ...RUNNING, status: "failed", error: { code, message } };
    const error = { code: ownCode, message, param };
    // Some of their versions read the fields of the event, others those of its `error`.
    this.#emit("error", { ...error, error: { type, ...error } });
    this.#emit("response.failed", { response: this.#response(failed) });
  }

  #passOn(events: readonly NativeEvent[]): void {
    this.#nativeItems ??= [];
    for (const { type, data } of events) {
      if (type === "response.output_item.done") this.#nativeItems.push(data.item as OutputItem);
      this.#emit(type, data);
    }
  }

  #response(lifecycle: Lifecycle): ResponseObject {
    return responseOf(this.#options, this.#head, this.#nativeItems ?? this.#builder.items, lifecycle);
  }

  #emit(type: string, fields: object, delta?: string, logprobs?: readonly unknown[]): void {
    const sequence_number = this.#sequenceNumber;
    this.#sequenceNumber += 1;
    if (delta === undefined) {
      this.#add(`event: ${type}\ndata: ${JSON.stringify({ type, ...fields, sequence_number })}\n\n`);
      return;
    }
    // Most events have a piece of a text: the fields beside it are converted once.
    if (fields !== this.#place) {
      this.#place = fields;
      this.#placeText = JSON.stringify(fields).slice(1, -1);
    }
    const common = `"type":"${type}","sequence_number":${sequence_number},${this.#placeText}`;
    const beside = logprobs === undefined ? "" : `,"logprobs":${JSON.stringify(logprobs)}`;
    this.#add(`event: ${type}\ndata: {${common},"delta":${JSON.stringify(delta)}${beside}}\n\n`);
  }
}
