import type { AnswerEnd, AnswerHead, NativeEvent } from "../answer.ts";
import type { AnswerFold } from "../answer-fold.ts";
import type { Delta, ToolCallDelta } from "../chat/completion.ts";
import type { ReasoningDetail } from "../chat/request.ts";
import { argumentsObject, parseJson } from "../json.ts";
import type { AddEvent, EventEncoder } from "../wire.ts";
import { errorEvent } from "./errors.ts";
import { citationsOf, endingOf, messageStart, type OutputBlock, toMessageUsage, toToolUseId } from "./message.ts";
import { type ReasoningBlock, toCallStateBlock, toReasoningBlock } from "./reasoning.ts";

function eventOf(data: { type: string; [field: string]: unknown }): string {
  return `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** Returns the encoder of a streamed answer in the format of Anthropic's Messages API. */
export function messageEvents(head: AnswerHead, add: AddEvent): EventEncoder {
  const blocks = new MessageBlocks(add);
  let ending: object | undefined;
  const passOn = ({ type, data }: NativeEvent) => {
    if (type === "message_delta") ending = { ...ending, ...data };
    else add(eventOf({ ...data, type }));
  };
  let hasBegun = false;
  return {
    keepAlive: eventOf({ type: "ping" }),
    push(pieces) {
      if (!hasBegun) add(eventOf({ type: "message_start", message: messageStart(head, pieces[0]) }));
      hasBegun = true;
      for (const { delta, native } of pieces) {
        if (native !== undefined) native.forEach(passOn);
        else if (delta !== undefined) blocks.add(delta);
      }
    },
    close({ finishReason, usage }) {
      blocks.end();
      const end: { context_management?: unknown } = ending ?? endingOf(finishReason, blocks);
      const { context_management, ...delta } = end;
      add(eventOf({ type: "message_delta", delta, usage: toMessageUsage(usage), context_management }));
      add(eventOf({ type: "message_stop" }));
    },
    fail: (error) => add(eventOf(errorEvent(error))),
  };
}

/** Returns the body of a complete answer. */
export function toMessage(head: AnswerHead, answer: Pick<AnswerFold, "message" | "document">, end: AnswerEnd) {
  const common = { ...messageStart(head, undefined), usage: toMessageUsage(end.usage) };
  const { content, stop_reason, stop_sequence, context_management } = answer.document ?? {};
  if (Array.isArray(content)) return { ...common, content, stop_reason, stop_sequence, context_management };
  const { tool_calls: calls = [], ...message } = answer.message();
  const built = new MessageBlocks();
  built.add({ ...message, tool_calls: calls.map((call, index) => ({ index, ...call })) });
  built.end();
  return { ...common, content: built.blocks, ...endingOf(end.finishReason, built) };
}

type TextBlock = { type: "text"; text: string; citations?: object[] };
type ThinkingBlock = { type: "thinking"; thinking: string; signature: string };
type ToolUseBlock = { type: "tool_use"; id: string; name: string; input: object };

interface StreamedCall {
  block: ToolUseBlock;
  arguments: string;
  extraContent: unknown;
  state: "waiting" | "open" | "closed";
}

/** Builds the content blocks of an answer, or adds the events of a stream, of which it keeps no text. */
class MessageBlocks {
  readonly blocks: OutputBlock[] = [];
  hasRefusal = false;
  /** The last block, if further pieces may continue it. */
  #open: TextBlock | ThinkingBlock | ToolUseBlock | undefined;
  #openCall: StreamedCall | undefined;
  readonly #calls = new Map<number, StreamedCall>();
  readonly #add: AddEvent | undefined;

  constructor(add?: AddEvent) {
    this.#add = add;
  }

  get hasCalls(): boolean {
    return this.#calls.size > 0;
  }

  add(delta: Delta): void {
    const { reasoning_content, reasoning_details = [], content, annotations, refusal, tool_calls = [] } = delta;
    this.#addReasoning(reasoning_content ?? "", reasoning_details);
    if (content) this.#addText(content);
    for (const citation of citationsOf(annotations)) this.#addCitation(citation);
    if (refusal) {
      this.hasRefusal = true;
      this.#addText(refusal);
    }
    for (const call of tool_calls) this.#addCall(call);
  }

  end(): void {
    this.#close();
    for (const call of this.#calls.values()) if (call.state === "waiting") this.#beginCall(call);
    this.#close();
  }

  #addText(text: string): void {
    const block = this.#openText();
    if (this.#add === undefined) block.text += text;
    else this.#extend(`{"type":"text_delta","text":${JSON.stringify(text)}}`);
  }

  #addCitation(citation: object): void {
    const block = this.#openText();
    if (this.#add === undefined) {
      block.citations ??= [];
      block.citations.push(citation);
    } else this.#extend(`{"type":"citations_delta","citation":${JSON.stringify(citation)}}`);
  }

  #openText(): TextBlock {
    return this.#open?.type === "text" ? this.#open : this.#begin({ type: "text", text: "" });
  }

  /** Adds reasoning. A delta that has whole blocks may repeat their text, which is then taken from the blocks. */
  #addReasoning(text: string, details: readonly ReasoningDetail[]): void {
    const isRepeated = this.#open?.type !== "thinking" && details.some(({ type }) => type !== "reasoning.encrypted");
    if (text !== "" && !isRepeated) this.#addThinking(text);
    for (const detail of details) {
      const block = toReasoningBlock(detail);
      if (block.type === "redacted_thinking") this.#addWhole(block);
      else {
        const open = this.#open?.type === "thinking" ? this.#open : this.#addThinking(block.thinking);
        open.signature = block.signature ?? "";
        this.#extend(`{"type":"signature_delta","signature":${JSON.stringify(open.signature)}}`);
        this.#close();
      }
    }
  }

  #addThinking(text: string): ThinkingBlock {
    const open = this.#open;
    const block = open?.type === "thinking" ? open : this.#begin({ type: "thinking", thinking: "", signature: "" });
    if (this.#add === undefined) block.thinking += text;
    else if (text !== "") this.#extend(`{"type":"thinking_delta","thinking":${JSON.stringify(text)}}`);
    return block;
  }

  /** Adds a part of a call. Others wait while the arguments of the open one are incomplete: blocks cannot overlap. */
  #addCall({ index, id = "", function: { name = "", arguments: text = "" } = {}, extra_content }: ToolCallDelta): void {
    let call = this.#calls.get(index);
    if (call === undefined) {
      const block: ToolUseBlock = { type: "tool_use", id: toToolUseId(id), name: "", input: {} };
      call = { block, arguments: "", extraContent: undefined, state: "waiting" };
      this.#calls.set(index, call);
    }
    if (call.state === "waiting") call.block.name += name;
    call.arguments += text;
    if (extra_content !== undefined) call.extraContent = extra_content;
    if (call.state === "open") this.#addArguments(text);
    else if (call.state === "waiting") {
      const isBetweenCalls = this.#openCall === undefined || parseJson(this.#openCall.arguments) !== undefined;
      if (isBetweenCalls) this.#beginCall(call);
    }
  }

  #beginCall(call: StreamedCall): void {
    this.#begin(call.block);
    this.#openCall = call;
    call.state = "open";
    this.#addArguments(call.arguments);
  }

  #addArguments(text: string): void {
    if (text !== "") this.#extend(`{"type":"input_json_delta","partial_json":${JSON.stringify(text)}}`);
  }

  #addWhole(block: ReasoningBlock): void {
    this.#close();
    this.#addStart(block);
    this.#addStop();
  }

  #begin<Block extends TextBlock | ThinkingBlock | ToolUseBlock>(block: Block): Block {
    this.#close();
    this.#addStart(block);
    this.#open = block;
    return block;
  }

  #addStart(block: OutputBlock): void {
    this.blocks.push(block);
    this.#add?.(eventOf({ type: "content_block_start", index: this.blocks.length - 1, content_block: block }));
  }

  #addStop(): void {
    this.#add?.(eventOf({ type: "content_block_stop", index: this.blocks.length - 1 }));
  }

  #extend(delta: string): void {
    const index = this.blocks.length - 1;
    this.#add?.(
      `event: content_block_delta\ndata: {"type":"content_block_delta","index":${index},"delta":${delta}}\n\n`,
    );
  }

  #close(): void {
    if (this.#open === undefined) return;
    const call = this.#openCall;
    this.#open = undefined;
    this.#openCall = undefined;
    this.#addStop();
    if (call === undefined) return;
    call.state = "closed";
    call.block.input = argumentsObject(call.arguments);
    if (call.extraContent !== undefined) this.#addWhole(toCallStateBlock(call.block.id, call.extraContent));
  }
}
