import type { CompletionUsage, Delta, FinishReason } from "../contract/completion.ts";
import { creditsFromMicro, type MicroCredits } from "../credits/amount.ts";
import type { EventBasis } from "../credits/books.ts";
import { countPiece } from "../credits/estimate.ts";
import type { TokenCounts } from "../credits/price.ts";
import type { UpstreamChunk, UpstreamUsage } from "../providers/provider.ts";

/** No counter above this is believed: it is beyond every context window. */
const TOKENS_MAX = 10_000_000;

/** Counts what passes, so that there is a count where the upstream reports none, or none that can be true. */
export class Meter {
  finishReason: FinishReason | undefined;
  #output = 0;
  #reasoning = 0;
  #usage: UpstreamUsage | undefined;
  /** What had been counted when the upstream reported last. */
  #before = { output: 0, reasoning: 0 };
  readonly #promptTokensLikely: number;

  constructor(promptTokensLikely: number) {
    this.#promptTokensLikely = promptTokensLikely;
  }

  add(chunks: readonly UpstreamChunk[]): void {
    for (const chunk of chunks) {
      if (chunk.finish_reason !== undefined) this.finishReason = chunk.finish_reason;
      if (chunk.delta !== undefined) this.#count(chunk.delta);
      if (chunk.usage === undefined) continue;
      this.#usage = chunk.usage;
      this.#before = { output: this.#output, reasoning: this.#reasoning };
    }
  }

  /**
   * What to charge for what has passed: the upstream's report where it can be true, else what was counted. Some report from
   * the first event on: of an answer that has not ended, what came after the report is no part of it.
   */
  reading(): { tokens: TokenCounts; basis: EventBasis } {
    const reported = this.#usage === undefined ? undefined : reportedTokens(this.#usage);
    const output = this.#output - this.#before.output;
    const reasoning = this.#reasoning - this.#before.reasoning;
    if (reported !== undefined) {
      if (this.finishReason !== undefined || output + reasoning === 0) return { tokens: reported, basis: "reported" };
      const more = { output: reported.output + output, reasoning: reported.reasoning + reasoning };
      return { tokens: { ...reported, ...more }, basis: "counted" };
    }
    const tokens = {
      input: this.#promptTokensLikely,
      cachedInput: 0,
      cacheWrite: 0,
      output: this.#output,
      reasoning: this.#reasoning,
    };
    return { tokens, basis: "counted" };
  }

  #count(delta: Delta): void {
    if (delta.content) this.#output += countPiece(delta.content);
    if (delta.refusal) this.#output += countPiece(delta.refusal);
    if (delta.reasoning_content) this.#reasoning += countPiece(delta.reasoning_content);
    for (const call of delta.tool_calls ?? []) {
      this.#output += countPiece(call.function?.name ?? "") + countPiece(call.function?.arguments ?? "");
    }
  }
}

/**
 * An upstream's usage as disjoint classes, or undefined where it cannot be true: each counter an integer from 0 to 10^7,
 * the parts at most the whole, and not nothing at all, which is what those write who do not count. Cached and written tokens are part of `prompt_tokens`, reasoning tokens part of
 * `completion_tokens` (OpenAI's API reference, "The chat completion object").
 */
export function reportedTokens(usage: UpstreamUsage): TokenCounts | undefined {
  const prompt = counter(usage.prompt_tokens);
  const completion = counter(usage.completion_tokens);
  const cachedInput = counter(usage.cached_tokens ?? 0);
  const cacheWrite = counter(usage.cache_write_tokens ?? 0);
  const reasoning = counter(usage.reasoning_tokens ?? 0);
  if (prompt === undefined || completion === undefined) return undefined;
  if (cachedInput === undefined || cacheWrite === undefined || reasoning === undefined) return undefined;
  if (prompt + completion === 0) return undefined;
  if (cachedInput + cacheWrite > prompt || reasoning > completion) return undefined;
  const input = prompt - cachedInput - cacheWrite;
  return { input, cachedInput, cacheWrite, output: completion - reasoning, reasoning };
}

/** Disjoint classes back in OpenAI's shape; the details stand where there is something to tell. */
export function usageOf(tokens: TokenCounts, charged: MicroCredits): CompletionUsage {
  const prompt = tokens.input + tokens.cachedInput + tokens.cacheWrite;
  const completion = tokens.output + tokens.reasoning;
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...(tokens.cachedInput > 0 && { prompt_tokens_details: { cached_tokens: tokens.cachedInput } }),
    ...(tokens.reasoning > 0 && { completion_tokens_details: { reasoning_tokens: tokens.reasoning } }),
    cost: creditsFromMicro(charged),
  };
}

function counter(value: unknown): number | undefined {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= TOKENS_MAX ? value : undefined;
}
