import { createHash, type Hash } from "node:crypto";
import { NATIVE_DOCUMENT, type NativeEvent } from "../../api/answer.ts";
import type { Delta, FinishReason, ToolCallDelta } from "../../api/chat/completion.ts";
import type { ReasoningDetail } from "../../api/chat/request.ts";
import { detailsOf, isObject, type JsonObject, nameOf, textOf } from "../../api/json.ts";
import { deltaTexts } from "../../api/sent-text.ts";
import { complaintFailure, toComplaint } from "../errors.ts";
import { BODY_BYTES_MAX } from "../http/answer.ts";
import type { WireReader } from "../openai/answer.ts";
import { type UpstreamChunk, UpstreamError, type UpstreamUsage } from "../provider.ts";
import type { Scrub } from "../scrub.ts";
import { identityOf, toChunk } from "./messages.ts";

/** Names OpenAI's encrypted reasoning in `reasoning_details`. */
export const RESPONSES_REASONING = "openai-responses-v1";

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

interface OpenCall {
  index: number;
  /** True once a piece of the arguments has arrived. */
  hasArguments: boolean;
}

/**
 * Reads answers of OpenAI's Responses API (https://platform.openai.com/docs/api-reference/responses). `scrub` removes
 * private text from the upstream's errors; with `keepsEvents`, each chunk contains the event that it was read from.
 */
export class ResponsesReader implements WireReader {
  isFinished = false;
  isEnded = false;
  /** The last event contains the whole answer. */
  readonly eventLengthMax = BODY_BYTES_MAX;
  readonly #scrub: Scrub;
  readonly #keepsEvents: boolean;
  /** Calls by the index of their output item. */
  readonly #calls = new Map<number, OpenCall>();
  readonly #texts = new StreamedTexts();

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

  readAnswer(answer: JsonObject): UpstreamChunk {
    if (!Array.isArray(answer.output)) throw new UpstreamError("malformed", "The answer has no output");
    const delta: Delta = {};
    for (const [index, item] of answer.output.filter(isObject).entries()) this.#addItem(delta, index, item);
    const chunk: UpstreamChunk = { ...identityOf(answer), delta };
    this.#finish(chunk, answer);
    if (!this.#keepsEvents) return chunk;
    chunk.native = [{ type: NATIVE_DOCUMENT, data: { output: answer.output }, counted: this.#texts }];
    return chunk;
  }

  /** Returns an event to be passed on. Those that end a part or an item repeat the texts that were streamed. */
  #toNative(type: string, { obfuscation: _padding, ...data }: JsonObject, delta: Delta = {}): NativeEvent {
    const texts = deltaTexts(delta);
    if (typeof data.delta === "string") {
      this.#texts.extend(`${data.output_index} ${data.content_index} ${data.summary_index}`, data.delta);
      return { type, data, counted: new Set(texts) };
    }
    for (const text of texts) this.#texts.add(text);
    return { type, data, counted: this.#texts };
  }

  #read(type: string, event: JsonObject): UpstreamChunk {
    const index = typeof event.output_index === "number" ? event.output_index : 0;
    const response = isObject(event.response) ? event.response : {};
    const item = isObject(event.item) ? event.item : {};
    switch (type) {
      case "response.created":
        return identityOf(response);
      case "response.output_item.added":
        return toChunk(this.#beginCall(index, item));
      case "response.output_text.delta":
        return textChunk("content", event.delta);
      case "response.refusal.delta":
        return textChunk("refusal", event.delta);
      case "response.reasoning_summary_text.delta":
      case "response.reasoning_text.delta":
        return textChunk("reasoning_content", event.delta);
      case "response.function_call_arguments.delta":
      case "response.custom_tool_call_input.delta":
        return toChunk(this.#continueCall(index, textOf(event.delta) ?? ""));
      case "response.output_item.done":
        return toChunk(this.#endItem(index, item));
      case "response.completed":
      case "response.incomplete": {
        const chunk: UpstreamChunk = {};
        this.#finish(chunk, response);
        return chunk;
      }
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
    const begun: ToolCallDelta = {
      index: call.index,
      id: textOf(item.call_id) ?? "",
      type: "function",
      function: called,
    };
    if (item.type === "custom_tool_call") begun.isCustom = true;
    return { tool_calls: [begun] };
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

  /** Adds an item of an unstreamed answer to its delta. */
  #addItem(delta: Delta, index: number, item: JsonObject): void {
    const begun = this.#beginCall(index, item).tool_calls?.[0];
    if (begun !== undefined) {
      const call: ToolCallDelta = { ...begun };
      const given = this.#taken(item.arguments ?? item.input);
      call.function = { ...begun.function, arguments: given };
      delta.tool_calls = [...(delta.tool_calls ?? []), call];
      return;
    }
    const parts = (value: unknown) => (Array.isArray(value) ? value.filter(isObject) : []);
    if (item.type === "reasoning") {
      const summary = [...parts(item.summary), ...parts(item.content)].map(({ text }) => this.#taken(text)).join("");
      if (summary !== "") delta.reasoning_content = (delta.reasoning_content ?? "") + summary;
      const details = reasoningDelta(item).reasoning_details;
      if (details !== undefined) delta.reasoning_details = [...(delta.reasoning_details ?? []), ...details];
      return;
    }
    for (const part of item.type === "message" ? parts(item.content) : []) {
      if (part.type === "output_text") delta.content = (delta.content ?? "") + this.#taken(part.text);
      if (part.type === "refusal") delta.refusal = (delta.refusal ?? "") + this.#taken(part.refusal);
    }
  }

  /** Returns a text of an unstreamed answer that becomes a part of its delta. */
  #taken(text: unknown): string {
    if (typeof text !== "string") return "";
    this.#texts.add(text);
    return text;
  }

  #finish(chunk: UpstreamChunk, response: JsonObject): void {
    const { status } = response;
    if (typeof status === "string" && !ENDED.has(status)) throw complaintFailure(toComplaint(response), this.#scrub);
    this.isFinished = true;
    this.isEnded = true;
    chunk.finish_reason = toFinishReason(response, this.#calls.size > 0);
    if (typeof response.service_tier === "string") chunk.service_tier = response.service_tier;
    const usage = isObject(response.usage) ? toUsage(response.usage) : undefined;
    if (usage !== undefined) chunk.usage = usage;
    const tier = textOf(response.service_tier);
    if (tier !== undefined) chunk.service_tier = tier;
  }
}

/** Texts whose pieces are followed at once. The repetition of a further one counts as new text. */
const TEXTS_FOLLOWED_MAX = 256;

/** Recognizes texts that were metered before, from their digests alone: an answer can be long. */
class StreamedTexts {
  readonly #open = new Map<string, Hash>();
  readonly #whole = new Set<string>();

  /** Adds a piece of the text at a place of the answer. */
  extend(place: string, piece: string): void {
    const hash = this.#open.get(place);
    if (hash !== undefined) hash.update(piece);
    else if (this.#open.size < TEXTS_FOLLOWED_MAX) this.#open.set(place, createHash("sha256").update(piece));
  }

  /** Adds a text that is complete. */
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

function textChunk(field: "content" | "refusal" | "reasoning_content", text: unknown): UpstreamChunk {
  return typeof text === "string" && text !== "" ? { delta: { [field]: text } } : {};
}

function reasoningDelta({ id, encrypted_content: data }: JsonObject): Delta {
  if (typeof data !== "string" || data === "") return {};
  const detail: ReasoningDetail = { type: "reasoning.encrypted", format: RESPONSES_REASONING, data };
  if (typeof id === "string") detail.id = id;
  return { reasoning_details: [detail] };
}

function toFinishReason({ status, incomplete_details: details }: JsonObject, hasToolCalls: boolean): FinishReason {
  const reason = isObject(details) ? details.reason : undefined;
  if (reason === "content_filter") return "content_filter";
  if (status === "incomplete" || reason === "max_output_tokens") return "length";
  return hasToolCalls ? "tool_calls" : "stop";
}

function toUsage(usage: JsonObject): UpstreamUsage {
  const { input_tokens: given, output_tokens } = usage;
  const { cached_tokens: cached, cache_write_tokens: written } = detailsOf(usage.input_tokens_details);
  const { reasoning_tokens: reasoning } = detailsOf(usage.output_tokens_details);
  // xAI counts cached tokens beside the others for some models.
  const isBeside = typeof given === "number" && typeof cached === "number" && cached > given;
  return {
    prompt_tokens: isBeside ? given + cached : given,
    completion_tokens: output_tokens,
    ...(typeof cached === "number" && { cached_tokens: cached }),
    ...(typeof written === "number" && { cache_write_tokens: written }),
    ...(typeof reasoning === "number" && { reasoning_tokens: reasoning }),
  };
}
