import type { ChatCompletionRequest } from "../api/chat/request.ts";
import { type CatalogModel, pricesAt, type Route, upstreamOf } from "../catalog/model.ts";
import type { EventBasis, HoldFacts } from "../credits/books.ts";
import { type PromptEstimate, possiblePrices, promptTexts } from "../credits/estimate.ts";
import {
  areCounts,
  isFree as areFree,
  FREE,
  fittingFurther,
  NO_TOKENS,
  pricesUsed,
  type TokenCounts,
  type UnitPrices,
} from "../credits/price.ts";
import type { MeterReading, ReportedTokens } from "./meter.ts";
import type { TokenCounter } from "./token-counter.ts";

/** The parts of an admission that a charge depends on. */
interface Admitted {
  estimate: PromptEstimate;
  maxTokens: number;
}

interface AdmittedFacts {
  facts: HoldFacts;
  isFree: boolean;
  estimate: PromptEstimate;
}

/** Tokens to charge, the basis of the charge, and the upstream's report where it differs. */
export interface Charge {
  tokens: TokenCounts;
  basis: EventBasis;
  reported: TokenCounts | null;
}

/** Tokens that a request can be charged at most. Its hold covers them. */
export interface TokenBounds {
  prompt: number;
  completion: number;
  /** Searches, and images; 0 where they have no price. */
  calls: number;
}

/** Most bytes per token in the text of a complete answer. A report of fewer tokens is compared with a count. */
const BYTES_A_TOKEN_CREDIBLE = 8;
/** A report below the count by at most this many tokens is accepted. */
const TOKENS_OF_DOUBT = 64;

/** Answers of an upstream that are remembered; the newest replace the oldest. */
const ANSWERS_KEPT = 512;
/** Answers of an upstream below which its figures are not used. */
const ANSWERS_LEAST = 100;
const USUAL_TOKENS_A_SECOND = 50;
const USUAL_TOKENS_MAX = 4_096;

/**
 * Returns the bounds of a route: the upper estimate of the prompt and `max_tokens`; the context window where the provider runs
 * tools of its own, and the model's maximum where it counts reasoning outside `max_tokens`.
 */
export function boundsOf(
  { contextWindow, maxOutputTokens }: Pick<CatalogModel, "contextWindow" | "maxOutputTokens">,
  { runsTools, countsReasoningBeside, callsMost }: Pick<Route, "runsTools" | "countsReasoningBeside" | "callsMost">,
  { most }: Pick<PromptEstimate, "most">,
  maxTokens: number,
): TokenBounds {
  return {
    prompt: runsTools === true ? Math.max(most, contextWindow) : most,
    completion: countsReasoningBeside === true ? Math.max(maxTokens, maxOutputTokens) : maxTokens,
    calls: callsMost ?? 0,
  };
}

/** Limits tokens to the bounds: cached and written input and visible output first. Returns the same object where they are within. */
export function within(tokens: TokenCounts, bounds: TokenBounds): TokenCounts {
  const promptTokens = tokens.input + tokens.cachedInput + tokens.cacheWrite;
  const isWithin = promptTokens <= bounds.prompt && tokens.output + tokens.reasoning <= bounds.completion;
  if (isWithin && areFurtherWithin(tokens, bounds)) return tokens;
  const cachedInput = Math.min(tokens.cachedInput, bounds.prompt);
  const cacheWrite = Math.min(tokens.cacheWrite, bounds.prompt - cachedInput);
  const input = Math.min(tokens.input, bounds.prompt - cachedInput - cacheWrite);
  const output = Math.min(tokens.output, bounds.completion);
  const reasoning = Math.min(tokens.reasoning, bounds.completion - output);
  const counts = { input, cachedInput, cacheWrite, output, reasoning };
  const further = fittingFurther(
    { ...counts, ...(tokens.further && { further: tokens.further }) },
    callsMostOf(bounds),
  );
  return further === undefined ? counts : { ...counts, further };
}

function areFurtherWithin(tokens: TokenCounts, bounds: TokenBounds): boolean {
  const { further } = tokens;
  if (further === undefined) return true;
  const most = callsMostOf(bounds);
  return (further.searches ?? 0) <= most && (further.images ?? 0) <= most && areCounts(tokens);
}

/** Calls without a price need no bound. */
function callsMostOf({ calls }: TokenBounds): number {
  return calls === 0 ? Number.POSITIVE_INFINITY : calls;
}

/** Returns the charge for everything so far, without a tokenizer: for checkpoints, and where nothing has a price. */
export function roughCharge(meter: MeterReading, likelyPromptTokens: number, bounds: TokenBounds): Charge {
  const report = meter.report();
  const { output, reasoning } = meter;
  const counted = { output: output.roughTokens, reasoning: reasoning.roughTokens };
  if (report === undefined) {
    return limited({ ...NO_TOKENS, input: likelyPromptTokens, ...counted }, "counted", undefined, bounds);
  }
  if (report.isFinal) return limited(report.tokens, "reported", report.tokens, bounds);
  return limited({ ...report.tokens, ...atLeast(counted, report.tokens) }, "counted", report.tokens, bounds);
}

/**
 * Returns the facts of a request with the route that was taken, and its prices for so many tokens at the service tier that
 * the upstream reported; and the tokens with the request itself where it has a price.
 */
export function chargedAt(
  { facts, isFree, estimate }: AdmittedFacts,
  route: Route,
  counts: TokenCounts,
  serviceTier: string | undefined,
): { facts: HoldFacts; tokens: TokenCounts } {
  const promptTokens = counts.input + counts.cachedInput + counts.cacheWrite;
  const { hasAudio, hasHourCache } = estimate;
  const possible = { hasAudio, hasHourCache, callsMost: route.callsMost ?? 0 };
  const prices = isFree ? FREE : possiblePrices(pricesAt(route, promptTokens, serviceTier), possible);
  const hasRequestPrice = prices.further?.requests !== undefined;
  const tokens = hasRequestPrice ? { ...counts, further: { ...counts.further, requests: 1 } } : counts;
  return { facts: { ...facts, upstream: upstreamOf(route), prices: pricesUsed(prices, tokens) }, tokens };
}

/** Returns the charge of a stream if its hold expired now: for what the client has received. */
export function checkpointOf(
  model: CatalogModel,
  route: Route,
  admission: AdmittedFacts & Admitted,
  meter: MeterReading,
): { facts: HoldFacts; tokens: TokenCounts } {
  if (!meter.hasContent) return { facts: admission.facts, tokens: NO_TOKENS };
  return chargedAt(admission, route, roughTokens(model, route, admission, meter), meter.serviceTier);
}

/** Returns the rough tokens of a request on a route. */
export function roughTokens(
  model: CatalogModel,
  route: Route,
  { estimate, maxTokens }: Admitted,
  meter: MeterReading,
): TokenCounts {
  return roughCharge(meter, estimate.likely, boundsOf(model, route, estimate, maxTokens)).tokens;
}

export interface Charged {
  model: Pick<CatalogModel, "capabilities">;
  route: Route;
  request: ChatCompletionRequest;
  estimate: PromptEstimate;
  bounds: TokenBounds;
  /** The prices that the hold was made at. */
  prices: UnitPrices;
  meter: MeterReading;
  hasClientLeft: boolean;
  /** True where the client asked for a stream. */
  isStreamed: boolean;
  /** Since the upstream was called. */
  elapsedMs: number;
}

/**
 * Returns the charge of an answer (`docs/charging.md`): the upstream's report where it is final and credible, else a count of
 * the text, else, for output that was not visible, an estimate from time. Never above the bounds. Never rejects.
 */
export async function chargeOf(
  { tokenCounter, outputRates }: { tokenCounter: Pick<TokenCounter, "count">; outputRates: OutputRates },
  one: Charged,
): Promise<Charge> {
  const { meter, estimate, bounds, prices } = one;
  const rough = roughCharge(meter, estimate.likely, bounds);
  if (areFree(prices)) return rough;
  const report = meter.report();
  if (report?.isFinal === true && !isHidden(one)) {
    const completion = report.tokens.output + report.tokens.reasoning;
    if (completion >= meter.bytes / BYTES_A_TOKEN_CREDIBLE) return rough;
    const counted = (await countAll(tokenCounter, meter, []))?.answer ?? report.tokens;
    const count = counted.output + counted.reasoning;
    if (isCredible(completion, count)) return rough;
    return limited({ ...report.tokens, ...counted }, "counted", report.tokens, bounds);
  }
  const texts = report === undefined ? promptTexts(one.request) : [];
  const counts = await countAll(tokenCounter, meter, texts);
  const seen = counts === undefined ? rough : countedCharge(report, counts, one);
  return isHidden(one) ? withHidden(seen, outputRates.estimate(upstreamOf(one.route), one.elapsedMs), one) : seen;
}

/** Tells whether a report may be true although a count of the same text is higher: tokenizers differ. */
export function isCredible(reported: number, counted: number): boolean {
  return reported >= counted / 2 || counted - reported <= TOKENS_OF_DOUBT;
}

/**
 * Tells whether output was produced that was not visible: the client disconnected from an answer that was not streamed, or
 * from one of a model with hidden reasoning, before the upstream had reported its end.
 */
function isHidden({ hasClientLeft, isStreamed, model, meter }: Charged): boolean {
  if (!hasClientLeft || meter.finishReason !== undefined) return false;
  return !isStreamed || (model.capabilities.has("reasoning") && meter.reasoning.bytes === 0);
}

/** Raises the output of a charge to the estimate; a stream's hidden output is reasoning. */
function withHidden(seen: Charge, estimated: number, { bounds, isStreamed }: Charged): Charge {
  const { output, reasoning } = seen.tokens;
  const more = Math.min(estimated, bounds.completion) - output - reasoning;
  if (more <= 0) return seen;
  const hidden = isStreamed ? { reasoning: reasoning + more } : { output: output + more };
  return { ...seen, tokens: { ...seen.tokens, ...hidden }, basis: "estimated" };
}

type Completion = Pick<TokenCounts, "output" | "reasoning">;

/** Returns the larger of the count and the report. */
function atLeast(counted: Completion, { output, reasoning }: Completion): Completion {
  return counted.output + counted.reasoning >= output + reasoning ? counted : { output, reasoning };
}

interface Counts {
  answer: Completion;
  /** Tokens of the prompt's text. */
  prompt: number;
}

/** Counts the tokens of the answer's text and of the prompt's; undefined where they cannot be counted now. */
async function countAll(
  tokenCounter: Pick<TokenCounter, "count">,
  { output, reasoning }: MeterReading,
  promptTexts: readonly string[],
): Promise<Counts | undefined> {
  const counts = await tokenCounter.count([[output.text()], [reasoning.text()], promptTexts]);
  if (counts === undefined) return undefined;
  const [outputTokens = 0, reasoningTokens = 0, prompt = 0] = counts;
  return { answer: { output: output.scaled(outputTokens), reasoning: reasoning.scaled(reasoningTokens) }, prompt };
}

/** Charges the reported prompt, or the counted one without a report, and the larger completion of count and report. */
function countedCharge(
  report: ReportedTokens | undefined,
  { answer, prompt }: Counts,
  { estimate, bounds }: Charged,
): Charge {
  const tokens =
    report === undefined
      ? { ...NO_TOKENS, input: estimate.likelyBesideText + prompt, ...answer }
      : { ...report.tokens, ...atLeast(answer, report.tokens) };
  return limited(tokens, "counted", report?.tokens, bounds);
}

/** Makes a charge within the bounds. Its basis is `bounded` where a report was above them. */
export function limited(
  tokens: TokenCounts,
  basis: EventBasis,
  reported: TokenCounts | undefined,
  bounds: TokenBounds,
): Charge {
  const charged = within(tokens, bounds);
  const isAbove = reported !== undefined && within(reported, bounds) !== reported;
  const isReported = reported === undefined || charged === reported;
  return { tokens: charged, basis: isAbove ? "bounded" : basis, reported: isReported ? null : reported };
}

interface Answers {
  tokens: Float64Array;
  tokensAMillisecond: Float64Array;
  count: number;
}

/**
 * Measures how fast and how much each upstream writes, from complete answers with reported usage. Estimates the output of
 * an answer whose client disconnected before it arrived.
 */
export class OutputRates {
  readonly #answers = new Map<string, Answers>();

  /** Notes a complete answer. `durationMs` is the time from the call of the upstream to the end of the answer. */
  note(upstream: string, tokens: number, durationMs: number): void {
    let answers = this.#answers.get(upstream);
    if (answers === undefined) {
      answers = {
        tokens: new Float64Array(ANSWERS_KEPT),
        tokensAMillisecond: new Float64Array(ANSWERS_KEPT),
        count: 0,
      };
      this.#answers.set(upstream, answers);
    }
    const place = answers.count % ANSWERS_KEPT;
    answers.tokens[place] = tokens;
    answers.tokensAMillisecond[place] = tokens / Math.max(1, durationMs);
    answers.count += 1;
  }

  /**
   * Estimates the output tokens that an upstream has written in a time: the time multiplied by its median rate, at most the 95th
   * percentile of its answers. Before 100 answers are known, 50 tokens a second and at most 4,096.
   */
  estimate(upstream: string, elapsedMs: number): number {
    const answers = this.#answers.get(upstream);
    const ms = Math.max(0, elapsedMs);
    if (answers === undefined || answers.count < ANSWERS_LEAST) {
      return Math.min(USUAL_TOKENS_MAX, Math.floor((ms / 1000) * USUAL_TOKENS_A_SECOND));
    }
    const known = Math.min(answers.count, ANSWERS_KEPT);
    const rate = percentile(answers.tokensAMillisecond.slice(0, known), 0.5);
    return Math.floor(Math.min(ms * rate, percentile(answers.tokens.slice(0, known), 0.95)));
  }
}

/** The smallest value that at least this part of the values does not exceed. Sorts them in place. */
function percentile(values: Float64Array, part: number): number {
  return values.sort()[Math.ceil(values.length * part) - 1] ?? 0;
}
