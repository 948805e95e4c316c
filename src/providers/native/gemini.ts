import { NATIVE_DOCUMENT } from "../../api/answer.ts";
import type { Delta, FinishReason, ToolCallDelta } from "../../api/chat/completion.ts";
import { detailsOf, isObject, type JsonObject, objectsIn, textOf } from "../../api/json.ts";
import { geminiParts, geminiSearches } from "../ai-sdk/wires/google.ts";
import type { WireReader } from "../openai/answer.ts";
import { endedWith, toFinishReason } from "../openai/chunks.ts";
import { type UpstreamChunk, UpstreamError, type UpstreamUsage } from "../provider.ts";

/**
 * Reads answers of the Gemini API (https://ai.google.dev/api/generate-content). Each event is a response of its own; a chunk
 * contains the response that it was read from, without what the service states itself.
 */
export class GeminiReader implements WireReader {
  isFinished = false;
  #callCount = 0;

  readEvent(response: JsonObject): UpstreamChunk {
    return this.#read(response, "response");
  }

  readAnswer(answer: JsonObject): UpstreamChunk[] {
    if (!Array.isArray(answer.candidates) && !isObject(answer.promptFeedback)) {
      throw new UpstreamError("malformed", "The answer has no candidates");
    }
    return [this.#read(answer, NATIVE_DOCUMENT)];
  }

  #read(response: JsonObject, type: string): UpstreamChunk {
    const { usageMetadata, modelVersion: _model, responseId, candidates, ...others } = response;
    // Two candidates are never asked for.
    const [candidate] = objectsIn(candidates);
    const parts = objectsIn(detailsOf(candidate?.content).parts);
    const counted = new Set<unknown>();
    const delta = this.#deltaOf(parts, counted);
    const { blockReason } = detailsOf(response.promptFeedback);
    const reason = textOf(candidate?.finishReason) ?? (typeof blockReason === "string" ? "SAFETY" : undefined);
    const finish = reason === undefined ? undefined : finishOf(reason, this.#callCount > 0);
    if (finish !== undefined) this.isFinished = true;
    const searches = geminiSearches(candidate);
    const calls = searches > 0 ? { searches } : undefined;
    const usage = toUsage(usageMetadata, finish !== undefined);
    const sent = candidate && { ...candidate, ...(candidate.content !== undefined && { content: { parts } }) };
    return {
      responseId: textOf(responseId),
      ...(Object.keys(delta).length > 0 && { delta }),
      native: [{ type, data: { ...others, candidates: sent === undefined ? [] : [sent] }, counted }],
      usage: usage && { ...usage, ...calls },
      ...(calls && { calls }),
      ...(finish !== undefined && { finish_reason: finish }),
    };
  }

  #deltaOf(parts: readonly JsonObject[], counted: Set<unknown>): Delta {
    const calls: ToolCallDelta[] = [];
    const said = { content: "", reasoning_content: "" };
    for (const { text, thought, functionCall: call } of parts) {
      if (typeof text === "string") {
        said[thought === true ? "reasoning_content" : "content"] += text;
        counted.add(text);
      }
      if (isObject(call)) calls.push(this.#call(call, counted));
    }
    const texts = Object.entries(said).filter(([, text]) => text !== "");
    return { ...Object.fromEntries(texts), ...(calls.length > 0 && { tool_calls: calls }) };
  }

  #call({ id, name, args = {} }: JsonObject, counted: Set<unknown>): ToolCallDelta {
    const index = this.#callCount;
    this.#callCount += 1;
    if (typeof name === "string") counted.add(name);
    counted.add(args);
    const called = { name: textOf(name) ?? "", arguments: JSON.stringify(args) };
    return { index, id: textOf(id) ?? `call_${index}`, type: "function", function: called };
  }
}

/** Reasons by which a rule of the provider ends an answer ("FinishReason" in the reference). */
const FILTERED = /^(?:IMAGE_)?(?:SAFETY|RECITATION|PROHIBITED_CONTENT)$|^(?:BLOCKLIST|SPII|LANGUAGE)$/;

/** Throws UpstreamError for a reason by which an answer broke off. */
function finishOf(reason: string, hasCalls: boolean): FinishReason {
  if (reason.startsWith("MALFORMED_")) throw endedWith(reason);
  if (reason === "STOP" && hasCalls) return "tool_calls";
  return FILTERED.test(reason) ? "content_filter" : toFinishReason(reason, hasCalls);
}

/** Converts the counters. Without a count of the candidates they report only the prompt, until the last response. */
function toUsage(metadata: unknown, isLast: boolean): UpstreamUsage | undefined {
  const usage = detailsOf(metadata);
  const { promptTokenCount: prompt, candidatesTokenCount: candidates } = usage;
  const [tools = 0, thoughts = 0] = [usage.toolUsePromptTokenCount, usage.thoughtsTokenCount];
  const isReport = typeof candidates === "number" || (isLast && candidates === undefined);
  if (!isReport || typeof prompt !== "number" || typeof tools !== "number" || typeof thoughts !== "number") {
    return undefined;
  }
  return {
    ...geminiParts(usage),
    prompt_tokens: prompt + tools,
    completion_tokens: (candidates ?? 0) + thoughts,
    cached_tokens: usage.cachedContentTokenCount,
    reasoning_tokens: thoughts,
  };
}
