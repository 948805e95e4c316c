import type { AnswerPiece } from "../answer.ts";
import type { ToolCallDelta } from "../chat/completion.ts";
import type { ReasoningDetail } from "../chat/request.ts";
import { isObject, parseJson } from "../json.ts";
import { toEncryptedContent } from "./reasoning.ts";
import type { OutputItem } from "./response.ts";
import { argumentsOf, type CalledTool, customInputOf } from "./tools.ts";
import { isTranslated, type TranslatedType, translatedCall } from "./typed-tools.ts";

/** Takes the events of an answer: their type and their fields besides the sequence number. */
export interface OutputEvents {
  emit(type: string, fields: object): void;
  /** Adds a piece of a text. `place` is the same object for all pieces of one text. */
  emitDelta(type: string, place: object, delta: string, logprobs?: readonly unknown[]): void;
}

const NO_EVENTS: OutputEvents = { emit() {}, emitDelta() {} };

type Item<T extends OutputItem["type"]> = Extract<OutputItem, { type: T }>;
type StreamedItem = Item<"function_call"> | Item<"custom_tool_call"> | Item<"tool_search_call">;
type Part = Item<"message">["content"][number];

/** An item that further pieces may continue. */
interface Open<T extends OutputItem> {
  item: T;
  index: number;
  /** Fields of the events that are about its text. */
  place: { item_id: string; output_index: number };
}

interface OpenPart {
  part: Part;
  place: Open<OutputItem>["place"] & { content_index: number };
}

interface OpenCall extends Open<StreamedItem> {
  /** The arguments as the upstream sends them. */
  text: string;
  /** True if the arguments are the input itself, not those of a function that stands for a custom tool. */
  isCustom: boolean;
  extra: unknown;
}

/** A call of a tool that OpenAI defines: its item has no place for a part of the arguments. */
interface WaitingCall {
  type: TranslatedType;
  callId: string;
  text: string;
  extra: unknown;
}

export interface OutputOptions {
  /** 32 hexadecimal digits. */
  answerId: string;
  /** The tools that are not functions or have a namespace, by their names in the internal form. */
  tools: ReadonlyMap<string, CalledTool>;
  hasLogprobs: boolean;
}

/** Builds the output items of an answer from its pieces, and emits the events that a stream consists of. */
export class OutputBuilder {
  readonly items: OutputItem[] = [];
  readonly #options: OutputOptions;
  readonly #events: OutputEvents;
  #reasoning: Open<Item<"reasoning">> | undefined;
  #details: ReasoningDetail[] = [];
  #message: Open<Item<"message">> | undefined;
  /** The last part of the open message. */
  #part: OpenPart | undefined;
  /** Open until the answer ends, because upstreams may send the pieces of several calls in any order. */
  readonly #calls = new Map<number, OpenCall>();
  readonly #waiting = new Map<number, WaitingCall>();

  /** Without `events` it only builds the items. */
  constructor(options: OutputOptions, events: OutputEvents = NO_EVENTS) {
    this.#options = options;
    this.#events = events;
  }

  add({ delta, logprobs }: AnswerPiece): void {
    if (delta === undefined) return;
    if (delta.reasoning_content) this.#think(delta.reasoning_content);
    if (delta.reasoning_details !== undefined && delta.reasoning_details.length > 0) {
      this.#openReasoning();
      this.#details.push(...delta.reasoning_details);
    }
    if (delta.content) this.#say(delta.content, logprobs);
    for (const annotation of delta.annotations ?? []) this.#annotate(annotation);
    if (delta.refusal) this.#refuse(delta.refusal);
    for (const call of delta.tool_calls ?? []) this.#call(call);
  }

  /** Ends all items. An answer that was cut at its bound leaves the last one incomplete. */
  end(isIncomplete: boolean): void {
    if (this.items.length + this.#waiting.size === 0 && !isIncomplete) this.#openPart("output_text");
    const last = isIncomplete ? this.items.length + this.#waiting.size - 1 : -1;
    this.#closeReasoning(last);
    this.#closeMessage(last);
    for (const call of this.#calls.values()) this.#closeCall(call, last);
    for (const call of this.#waiting.values()) this.#addWhole(call, last);
    const opened = [...this.#calls.values()].map(({ item, extra }) => ({ callId: item.call_id, extra }));
    const extras = [...opened, ...this.#waiting.values()].filter(({ extra }) => extra !== undefined);
    if (extras.length === 0) return;
    const { item, index } = this.#open<Item<"reasoning">>({
      id: this.#newId("rs"),
      type: "reasoning",
      summary: [],
      status: "in_progress",
    });
    item.encrypted_content = toEncryptedContent({
      calls: Object.fromEntries(extras.map(({ callId, extra }) => [callId, extra])),
    });
    this.#done(item, index, -1);
  }

  #think(text: string): void {
    const { item, place } = this.#openReasoning();
    const part = item.summary[0] ?? { type: "summary_text" as const, text: "" };
    if (item.summary.length === 0) {
      this.#events.emit("response.reasoning_summary_part.added", { ...place, part });
      item.summary.push(part);
    }
    part.text += text;
    this.#events.emitDelta("response.reasoning_summary_text.delta", place, text);
  }

  #openReasoning(): Open<Item<"reasoning">> {
    if (this.#reasoning !== undefined) return this.#reasoning;
    this.#closeMessage(-1);
    const opened = this.#open({
      id: this.#newId("rs"),
      type: "reasoning" as const,
      summary: [],
      status: "in_progress",
    });
    const place = { ...opened.place, summary_index: 0 };
    this.#reasoning = { ...opened, place };
    return this.#reasoning;
  }

  #closeReasoning(last: number): void {
    const open = this.#reasoning;
    if (open === undefined) return;
    this.#reasoning = undefined;
    const { item, index, place } = open;
    const [part] = item.summary;
    if (part !== undefined) {
      this.#events.emit("response.reasoning_summary_text.done", { ...place, text: part.text });
      this.#events.emit("response.reasoning_summary_part.done", { ...place, part });
    }
    if (this.#details.length > 0) item.encrypted_content = toEncryptedContent({ details: this.#details });
    this.#details = [];
    this.#done(item, index, last);
  }

  #say(text: string, logprobs: unknown): void {
    const { place, part } = this.#openPart("output_text");
    if (part.type !== "output_text") return;
    const given = this.#options.hasLogprobs ? contentLogprobs(logprobs) : [];
    part.text += text;
    part.logprobs.push(...given);
    this.#events.emitDelta("response.output_text.delta", place, text, given);
  }

  #annotate(given: unknown): void {
    const { place, part } = this.#openPart("output_text");
    if (part.type !== "output_text") return;
    const annotation = toAnnotation(given);
    const annotation_index = part.annotations.length;
    part.annotations.push(annotation);
    this.#events.emit("response.output_text.annotation.added", { ...place, annotation_index, annotation });
  }

  #refuse(text: string): void {
    const { place, part } = this.#openPart("refusal");
    if (part.type !== "refusal") return;
    part.refusal += text;
    this.#events.emitDelta("response.refusal.delta", place, text);
  }

  /** Returns the part that a piece continues: the last one of the open message if it has the same type. */
  #openPart(type: Part["type"]): OpenPart {
    const { item, place } = this.#openMessage();
    if (this.#part?.part.type === type) return this.#part;
    this.#closePart();
    const part: Part = type === "refusal" ? { type, refusal: "" } : { type, text: "", annotations: [], logprobs: [] };
    this.#part = { part, place: { ...place, content_index: item.content.length } };
    item.content.push(part);
    this.#events.emit("response.content_part.added", { ...this.#part.place, part });
    return this.#part;
  }

  #openMessage(): Open<Item<"message">> {
    if (this.#message !== undefined) return this.#message;
    this.#closeReasoning(-1);
    const opened = this.#open({
      id: this.#newId("msg"),
      type: "message" as const,
      status: "in_progress",
      role: "assistant" as const,
      content: [],
    });
    this.#message = opened;
    return opened;
  }

  #closeMessage(last: number): void {
    const open = this.#message;
    if (open === undefined) return;
    this.#message = undefined;
    this.#closePart();
    this.#done(open.item, open.index, last);
  }

  #closePart(): void {
    if (this.#part === undefined) return;
    const { part, place } = this.#part;
    this.#part = undefined;
    if (part.type === "refusal") this.#events.emit("response.refusal.done", { ...place, refusal: part.refusal });
    else this.#events.emit("response.output_text.done", { ...place, text: part.text, logprobs: part.logprobs });
    this.#events.emit("response.content_part.done", { ...place, part });
  }

  #call({ index, id, function: called, extra_content: extra, isCustom }: ToolCallDelta): void {
    const known = this.#calls.get(index) ?? this.#waiting.get(index);
    const call = known ?? this.#openCall(index, id ?? "", called?.name ?? "", isCustom === true);
    if (extra !== undefined) call.extra = extra;
    const text = called?.arguments ?? "";
    call.text += text;
    if (text === "" || !("item" in call) || call.item.type !== "function_call") return;
    call.item.arguments = call.text;
    this.#events.emitDelta("response.function_call_arguments.delta", call.place, text);
  }

  #openCall(callIndex: number, callId: string, name: string, isCustom: boolean): OpenCall | WaitingCall {
    this.#closeReasoning(-1);
    this.#closeMessage(-1);
    const { type, ...called }: CalledTool = this.#options.tools.get(name) ?? { type: "function", name };
    if (isTranslated(type)) {
      const waiting = { type, callId, text: "", extra: undefined };
      this.#waiting.set(callIndex, waiting);
      return waiting;
    }
    const common = { status: "in_progress" as const, call_id: callId };
    const item: StreamedItem =
      type === "tool_search"
        ? { id: this.#newId("tsc"), type: "tool_search_call", ...common, execution: "client", arguments: {} }
        : isCustom || type === "custom"
          ? { id: this.#newId("ctc"), type: "custom_tool_call", ...common, ...called, input: "" }
          : { id: this.#newId("fc"), type: "function_call", ...common, ...called, arguments: "" };
    const call: OpenCall = { ...this.#open(item), text: "", isCustom, extra: undefined };
    this.#calls.set(callIndex, call);
    return call;
  }

  #closeCall({ item, index, place, text, isCustom }: OpenCall, last: number): void {
    if (item.type === "function_call") {
      const { name, arguments: given } = item;
      this.#events.emit("response.function_call_arguments.done", { ...place, name, arguments: given });
    } else if (item.type === "tool_search_call") {
      item.arguments = argumentsOf(text);
    } else {
      item.input = isCustom ? text : customInputOf(text);
      this.#events.emitDelta("response.custom_tool_call_input.delta", place, item.input);
      this.#events.emit("response.custom_tool_call_input.done", { ...place, input: item.input });
    }
    this.#done(item, index, last);
  }

  #addWhole({ type, callId, text }: WaitingCall, last: number): void {
    const { prefix, fields } = translatedCall(type, parseJson(text));
    const common = { id: this.#newId(prefix), status: "in_progress" as const, call_id: callId };
    const { item, index } = this.#open<OutputItem>({ ...common, ...fields });
    this.#done(item, index, last);
  }

  #open<T extends OutputItem>(item: T): Open<T> {
    const index = this.items.length;
    this.items.push(item);
    this.#events.emit("response.output_item.added", { output_index: index, item });
    return { item, index, place: { item_id: item.id, output_index: index } };
  }

  #done(item: OutputItem, index: number, last: number): void {
    const cut = item.type === "apply_patch_call" ? "in_progress" : "incomplete";
    item.status = index === last ? cut : "completed";
    this.#events.emit("response.output_item.done", { output_index: index, item });
  }

  /** Ids contain that of the answer, so that they are unique among answers. */
  #newId(prefix: string): string {
    return `${prefix}_${this.#options.answerId}${this.items.length.toString(16).padStart(4, "0")}`;
  }
}

/** Chat completions have the fields of a citation one level deeper. */
function toAnnotation(annotation: unknown): unknown {
  if (!isObject(annotation) || !isObject(annotation.url_citation)) return annotation;
  const { url_citation: citation, ...others } = annotation;
  return { ...others, start_index: 0, end_index: 0, title: "", ...citation };
}

function contentLogprobs(logprobs: unknown): unknown[] {
  const content = (logprobs as { content?: unknown } | null | undefined)?.content;
  return Array.isArray(content) ? content : [];
}
