import type { AnswerEnd, AnswerHead, AnswerPiece, NativeEvent } from "../answer.ts";
import type { Delta, ToolCallDelta } from "../chat/completion.ts";
import type { ReasoningDetail } from "../chat/request.ts";
import { parseJson } from "../json.ts";
import type { AddEvent, EventEncoder, PublicError } from "../wire.ts";
import { errorEvent } from "./errors.ts";
import { citationsOf, endingOf, messageStart, toMessageUsage, toToolUseId } from "./message.ts";
import { type ReasoningBlock, toCallStateBlock, toReasoningBlock } from "./reasoning.ts";

/** Returns an event as text. */
function eventOf(data: { type: string; [field: string]: unknown }): string {
  return `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Writes a streamed answer in the format of Anthropic's Messages API. */
export class MessageEventEncoder implements EventEncoder {
  readonly keepAlive = eventOf({ type: "ping" });
  readonly #add: AddEvent;
  readonly #blocks: BlockEvents;
  /** The upstream's own end of the answer. */
  #ending: object | undefined;
  #hasRefusal = false;

  constructor(head: AnswerHead, add: AddEvent) {
    this.#add = add;
    this.#blocks = new BlockEvents(add);
    add(eventOf({ type: "message_start", message: messageStart(head) }));
  }

  push(pieces: readonly AnswerPiece[]): void {
    for (const { delta, native } of pieces) {
      if (native !== undefined) this.#passOn(native);
      else if (delta !== undefined) this.#addDelta(delta);
    }
  }

  close({ finishReason, usage }: AnswerEnd): void {
    this.#blocks.end();
    const calls = this.#blocks.hasCalls ? { tool_calls: [] } : {};
    const ending = this.#ending ?? endingOf(finishReason, { refusal: this.#hasRefusal ? "" : null, ...calls });
    this.#add(eventOf({ type: "message_delta", delta: ending, usage: toMessageUsage(usage) }));
    this.#add(eventOf({ type: "message_stop" }));
  }

  fail(error: PublicError): void {
    this.#add(eventOf(errorEvent(error)));
  }

  #passOn(events: readonly NativeEvent[]): void {
    for (const { type, data } of events) {
      if (type === "message_delta") this.#ending = { ...this.#ending, ...data };
      else this.#add(eventOf({ ...data, type }));
    }
  }

  #addDelta(delta: Delta): void {
    const { reasoning_content, reasoning_details = [], content, annotations = [], refusal, tool_calls = [] } = delta;
    this.#blocks.addReasoning(reasoning_content ?? "", reasoning_details);
    if (content) this.#blocks.addText(content);
    for (const citation of citationsOf(annotations)) this.#blocks.addCitation(citation);
    if (refusal) {
      this.#hasRefusal = true;
      this.#blocks.addText(refusal);
    }
    for (const call of tool_calls) this.#blocks.addCall(call);
  }
}

/** A tool call of the answer. */
interface StreamedCall {
  id: string;
  name: string;
  arguments: string;
  extraContent: unknown;
  state: "waiting" | "open" | "closed";
}

/** Writes the content blocks of an answer one after the other, as the wire requires. */
class BlockEvents {
  #index = -1;
  #open: "text" | "thinking" | StreamedCall | undefined;
  readonly #calls = new Map<number, StreamedCall>();
  readonly #add: AddEvent;

  constructor(add: AddEvent) {
    this.#add = add;
  }

  get hasCalls(): boolean {
    return this.#calls.size > 0;
  }

  addText(text: string): void {
    if (this.#open !== "text") this.#begin("text", { type: "text", text: "" });
    this.#extend(`{"type":"text_delta","text":${JSON.stringify(text)}}`);
  }

  /** Adds a source of the text, which has to be in a block of text. */
  addCitation(citation: object): void {
    if (this.#open !== "text") this.#begin("text", { type: "text", text: "" });
    this.#extend(`{"type":"citations_delta","citation":${JSON.stringify(citation)}}`);
  }

  /**
   * Adds streamed text of reasoning, and the blocks that it ends. A delta with whole blocks may repeat their text, because
   * it contains a whole message; the text is then that of the blocks.
   */
  addReasoning(text: string, details: readonly ReasoningDetail[]): void {
    const isRepeated = this.#open !== "thinking" && details.some(({ type }) => type !== "reasoning.encrypted");
    if (text !== "" && !isRepeated) this.#addThinking(text);
    for (const detail of details) {
      const block = toReasoningBlock(detail);
      if (block.type === "redacted_thinking") this.#addWhole(block);
      else {
        if (this.#open !== "thinking") this.#addThinking(block.thinking);
        this.#extend(`{"type":"signature_delta","signature":${JSON.stringify(block.signature)}}`);
        this.#close();
      }
    }
  }

  /**
   * Adds a part of a tool call. Parts of other calls wait while the arguments of the open one are incomplete, because
   * blocks cannot overlap.
   */
  addCall({ index, id, function: called, extra_content }: ToolCallDelta): void {
    const call = this.#callAt(index, id ?? "");
    call.name += call.state === "waiting" ? (called?.name ?? "") : "";
    call.arguments += called?.arguments ?? "";
    if (extra_content !== undefined) call.extraContent = extra_content;
    if (call.state === "open") this.#addArguments(called?.arguments ?? "");
    else if (call.state === "waiting" && !this.#isInCall()) this.#beginCall(call);
  }

  /** Ends the content. */
  end(): void {
    this.#close();
    for (const call of this.#calls.values()) if (call.state === "waiting") this.#beginCall(call);
    this.#close();
  }

  #callAt(index: number, id: string): StreamedCall {
    const known = this.#calls.get(index);
    if (known !== undefined) return known;
    const call: StreamedCall = {
      id: toToolUseId(id),
      name: "",
      arguments: "",
      extraContent: undefined,
      state: "waiting",
    };
    this.#calls.set(index, call);
    return call;
  }

  /** True if the arguments of the open call are incomplete. */
  #isInCall(): boolean {
    return typeof this.#open === "object" && parseJson(this.#open.arguments) === undefined;
  }

  #beginCall(call: StreamedCall): void {
    this.#begin(call, { type: "tool_use", id: call.id, name: call.name, input: {} });
    call.state = "open";
    this.#addArguments(call.arguments);
  }

  #addArguments(text: string): void {
    if (text !== "") this.#extend(`{"type":"input_json_delta","partial_json":${JSON.stringify(text)}}`);
  }

  #addThinking(text: string): void {
    if (this.#open !== "thinking") this.#begin("thinking", { type: "thinking", thinking: "", signature: "" });
    if (text !== "") this.#extend(`{"type":"thinking_delta","thinking":${JSON.stringify(text)}}`);
  }

  #addWhole(block: ReasoningBlock): void {
    this.#begin(undefined, block);
    this.#add(eventOf({ type: "content_block_stop", index: this.#index }));
  }

  #begin(open: "text" | "thinking" | StreamedCall | undefined, block: object): void {
    this.#close();
    this.#index += 1;
    this.#open = open;
    this.#add(eventOf({ type: "content_block_start", index: this.#index, content_block: block }));
  }

  /** Adds a delta, given as JSON. */
  #extend(delta: string): void {
    this.#add(
      `event: content_block_delta\ndata: {"type":"content_block_delta","index":${this.#index},"delta":${delta}}\n\n`,
    );
  }

  #close(): void {
    const closed = this.#open;
    if (closed === undefined) return;
    this.#open = undefined;
    this.#add(eventOf({ type: "content_block_stop", index: this.#index }));
    if (typeof closed !== "object") return;
    closed.state = "closed";
    if (closed.extraContent !== undefined) this.#addWhole(toCallStateBlock(closed.id, closed.extraContent));
  }
}
