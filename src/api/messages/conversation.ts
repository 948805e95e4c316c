import type { CacheControl, ContentPart, ReasoningDetail, RequestMessage, ToolCall } from "../chat/request.ts";
import { type ReasoningBlock, stateOf } from "./reasoning.ts";
import type { BlockOf, InputMessage, MessageBlock, MessagesRequest } from "./request.ts";

/** A part of the internal form, and the wire's path of the block that it was made from. */
interface PlacedPart {
  part: ContentPart;
  path: string;
}

/** The wire's paths of a message and of its parts. */
interface Place {
  path: string;
  parts: readonly string[];
}

type TextOrMedia = BlockOf<"text" | "image" | "document" | "search_result">;

const MESSAGE_PARAM = /^messages\[(\d+)\](?:\.content\[(\d+)\])?/;

/** Converts the messages of the wire to the internal form, and remembers the place of each. */
export class MessageConversation {
  readonly messages: RequestMessage[] = [];
  readonly #places: Place[] = [];

  constructor({ system, messages, cache_control }: Pick<MessagesRequest, "system" | "messages" | "cache_control">) {
    if (system !== undefined && system.length > 0) this.#add("system", placedParts(system, "system"), "system");
    for (const [index, message] of messages.entries()) this.#addMessage(message, `messages[${index}]`);
    if (cache_control !== undefined) this.#markLast(cache_control);
  }

  /** Returns the wire's path of a path in the internal form. */
  paramOf(param: string): string {
    const [found, message, part] = MESSAGE_PARAM.exec(param) ?? [];
    const place = message === undefined ? undefined : this.#places[Number(message)];
    if (found === undefined || place === undefined) return param;
    const block = part === undefined ? undefined : place.parts[Number(part)];
    const rest = param.slice(found.length).replace(/^\.(image_url|file)\b.*$/, ".source");
    return `${block ?? place.path}${rest}`;
  }

  #addMessage({ role, content }: InputMessage, path: string): void {
    const blocks = typeof content === "string" ? [{ type: "text" as const, text: content }] : content;
    if (role === "assistant") {
      this.#addAssistant(blocks, path);
      return;
    }
    const others: PlacedPart[] = [];
    for (const [index, block] of blocks.entries()) {
      const blockPath = `${path}.content[${index}]`;
      if (block.type === "tool_result") this.#addResult(block, blockPath);
      else if (isTextOrMedia(block)) others.push(...placedPart(block, blockPath));
    }
    if (others.length > 0 || blocks.length === 0) this.#add(role, others, path);
  }

  #addResult({ tool_use_id, content = "", is_error, cache_control }: BlockOf<"tool_result">, path: string): void {
    const parts = placedParts(content, `${path}.content`);
    if (is_error === true) parts.unshift({ part: { type: "text", text: "Error:" }, path });
    mark(parts.at(-1)?.part, cache_control);
    this.#add("tool", parts, path, { tool_call_id: tool_use_id });
  }

  #addAssistant(blocks: readonly MessageBlock[], path: string): void {
    const parts: PlacedPart[] = [];
    const calls: ToolCall[] = [];
    const details: ReasoningDetail[] = [];
    const extras = new Map<string, unknown>();
    let unsigned = "";
    const addReasoning = (block: ReasoningBlock) => {
      const state = stateOf(block);
      if (state === undefined) unsigned += block.type === "thinking" ? block.thinking : "";
      details.push(...(state?.details ?? []));
      for (const [callId, extra] of Object.entries(state?.calls ?? {})) extras.set(callId, extra);
    };
    for (const [index, block] of blocks.entries()) {
      if (block.type === "thinking" || block.type === "redacted_thinking") addReasoning(block);
      else if (block.type === "tool_use") calls.push(toolCallOf(block));
      // For the estimate of the prompt alone: only upstreams of this wire take it.
      else if (block.type === "server_tool_use" || block.type === "web_search_tool_result") {
        const text = JSON.stringify(block.type === "server_tool_use" ? block.input : block.content);
        parts.push({ part: { type: "text", text }, path: `${path}.content[${index}]` });
      } else if (isTextOrMedia(block)) parts.push(...placedPart(block, `${path}.content[${index}]`));
    }
    for (const call of calls) {
      if (extras.has(call.id)) call.extra_content = extras.get(call.id);
      // Calls with the same id would otherwise make any number of copies of long data.
      extras.delete(call.id);
    }
    this.#add("assistant", parts, path, {
      ...(calls.length > 0 && { tool_calls: calls }),
      ...(unsigned !== "" && { reasoning_content: unsigned }),
      ...(details.length > 0 && { reasoning_details: details }),
    });
  }

  #add(
    role: RequestMessage["role"],
    placed: readonly PlacedPart[],
    path: string,
    fields: Partial<RequestMessage> = {},
  ) {
    const hasContent = placed.length > 0 || fields.tool_calls === undefined;
    this.messages.push({ role, ...(hasContent && { content: contentOf(placed) }), ...fields });
    this.#places.push({ path, parts: placed.map((one) => one.path) });
  }

  /** Marks the end of the prompt, as the upstream does where the whole request has a cache mark. */
  #markLast(cacheControl: CacheControl): void {
    const last = this.messages.at(-1);
    if (typeof last?.content === "string") last.content = [{ type: "text", text: last.content }];
    mark(last?.content?.at(-1), cacheControl);
  }
}

function isTextOrMedia(block: MessageBlock): block is TextOrMedia {
  return ["text", "image", "document", "search_result"].includes(block.type);
}

function mark(part: ContentPart | undefined, cacheControl: CacheControl | undefined): void {
  const isMarkable = part?.type === "text" || part?.type === "image_url" || part?.type === "file";
  if (isMarkable && cacheControl !== undefined) part.cache_control ??= cacheControl;
}

/** Text without a cache mark is a string, which every upstream takes. */
function contentOf(placed: readonly PlacedPart[]): string | ContentPart[] {
  const [first, ...others] = placed.map(({ part }) => part);
  if (first === undefined) return "";
  const isPlain = others.length === 0 && first.type === "text" && first.cache_control === undefined;
  return isPlain ? first.text : [first, ...others];
}

function placedParts(content: string | readonly TextOrMedia[], path: string): PlacedPart[] {
  if (typeof content === "string") return [{ part: { type: "text", text: content }, path }];
  return content.flatMap((block, index) => placedPart(block, `${path}[${index}]`));
}

function placedPart(block: TextOrMedia, path: string): PlacedPart[] {
  const parts = partsOf(block);
  mark(parts.at(-1), block.cache_control);
  return parts.map((part) => ({ part, path }));
}

function partsOf(block: TextOrMedia): ContentPart[] {
  switch (block.type) {
    case "text":
      return [{ type: "text", text: block.text }];
    case "image":
      return [{ type: "image_url", image_url: { url: imageUrlOf(block.source) } }];
    case "search_result":
      return textParts([block.title, block.source, ...block.content.map(({ text }) => text)]);
    case "document":
      return [...textParts([block.title, block.context]), ...documentParts(block)];
  }
}

/** Returns the address of an image in the internal form. */
export function imageUrlOf(source: BlockOf<"image">["source"]): string {
  return source.type === "url" ? source.url : `data:${source.media_type};base64,${source.data}`;
}

function documentParts({ source, title }: BlockOf<"document">): ContentPart[] {
  const filename = title ?? "document.pdf";
  switch (source.type) {
    case "base64":
      return [{ type: "file", file: { filename, file_data: `data:${source.media_type};base64,${source.data}` } }];
    case "url":
      return [{ type: "file", file: { filename, file_url: source.url } }];
    case "text":
      return textParts([source.data]);
    case "content":
      return typeof source.content === "string" ? textParts([source.content]) : source.content.flatMap(partsOf);
  }
}

function textParts(texts: readonly (string | undefined)[]): ContentPart[] {
  const text = texts.filter((one) => one !== undefined && one !== "").join("\n\n");
  return text === "" ? [] : [{ type: "text", text }];
}

function toolCallOf({ id, name, input }: BlockOf<"tool_use">): ToolCall {
  return { id, type: "function", function: { name, arguments: JSON.stringify(input) } };
}
