import { ChoicesProgress } from "../api/answer.ts";
import type { CompletionUsage } from "../api/chat/completion.ts";
import { CALL_ROWS, type CallCounts, FURTHER_ROWS, type TokenClass } from "../api/price-classes.ts";
import { type SentTextVisitor, visitSent } from "../api/sent-text.ts";
import { printable } from "../api/wording.ts";
import { creditsFromMicro, type MicroCredits, PROVIDER_COST_DIGITS, PROVIDER_COST_MAX } from "../credits/amount.ts";
import { tokensOfPiece } from "../credits/estimate.ts";
import type { Trace } from "../credits/facts.ts";
import { byName, type TokenCounts, tokenTotals } from "../credits/price.ts";
import type { UpstreamChunk, UpstreamUsage } from "../providers/provider.ts";

/**
 * Bytes of text that are kept for counting. The tokens of a longer text are scaled: a stream may take at most 256 KiB of
 * memory, buffers included.
 */
const KEPT_BYTES_MAX = 16 * 1024;
/** Answers rarely have more bytes per token, so this is enough text to reach `max_tokens`. */
const KEPT_BYTES_A_TOKEN = 16;
const KEPT_BYTES_FIRST = 256;
/**
 * Pieces are written to the buffer together: writing each costs several times as much. Until then each piece takes about
 * 60 bytes in addition to its characters. Most answers end before anything is written.
 */
const RECENT_PIECES_MAX = 64;
const RECENT_CHARACTERS_MAX = 4096;

/** The newest report of an upstream. */
export interface ReportedTokens {
  tokens: TokenCounts;
  /** False if something that the client receives arrived after the report: it covers only a part of the answer. */
  isFinal: boolean;
}

const RESPONSE_ID_CHARACTERS_MAX = 200;

/** The measurements of an answer so far. */
export type MeterReading = Readonly<Omit<Meter, "add" | "data" | "logprobs">>;

/** Base64 characters that count as one token: about the tokens of sound and images at the providers that make them. */
const DATA_CHARACTERS_A_TOKEN = 1024;

/**
 * Measures an answer as it passes: records everything that its client receives, so that tokens can be counted, and the
 * upstream's reports.
 */
export class Meter implements SentTextVisitor {
  readonly choices = new ChoicesProgress();
  /** The service tier that the upstream reported last. */
  serviceTier: string | undefined;
  #responseId: string | null = null;
  readonly output: PassedText;
  readonly reasoning: PassedText;
  /** Everything else that the client receives, such as citations and fields that this service does not know. */
  readonly other: PassedText;
  /** Tokens whose probabilities have arrived. */
  #logprobs = 0;
  /** Characters of data in base64, such as images. */
  dataCharacters = 0;
  #hasToolCall = false;
  /** Calls so far, as the answer itself shows. */
  calls: CallCounts = {};
  #usage: UpstreamUsage | undefined;
  /** Measure of everything that had arrived when the upstream last reported. */
  #sentBefore = 0;

  /** `maxTokens` is the bound of the answer's output. */
  constructor(maxTokens: number) {
    const keptBytesMax = Math.min(KEPT_BYTES_MAX, Math.max(KEPT_BYTES_FIRST, maxTokens * KEPT_BYTES_A_TOKEN));
    this.output = new PassedText(keptBytesMax);
    this.reasoning = new PassedText(keptBytesMax);
    this.other = new PassedText(keptBytesMax);
  }

  data(characters: number): void {
    this.dataCharacters += characters;
  }

  logprobs(tokens: number): void {
    this.#logprobs += tokens;
  }

  add(chunks: readonly UpstreamChunk[]): void {
    for (const chunk of chunks) {
      this.choices.add(chunk);
      if (chunk.responseId !== undefined) this.#responseId = printable(chunk.responseId, RESPONSE_ID_CHARACTERS_MAX);
      if (chunk.service_tier !== undefined) this.serviceTier = chunk.service_tier;
      visitSent(chunk, this);
      if (chunk.delta?.tool_calls !== undefined) this.#hasToolCall = true;
      if (chunk.calls !== undefined) this.calls = chunk.calls;
      if (chunk.usage === undefined) continue;
      this.#usage = chunk.usage;
      this.#sentBefore = this.#sent;
    }
  }

  /** The provider's own record of the answer, as far as it is known. */
  get providerRecord(): Pick<Trace, "providerResponseId" | "providerCost"> {
    return { providerResponseId: this.#responseId, providerCost: decimalCost(this.#usage?.cost) };
  }

  /** True once something has arrived that the client receives, apart from the role. */
  get hasContent(): boolean {
    return this.#hasToolCall || this.#sent > 0;
  }

  /** Bytes of text that have arrived: what a report of usage must be plausible for. */
  get bytes(): number {
    return this.output.bytes + this.reasoning.bytes;
  }

  get #sent(): number {
    return this.bytes + this.other.bytes + this.dataCharacters + this.#logprobs;
  }

  /**
   * Returns the newest report; undefined where it is not plausible. Some upstreams report from the first event on, and some
   * write a placeholder: what arrived after a report is not part of it.
   */
  report(): ReportedTokens | undefined {
    const tokens = this.#usage === undefined ? undefined : reportedTokens(this.#usage);
    return tokens && { tokens, isFinal: this.#sentBefore === this.#sent };
  }

  /** Returns the tokens of everything so far by the length of its pieces, without a tokenizer. */
  roughCounts(): Pick<TokenCounts, "output" | "reasoning"> {
    return this.#countsOf(this.output.roughTokens, this.reasoning.roughTokens, this.other.roughTokens);
  }

  /** Returns the tokens of everything so far, given those of the texts that were kept. */
  counts(output: number, reasoning: number, other: number): Pick<TokenCounts, "output" | "reasoning"> {
    return this.#countsOf(this.output.scaled(output), this.reasoning.scaled(reasoning), this.other.scaled(other));
  }

  #countsOf(output: number, reasoning: number, other: number): Pick<TokenCounts, "output" | "reasoning"> {
    const data = Math.ceil(this.dataCharacters / DATA_CHARACTERS_A_TOKEN);
    return { output: Math.max(output, this.#logprobs) + other + data, reasoning };
  }
}

/** The text of an answer as UTF-8: as many short strings it would take ten times the memory. */
class PassedText {
  bytes = 0;
  /** Tokens estimated from the length of the pieces: less exact than the tokenizer's count, but available at once. */
  roughTokens = 0;
  readonly #keptBytesMax: number;
  #kept: Buffer | undefined;
  #keptBytes = 0;
  /** Text that is not in the buffer yet. */
  #recent = "";
  #recentPieces = 0;

  constructor(keptBytesMax: number) {
    this.#keptBytesMax = keptBytesMax;
  }

  add(piece: string): void {
    if (piece === "") return;
    const bytes = Buffer.byteLength(piece);
    this.bytes += bytes;
    this.roughTokens += tokensOfPiece(bytes);
    if (this.#keptBytes === this.#keptBytesMax) return;
    this.#recent += piece;
    this.#recentPieces += 1;
    if (this.#recentPieces > RECENT_PIECES_MAX || this.#recent.length > RECENT_CHARACTERS_MAX) this.#write();
  }

  /** Returns the part of the text that was kept. */
  text(): string {
    this.#write();
    return this.#kept?.toString("utf8", 0, this.#keptBytes) ?? "";
  }

  /** Returns the tokens of the whole text, given those of the kept part. */
  scaled(tokens: number): number {
    this.#write();
    return this.#keptBytes === 0 ? 0 : Math.ceil((tokens * this.bytes) / this.#keptBytes);
  }

  #write(): void {
    if (this.#recent === "") return;
    this.#keptBytes += this.#room(Buffer.byteLength(this.#recent)).write(this.#recent, this.#keptBytes);
    this.#recent = "";
    this.#recentPieces = 0;
  }

  /** Returns the buffer with room for more bytes, up to the limit. */
  #room(bytes: number): Buffer {
    const size = this.#kept?.length ?? 0;
    const needed = Math.min(this.#keptBytesMax, this.#keptBytes + bytes);
    if (this.#kept !== undefined && needed <= size) return this.#kept;
    const grown = Buffer.allocUnsafe(Math.min(this.#keptBytesMax, Math.max(KEPT_BYTES_FIRST, size * 2, needed)));
    this.#kept?.copy(grown, 0, 0, this.#keptBytes);
    this.#kept = grown;
    return grown;
  }
}

/**
 * Reads an upstream's usage as disjoint classes; undefined where it is not plausible: each counter is an integer of at least 0,
 * the parts are at most the whole, and not all counters are 0, which upstreams write that do not count. Cached and written
 * tokens are part of `prompt_tokens`, reasoning tokens part of `completion_tokens` (OpenAI's API reference, "The chat
 * completion object").
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
  const tokens = {
    input: prompt - cachedInput - cacheWrite,
    cachedInput,
    cacheWrite,
    output: completion - reasoning,
    reasoning,
  };
  return withFurther(tokens, usage);
}

/**
 * Adds the parts of a report, and its calls; undefined where one is not plausible. Upstreams count audio and images across
 * cached and new input, and across reasoning and output: the tokens beyond the class are in the other one.
 */
function withFurther(tokens: TokenCounts, usage: UpstreamUsage): TokenCounts | undefined {
  const counts = { ...tokens };
  const room: Record<TokenClass, number> = { ...tokens };
  for (const { class: name, partOf, reportedAs, isWithinClass, reportIncludes } of FURTHER_ROWS) {
    if (reportedAs === undefined) continue;
    const reported = counter(usage[reportedAs] ?? 0);
    if (reported === undefined) return undefined;
    const count = reported - (reportIncludes === undefined ? 0 : (counts[reportIncludes] ?? 0));
    const most = partOf === undefined ? count : room[partOf];
    if (count < 0 || (isWithinClass && count > most)) return undefined;
    const fitting = Math.min(count, most);
    if (fitting === 0) continue;
    counts[name] = fitting;
    if (partOf !== undefined) room[partOf] -= fitting;
  }
  return counts;
}

const CALL_CLASSES = CALL_ROWS.map((row) => row.class);

/** Formats charged tokens as OpenAI's usage object; details appear where they are not 0. */
export function usageOf(tokens: TokenCounts, charged: MicroCredits): CompletionUsage {
  const { cachedInput, cacheWrite, reasoning } = tokens;
  const { input: prompt, output: completion } = tokenTotals(tokens);
  const promptDetails = stated({
    cached_tokens: cachedInput,
    cache_write_tokens: cacheWrite,
    cache_write_1h_tokens: tokens.cacheWrite1h,
    audio_tokens: (tokens.inputAudio ?? 0) + (tokens.cachedAudio ?? 0),
    cached_audio_tokens: tokens.cachedAudio,
    image_tokens: tokens.inputImage,
  });
  const completionDetails = stated({
    reasoning_tokens: reasoning,
    audio_tokens: tokens.outputAudio,
    image_tokens: tokens.outputImage,
  });
  const calls = stated(byName(tokens, CALL_CLASSES, (count) => count));
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...(promptDetails && { prompt_tokens_details: promptDetails }),
    ...(completionDetails && { completion_tokens_details: completionDetails }),
    ...(calls && { calls }),
    cost: creditsFromMicro(charged),
  };
}

/** Returns the counts that are not 0; undefined where there are none. */
function stated<Name extends string>(counts: Record<Name, number | undefined>): { [N in Name]?: number } | undefined {
  let found: { [N in Name]?: number } | undefined;
  for (const name in counts) {
    const count = counts[name];
    if (count === undefined || count === 0) continue;
    found ??= {};
    found[name] = count;
  }
  return found;
}

/** Formats a provider's cost as a decimal number without an exponent; null where the value is not a cost. */
export function decimalCost(cost: unknown): string | null {
  const number = typeof cost === "string" && cost !== "" ? Number(cost) : cost;
  if (typeof number !== "number" || !(number >= 0 && number <= PROVIDER_COST_MAX)) return null;
  return number.toFixed(PROVIDER_COST_DIGITS).replace(/\.?0+$/, "");
}

function counter(value: unknown): number | undefined {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 ? value : undefined;
}
