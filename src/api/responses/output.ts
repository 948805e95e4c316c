import type { AnswerPiece } from "../answer.ts";
import { joinDetail } from "../answer-fold.ts";
import type { ToolCallDelta } from "../chat/completion.ts";
import type { ReasoningDetail } from "../chat/request.ts";
import { detailsOf, isObject, parseJson } from "../json.ts";
import { toEncryptedContent } from "./reasoning.ts";
import type { OutputItem } from "./response.ts";
import { type CalledTool, customInputOf } from "./tools.ts";
import { isTranslated, translatedCall } from "./typed-tools.ts";

/** Takes an event of an answer. For a piece of a text, `fields` is the same object for all its pieces. */
export type EmitEvent = (type: string, fields: object, delta?: string, logprobs?: readonly unknown[]) => void;

type Item<T extends OutputItem["type"]> = Extract<OutputItem, { type: T }>;
type Part = Item<"message">["content"][number];

/** An item that further pieces may continue. */
interface Open<T extends OutputItem> {
  item: T;
  place: { item_id: string; output_index: number; summary_index?: number };
}

interface OpenPart {
  part: Part;
  place: Open<OutputItem>["place"] & { content_index: number };
}

/** A call of a tool. Calls other than those of functions become items when their arguments are complete. */
interface Call {
  tool: CalledTool;
  callId: string;
  text: string;
  /** True if the arguments are the input itself, not those of a function that stands for a custom tool. */
  isCustom: boolean;
  extra: unknown;
  open?: Open<Item<"function_call">>;
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
  readonly #emit: EmitEvent;
  #reasoning: Open<Item<"reasoning">> | undefined;
  readonly #details = new Map<string, Record<string, unknown>>();
  #message: Open<Item<"message">> | undefined;
  #part: OpenPart | undefined;
  /** Open until the answer ends, because upstreams may send the pieces of several calls in any order. */
  readonly #calls = new Map<number, Call>();

  constructor(options: OutputOptions, emit: EmitEvent = () => {}) {
    this.#options = options;
    this.#emit = emit;
  }

  add({ delta, logprobs }: AnswerPiece): void {
    if (delta === undefined) return;
    if (delta.reasoning_content) this.#think(delta.reasoning_content);
    if (delta.reasoning_details !== undefined && delta.reasoning_details.length > 0) {
      this.#openReasoning();
      for (const detail of delta.reasoning_details) joinDetail(this.#details, detail);
    }
    if (delta.content) this.#say(delta.content, logprobs);
    for (const annotation of delta.annotations ?? []) this.#annotate(annotation);
    if (delta.refusal) this.#refuse(delta.refusal);
    for (const call of delta.tool_calls ?? []) this.#call(call);
  }

  /** Ends all items. An answer that was cut at its bound leaves the last one incomplete. */
  end(isIncomplete: boolean): void {
    const calls = [...this.#calls.values()];
    const count = this.items.length + calls.filter(({ open }) => open === undefined).length;
    if (count === 0 && !isIncomplete) this.#openPart("output_text");
    const last = isIncomplete ? count - 1 : -1;
    this.#closeReasoning(last);
    this.#closeMessage(last);
    for (const call of calls) this.#closeCall(call, last);
    const extras = calls.filter(({ extra }) => extra !== undefined).map(({ callId, extra }) => [callId, extra]);
    if (extras.length === 0) return;
    const state = this.#openItem(this.#newReasoning());
    state.item.encrypted_content = toEncryptedContent({ calls: Object.fromEntries(extras) });
    this.#done(state, -1);
  }

  #think(text: string): void {
    const { item, place } = this.#openReasoning();
    const part = item.summary[0] ?? { type: "summary_text" as const, text: "" };
    if (item.summary.length === 0) {
      this.#emit("response.reasoning_summary_part.added", { ...place, part });
      item.summary.push(part);
    }
    part.text += text;
    this.#emit("response.reasoning_summary_text.delta", place, text);
  }

  #newReasoning(): Item<"reasoning"> {
    return { id: this.#newId("rs"), type: "reasoning", summary: [], status: "in_progress" };
  }

  #openReasoning(): Open<Item<"reasoning">> {
    if (this.#reasoning !== undefined) return this.#reasoning;
    this.#closeMessage(-1);
    const opened = this.#openItem(this.#newReasoning());
    this.#reasoning = { ...opened, place: { ...opened.place, summary_index: 0 } };
    return this.#reasoning;
  }

  #closeReasoning(last: number): void {
    const open = this.#reasoning;
    if (open === undefined) return;
    this.#reasoning = undefined;
    const { item, place } = open;
    const [part] = item.summary;
    if (part !== undefined) {
      this.#emit("response.reasoning_summary_text.done", { ...place, text: part.text });
      this.#emit("response.reasoning_summary_part.done", { ...place, part });
    }
    const details = [...this.#details.values()] as ReasoningDetail[];
    if (details.length > 0) item.encrypted_content = toEncryptedContent({ details });
    this.#details.clear();
    this.#done(open, last);
  }

  #say(text: string, logprobs: unknown): void {
    const { place, part } = this.#openPart("output_text");
    if (part.type !== "output_text") return;
    const { content } = detailsOf(logprobs);
    const given: unknown[] = this.#options.hasLogprobs && Array.isArray(content) ? content : [];
    part.text += text;
    part.logprobs.push(...given);
    this.#emit("response.output_text.delta", place, text, given);
  }

  #annotate(given: unknown): void {
    const { place, part } = this.#openPart("output_text");
    if (part.type !== "output_text") return;
    const annotation = toAnnotation(given);
    const annotation_index = part.annotations.length;
    part.annotations.push(annotation);
    this.#emit("response.output_text.annotation.added", { ...place, annotation_index, annotation });
  }

  #refuse(text: string): void {
    const { place, part } = this.#openPart("refusal");
    if (part.type !== "refusal") return;
    part.refusal += text;
    this.#emit("response.refusal.delta", place, text);
  }

  /** Returns the part that a piece continues: the last one of the open message if it has the same type. */
  #openPart(type: Part["type"]): OpenPart {
    const { item, place } = this.#openMessage();
    if (this.#part?.part.type === type) return this.#part;
    this.#closePart();
    const part: Part = type === "refusal" ? { type, refusal: "" } : { type, text: "", annotations: [], logprobs: [] };
    this.#part = { part, place: { ...place, content_index: item.content.length } };
    item.content.push(part);
    this.#emit("response.content_part.added", { ...this.#part.place, part });
    return this.#part;
  }

  #openMessage(): Open<Item<"message">> {
    if (this.#message !== undefined) return this.#message;
    this.#closeReasoning(-1);
    const id = this.#newId("msg");
    this.#message = this.#openItem({ id, type: "message", status: "in_progress", role: "assistant", content: [] });
    return this.#message;
  }

  #closeMessage(last: number): void {
    const open = this.#message;
    if (open === undefined) return;
    this.#message = undefined;
    this.#closePart();
    this.#done(open, last);
  }

  #closePart(): void {
    if (this.#part === undefined) return;
    const { part, place } = this.#part;
    this.#part = undefined;
    if (part.type === "refusal") this.#emit("response.refusal.done", { ...place, refusal: part.refusal });
    else this.#emit("response.output_text.done", { ...place, text: part.text, logprobs: part.logprobs });
    this.#emit("response.content_part.done", { ...place, part });
  }

  #call({ index, id = "", function: called, extra_content: extra, isCustom }: ToolCallDelta): void {
    const call = this.#calls.get(index) ?? this.#beginCall(index, id, called?.name ?? "", isCustom === true);
    if (extra !== undefined) call.extra = extra;
    const text = called?.arguments ?? "";
    call.text += text;
    if (text === "" || call.open === undefined) return;
    call.open.item.arguments = call.text;
    this.#emit("response.function_call_arguments.delta", call.open.place, text);
  }

  #beginCall(index: number, callId: string, name: string, isCustom: boolean): Call {
    this.#closeReasoning(-1);
    this.#closeMessage(-1);
    const tool = this.#options.tools.get(name) ?? { type: isCustom ? "custom" : "function", name };
    const call: Call = { tool, callId, text: "", isCustom, extra: undefined };
    if (tool.type === "function") {
      const { type: _type, ...named } = tool;
      const common = { id: this.#newId("fc"), status: "in_progress" as const, call_id: callId };
      call.open = this.#openItem({ ...common, type: "function_call", ...named, arguments: "" });
    }
    this.#calls.set(index, call);
    return call;
  }

  #closeCall({ tool, callId, text, isCustom, open }: Call, last: number): void {
    if (open !== undefined) {
      const { name, arguments: given } = open.item;
      this.#emit("response.function_call_arguments.done", { ...open.place, name, arguments: given });
      this.#done(open, last);
      return;
    }
    const { type, ...named } = tool;
    const common = { status: "in_progress" as const, call_id: callId };
    if (isTranslated(type)) {
      const { prefix, fields } = translatedCall(type, parseJson(text));
      this.#done(this.#openItem<OutputItem>({ id: this.#newId(prefix), ...common, ...fields }), last);
    } else if (type === "tool_search") {
      const given = text === "" ? {} : parseJson(text);
      // A text that is not JSON stays one.
      const fields = {
        type: "tool_search_call",
        execution: "client",
        arguments: given === undefined ? text : given,
      } as const;
      this.#done(this.#openItem({ id: this.#newId("tsc"), ...common, ...fields }), last);
    } else {
      const call = { id: this.#newId("ctc"), ...common, ...named, type: "custom_tool_call" as const, input: "" };
      const opened = this.#openItem(call);
      call.input = isCustom ? text : customInputOf(text);
      this.#emit("response.custom_tool_call_input.delta", opened.place, call.input);
      this.#emit("response.custom_tool_call_input.done", { ...opened.place, input: call.input });
      this.#done(opened, last);
    }
  }

  #openItem<T extends OutputItem>(item: T): Open<T> {
    const index = this.items.length;
    this.items.push(item);
    this.#emit("response.output_item.added", { output_index: index, item });
    return { item, place: { item_id: item.id, output_index: index } };
  }

  #done({ item, place: { output_index: index } }: Open<OutputItem>, last: number): void {
    const cut = item.type === "apply_patch_call" ? "in_progress" : "incomplete";
    item.status = index === last ? cut : "completed";
    this.#emit("response.output_item.done", { output_index: index, item });
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
