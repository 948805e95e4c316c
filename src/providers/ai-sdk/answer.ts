import type {
  LanguageModelV4Content,
  LanguageModelV4File,
  LanguageModelV4FinishReason,
  LanguageModelV4GenerateResult,
  LanguageModelV4Source,
  LanguageModelV4StreamPart,
  LanguageModelV4ToolCall,
  LanguageModelV4Usage,
  SharedV4ProviderMetadata,
} from "@ai-sdk/provider";
import type { Delta, FinishReason, ToolCallDelta } from "../../api/chat/completion.ts";
import type { ReasoningDetail } from "../../api/chat/request.ts";
import { TEXT_SIGNATURE_ID } from "../../api/gemini/signatures.ts";
import { type JsonObject, pick, textOf } from "../../api/json.ts";
import { endedWith, toFinishReason } from "../openai/chunks.ts";
import { type UpstreamChunk, UpstreamError, type UpstreamUsage } from "../provider.ts";
import { toDetail, toExtraContent } from "./reasoning.ts";
import type { Wire } from "./wire.ts";

type AnswerWire = Pick<Wire, "metadataKey" | "reasoning" | "partsOf" | "searchesIn">;

type End = Pick<LanguageModelV4GenerateResult, "finishReason" | "usage" | "providerMetadata">;

/** Converts one answer of a package to chunks of OpenAI's shape. Keeps the state that later parts of the answer depend on. */
export class AnswerReader {
  isFinished = false;
  readonly #wire: AnswerWire;
  /** Calls that have begun and not ended. Several may have the same id, or an empty one. */
  readonly #calls: { id: string; index: number; hasArguments: boolean }[] = [];
  #callCount = 0;
  /** Blocks of reasoning since the last call, with the package's metadata. */
  readonly #reasoning = new Map<string, { text: string; fields: JsonObject }>();

  constructor(wire: AnswerWire) {
    this.#wire = wire;
  }

  /** Reads a part of a stream; undefined if it adds nothing to the answer. Throws UpstreamError if the answer failed. */
  readPart(part: LanguageModelV4StreamPart): UpstreamChunk | undefined {
    switch (part.type) {
      case "text-delta":
        return this.#readText(part.delta, part.providerMetadata);
      case "reasoning-start":
      case "reasoning-delta":
        return this.#readReasoning(part.id, "delta" in part ? part.delta : "", part.providerMetadata);
      case "reasoning-end":
        this.#readReasoning(part.id, "", part.providerMetadata);
        return this.#endReasoning(part.id);
      case "source":
        // A source shows that there was a search, also to a client that leaves before the report.
        return { ...mediaChunk(part), ...(this.#wire.searchesIn && { calls: { searches: 1 } }) };
      case "file":
        return mediaChunk(part);
      case "tool-input-start":
        return part.providerExecuted === true ? undefined : this.#begin(part.id, part.toolName);
      case "tool-input-delta":
        return this.#continue(part.id, part.delta);
      case "tool-call":
        return part.providerExecuted === true ? undefined : this.#finishCall(part);
      case "response-metadata":
        return { responseId: part.id };
      case "finish":
        return this.#finish(part);
      default:
        return undefined;
    }
  }

  /** Reads an unstreamed answer as chunks. Throws UpstreamError if the answer failed. */
  readResult({ content, response, ...end }: LanguageModelV4GenerateResult): UpstreamChunk[] {
    const parts: LanguageModelV4StreamPart[] = [
      ...content.flatMap((part, index) => toStreamParts(part, String(index))),
      { ...response, type: "response-metadata" },
      { ...end, type: "finish" },
    ];
    return parts.flatMap((part) => this.readPart(part) ?? []);
  }

  #readText(text: string, metadata: SharedV4ProviderMetadata | undefined): UpstreamChunk | undefined {
    const { metadataKey, reasoning } = this.#wire;
    const data = textOf(metadata?.[metadataKey]?.thoughtSignature);
    if (data === undefined || reasoning === undefined) return text === "" ? undefined : { delta: { content: text } };
    const { format } = reasoning;
    const detail: ReasoningDetail = { type: "reasoning.encrypted", format, id: TEXT_SIGNATURE_ID, data };
    return { delta: { ...(text !== "" && { content: text }), reasoning_details: [detail] } };
  }

  #readReasoning(id: string, text: string, metadata: SharedV4ProviderMetadata | undefined): UpstreamChunk | undefined {
    const { metadataKey, reasoning } = this.#wire;
    if (reasoning !== undefined) {
      const block = this.#reasoning.get(id) ?? { text: "", fields: {} };
      const fields = { ...block.fields, ...metadata?.[metadataKey] };
      this.#reasoning.set(id, { text: block.text + text, fields });
    }
    return text === "" ? undefined : { delta: { reasoning_content: text } };
  }

  #endReasoning(id: string): UpstreamChunk | undefined {
    const { reasoning } = this.#wire;
    const block = this.#reasoning.get(id);
    const detail = reasoning && block && toDetail(reasoning, block.text, block.fields);
    return detail && { delta: { reasoning_details: [detail] }, repeated: new Set([block.text]) };
  }

  #begin(id: string, name: string): UpstreamChunk {
    const index = this.#callCount;
    this.#callCount += 1;
    this.#calls.push({ id, index, hasArguments: false });
    return { delta: { tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }] } };
  }

  #continue(id: string, text: string): UpstreamChunk | undefined {
    const call = this.#calls.findLast((open) => open.id === id);
    if (call === undefined || text === "") return undefined;
    call.hasArguments = true;
    return { delta: { tool_calls: [{ index: call.index, function: { arguments: text } }] } };
  }

  /** Ends a call. Returns the fields that its earlier parts did not contain; undefined if there are none. */
  #finishCall(part: LanguageModelV4ToolCall): UpstreamChunk | undefined {
    const { toolCallId: id, toolName: name, input, providerMetadata: metadata } = part;
    const place = this.#calls.findIndex((open) => open.id === id);
    const [begun] = place < 0 ? [] : this.#calls.splice(place, 1);
    const index = begun?.index ?? this.#callCount;
    if (begun === undefined) this.#callCount += 1;
    const call: ToolCallDelta =
      begun === undefined ? { index, id, type: "function", function: { name, arguments: input } } : { index };
    if (begun?.hasArguments === false) call.function = { arguments: input };
    const { metadataKey, reasoning } = this.#wire;
    const data = textOf(metadata?.[metadataKey]?.thoughtSignature);
    const blocks = [...this.#reasoning.values()];
    this.#reasoning.clear();
    const before = blocks.flatMap(({ text, fields }) => (reasoning && toDetail(reasoning, text, fields)) ?? []);
    const extra = toExtraContent(data, before);
    if (extra !== undefined) call.extra_content = extra;
    if (Object.keys(call).length === 1) return undefined;
    const delta: Delta = { tool_calls: [call] };
    if (data !== undefined && reasoning !== undefined) {
      delta.reasoning_details = [{ type: "reasoning.encrypted", format: reasoning.format, id, data }];
    }
    return { delta, repeated: new Set(blocks.map(({ text }) => text)) };
  }

  #finish({ finishReason, usage: counted, providerMetadata: metadata }: End): UpstreamChunk {
    const { metadataKey, partsOf, searchesIn } = this.#wire;
    const found = searchesIn?.(metadata?.[metadataKey]) ?? 0;
    const calls = found > 0 ? { searches: found } : undefined;
    const usage = toUsage(counted, { ...partsOf?.(counted.raw), ...calls });
    this.isFinished = true;
    return { finish_reason: toReason(finishReason, this.#callCount > 0), usage, ...(calls && { calls }) };
  }
}

function toStreamParts(part: LanguageModelV4Content, id: string): LanguageModelV4StreamPart[] {
  switch (part.type) {
    case "text":
      return [{ type: "text-delta", id, delta: part.text, ...pick(part, ["providerMetadata"]) }];
    case "reasoning": {
      const { text: delta, ...others } = part;
      return [
        { ...others, type: "reasoning-delta", id, delta },
        { type: "reasoning-end", id },
      ];
    }
    default:
      return [part];
  }
}

/** Converts a source to an annotation, and a file that the model made to an image or audio, in the forms of OpenAI and OpenRouter. */
function mediaChunk(part: LanguageModelV4Source | LanguageModelV4File): UpstreamChunk | undefined {
  if (part.type === "source") {
    // The packages do not pass on the place in the text.
    const cited = part.sourceType === "url" ? { url: part.url, title: part.title ?? "" } : { title: part.title };
    const range = { start_index: 0, end_index: 0 };
    const type = part.sourceType === "url" ? "url_citation" : "file_citation";
    return { delta: { annotations: [{ type, [type]: { ...cited, ...range } }] } };
  }
  const { mediaType, data } = part;
  if (data.type !== "data") return undefined;
  const base64 = typeof data.data === "string" ? data.data : Buffer.from(data.data).toString("base64");
  if (mediaType.startsWith("audio/")) return { delta: { audio: { data: base64, format: mediaType.slice(6) } } };
  const url = `data:${mediaType};base64,${base64}`;
  return { delta: { images: [{ type: "image_url", image_url: { url } }] } };
}

/** Converts a finish reason. Throws UpstreamError if the upstream sent none, because the answer is then incomplete. */
function toReason({ unified, raw }: LanguageModelV4FinishReason, hasCalls: boolean): FinishReason {
  const isUnknown = unified === "error" || unified === "interrupted" || unified === "other";
  if (!isUnknown) return toFinishReason(unified.replace("-", "_"), hasCalls);
  if (raw === undefined) throw new UpstreamError("failed", "The answer ended without a finish reason");
  if (unified !== "other") throw endedWith(raw);
  return toFinishReason(raw, hasCalls);
}

/** Converts token counts; undefined if the upstream reported none. The packages report 0 prompt tokens in that case. */
function toUsage({ inputTokens, outputTokens }: LanguageModelV4Usage, parts: UpstreamUsage | undefined) {
  if (!inputTokens.total || outputTokens.total === undefined) return undefined;
  return {
    ...parts,
    prompt_tokens: inputTokens.total,
    completion_tokens: outputTokens.total,
    cached_tokens: inputTokens.cacheRead,
    cache_write_tokens: inputTokens.cacheWrite,
    reasoning_tokens: outputTokens.reasoning,
  };
}
