import type { AnswerEnd, AnswerHead, NativeEvent } from "../answer.ts";
import type { AnswerFold } from "../answer-fold.ts";
import type { CompletionUsage } from "../chat/completion.ts";
import type { AddEvent, EventEncoder } from "../wire.ts";
import { type EmitEvent, OutputBuilder, type OutputOptions } from "./output.ts";
import type { OutputItem, ResponseObject, ResponseSettings, ResponseUsage } from "./response.ts";

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

type Lifecycle = Pick<ResponseObject, "status" | "completed_at" | "error" | "incomplete_details" | "usage">;

const RUNNING: Lifecycle = {
  status: "in_progress",
  completed_at: null,
  error: null,
  incomplete_details: null,
  usage: null,
};

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

function responseOf(
  { settings }: EncoderOptions,
  { id, created, model }: AnswerHead,
  output: OutputItem[],
  lifecycle: Lifecycle,
): ResponseObject {
  return {
    id: `resp_${id}`,
    object: "response",
    created_at: created,
    background: false,
    model,
    ...lifecycle,
    output,
    ...settings,
  };
}

/** Returns the encoder of a streamed answer in the format of OpenAI's Responses API. */
export function responsesEvents(options: EncoderOptions, head: AnswerHead, add: AddEvent): EventEncoder {
  const emit = numberedEvents(add);
  const builder = new OutputBuilder({ ...options, answerId: head.id }, emit);
  /** Ended items of an upstream that speaks this wire; undefined for other upstreams. */
  let nativeItems: OutputItem[] | undefined;
  const responseIn = (lifecycle: Lifecycle) => responseOf(options, head, nativeItems ?? builder.items, lifecycle);
  const passOn = (events: readonly NativeEvent[]) => {
    nativeItems ??= [];
    for (const { type, data } of events) {
      if (type === "response.output_item.done") nativeItems.push(data.item as OutputItem);
      emit(type, data);
    }
  };
  const response = responseIn(RUNNING);
  for (const type of ["response.created", "response.in_progress"]) emit(type, { response });
  return {
    keepAlive: ": keep-alive\n\n",
    push(pieces) {
      for (const piece of pieces) {
        if (piece.native !== undefined) passOn(piece.native);
        else if (nativeItems === undefined) builder.add(piece);
      }
    },
    close(end): ResponseObject {
      const fields = endFields(end);
      if (nativeItems === undefined) builder.end(fields.status === "incomplete");
      const ended = responseIn(fields);
      emit(`response.${fields.status}`, { response: ended });
      return ended;
    },
    // Ends with two events: OpenAI's and Vercel's clients throw at the first, Codex reads the second.
    fail({ status, code: ownCode, message, param, type }) {
      const code = status === 429 ? "rate_limit_exceeded" : status < 500 ? "invalid_prompt" : "server_error";
      const failed: Lifecycle = { ...RUNNING, status: "failed", error: { code, message } };
      const error = { code: ownCode, message, param };
      // Some of their versions read the fields of the event, others those of its `error`.
      emit("error", { ...error, error: { type, ...error } });
      emit("response.failed", { response: responseIn(failed) });
    },
  };
}

function numberedEvents(add: AddEvent): EmitEvent {
  let nextNumber = 0;
  /** The place of the last piece of text, and its JSON. */
  let place: object | undefined;
  let placeText = "";
  return (type, fields, delta, logprobs) => {
    const sequence_number = nextNumber;
    nextNumber += 1;
    if (delta === undefined) {
      add(`event: ${type}\ndata: ${JSON.stringify({ type, ...fields, sequence_number })}\n\n`);
      return;
    }
    // Most events have a piece of a text: the fields beside it are converted once.
    if (fields !== place) {
      place = fields;
      placeText = JSON.stringify(fields).slice(1, -1);
    }
    const common = `"type":"${type}","sequence_number":${sequence_number},${placeText}`;
    const beside = logprobs === undefined ? "" : `,"logprobs":${JSON.stringify(logprobs)}`;
    add(`event: ${type}\ndata: {${common},"delta":${JSON.stringify(delta)}${beside}}\n\n`);
  };
}
