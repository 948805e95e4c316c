import { imageAddressFault } from "../chat/image-address.ts";
import type { ContentPart, RequestMessage, ToolCall } from "../chat/request.ts";
import { InvalidRequestError, invalid, missing } from "../validation.ts";
import { readReasoning } from "./reasoning.ts";
import type { InputItem, MessagePart } from "./request.ts";
import { internalNameOf, toCustomArguments } from "./tools.ts";
import { messageOf } from "./typed-tools.ts";

/** Place of a message in the request, for the errors that name it. */
interface MessageOrigin {
  /** Path of its first item. */
  item: string;
  /** Paths of its content parts. */
  parts: string[];
}

/** The messages of an input, and their places in it. */
export interface DecodedInput {
  messages: RequestMessage[];
  origins: MessageOrigin[];
}

/** Path of everything that comes from the previous response. */
export const PREVIOUS = "previous_response_id";

/**
 * Converts input items to messages. An assistant's items in a row, such as reasoning, a text and function calls, become
 * one message. The first `earlierCount` items are those of the previous response. Throws InvalidRequestError.
 */
export function toMessages(input: string | readonly InputItem[], earlierCount: number): DecodedInput {
  const reader = new InputReader();
  if (typeof input === "string") reader.add("input", { role: "user", content: input });
  else {
    for (const [index, item] of input.entries()) {
      reader.read(item, index < earlierCount ? PREVIOUS : `input[${index - earlierCount}]`);
    }
  }
  return reader.end();
}

class InputReader {
  readonly #messages: RequestMessage[] = [];
  readonly #origins: MessageOrigin[] = [];
  readonly #extras = new Map<string, unknown>();
  /** The assistant message that further items belong to. */
  #turn: { message: RequestMessage; origin: MessageOrigin } | undefined;

  read(item: InputItem, path: string): void {
    switch (item.type) {
      case "message":
        if (item.role === "assistant") this.#say(item, path);
        else this.#addWithParts(path, { role: item.role }, item.content, `${path}.content`);
        return;
      case "function_call":
        this.#call(item.call_id, { name: internalNameOf(item), arguments: item.arguments }, path);
        return;
      case "custom_tool_call":
        this.#call(item.call_id, { name: internalNameOf(item), arguments: toCustomArguments(item.input) }, path);
        return;
      case "function_call_output":
      case "custom_tool_call_output":
        this.#addWithParts(path, { role: "tool", tool_call_id: item.call_id }, item.output, `${path}.output`);
        return;
      case "tool_search_call":
        this.#call(item.call_id, { name: "tool_search", arguments: JSON.stringify(item.arguments ?? {}) }, path);
        return;
      case "tool_search_output":
        this.add(path, { role: "tool", tool_call_id: item.call_id, content: JSON.stringify(item.tools) });
        return;
      case "reasoning":
        this.#reason(item, path);
        return;
      case "item_reference":
        throw notKept(`${path}.id`);
      // A search of the upstream that wrote it: its results are in the text that follows.
      case "web_search_call":
      case "additional_tools":
        return;
      default: {
        const read = messageOf(item, path);
        if ("called" in read) this.#call(read.callId, read.called, path);
        else this.add(path, read.result);
      }
    }
  }

  add(item: string, message: RequestMessage): MessageOrigin {
    const origin = { item, parts: [] };
    this.#messages.push(message);
    this.#origins.push(origin);
    this.#turn = message.role === "assistant" ? { message, origin } : undefined;
    return origin;
  }

  end(): DecodedInput {
    // The last call with an id gets its data. Calls with the same id would otherwise make any number of copies of it.
    for (const message of this.#messages.toReversed()) {
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
    return { messages: this.#messages, origins: this.#origins };
  }

  #addWithParts(item: string, message: RequestMessage, content: string | readonly MessagePart[], path: string): void {
    const origin = this.add(item, message);
    message.content = typeof content === "string" ? content : toParts(content, path, origin);
  }

  /** A text after calls belongs to their message, because the results of calls must follow them. */
  #say({ content }: Extract<InputItem, { type: "message" }>, path: string): void {
    const turn = this.#turn;
    const isOpen = turn !== undefined && (turn.message.content === undefined || turn.message.tool_calls !== undefined);
    const { message, origin } = isOpen ? turn : this.#begin(path);
    const partsPath = `${path}.content`;
    if (message.content === undefined && typeof content === "string") {
      message.content = content;
      return;
    }
    const before = typeof message.content === "string" ? [textOf(message.content)] : message.content;
    if (before !== undefined && origin.parts.length < before.length) origin.parts.push(origin.item);
    const parts = typeof content === "string" ? [textOf(content)] : toParts(content, partsPath, origin);
    const said = parts.filter((part) => part.type !== "refusal");
    for (const part of parts) if (part.type === "refusal") message.refusal = (message.refusal ?? "") + part.refusal;
    if (said.length > 0) message.content = [...(before ?? []), ...said];
  }

  #call(id: string, called: ToolCall["function"], path: string): void {
    const { message } = this.#turn ?? this.#begin(path);
    message.tool_calls ??= [];
    message.tool_calls.push({ id, type: "function", function: called });
  }

  #reason(item: Extract<InputItem, { type: "reasoning" }>, path: string): void {
    const read = readReasoning(item);
    if (read === undefined)
      throw new InvalidRequestError(invalid(`${path}.encrypted_content`, "send it as it was received"));
    for (const [id, extra] of Object.entries(read.calls ?? {})) this.#extras.set(id, extra);
    const { reasoning_content: text, reasoning_details: details } = read;
    if (text === undefined && details === undefined) return;
    const turn = this.#turn;
    const isOpen = turn !== undefined && (turn.message.content === undefined || turn.message.tool_calls !== undefined);
    const { message } = isOpen ? turn : this.#begin(path);
    if (text !== undefined) message.reasoning_content = [message.reasoning_content ?? [], text].flat().join("\n\n");
    if (details !== undefined) message.reasoning_details = [...(message.reasoning_details ?? []), ...details];
  }

  #begin(path: string) {
    const message: RequestMessage = { role: "assistant" };
    return { message, origin: this.add(path, message) };
  }
}

function textOf(text: string): ContentPart {
  return { type: "text", text };
}

function toParts(parts: readonly MessagePart[], path: string, origin: MessageOrigin): ContentPart[] {
  return parts.map((part, index) => {
    const place = `${path}[${index}]`;
    origin.parts.push(place);
    return toPart(part, place);
  });
}

function toPart(part: MessagePart, path: string): ContentPart {
  switch (part.type) {
    case "input_text":
    case "output_text":
      return { type: "text", text: part.text };
    case "refusal":
      return { type: "refusal", refusal: part.refusal };
    case "input_image":
      return toImage(part, path);
    case "input_file":
      return toFile(part, path);
  }
}

function toImage(
  { image_url: url, file_id, detail }: Extract<MessagePart, { type: "input_image" }>,
  path: string,
): ContentPart {
  if (file_id !== undefined) throw noFiles(`${path}.file_id`, "image_url");
  if (url === undefined) throw new InvalidRequestError(missing(`${path}.image_url`));
  checkAddress(url, `${path}.image_url`);
  const level = detail === "original" ? "high" : detail;
  return { type: "image_url", image_url: { url, ...(level !== undefined && { detail: level }) } };
}

function toFile(part: Extract<MessagePart, { type: "input_file" }>, path: string): ContentPart {
  const { filename, file_data, file_url, file_id } = part;
  if (file_id !== undefined) throw noFiles(`${path}.file_id`, "file_data or file_url");
  if (file_data === undefined && file_url === undefined) throw new InvalidRequestError(missing(`${path}.file_data`));
  if (file_data !== undefined && !/^data:[^,]*;base64,/.test(file_data)) {
    throw new InvalidRequestError(
      invalid(`${path}.file_data`, "expected a data URL, such as data:application/pdf;base64,…"),
    );
  }
  if (file_url !== undefined) checkFileAddress(file_url, `${path}.file_url`);
  return {
    type: "file",
    file: {
      ...(filename !== undefined && { filename }),
      ...(file_data !== undefined && { file_data }),
      ...(file_url !== undefined && { file_url }),
    },
  };
}

function checkFileAddress(url: string, param: string): void {
  if (!/^https:/i.test(url)) throw new InvalidRequestError(invalid(param, "expected a public https:// address"));
  checkAddress(url, param);
}

function checkAddress(url: string, param: string): void {
  const fault = imageAddressFault(url);
  if (fault !== undefined) throw new InvalidRequestError(invalid(param, fault));
}

function noFiles(param: string, instead: string): InvalidRequestError {
  const message = `Invalid '${param}': this service stores no files. Send ${instead} instead.`;
  return new InvalidRequestError({ code: "unsupported_value", param, message });
}

/** Returns the failure of a reference to an item that is not kept. */
function notKept(param: string): InvalidRequestError {
  const instead = "Send the item itself; clients do so with 'store' set to false";
  const reason = `no item with this id is stored, or an earlier reference names it. ${instead}`;
  return new InvalidRequestError(invalid(param, reason));
}
