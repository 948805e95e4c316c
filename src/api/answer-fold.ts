import { type AnswerPiece, NATIVE_DOCUMENT } from "./answer.ts";
import type { Delta, OtherFields, ReplyMessage, ToolCallDelta } from "./chat/completion.ts";
import type { ReasoningDetail, ToolCall } from "./chat/request.ts";
import type { EmbeddingVector } from "./embeddings/vector.ts";
import { isObject, type JsonObject } from "./json.ts";

interface Logprobs {
  content: unknown[] | null;
  refusal: unknown[] | null;
}

type Fields = Record<string, unknown>;

const TEXTS = ["content", "refusal", "reasoning_content"] as const;

/** Folds the pieces of an answer into one message. */
export class AnswerFold {
  readonly #texts: { [Name in (typeof TEXTS)[number]]?: string } = {};
  readonly #details = new Map<string, Fields>();
  /** The whole answer on the upstream's own wire, if the request went out on that wire and the answer is not streamed. */
  document: Readonly<Record<string, unknown>> | undefined;
  vectors: readonly EmbeddingVector[] | undefined;
  /** Null where there are none. */
  logprobs: Logprobs | null = null;
  readonly #calls = new Map<number, ToolCall>();
  readonly #media: Fields = {};
  readonly #others: Fields = {};
  /** The fields of the whole answer that this service only passes on. */
  readonly whole: Fields = {};
  /** The fields beside the message that this service only passes on. */
  readonly choice: Fields = {};
  /** The folds of all choices by their index; the first is this one. */
  readonly #choices: AnswerFold[] = [this];

  /** All choices with their index, in its order. An upstream may leave out others than the first. */
  get choices(): [number, AnswerFold][] {
    return this.#choices.flatMap((fold, index) => [[index, fold]]);
  }

  add(pieces: readonly AnswerPiece[]): void {
    for (const piece of pieces) {
      if (piece.whole !== undefined) Object.assign(this.whole, piece.whole);
      const fold = this.#choices[piece.index ?? 0] ?? new AnswerFold();
      this.#choices[piece.index ?? 0] = fold;
      fold.#addPiece(piece);
    }
  }

  #addPiece({ delta, logprobs, native, choice, vectors }: AnswerPiece): void {
    if (vectors !== undefined) this.vectors = vectors;
    const document = native?.find(({ type }) => type === NATIVE_DOCUMENT);
    if (document !== undefined) this.document = document.data;
    if (delta !== undefined) this.#add(delta);
    if (logprobs !== undefined && logprobs !== null) this.#addLogprobs(logprobs);
    if (choice !== undefined) Object.assign(this.choice, choice);
  }

  message(): ReplyMessage {
    const { content, refusal = null, reasoning_content } = this.#texts;
    const hasMedia = this.#media.audio !== undefined || this.#media.images !== undefined;
    const saysNothing = this.#calls.size > 0 || refusal !== null || hasMedia;
    const message: ReplyMessage = { role: "assistant", content: content ?? (saysNothing ? null : ""), refusal };
    if (this.#calls.size > 0) message.tool_calls = [...this.#calls.values()];
    if (reasoning_content !== undefined) message.reasoning_content = reasoning_content;
    if (this.#details.size > 0) message.reasoning_details = [...this.#details.values()] as ReasoningDetail[];
    Object.assign(message, this.#media);
    if (Object.keys(this.#others).length > 0) message.others = this.#others;
    return message;
  }

  #add(delta: Delta): void {
    for (const name of TEXTS) if (delta[name]) this.#texts[name] = (this.#texts[name] ?? "") + delta[name];
    for (const detail of delta.reasoning_details ?? []) joinDetail(this.#details, detail);
    for (const call of delta.tool_calls ?? []) joinCall(this.#calls, call);
    const { annotations, audio, images, others } = delta;
    addJoined(this.#media, { annotations, audio, images });
    addJoined(this.#others, others);
  }

  #addLogprobs(given: Partial<Record<keyof Logprobs, unknown>>): void {
    this.logprobs ??= { content: null, refusal: null };
    for (const name of ["content", "refusal"] as const) {
      const more = given[name];
      if (!Array.isArray(more)) continue;
      const all = this.logprobs[name] ?? [];
      for (const one of more) all.push(one);
      this.logprobs[name] = all;
    }
  }
}

/** Adds a piece of a tool call to the calls of an answer, by their index. */
export function joinCall(
  calls: Map<number, ToolCall>,
  { index, id, function: called, extra_content, isCustom }: ToolCallDelta,
): void {
  const begun = calls.get(index);
  const call: ToolCall = begun ?? { id: id ?? "", type: "function", function: { name: "", arguments: "" } };
  if (begun === undefined) calls.set(index, call);
  if (isCustom === true) call.isCustom = true;
  call.function.name += called?.name ?? "";
  call.function.arguments += called?.arguments ?? "";
  if (extra_content !== undefined) call.extra_content = extra_content;
}

/** Fields of a reasoning detail whose text continues that of the part before. */
const GROWING = new Set(["text", "summary", "data"]);

/** Adds a reasoning detail, or a part of one, to those of an answer. Parts with the same type and index are joined. */
export function joinDetail(details: Map<string, Fields>, part: JsonObject): void {
  const key = `${part.type} ${typeof part.index === "number" ? part.index : `after ${details.size}`}`;
  const begun = details.get(key) ?? {};
  details.set(key, begun);
  for (const name in part) {
    begun[name] = (GROWING.has(name) ? joined(name, begun[name], part[name]) : (part[name] ?? begun[name])) ?? null;
  }
}

function addJoined(fields: Fields, more: OtherFields = {}): void {
  for (const name in more) {
    if (more[name] !== undefined) fields[name] = joined(name, fields[name], more[name]);
  }
}

/** Texts that name something, and are complete in the piece that has them. */
const NAMES = new Set(["id", "type", "role", "name", "format", "model"]);

/** Joins a field with its next piece as OpenAI's clients do: texts and lists grow, objects are joined field by field. */
function joined(name: string, before: unknown, next: unknown): unknown {
  if (before === undefined || before === null) return next;
  if (next === undefined || next === null) return before;
  if (typeof before === "string" && typeof next === "string") return NAMES.has(name) ? next : before + next;
  if (Array.isArray(before) && Array.isArray(next)) return [...before, ...next];
  if (!isObject(before) || !isObject(next)) return next;
  // One level: a piece of an answer has no deeper text.
  const fields: Fields = { ...before };
  for (const [inner, value] of Object.entries(next)) {
    const had = fields[inner];
    const isText = typeof had === "string" && typeof value === "string" && !NAMES.has(inner);
    fields[inner] = isText ? had + value : value;
  }
  return fields;
}
