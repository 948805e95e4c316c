import { createHash, type Hash } from "node:crypto";
import { NATIVE_DOCUMENT, type NativeEvent } from "../../api/answer.ts";
import type { Delta, FinishReason } from "../../api/chat/completion.ts";
import type { ReasoningDetail } from "../../api/chat/request.ts";
import { detailsOf, isObject, type JsonObject, nameOf, objectsIn, textOf } from "../../api/json.ts";
import { RESPONSES_FORMAT } from "../../api/responses/reasoning.ts";
import { deltaTexts } from "../../api/sent-text.ts";
import { complaintFailure, toComplaint } from "../errors.ts";
import type { WireReader } from "../openai/answer.ts";
import { type UpstreamChunk, UpstreamError, type UpstreamUsage } from "../provider.ts";
import type { Scrub } from "../scrub.ts";
import { toChunk } from "./messages.ts";

/** Statuses of an answer that is as long as it will be. The others are `failed`, `cancelled`, and those of work in progress. */
const ENDED: ReadonlySet<string> = new Set(["completed", "incomplete"]);

/** Events that are not passed on: the service sends its own at the beginning, after the charge, or as a failure. */
const OWN_EVENTS: ReadonlySet<string> = new Set([
  "response.created",
  "response.queued",
  "response.in_progress",
  "response.completed",
  "response.incomplete",
  "response.failed",
  "error",
]);

/** Reads answers of OpenAI's Responses API (https://platform.openai.com/docs/api-reference/responses). */
export class ResponsesReader implements WireReader {
  isFinished = false;
  isEnded = false;
  readonly #scrub: Scrub;
  readonly #keepsEvents: boolean;
  /** Calls by the index of their output item. */
  readonly #calls = new Map<number, { index: number; hasArguments: boolean }>();
  readonly #texts = new StreamedTexts();
  #searches = 0;

  constructor(scrub: Scrub, { keepsEvents }: { keepsEvents: boolean }) {
    this.#scrub = scrub;
    this.#keepsEvents = keepsEvents;
  }

  readEvent(event: JsonObject): UpstreamChunk | undefined {
    const type = nameOf(event.type);
    if (type === undefined) return undefined;
    const chunk = this.#read(type, event);
    if (this.#keepsEvents) chunk.native = OWN_EVENTS.has(type) ? [] : [this.#toNative(type, event, chunk.delta)];
    return Object.keys(chunk).length === 0 ? undefined : chunk;
  }

  readAnswer(answer: JsonObject): UpstreamChunk[] {
    if (!Array.isArray(answer.output)) throw new UpstreamError("malformed", "The answer has no output");
    const deltas = objectsIn(answer.output).flatMap((item, index) => this.#piecesOf(index, item));
    for (const text of deltas.flatMap(deltaTexts)) this.#texts.add(text);
    const last: UpstreamChunk = { responseId: textOf(answer.id), ...this.#finish(answer) };
    if (!this.#keepsEvents) return [...deltas.map((delta) => ({ delta })), last];
    last.native = [{ type: NATIVE_DOCUMENT, data: { output: answer.output }, counted: this.#texts }];
    return [...deltas.map((delta) => ({ delta, native: [] })), last];
  }

  /** Returns an event to be passed on. Those that end a part or an item repeat the texts that were streamed. */
  #toNative(type: string, { obfuscation: _padding, ...data }: JsonObject, delta: Delta = {}): NativeEvent {
    const texts = deltaTexts(delta);
    if (typeof data.delta === "string") {
      const { output_index, content_index, summary_index, command_index } = data;
      this.#texts.extend(`${output_index} ${content_index} ${summary_index} ${command_index}`, data.delta);
      return { type, data, counted: new Set(texts) };
    }
    for (const text of texts) this.#texts.add(text);
    return { type, data, counted: this.#texts };
  }

  #read(type: string, event: JsonObject): UpstreamChunk {
    const index = typeof event.output_index === "number" ? event.output_index : 0;
    const response = detailsOf(event.response);
    const item = detailsOf(event.item);
    switch (type) {
      case "response.created":
        return { responseId: textOf(response.id) };
      case "response.output_item.added":
        return toChunk(this.#beginCall(index, item));
      case "response.output_text.delta":
        return toChunk(textDelta("content", event.delta));
      case "response.refusal.delta":
        return toChunk(textDelta("refusal", event.delta));
      case "response.reasoning_summary_text.delta":
      case "response.reasoning_text.delta":
        return toChunk(textDelta("reasoning_content", event.delta));
      case "response.function_call_arguments.delta":
      case "response.custom_tool_call_input.delta":
        return toChunk(this.#continueCall(index, textOf(event.delta) ?? ""));
      case "response.output_item.done":
        if (isSearchCall(item)) this.#searches += 1;
        return {
          ...toChunk(this.#endItem(index, item)),
          ...(this.#searches > 0 && { calls: { searches: this.#searches } }),
        };
      case "response.completed":
      case "response.incomplete":
        return this.#finish(response);
      case "response.failed":
        throw complaintFailure(toComplaint(response), this.#scrub);
      case "error":
        throw complaintFailure(toComplaint(event), this.#scrub);
      default:
        return {};
    }
  }

  #beginCall(index: number, item: JsonObject): Delta {
    if (item.type !== "function_call" && item.type !== "custom_tool_call") return {};
    const call = { index: this.#calls.size, hasArguments: false };
    this.#calls.set(index, call);
    const called = { name: textOf(item.name) ?? "", arguments: "" };
    const mark = item.type === "custom_tool_call" && { isCustom: true as const };
    const id = textOf(item.call_id) ?? "";
    return { tool_calls: [{ index: call.index, id, type: "function", function: called, ...mark }] };
  }

  #continueCall(index: number, piece: string): Delta {
    const call = this.#calls.get(index);
    if (call === undefined || piece === "") return {};
    call.hasArguments = true;
    return { tool_calls: [{ index: call.index, function: { arguments: piece } }] };
  }

  #endItem(index: number, item: JsonObject): Delta {
    if (item.type === "reasoning") return reasoningDelta(item);
    const call = this.#calls.get(index);
    const given = textOf(item.arguments) ?? textOf(item.input) ?? "";
    return call === undefined || call.hasArguments ? {} : this.#continueCall(index, given);
  }

  /** Returns the whole of an item as a stream has it: a call begins, texts follow, and the item ends. */
  #piecesOf(index: number, item: JsonObject): Delta[] {
    const parts = [...objectsIn(item.summary), ...objectsIn(item.content)];
    const texts = parts.map(({ type, text, refusal }) => {
      if (item.type === "reasoning") return textDelta("reasoning_content", text);
      return type === "refusal" ? textDelta("refusal", refusal) : textDelta("content", type === "output_text" && text);
    });
    return [this.#beginCall(index, item), ...texts, this.#endItem(index, item)];
  }

  #finish(response: JsonObject): UpstreamChunk {
    const { status, usage } = response;
    const searches = objectsIn(response.output).filter(isSearchCall).length;
    if (typeof status === "string" && !ENDED.has(status)) throw complaintFailure(toComplaint(response), this.#scrub);
    this.isFinished = true;
    this.isEnded = true;
    return {
      finish_reason: toFinishReason(response, this.#calls.size > 0),
      usage: isObject(usage) ? { ...usageOfResponses(usage), ...(searches > 0 && { searches }) } : undefined,
      ...(searches > 0 && { calls: { searches } }),
      service_tier: textOf(response.service_tier),
    };
  }
}

/** Pages that a search opens, and text that it finds in them, have no price of their own (OpenAI's documentation, "Pricing"). */
function isSearchCall({ type, action }: JsonObject): boolean {
  return type === "web_search_call" && (detailsOf(action).type ?? "search") === "search";
}

/** Texts whose pieces are followed at once. The repetition of a further one counts as new text. */
const TEXTS_FOLLOWED_MAX = 256;

/** Recognizes texts that were metered before, from their digests alone: an answer can be long. */
class StreamedTexts {
  readonly #open = new Map<string, Hash>();
  readonly #whole = new Set<string>();

  extend(place: string, piece: string): void {
    const hash = this.#open.get(place);
    if (hash !== undefined) hash.update(piece);
    else if (this.#open.size < TEXTS_FOLLOWED_MAX) this.#open.set(place, createHash("sha256").update(piece));
  }

  add(text: string): void {
    this.#whole.add(digestOf(createHash("sha256").update(text)));
  }

  has(value: unknown): boolean {
    if (typeof value !== "string") return false;
    const digest = digestOf(createHash("sha256").update(value));
    return this.#whole.has(digest) || this.#open.values().some((hash) => digestOf(hash.copy()) === digest);
  }
}

function digestOf(hash: Hash): string {
  return hash.digest("base64");
}

function textDelta(field: "content" | "refusal" | "reasoning_content", text: unknown): Delta {
  return typeof text === "string" && text !== "" ? { [field]: text } : {};
}

function reasoningDelta({ id, encrypted_content: data }: JsonObject): Delta {
  if (typeof data !== "string" || data === "") return {};
  const detail: ReasoningDetail = { type: "reasoning.encrypted", format: RESPONSES_FORMAT, data };
  if (typeof id === "string") detail.id = id;
  return { reasoning_details: [detail] };
}

function toFinishReason({ status, incomplete_details: details }: JsonObject, hasToolCalls: boolean): FinishReason {
  const { reason } = detailsOf(details);
  if (reason === "content_filter") return "content_filter";
  if (status === "incomplete" || reason === "max_output_tokens") return "length";
  return hasToolCalls ? "tool_calls" : "stop";
}

/** Reads usage in the form that OpenAI's newer APIs share. */
export function usageOfResponses(usage: JsonObject): UpstreamUsage {
  const { input_tokens: given, output_tokens } = usage;
  const { cached_tokens: cached, cache_write_tokens: written, image_tokens } = detailsOf(usage.input_tokens_details);
  const { reasoning_tokens: reasoning, image_tokens: made } = detailsOf(usage.output_tokens_details);
  // xAI counts cached tokens beside the others for some models.
  const isBeside = typeof given === "number" && typeof cached === "number" && cached > given;
  return {
    prompt_tokens: isBeside ? given + cached : given,
    completion_tokens: output_tokens,
    cached_tokens: cached,
    cache_write_tokens: written,
    reasoning_tokens: reasoning,
    input_image_tokens: image_tokens,
    output_image_tokens: made,
  };
}
