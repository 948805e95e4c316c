import { createHash } from "node:crypto";
import { ChoicesProgress } from "../../api/answer.ts";
import { joinDetail } from "../../api/answer-fold.ts";
import { Delta, type FinishReason, type ToolCallDelta } from "../../api/chat/completion.ts";
import type { ReasoningDetail } from "../../api/chat/request.ts";
import { detailsOf, isObject, type JsonObject, objectsIn, textOf } from "../../api/json.ts";
import { LONG_EVENT_LENGTH } from "../http/event-stream.ts";
import { type UpstreamChunk, UpstreamError, type UpstreamUsage } from "../provider.ts";
import type { WireReader } from "./answer.ts";
import { ToolCallReader } from "./tool-calls.ts";

/** Fields of an event that are read, or that the service has its own of. */
const WHOLE_FIELDS = new Set([
  "id",
  "object",
  "created",
  "model",
  "choices",
  "usage",
  "error",
  "organization_id",
  "messages",
  "obfuscation",
]);
const CHOICE_FIELDS = new Set(["index", "delta", "message", "logprobs", "finish_reason", "text"]);
const DELTA_FIELDS = new Set([...Object.keys(Delta.properties), "reasoning", "others"]);
const OTHER_FIELDS_MAX = 32;

/** Returns the fields of a record that are not read, to be passed on; undefined if there are none. */
function othersOf(record: JsonObject, known: ReadonlySet<string>): JsonObject | undefined {
  let others: Record<string, unknown> | undefined;
  let count = 0;
  for (const name in record) {
    if (known.has(name) || name === "__proto__" || record[name] === null || record[name] === undefined) continue;
    others ??= {};
    others[name] = record[name];
    count += 1;
    if (count === OTHER_FIELDS_MAX) break;
  }
  return others;
}

/**
 * Converts the JSON of one answer to chunks. Other choices than the first and values of a wrong type are ignored; fields
 * that the service does not know are passed on. Keeps the state that later events of the answer depend on.
 */
export class ChunkReader {
  isFinished = false;
  /** True once an event with a choice was read. All events have the same id, so only the first one's is passed on. */
  #hasId = false;
  /** True once a choice was read. */
  #hasRead = false;
  /** The unknown fields of the whole answer as JSON; a long text's digest, because nothing limits its memory here. */
  #othersText = "";
  #toolCalls: ToolCallReader | undefined;
  readonly #detailsLengthMax: number;
  #details: ReasoningDetails | undefined;

  constructor(detailsLengthMax = DETAILS_LENGTH_MAX) {
    this.#detailsLengthMax = detailsLengthMax;
  }

  /** Reads a streamed event; undefined if it has no choice and no usage. Throws UpstreamError if the answer failed. */
  readEvent(event: JsonObject): UpstreamChunk | undefined {
    const choice = firstChoice(event.choices);
    const chunk = this.readWhole(event, choice !== undefined);
    if (choice !== undefined) return this.readChoice(choice, false, chunk);
    return chunk.usage === undefined && chunk.whole === undefined ? undefined : chunk;
  }

  /** Reads an unstreamed answer. Throws UpstreamError if it has no message, or failed. */
  readAnswer(answer: JsonObject): UpstreamChunk[] {
    return [this.readChoice(firstChoice(answer.choices) ?? {}, true, this.readWhole(answer, true))];
  }

  /** Reads the fields of the whole answer: of an event without a choice, only its usage and those that are passed on. */
  readWhole(event: JsonObject, hasChoice: boolean): UpstreamChunk {
    const chunk: UpstreamChunk = {};
    if (hasChoice && typeof event.service_tier === "string") chunk.service_tier = event.service_tier;
    if (hasChoice && !this.#hasId && typeof event.id === "string") chunk.responseId = event.id;
    this.#hasId ||= hasChoice;
    const others = this.#newOthers(event);
    if (others !== undefined) chunk.whole = others;
    const usage = toUsage(event.usage);
    if (usage !== undefined) chunk.usage = usage;
    return chunk;
  }

  /** Adds a choice to a chunk, whatever its index. Throws UpstreamError if it failed, or is whole and has no message. */
  readChoice(choice: JsonObject, isWhole: boolean, chunk: UpstreamChunk): UpstreamChunk {
    // Some upstreams stream a whole message. After pieces it would repeat them.
    const whole = this.#hasRead ? undefined : choice.message;
    const message = (isWhole ? undefined : choice.delta) ?? whole ?? messageOf(choice);
    if (isWhole && !isObject(message)) throw new UpstreamError("malformed", "The answer has no message");
    this.#hasRead = true;
    const beside = othersOf(choice, CHOICE_FIELDS);
    if (beside !== undefined) chunk.choice = beside;
    if (isObject(message)) chunk.delta = this.#readDelta(message, isWhole);
    if (chunk.delta?.content || chunk.delta?.refusal || chunk.delta?.tool_calls) this.#addDetails(chunk);
    if (choice.logprobs !== undefined && choice.logprobs !== null) chunk.logprobs = choice.logprobs;
    const reason = choice.finish_reason;
    if (typeof reason === "string" && reason !== "") {
      chunk.finish_reason = toFinishReason(reason, Boolean(this.#toolCalls?.count));
      this.isFinished = true;
      this.#addDetails(chunk);
      this.#addDetailsToCall(chunk);
    }
    return chunk;
  }

  /** Returns the unknown fields of the whole answer that this event changes: most upstreams repeat them in every event. */
  #newOthers(event: JsonObject): JsonObject | undefined {
    const others = othersOf(event, WHOLE_FIELDS);
    if (others === undefined) return undefined;
    const json = JSON.stringify(others);
    const text = json.length > LONG_EVENT_LENGTH ? createHash("sha256").update(json).digest("hex") : json;
    if (text === this.#othersText) return undefined;
    this.#othersText = text;
    return others;
  }

  /** Adds the reasoning details, or their parts, that no chunk has yet, before what follows them, or at the end. */
  #addDetails(chunk: UpstreamChunk): void {
    const details = this.#details?.takeUnsent() ?? [];
    if (details.length === 0) return;
    chunk.delta = { ...chunk.delta, reasoning_details: details as unknown as ReasoningDetail[] };
    chunk.repeated = this.#details?.repeated(details) ?? new Set();
  }

  /** Adds all reasoning details to the first tool call, for clients that send back only the calls. */
  #addDetailsToCall(chunk: UpstreamChunk): void {
    const details = this.#details?.all();
    if (details === undefined || !this.#toolCalls?.count) return;
    const call: ToolCallDelta = { index: 0, extra_content: { reasoning_details: details } };
    chunk.delta = { ...chunk.delta, tool_calls: [...(chunk.delta?.tool_calls ?? []), call] };
    const parts = (chunk.delta.reasoning_details ?? []) as unknown as JsonObject[];
    chunk.repeated = this.#details?.repeated([...details, ...parts]) ?? new Set();
  }

  #readDelta(message: JsonObject, isWhole: boolean): Delta {
    const delta: Delta = {};
    if (message.role === "assistant") delta.role = "assistant";
    const content = toText(message.content);
    if (content !== undefined) delta.content = content;
    if (typeof message.refusal === "string") delta.refusal = message.refusal;
    const reasoning = textOf(message.reasoning_content) ?? textOf(message.reasoning);
    if (reasoning !== undefined) delta.reasoning_content = reasoning;
    if (message.reasoning_details !== undefined) {
      this.#details ??= new ReasoningDetails(this.#detailsLengthMax);
      this.#details.add(message.reasoning_details);
    }
    if (reasoning !== undefined) this.#details?.noteSent(reasoning);
    if (Array.isArray(message.annotations)) delta.annotations = message.annotations;
    if (isObject(message.audio)) delta.audio = message.audio;
    if (Array.isArray(message.images)) delta.images = message.images;
    const parts = Array.isArray(message.content) ? message.content.filter((part) => !isTextPart(part)) : [];
    const others = othersOf(message, DELTA_FIELDS);
    if (parts.length > 0) delta.others = { ...others, content_parts: parts };
    else if (others !== undefined) delta.others = others;
    // Some upstreams answer with the field of the time before `tools`.
    const called = isObject(message.function_call) ? [{ index: 0, function: message.function_call }] : [];
    const calls = Array.isArray(message.tool_calls) && message.tool_calls.length > 0 ? message.tool_calls : called;
    if (calls.length === 0) return delta;
    this.#toolCalls ??= new ToolCallReader();
    delta.tool_calls = isWhole ? this.#toolCalls.readWhole(calls) : this.#toolCalls.readPieces(calls);
    return delta;
  }
}

/** Reads an answer with several choices, each of them as the only one. Their chunks have their index. */
export class ChoicesReader implements WireReader {
  /** Reads the fields of the whole answer, which are sent once. */
  readonly #whole = new ChunkReader();
  readonly #readers: readonly ChunkReader[];
  readonly #progress = new ChoicesProgress();

  constructor(count: number) {
    this.#readers = Array.from({ length: count }, () => new ChunkReader(DETAILS_LENGTH_MAX / count));
  }

  /** True once all choices that have begun are finished: some upstreams send only one. */
  get isFinished(): boolean {
    return this.#progress.hasFinished(1);
  }

  get awaitsChoices(): boolean {
    return this.#progress.begun < this.#readers.length;
  }

  readAnswer(answer: JsonObject): UpstreamChunk[] {
    return this.readEvent(answer, true);
  }

  readEvent(answer: JsonObject, isWhole = false): UpstreamChunk[] {
    // Each becomes an event of its own, which may be several times larger.
    const choices = objectsIn(answer.choices).slice(0, this.#readers.length);
    if (isWhole && choices.length === 0) throw new UpstreamError("malformed", "The answer has no message");
    const { usage, ...fields } = this.#whole.readWhole(answer, choices.length > 0);
    const places = choices.map(({ index }, place) => choiceIndexOf(index ?? place));
    // Some servers number all choices 0. In a stream, nothing then tells them apart.
    const isNumbered = !isWhole || new Set(places.filter((index) => this.#readers[index])).size === choices.length;
    const chunks = choices.flatMap((choice, place) => {
      const index = isNumbered ? (places[place] ?? place) : place;
      const reader = this.#readers[index];
      if (reader === undefined) return [];
      const chunk = reader.readChoice(choice, isWhole, { index });
      this.#progress.add(chunk);
      return [chunk];
    });
    // A report goes last: text that follows it is charged in addition.
    return [fields, ...chunks, usage === undefined ? {} : { usage }].filter((chunk) => Object.keys(chunk).length > 0);
  }
}

/** Returns the index of a choice, which some upstreams write as a text; -1 if the value is none. */
function choiceIndexOf(value: unknown): number {
  return Number.isInteger(value) || (typeof value === "string" && /^\d+$/.test(value)) ? Number(value) : -1;
}

/** Returns the choice with index 0. A choice without an index counts as the first. */
function firstChoice(choices: unknown): JsonObject | undefined {
  if (!Array.isArray(choices)) return undefined;
  return choices.find((choice): choice is JsonObject => isObject(choice) && (choice.index ?? 0) === 0);
}

/** Returns the text of a choice as a message: in the completions API, a choice has a text in place of a message. */
function messageOf({ text }: JsonObject): JsonObject | undefined {
  return typeof text === "string" ? { content: text } : undefined;
}

function toText(content: unknown): string | null | undefined {
  if (typeof content === "string" || content === null) return content;
  if (!Array.isArray(content)) return undefined;
  return content.map((part) => (isTextPart(part) ? (textOf(part.text) ?? "") : "")).join("");
}

function isTextPart(part: unknown): part is JsonObject {
  return isObject(part) && part.type === "text";
}

/** Returns the counters of an upstream's `usage` unchecked; undefined if there is none. */
export function toUsage(value: unknown): UpstreamUsage | undefined {
  if (!isObject(value)) return undefined;
  const prompt = detailsOf(value.prompt_tokens_details);
  const completion = detailsOf(value.completion_tokens_details);
  const usage: UpstreamUsage = {
    prompt_tokens: value.prompt_tokens,
    completion_tokens: value.completion_tokens,
    cached_tokens: prompt.cached_tokens ?? value.prompt_cache_hit_tokens ?? value.cached_tokens,
    cache_write_tokens: prompt.cache_write_tokens,
    cache_write_1h_tokens: prompt.cache_write_1h_tokens,
    input_audio_tokens: prompt.audio_tokens,
    cached_audio_tokens: detailsOf(prompt.cached_tokens_details).audio_tokens,
    input_image_tokens: prompt.image_tokens,
    reasoning_tokens: completion.reasoning_tokens,
    output_audio_tokens: completion.audio_tokens,
    output_image_tokens: completion.image_tokens,
    // OpenRouter's name and Perplexity's.
    searches: detailsOf(value.server_tool_use).web_search_requests ?? value.num_search_queries,
    cost: value.cost,
  };
  return withReasoningBeside(usage, value.total_tokens);
}

/** Adds reasoning tokens that the upstream counts outside of the completion, as only its total shows. */
function withReasoningBeside(usage: UpstreamUsage, total: unknown): UpstreamUsage {
  const { prompt_tokens: prompt, completion_tokens: completion, reasoning_tokens: reasoning } = usage;
  if (typeof prompt !== "number" || typeof completion !== "number" || typeof total !== "number") return usage;
  const beside = total - prompt - completion;
  if (beside <= 0 || ((reasoning ?? 0) !== 0 && reasoning !== beside)) return usage;
  return { ...usage, completion_tokens: completion + beside, reasoning_tokens: beside };
}

/** Finish reasons that upstreams are known to use: OpenAI's own four, those of the Messages API ("Handling stop reasons"), others. */
const FINISH_REASONS: Readonly<Record<string, FinishReason | "failed">> = {
  stop: "stop",
  length: "length",
  tool_calls: "tool_calls",
  content_filter: "content_filter",
  end_turn: "stop",
  stop_sequence: "stop",
  pause_turn: "stop",
  max_tokens: "length",
  model_context_window_exceeded: "length",
  tool_use: "tool_calls",
  refusal: "content_filter",
  function_call: "tool_calls",
  tool_call: "tool_calls",
  model_length: "length",
  safety: "content_filter",
  sensitive: "content_filter",
  recitation: "content_filter",
  error: "failed",
  abort: "failed",
  insufficient_system_resource: "failed",
};

/**
 * Converts an upstream's finish reason to the API's. An unknown one is `stop`, and `stop` after tool calls is `tool_calls`:
 * Ollama and Gemini's compatible API end such an answer with `stop`, at which some clients would run no tool. Throws
 * UpstreamError if it means that the answer broke off.
 */
export function toFinishReason(value: string, hasToolCalls: boolean): FinishReason {
  const word = value.toLowerCase();
  const known = Object.hasOwn(FINISH_REASONS, word) ? FINISH_REASONS[word] : undefined;
  if (known === "failed") throw endedWith(value);
  const reason = known ?? "stop";
  return reason === "stop" && hasToolCalls ? "tool_calls" : reason;
}

/** Returns the failure of an answer that broke off with a finish reason. */
export function endedWith(reason: string): UpstreamError {
  return new UpstreamError("failed", `The upstream ended with '${reason.slice(0, 80)}'`);
}

/** Characters of the reasoning details of an answer, an equal part for each choice; more are not kept. */
const DETAILS_LENGTH_MAX = 128 * 1024;

/**
 * Collects OpenRouter's `reasoning_details`: signed reasoning, streamed in pieces. Some models require it to be sent back
 * with the results of tool calls ("Preserving reasoning" in OpenRouter's guide).
 */
export class ReasoningDetails {
  readonly #details = new Map<string, Record<string, unknown>>();
  /** Parts of the details that were added since the last chunk with details. */
  readonly #unsent = new Map<string, Record<string, unknown>>();
  /** Digests of the details' texts, and of the reasoning that was passed on in addition to the details. */
  readonly #added = createHash("sha256");
  readonly #sent = createHash("sha256");
  /** Characters that are kept; negative once there were more. */
  #lengthLeft: number;

  constructor(lengthMax: number) {
    this.#lengthLeft = lengthMax;
  }

  add(pieces: unknown): void {
    for (const piece of objectsIn(pieces)) {
      this.#lengthLeft -= JSON.stringify(piece).length;
      this.#added.update(textOfDetail(piece));
      for (const details of [this.#details, this.#unsent]) {
        if (this.#lengthLeft < 0) details.clear();
        else joinDetail(details, piece);
      }
    }
  }

  /** Returns all details in order; undefined if there are none, or too many to be sent back. */
  all(): JsonObject[] | undefined {
    return this.#details.size === 0 ? undefined : [...this.#details.values()];
  }

  /** Returns the details, or their parts, that were not returned before. */
  takeUnsent(): JsonObject[] {
    const unsent = [...this.#unsent.values()];
    this.#unsent.clear();
    return unsent;
  }

  noteSent(reasoning: string): void {
    this.#sent.update(reasoning);
  }

  /** Returns the texts of these details, or parts, if all details together are the reasoning that was passed on. */
  repeated(details: readonly JsonObject[]): Set<string> {
    const isRepeated = this.#added.copy().digest("hex") === this.#sent.copy().digest("hex");
    return new Set(isRepeated ? details.map(textOfDetail) : []);
  }
}

function textOfDetail({ text, summary }: JsonObject): string {
  return textOf(text) ?? textOf(summary) ?? "";
}
