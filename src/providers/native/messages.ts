import { NATIVE_DOCUMENT } from "../../api/answer.ts";
import type { Delta } from "../../api/chat/completion.ts";
import { detailsOf, isObject, type JsonObject, nameOf, pick, textOf } from "../../api/json.ts";
import { CLAUDE_FORMAT } from "../../api/messages/reasoning.ts";
import type { WireReader } from "../openai/answer.ts";
import { toFinishReason } from "../openai/chunks.ts";
import { type UpstreamChunk, UpstreamError, type UpstreamUsage } from "../provider.ts";

interface OpenBlock {
  type: string;
  /** Index of a tool call in the answer. */
  callIndex: number;
  text: string;
  signature: string;
}

/** Events that are not passed on: the service writes its own. */
const OWN_EVENTS = new Set(["message_start", "message_stop", "error"]);

/** Reads answers of Anthropic's Messages API (https://platform.claude.com/docs/en/api/messages). */
export class MessagesReader implements WireReader {
  isFinished = false;
  isEnded = false;
  readonly #blocks = new Map<number, OpenBlock>();
  #callCount = 0;
  #searches = 0;
  /** Counters of all events so far: each event replaces those that it contains. */
  #usage: JsonObject = {};
  /** Texts and inputs of the event that its delta contains. */
  #counted = new Set<unknown>();

  readEvent(event: JsonObject): UpstreamChunk | undefined {
    const type = nameOf(event.type);
    // This service sends keep-alive events of its own.
    if (type === undefined || type === "ping") return undefined;
    this.#counted = new Set();
    const chunk = this.#read(type, event);
    const data =
      type === "message_delta" ? { ...detailsOf(event.delta), ...pick(event, ["context_management"]) } : event;
    chunk.native = OWN_EVENTS.has(type) ? [] : [{ type, data, counted: this.#counted }];
    return chunk;
  }

  readAnswer(answer: JsonObject): UpstreamChunk[] {
    if (!Array.isArray(answer.content)) throw new UpstreamError("malformed", "The answer has no content");
    const deltas = answer.content.filter(isObject).flatMap((block, index) => {
      return [this.#begin(index, block), this.#end(index)];
    });
    const data = pick(answer, ["content", "stop_reason", "stop_sequence", "context_management"]);
    return [
      ...deltas.map((delta) => ({ delta, native: [] })),
      {
        responseId: textOf(answer.id),
        native: [{ type: NATIVE_DOCUMENT, data, counted: this.#counted }],
        ...this.#searchesSoFar(),
        ...this.#readUsage(answer.usage),
        ...this.#finish(answer.stop_reason),
      },
    ];
  }

  #read(type: string, event: JsonObject): UpstreamChunk {
    const index = typeof event.index === "number" ? event.index : 0;
    switch (type) {
      case "message_start": {
        const message = detailsOf(event.message);
        return { responseId: textOf(message.id), ...this.#readUsage(message.usage) };
      }
      case "content_block_start":
        return { ...toChunk(this.#begin(index, detailsOf(event.content_block))), ...this.#searchesSoFar() };
      case "content_block_delta":
        return toChunk(this.#continue(index, detailsOf(event.delta)));
      case "content_block_stop":
        return toChunk(this.#end(index));
      case "message_delta":
        return { ...this.#readUsage(event.usage), ...this.#finish(detailsOf(event.delta).stop_reason) };
      case "message_stop":
        if (!this.isFinished) throw new UpstreamError("failed", "The answer ended without a stop reason");
        this.isEnded = true;
        return {};
      default:
        return {};
    }
  }

  #begin(index: number, block: JsonObject): Delta {
    const type = textOf(block.type) ?? "";
    const open: OpenBlock = { type, callIndex: -1, text: "", signature: textOf(block.signature) ?? "" };
    this.#blocks.set(index, open);
    if (type === "text") return this.#textDelta("content", block.text);
    if (type === "thinking") {
      open.text = textOf(block.thinking) ?? "";
      return this.#textDelta("reasoning_content", block.thinking);
    }
    if (type === "redacted_thinking") {
      open.text = textOf(block.data) ?? "";
      return {};
    }
    if (type === "server_tool_use" && block.name === "web_search") this.#searches += 1;
    if (type !== "tool_use") return {};
    open.callIndex = this.#callCount;
    this.#callCount += 1;
    const hasInput = isObject(block.input) && Object.keys(block.input).length > 0;
    const called = { name: textOf(block.name) ?? "", arguments: hasInput ? JSON.stringify(block.input) : "" };
    if (typeof block.name === "string") this.#counted.add(block.name);
    if (hasInput) this.#counted.add(block.input);
    return {
      tool_calls: [{ index: open.callIndex, id: textOf(block.id) ?? "", type: "function", function: called }],
    };
  }

  #searchesSoFar(): Pick<UpstreamChunk, "calls"> {
    return this.#searches > 0 ? { calls: { searches: this.#searches } } : {};
  }

  #continue(index: number, delta: JsonObject): Delta {
    const open = this.#blocks.get(index);
    if (open === undefined) return {};
    switch (delta.type) {
      case "text_delta":
        return this.#textDelta("content", delta.text);
      case "thinking_delta":
        open.text += textOf(delta.thinking) ?? "";
        return this.#textDelta("reasoning_content", delta.thinking);
      case "signature_delta":
        open.signature += textOf(delta.signature) ?? "";
        return {};
      case "input_json_delta": {
        const piece = textOf(delta.partial_json) ?? "";
        if (piece === "" || open.callIndex < 0) return {};
        this.#counted.add(piece);
        return { tool_calls: [{ index: open.callIndex, function: { arguments: piece } }] };
      }
      default:
        return {};
    }
  }

  #end(index: number): Delta {
    const open = this.#blocks.get(index);
    if (open === undefined) return {};
    this.#blocks.delete(index);
    const { type, text, signature } = open;
    if (type === "redacted_thinking") {
      return { reasoning_details: [{ type: "reasoning.encrypted", format: CLAUDE_FORMAT, data: text }] };
    }
    if (type !== "thinking" || signature === "") return {};
    return { reasoning_details: [{ type: "reasoning.text", format: CLAUDE_FORMAT, text, signature }] };
  }

  #textDelta(field: "content" | "reasoning_content", text: unknown): Delta {
    if (typeof text !== "string" || text === "") return {};
    this.#counted.add(text);
    return { [field]: text };
  }

  /** Returns the counters so far. Without a count of the output, which grows, they are no report. */
  #readUsage(usage: unknown): UpstreamChunk {
    if (!isObject(usage)) return {};
    const stated = Object.entries(usage).filter(([, value]) => value !== null);
    this.#usage = { ...this.#usage, ...Object.fromEntries(stated) };
    const isReport = typeof usage.output_tokens === "number";
    return { usage: isReport ? toUsage(this.#usage) : undefined, service_tier: textOf(this.#usage.service_tier) };
  }

  #finish(reason: unknown): UpstreamChunk {
    if (typeof reason !== "string") return {};
    this.isFinished = true;
    return { finish_reason: toFinishReason(reason, this.#callCount > 0) };
  }
}

/** Returns a chunk of a delta; an empty chunk if the delta is empty. */
export function toChunk(delta: Delta): UpstreamChunk {
  return Object.keys(delta).length === 0 ? {} : { delta };
}

/** Converts the counters: `input_tokens` excludes cached and written tokens ("Prompt caching"). */
function toUsage(usage: JsonObject): UpstreamUsage | undefined {
  const { input_tokens: input, output_tokens: output } = usage;
  if (typeof input !== "number" || typeof output !== "number") return undefined;
  const cached = numberOf(usage.cache_read_input_tokens);
  const written = numberOf(usage.cache_creation_input_tokens);
  return {
    prompt_tokens: input + cached + written,
    completion_tokens: output,
    cached_tokens: cached,
    cache_write_tokens: written,
    cache_write_1h_tokens: detailsOf(usage.cache_creation).ephemeral_1h_input_tokens,
    reasoning_tokens: detailsOf(usage.output_tokens_details).thinking_tokens,
    searches: detailsOf(usage.server_tool_use).web_search_requests,
  };
}

function numberOf(value: unknown): number {
  return typeof value === "number" ? value : 0;
}
