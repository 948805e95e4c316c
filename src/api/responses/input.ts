import type { ContentPart, RequestMessage, ToolCall } from "../chat/request.ts";
import { TEXT_SIGNATURE_ID } from "../gemini/signatures.ts";
import { objectsIn } from "../json.ts";
import { PlacedMessages } from "../placed-messages.ts";
import { invalid, refuse } from "../validation.ts";
import { readReasoning } from "./reasoning.ts";
import type { InputItem, MessagePart } from "./request.ts";
import { internalNameOf } from "./tools.ts";
import { messageOf, TYPED_ITEMS } from "./typed-tools.ts";

const NOT_KEPT =
  "no item with this id is stored, or an earlier reference names it. Send the item itself; clients do so with 'store' set to false";
/** Path of everything that comes from the previous response. */
export const PREVIOUS = "previous_response_id";

/** Converts input items to messages: an assistant's items in a row become one message. */
export class InputMessages extends PlacedMessages {
  hasTypedItems = false;
  hasPhases = false;
  /** Parts of items that the messages lack. */
  readonly uncounted: unknown[] = [];
  readonly #extras = new Map<string, unknown>();
  /** The assistant message that further items belong to. */
  #turn: RequestMessage | undefined;

  /** The first `earlierCount` items are those of the previous response. Throws InvalidRequestError. */
  constructor(input: string | readonly InputItem[], earlierCount: number) {
    super();
    if (typeof input === "string") this.add({ role: "user", content: input }, "input");
    else {
      for (const [index, item] of input.entries()) {
        const path = index < earlierCount ? PREVIOUS : `input[${index - earlierCount}]`;
        this.#visit(item);
        this.#read(item, path);
      }
    }
    this.#end();
  }

  #visit(item: InputItem): void {
    this.hasPhases ||= "phase" in item;
    this.hasTypedItems ||= TYPED_ITEMS.includes(item.type);
    const parts = () => {
      if (item.type === "message") return objectsIn(item.content).flatMap(({ annotations }) => annotations ?? []);
      if (item.type === "web_search_call") return [item.action];
      if (item.type === "computer_call") return [item.pending_safety_checks];
      return item.type === "computer_call_output" ? [item.acknowledged_safety_checks] : [];
    };
    this.uncounted.push(...parts().filter((part) => part !== undefined));
  }

  #read(item: InputItem, path: string): void {
    switch (item.type) {
      case "message":
        if (item.role === "assistant") this.#say(item, path);
        else this.#addWithParts(path, { role: item.role }, item.content, `${path}.content`);
        return;
      case "function_call":
        this.#call(item.call_id, { name: internalNameOf(item), arguments: item.arguments }, path);
        return;
      case "custom_tool_call": {
        // As the arguments of the function that stands for a custom tool.
        const given = JSON.stringify({ input: item.input });
        this.#call(item.call_id, { name: internalNameOf(item), arguments: given }, path);
        return;
      }
      case "function_call_output":
      case "custom_tool_call_output":
        this.#addWithParts(path, { role: "tool", tool_call_id: item.call_id }, item.output, `${path}.output`);
        return;
      case "tool_search_call":
        this.#call(item.call_id, { name: "tool_search", arguments: JSON.stringify(item.arguments ?? {}) }, path);
        return;
      case "tool_search_output":
        this.add({ role: "tool", tool_call_id: item.call_id, content: JSON.stringify(item.tools) }, path);
        return;
      case "reasoning":
        this.#reason(item, path);
        return;
      case "item_reference":
        refuse(invalid(`${path}.id`, NOT_KEPT));
        break;
      // A search of the upstream that wrote it: its results are in the text that follows.
      case "web_search_call":
      case "additional_tools":
        return;
      default: {
        const read = messageOf(item);
        if ("called" in read) this.#call(read.callId, read.called, path);
        else this.add(read.result, Array.isArray(read.result.content) ? `${path}.output` : path);
      }
    }
  }

  override add(message: RequestMessage, path: string): void {
    super.add(message, path);
    this.#turn = message.role === "assistant" ? message : undefined;
  }

  #end(): void {
    // The last call with an id gets its data. Calls with the same id would otherwise make any number of copies of it.
    for (const message of this.messages.toReversed()) {
      const { role, content, refusal, tool_calls: calls } = message;
      if (role === "assistant" && content === undefined && refusal === undefined && calls === undefined) {
        message.content = "";
      }
      for (const call of calls ?? []) {
        const extra = this.#extras.get(call.id);
        if (extra !== undefined) call.extra_content = extra;
        this.#extras.delete(call.id);
      }
    }
  }

  #addWithParts(path: string, message: RequestMessage, content: string | readonly MessagePart[], at: string): void {
    this.add({ ...message, content: typeof content === "string" ? content : this.#parts(content, at) }, path);
  }

  #parts(content: readonly MessagePart[], at: string): ContentPart[] {
    return content.map((part, index) => this.note(toPart(part), `${at}[${index}]`));
  }

  #say({ content }: Extract<InputItem, { type: "message" }>, path: string): void {
    const message = this.#openTurn(path);
    if (message.content === undefined && typeof content === "string") {
      message.content = content;
      return;
    }
    const before = typeof message.content === "string" ? [textPart(message.content)] : (message.content ?? []);
    const parts = typeof content === "string" ? [textPart(content)] : this.#parts(content, `${path}.content`);
    const said = parts.filter((part) => part.type !== "refusal");
    for (const part of parts) if (part.type === "refusal") message.refusal = (message.refusal ?? "") + part.refusal;
    if (said.length > 0) message.content = [...before, ...said];
  }

  #call(id: string, called: ToolCall["function"], path: string): void {
    const message = this.#turn ?? this.#begin(path);
    message.tool_calls ??= [];
    message.tool_calls.push({ id, type: "function", function: called });
  }

  #reason(item: Extract<InputItem, { type: "reasoning" }>, path: string): void {
    const read = readReasoning(item) ?? refuse(invalid(`${path}.encrypted_content`, "send it as it was received"));
    for (const [id, extra] of Object.entries(read.calls ?? {})) this.#extras.set(id, extra);
    const { reasoning_content: text, reasoning_details: details } = read;
    if (text === undefined && details === undefined) return;
    // The signature of a text comes after it.
    const isOfText = details?.every(({ id }) => id === TEXT_SIGNATURE_ID) === true;
    const message = (isOfText ? this.#turn : undefined) ?? this.#openTurn(path);
    if (text !== undefined) message.reasoning_content = [message.reasoning_content ?? [], text].flat().join("\n\n");
    if (details !== undefined) message.reasoning_details = [...(message.reasoning_details ?? []), ...details];
  }

  /** A text after calls belongs to their message, because the results of calls must follow them. */
  #openTurn(path: string): RequestMessage {
    const turn = this.#turn;
    const isOpen = turn !== undefined && (turn.content === undefined || turn.tool_calls !== undefined);
    return isOpen ? turn : this.#begin(path);
  }

  #begin(path: string): RequestMessage {
    const message: RequestMessage = { role: "assistant" };
    this.add(message, path);
    return message;
  }
}

function textPart(text: string): ContentPart {
  return { type: "text", text };
}

function toPart(part: MessagePart): ContentPart {
  switch (part.type) {
    case "input_text":
    case "output_text":
      return { type: "text", text: part.text };
    case "refusal":
      return { type: "refusal", refusal: part.refusal };
    case "input_image": {
      const { image_url: url, detail } = part;
      const level = detail === "original" ? "high" : detail;
      return { type: "image_url", image_url: { url, ...(level !== undefined && { detail: level }) } };
    }
    case "input_file": {
      const { type: _type, ...file } = part;
      return { type: "file", file };
    }
  }
}
