import { LRUCache } from "lru-cache";
import { CALL_ROWS, type CallCounts, PRICE_ROWS, TOKEN_CLASSES } from "../api/price-classes.ts";
import { type CatalogModel, pricesAt, type Route, upstreamOf } from "../catalog/model.ts";
import { type PromptEstimate, possiblePrices } from "../credits/estimate.ts";
import type { EventBasis, HoldFacts } from "../credits/facts.ts";
import {
  isFree as areFree,
  FREE,
  fitted,
  NO_TOKENS,
  pricesUsed,
  type TokenCounts,
  tokenTotals,
  type UnitPrices,
} from "../credits/price.ts";
import type { MeterReading, ReportedTokens } from "./meter.ts";
import type { Plan } from "./plan.ts";
import type { TextCounter } from "./token-counter.ts";

/** The parts of an admission that a charge depends on. */
export interface Admitted {
  facts: HoldFacts;
  /** True for the playground, whose requests are free at any price. */
  isFree: boolean;
  estimate: PromptEstimate;
  maxTokens: number;
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

/**
 * Returns the bounds of a route: the upper estimate of the prompt and `max_tokens`; the context window where the provider runs
 * tools of its own, and the model's maximum where it counts reasoning outside `max_tokens`. The completion of each choice has its own.
 */
export function tokenBoundsOf(
  { contextWindow, maxOutputTokens }: Pick<CatalogModel, "contextWindow" | "maxOutputTokens">,
  { runsTools, countsReasoningBeside, callsMost }: Pick<Route, "runsTools" | "countsReasoningBeside" | "callsMost">,
  { most, choices }: Pick<PromptEstimate, "most" | "choices">,
  maxTokens: number,
): TokenBounds {
  const completion = countsReasoningBeside === true && maxTokens > 0 ? Math.max(maxTokens, maxOutputTokens) : maxTokens;
  return {
    prompt: runsTools === true ? Math.max(most, contextWindow) : most,
    completion: completion * choices,
    calls: callsMost ?? 0,
  };
}

/** Limits tokens to the bounds: cached and written input and visible output first. Returns the same object where they are within. */
export function within(tokens: TokenCounts, bounds: TokenBounds): TokenCounts {
  const { input: prompt, output: completion } = tokenTotals(tokens);
  const isOfClassesOnly = Object.keys(tokens).length === TOKEN_CLASSES.length;
  if (isOfClassesOnly && prompt <= bounds.prompt && completion <= bounds.completion) return tokens;
  const cachedInput = Math.min(tokens.cachedInput, bounds.prompt);
  const cacheWrite = Math.min(tokens.cacheWrite, bounds.prompt - cachedInput);
  const input = Math.min(tokens.input, bounds.prompt - cachedInput - cacheWrite);
  const output = Math.min(tokens.output, bounds.completion);
  const reasoning = Math.min(tokens.reasoning, bounds.completion - output);
  const callsMost = bounds.calls === 0 ? UNPRICED_CALLS_MAX : bounds.calls;
  const most = fitted({ ...tokens, input, cachedInput, cacheWrite, output, reasoning }, callsMost);
  return PRICE_ROWS.every(({ class: name }) => (tokens[name] ?? 0) === (most[name] ?? 0)) ? tokens : most;
}

/** Calls without a price need a bound only so that their sums can be stored. */
const UNPRICED_CALLS_MAX = 1_000_000;

/** Returns the charge for everything so far, without a tokenizer: for checkpoints, and where nothing has a price. */
export function roughCharge(
  meter: MeterReading,
  estimate: Pick<PromptEstimate, "likely" | "calls">,
  bounds: TokenBounds,
  report = meter.report(),
): Charge {
  if (report?.isFinal === true) return limited(report.tokens, "reported", report.tokens, bounds);
  return countedCharge(
    report,
    { input: estimate.likely, ...meter.roughCounts() },
    { ...estimate.calls, ...meter.calls },
    bounds,
  );
}

/**
 * Charges the reported prompt, or the counted one without a report; the larger completion of count and report; and the calls
 * that the answer shows, which a report may not contain yet, or else those that the request bounds.
 */
function countedCharge(
  report: ReportedTokens | undefined,
  { input, output, reasoning }: Completion & Pick<TokenCounts, "input">,
  calls: CallCounts,
  bounds: TokenBounds,
): Charge {
  const prompt = report?.tokens ?? { ...NO_TOKENS, input };
  const isCountLarger = output + reasoning >= prompt.output + prompt.reasoning;
  const tokens = { ...prompt, ...(isCountLarger && { output, reasoning }) };
  for (const { class: name } of CALL_ROWS) {
    const count = calls[name] ?? 0;
    if (count > (tokens[name] ?? 0)) tokens[name] = count;
  }
  return limited(tokens, "counted", report?.tokens, bounds);
}

/**
 * Returns the facts of a request with the route that was taken, and its prices for so many tokens at the service tier that
 * the upstream reported; and the tokens with the request itself where it has a price.
 */
export function chargedAt(
  { facts, isFree, estimate }: Omit<Admitted, "maxTokens">,
  route: Route,
  counts: TokenCounts,
  serviceTier: string | undefined,
): { facts: HoldFacts; tokens: TokenCounts } {
  const priced = pricesAt(route, tokenTotals(counts).input, serviceTier);
  const prices = isFree ? FREE : possiblePrices(priced, { ...estimate, callsMost: route.callsMost ?? 0 });
  const tokens = prices.requests === undefined ? counts : { ...counts, requests: 1 };
  return { facts: { ...facts, upstream: upstreamOf(route), prices: pricesUsed(prices, tokens) }, tokens };
}

/** Returns the charge of a stream if its hold expired now: for what the client has received. */
export function checkpointOf(
  model: CatalogModel,
  route: Route,
  admission: Admitted,
  meter: MeterReading,
): { facts: HoldFacts; tokens: TokenCounts } {
  if (!meter.hasContent) return { facts: admission.facts, tokens: NO_TOKENS };
  return chargedAt(admission, route, roughTokens(model, route, admission, meter), meter.serviceTier);
}

/** Returns the rough tokens of a request on a route. */
export function roughTokens(
  model: CatalogModel,
  route: Route,
  { estimate, maxTokens }: Pick<Admitted, "estimate" | "maxTokens">,
  meter: MeterReading,
): TokenCounts {
  return roughCharge(meter, estimate, tokenBoundsOf(model, route, estimate, maxTokens)).tokens;
}

export interface Charged {
  plan: Pick<Plan, "estimate" | "isInputOnly" | "isStreamed" | "promptTexts"> & {
    model: Pick<CatalogModel, "capabilities">;
  };
  route: Route;
  bounds: TokenBounds;
  prices: UnitPrices;
  meter: MeterReading;
  isClientDisconnected: boolean;
  elapsedMs: number;
}

/**
 * Returns the charge of an answer (`docs/charging.md`): the upstream's report where it is final and credible, else a count of
 * the text, else, for output that was not visible, an estimate from time. Never above the bounds. Never rejects.
 */
export async function chargeOf(
  { tokenCounter, outputRates }: { tokenCounter: TextCounter; outputRates: OutputRates },
  one: Charged,
): Promise<Charge> {
  const { plan, meter, bounds, prices } = one;
  const report = meter.report();
  const rough = roughCharge(meter, plan.estimate, bounds, report);
  if (areFree(prices)) return rough;
  if (report?.isFinal === true && !isHidden(one)) {
    if (!isDoubtful(report.tokens, one)) return rough;
    const corrected = await correctedReport(tokenCounter, report.tokens, one);
    return corrected === undefined ? rough : limited(corrected, "counted", report.tokens, bounds);
  }
  const counts = await countAll(tokenCounter, meter, report === undefined ? plan.promptTexts() : []);
  const input = plan.estimate.likelyBesideText + (counts?.prompt ?? 0);
  const seen =
    counts === undefined
      ? rough
      : countedCharge(report, { input, ...counts.answer }, { ...plan.estimate.calls, ...meter.calls }, bounds);
  if (!isHidden(one)) return seen;
  const upstream = upstreamOf(one.route);
  const choices = Math.max(meter.choices.begun, outputRates.choicesOf(upstream, plan.estimate.choices));
  return withHidden(seen, choices * outputRates.estimate(upstream, one.elapsedMs), one);
}

/** Tells whether a report may be too low. The prompt is compared only if nothing else is charged. */
function isDoubtful(reported: TokenCounts, one: Charged): boolean {
  const { output, reasoning } = reported;
  return output + reasoning < one.meter.bytes / BYTES_A_TOKEN_CREDIBLE || isPromptDoubtful(reported, one);
}

function isPromptDoubtful(reported: TokenCounts, { plan }: Charged): boolean {
  return plan.isInputOnly && !isCredible(tokenTotals(reported).input, plan.estimate.likely, 0);
}

/**
 * Compares a doubtful report with a count. Returns the tokens with the counted ones in place of those that are not credible;
 * undefined where the report is.
 */
async function correctedReport(
  tokenCounter: TextCounter,
  reported: TokenCounts,
  one: Charged,
): Promise<TokenCounts | undefined> {
  const { plan, meter } = one;
  const { input: prompt, output: completion } = tokenTotals(reported);
  const comparesPrompt = isPromptDoubtful(reported, one);
  const counts = await countAll(tokenCounter, meter, comparesPrompt ? plan.promptTexts() : []);
  if (counts === undefined) return undefined;
  const { text } = counts;
  const countedPrompt = plan.estimate.likelyBesideText + counts.prompt;
  const isTooShort = !isCredible(completion, text.output + text.reasoning);
  const isPromptTooShort = comparesPrompt && !isCredible(prompt, countedPrompt);
  if (!isTooShort && !isPromptTooShort) return undefined;
  const corrected = isPromptTooShort ? { ...NO_TOKENS, input: countedPrompt } : reported;
  return isTooShort ? { ...corrected, ...text } : corrected;
}

/** Tells whether a report may be true although a count of the same text is higher: tokenizers differ. */
function isCredible(reported: number, counted: number, tokensOfDoubt = TOKENS_OF_DOUBT): boolean {
  return reported >= counted / 2 || counted - reported <= tokensOfDoubt;
}

/**
 * Tells whether output may have been produced that was not visible: the client disconnected from an answer that was not
 * streamed, or from one of a model that reasons, as the catalog says or its answer shows, before the upstream had reported the
 * usage of the whole answer. A model may show only a part of its reasoning.
 */
function isHidden({ isClientDisconnected, plan: { isStreamed, model, estimate }, meter }: Charged): boolean {
  if (!isClientDisconnected || (meter.choices.hasFinished(estimate.choices) && meter.report()?.isFinal === true))
    return false;
  return !isStreamed || model.capabilities.has("reasoning") || meter.reasoning.bytes > 0;
}

/** Raises the output of a charge to the estimate; a stream's hidden output is reasoning. */
function withHidden(seen: Charge, estimated: number, { bounds, plan: { isStreamed } }: Charged): Charge {
  const { output, reasoning } = seen.tokens;
  const more = Math.min(estimated, bounds.completion) - output - reasoning;
  if (more <= 0) return seen;
  const hidden = isStreamed ? { reasoning: reasoning + more } : { output: output + more };
  return { ...seen, tokens: { ...seen.tokens, ...hidden }, basis: "estimated" };
}

type Completion = Pick<TokenCounts, "output" | "reasoning">;

interface Counts {
  /** Tokens of everything that the client received. */
  answer: Completion;
  /** Tokens of the answer's text alone: providers count nothing else, such as citations. */
  text: Completion;
  prompt: number;
}

/** Counts the tokens of the answer and of the prompt's text; undefined where they cannot be counted now. */
async function countAll(
  tokenCounter: TextCounter,
  meter: MeterReading,
  promptTexts: readonly string[],
): Promise<Counts | undefined> {
  const { output, reasoning, other } = meter;
  const counts = await tokenCounter.count([[output.text()], [reasoning.text()], [other.text()], promptTexts]);
  if (counts === undefined) return undefined;
  const [outputTokens = 0, reasoningTokens = 0, otherTokens = 0, prompt = 0] = counts;
  const text = { output: output.scaled(outputTokens), reasoning: reasoning.scaled(reasoningTokens) };
  return { answer: meter.counts(outputTokens, reasoningTokens, otherTokens), text, prompt };
}

/** Makes a charge within the bounds. Its basis is `bounded` where a report, or the calls that an answer states, were above them. */
function limited(
  tokens: TokenCounts,
  basis: EventBasis,
  reported: TokenCounts | undefined,
  bounds: TokenBounds,
): Charge {
  const charged = within(tokens, bounds);
  const stated = reported ?? excessiveCalls(tokens, charged);
  const isAbove = stated !== undefined && (stated === tokens ? charged : within(stated, bounds)) !== stated;
  const isReported = stated === undefined || charged === stated;
  return { tokens: charged, basis: isAbove ? "bounded" : basis, reported: isReported ? null : stated };
}

/** Returns the calls of an answer without a report, if there are more of them than are charged. */
function excessiveCalls(tokens: TokenCounts, charged: TokenCounts): TokenCounts | undefined {
  const above = CALL_ROWS.filter(({ class: name }) => (tokens[name] ?? 0) > (charged[name] ?? 0));
  if (above.length === 0) return undefined;
  return { ...NO_TOKENS, ...Object.fromEntries(above.map(({ class: name }) => [name, tokens[name]])) };
}

/** Organizations that are remembered for an upstream: those whose answers are the newest. */
const ORGANIZATIONS_KEPT = 64;
/** Answers that are remembered for an organization; the newest replace the oldest. */
const ANSWERS_KEPT = 128;
/** Answers of an upstream below which its figures are not used. */
const ANSWERS_LEAST = 100;
const USUAL_TOKENS_A_SECOND = 50;
const USUAL_TOKENS_MAX = 4_096;

/** A complete answer with reported usage. */
export interface MeasuredAnswer {
  upstream: string;
  organizationId: string;
  tokens: number;
  choices: number;
  choicesAsked: number;
  /** From the call of the upstream to the end of the answer. */
  durationMs: number;
}

interface Figures {
  tokens: number;
  tokensAMillisecond: number;
  /** The share of several choices that the upstream wrote; 0 if it wrote only one. */
  choiceShare?: number;
}

/**
 * Measures how fast and how much each upstream writes, and estimates from this the output of an answer whose client
 * disconnected before it arrived. The figures of an upstream are medians of the figures of its organizations, so that no
 * organization sets the price of another, however many requests it sends.
 */
export class OutputRates {
  readonly #upstreams = new Map<string, LRUCache<string, Figures[]>>();

  note(answer: MeasuredAnswer): void {
    const { upstream, organizationId, choices, choicesAsked, durationMs } = answer;
    const tokens = answer.tokens / choices;
    const organizations = this.#upstreams.get(upstream) ?? new LRUCache({ max: ORGANIZATIONS_KEPT });
    this.#upstreams.set(upstream, organizations);
    const answers = organizations.get(organizationId) ?? [];
    organizations.set(organizationId, answers);
    const figures: Figures = { tokens, tokensAMillisecond: tokens / Math.max(1, durationMs) };
    if (choicesAsked > 1) figures.choiceShare = choices === 1 ? 0 : choices / choicesAsked;
    answers.push(figures);
    if (answers.length > ANSWERS_KEPT) answers.shift();
  }

  /** Returns the choices that an upstream writes when it is asked for so many. */
  choicesOf(upstream: string, asked: number): number {
    return asked === 1 ? 1 : Math.max(1, Math.round(asked * this.#median(upstream, "choiceShare", 0.5)));
  }

  /**
   * Estimates the output tokens of a choice that an upstream has written in a time: the time multiplied by the median of the
   * organizations' median rates, at most the median of the 95th percentiles of their answers. Before 100 answers are known,
   * 50 tokens a second and at most 4,096.
   */
  estimate(upstream: string, elapsedMs: number): number {
    const ms = Math.max(0, elapsedMs);
    const known = [...(this.#upstreams.get(upstream)?.values() ?? [])];
    if (known.reduce((sum, { length }) => sum + length, 0) < ANSWERS_LEAST) {
      return Math.min(USUAL_TOKENS_MAX, Math.floor((ms / 1000) * USUAL_TOKENS_A_SECOND));
    }
    const rate = this.#median(upstream, "tokensAMillisecond", 0.5);
    return Math.floor(Math.min(ms * rate, this.#median(upstream, "tokens", 0.95)));
  }

  /** Returns the median over the organizations of a percentile of their answers; 0 if none has the figure. */
  #median(upstream: string, figure: keyof Figures, part: number): number {
    const ofEach = [...(this.#upstreams.get(upstream)?.values() ?? [])]
      .map((answers) => answers.flatMap((answer) => answer[figure] ?? []))
      .filter((own) => own.length > 0);
    return percentile(
      ofEach.map((own) => percentile(own, part)),
      0.5,
    );
  }
}

/** Returns the smallest value that at least this part of the values does not exceed. */
function percentile(values: readonly number[], part: number): number {
  return Float64Array.from(values).sort()[Math.ceil(values.length * part) - 1] ?? 0;
}
