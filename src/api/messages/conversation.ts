import type { CacheControl, ContentPart, ReasoningDetail, RequestMessage, ToolCall } from "../chat/request.ts";
import { PlacedMessages } from "../placed-messages.ts";
import { type ReasoningBlock, stateOf } from "./reasoning.ts";
import type { BlockOf, InputMessage, MessageBlock, MessagesRequest } from "./request.ts";

type TextOrMedia = BlockOf<"text" | "image" | "document" | "search_result">;

/** Converts the messages of the wire to the internal form, and notes what only upstreams of this wire take. */
export class MessageConversation extends PlacedMessages {
  /** Path of the first block that changes the answer, and that other wires do not have. */
  needed: string | undefined;
  /** True if a block is marked to be cached for an hour, also where the internal form has no marks. */
  hasHourMark = false;
  /** Parts of blocks that the internal form lacks. */
  readonly uncounted: unknown[] = [];

  constructor({ system, messages, cache_control }: Pick<MessagesRequest, "system" | "messages" | "cache_control">) {
    super();
    if (system !== undefined && system.length > 0) this.#add("system", this.#parts(system, "system"), "system");
    for (const [index, message] of messages.entries()) this.#addMessage(message, `messages[${index}]`);
    if (cache_control !== undefined) this.#markLast(cache_control);
  }

  paramOf(param: string): string {
    const place = this.find(param);
    return place === undefined ? param : place.path + place.rest.replace(/^\.(image_url|file)\b.*$/, ".source");
  }

  #addMessage({ role, content }: InputMessage, path: string): void {
    if (role === "assistant") this.#addAssistant(content, path);
    else if (typeof content === "string") this.#add(role, this.#parts(content, path), path);
    else {
      const others: ContentPart[] = [];
      for (const [index, block] of content.entries()) {
        const blockPath = `${path}.content[${index}]`;
        if (block.type === "tool_result") this.#addResult(block, blockPath);
        else others.push(...this.#partsOf(block, blockPath));
      }
      if (others.length > 0 || content.length === 0) this.#add(role, others, path);
    }
  }

  #addResult(block: BlockOf<"tool_result">, path: string): void {
    this.#visit(block, path);
    const { tool_use_id, content = "", is_error, cache_control } = block;
    const parts = this.#parts(content, `${path}.content`);
    if (is_error === true) parts.unshift({ type: "text", text: "Error:" });
    mark(parts.at(-1), cache_control);
    this.#add("tool", parts, path, { tool_call_id: tool_use_id });
  }

  #addAssistant(content: Extract<InputMessage, { role: "assistant" }>["content"], path: string): void {
    const blocks = typeof content === "string" ? [{ type: "text" as const, text: content }] : content;
    const parts: ContentPart[] = [];
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
      const blockPath = `${path}.content[${index}]`;
      if (block.type !== "text") this.#visit(block, blockPath);
      if (block.type === "thinking" || block.type === "redacted_thinking") addReasoning(block);
      else if (block.type === "tool_use")
        calls.push({
          id: block.id,
          type: "function",
          function: { name: block.name, arguments: JSON.stringify(block.input) },
        });
      else if (block.type === "text") parts.push(...this.#partsOf(block, blockPath));
      // For the estimate of the prompt alone: only upstreams of this wire take it.
      else parts.push({ type: "text", text: JSON.stringify("input" in block ? block.input : block.content) });
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

  #add(role: RequestMessage["role"], parts: ContentPart[], path: string, fields: Partial<RequestMessage> = {}): void {
    const hasContent = parts.length > 0 || fields.tool_calls === undefined;
    this.add({ role, ...(hasContent && { content: contentOf(parts) }), ...fields }, path);
  }

  #parts(content: string | readonly TextOrMedia[], path: string): ContentPart[] {
    if (typeof content === "string") return [{ type: "text", text: content }];
    return content.flatMap((block, index) => this.#partsOf(block, `${path}[${index}]`));
  }

  #partsOf(block: TextOrMedia, path: string): ContentPart[] {
    this.#visit(block, path);
    const parts = partsOf(block);
    mark(parts.at(-1), block.cache_control);
    return parts.map((part) => this.note(part, path));
  }

  #visit(block: MessageBlock, path: string): void {
    if ("cache_control" in block && block.cache_control?.ttl === "1h") this.hasHourMark = true;
    if (block.type === "text") this.uncounted.push(...(block.citations ?? []));
    if (block.type === "tool_use" && block.toolset_name !== undefined) this.uncounted.push(block.toolset_name);
    if (block.type === "server_tool_use" || block.type === "web_search_tool_result") this.needed ??= `${path}.type`;
    if (block.type !== "document" && block.type !== "search_result") return;
    if (block.citations?.enabled === true) this.needed ??= `${path}.citations`;
    for (const inner of innerBlocks(block)) this.#visit(inner, path);
  }

  /** Marks the end of the prompt, as the upstream does where the whole request has a cache mark. */
  #markLast(cacheControl: CacheControl): void {
    const last = this.messages.at(-1);
    if (typeof last?.content === "string") last.content = [{ type: "text", text: last.content }];
    mark(last?.content?.at(-1), cacheControl);
  }
}

function innerBlocks(block: BlockOf<"document" | "search_result">): readonly BlockOf<"text" | "image">[] {
  if (block.type === "search_result") return block.content;
  return block.source.type === "content" && typeof block.source.content !== "string" ? block.source.content : [];
}

function mark(part: ContentPart | undefined, cacheControl: CacheControl | undefined): void {
  const isMarkable = part?.type === "text" || part?.type === "image_url" || part?.type === "file";
  if (isMarkable && cacheControl !== undefined) part.cache_control ??= cacheControl;
}

/** Text without a cache mark is a string, which every upstream takes. */
function contentOf(parts: ContentPart[]): string | ContentPart[] {
  const [first, ...others] = parts;
  if (first === undefined) return "";
  const isPlain = others.length === 0 && first.type === "text" && first.cache_control === undefined;
  return isPlain ? first.text : parts;
}

function partsOf(block: TextOrMedia): ContentPart[] {
  switch (block.type) {
    case "text":
      return [{ type: "text", text: block.text }];
    case "image":
      return [{ type: "image_url", image_url: { url: urlOf(block.source) } }];
    case "search_result":
      return textParts([block.title, block.source, ...block.content.map(({ text }) => text)]);
    case "document":
      return [...textParts([block.title, block.context]), ...documentParts(block)];
  }
}

function urlOf(source: BlockOf<"image">["source"] | Extract<BlockOf<"document">["source"], { type: "base64" }>) {
  return source.type === "url" ? source.url : `data:${source.media_type};base64,${source.data}`;
}

function documentParts({ source, title }: BlockOf<"document">): ContentPart[] {
  const filename = title ?? "document.pdf";
  switch (source.type) {
    case "base64":
      return [{ type: "file", file: { filename, file_data: urlOf(source) } }];
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
