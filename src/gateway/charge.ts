import type { ChatCompletionRequest } from "../api/request.ts";
import { type CatalogModel, type Route, upstreamOf } from "../catalog/model.ts";
import type { EventBasis } from "../credits/books.ts";
import { type PromptEstimate, promptTexts } from "../credits/estimate.ts";
import { NO_TOKENS, TOKEN_CLASSES, type TokenCounts, type UnitPrices } from "../credits/price.ts";
import type { Gateway } from "./gateway.ts";
import type { Meter, Report } from "./meter.ts";

/** Tokens to charge, on what basis, and what the upstream reported where that is something else. */
export interface Charge {
  tokens: TokenCounts;
  basis: EventBasis;
  reported: TokenCounts | null;
}

/** The most that a request can be charged: what its hold covers. */
export interface TokenBounds {
  prompt: number;
  completion: number;
}

/** The text of a complete answer has at most so many bytes a token; a report below that is compared with a count. */
const BYTES_A_TOKEN_CREDIBLE = 8;
/** A report that is lower than the count by no more than this is believed. */
const TOKENS_OF_DOUBT = 64;

/**
 * The bounds of a route: the upper estimate of the prompt and `max_tokens`; the context window where the provider runs
 * tools of its own, and the model's maximum where it counts reasoning outside `max_tokens`.
 */
export function boundsOf(
  { contextWindow, maxOutputTokens }: Pick<CatalogModel, "contextWindow" | "maxOutputTokens">,
  { runsTools, countsReasoningBeside }: Pick<Route, "runsTools" | "countsReasoningBeside">,
  { most }: Pick<PromptEstimate, "most">,
  maxTokens: number,
): TokenBounds {
  return {
    prompt: runsTools === true ? Math.max(most, contextWindow) : most,
    completion: countsReasoningBeside === true ? Math.max(maxTokens, maxOutputTokens) : maxTokens,
  };
}

/** Tokens within the bounds: cached and written input and visible output first. Returns the same object where they are. */
export function within(tokens: TokenCounts, bounds: TokenBounds): TokenCounts {
  const promptTokens = tokens.input + tokens.cachedInput + tokens.cacheWrite;
  if (promptTokens <= bounds.prompt && tokens.output + tokens.reasoning <= bounds.completion) return tokens;
  const cachedInput = Math.min(tokens.cachedInput, bounds.prompt);
  const cacheWrite = Math.min(tokens.cacheWrite, bounds.prompt - cachedInput);
  const input = Math.min(tokens.input, bounds.prompt - cachedInput - cacheWrite);
  const output = Math.min(tokens.output, bounds.completion);
  const reasoning = Math.min(tokens.reasoning, bounds.completion - output);
  return { input, cachedInput, cacheWrite, output, reasoning };
}

/** Returns the charge for everything so far, without a tokenizer: for checkpoints, and where nothing has a price. */
export function roughCharge(meter: Meter, likelyPromptTokens: number, bounds: TokenBounds): Charge {
  const report = meter.report();
  const { output, reasoning } = meter;
  const counted = { output: output.roughTokens, reasoning: reasoning.roughTokens };
  if (report === undefined) {
    return limited({ ...NO_TOKENS, input: likelyPromptTokens, ...counted }, "counted", undefined, bounds);
  }
  if (report.isFinal) return limited(report.tokens, "reported", report.tokens, bounds);
  return limited({ ...report.tokens, ...atLeast(counted, report.tokens) }, "counted", report.tokens, bounds);
}

export interface Charged {
  model: Pick<CatalogModel, "capabilities">;
  route: Route;
  request: ChatCompletionRequest;
  estimate: PromptEstimate;
  bounds: TokenBounds;
  /** The prices that the hold was made at. */
  prices: UnitPrices;
  meter: Meter;
  hasClientLeft: boolean;
  /** True where the client asked for a stream. */
  isStreamed: boolean;
  /** Since the upstream was called. */
  elapsedMs: number;
}

/**
 * Returns the charge of an answer (`docs/charging.md`): the upstream's report where it is final and credible, else a count of
 * the text, else, for output that nobody saw, an estimate from time. Never above the bounds. Never rejects.
 */
export async function chargeOf(
  { tokenCounter, outputRates }: Pick<Gateway, "tokenCounter" | "outputRates">,
  one: Charged,
): Promise<Charge> {
  const { meter, estimate, bounds, prices } = one;
  const rough = roughCharge(meter, estimate.likely, bounds);
  if (TOKEN_CLASSES.every((tokenClass) => prices[tokenClass] === 0n)) return rough;
  const report = meter.report();
  if (report?.isFinal === true && !isHidden(one)) {
    const completion = report.tokens.output + report.tokens.reasoning;
    if (completion >= meter.bytes / BYTES_A_TOKEN_CREDIBLE) return rough;
    const counted = (await countAll(tokenCounter, meter, []))?.answer ?? report.tokens;
    const count = counted.output + counted.reasoning;
    if (completion >= count / 2 || count - completion <= TOKENS_OF_DOUBT) return rough;
    return limited({ ...report.tokens, ...counted }, "counted", report.tokens, bounds);
  }
  const texts = report === undefined ? promptTexts(one.request) : [];
  const counts = await countAll(tokenCounter, meter, texts);
  const seen = counts === undefined ? rough : countedCharge(report, counts, one);
  return isHidden(one) ? withHidden(seen, outputRates.estimate(upstreamOf(one.route), one.elapsedMs), one) : seen;
}

/**
 * Tells whether output was produced that nobody saw: the client left an answer that was not streamed to it, or one of a model
 * that reasons without showing it, before the upstream had reported its end.
 */
function isHidden({ hasClientLeft, isStreamed, model, meter }: Charged): boolean {
  if (!hasClientLeft || meter.finishReason !== undefined) return false;
  return !isStreamed || (model.capabilities.has("reasoning") && meter.reasoning.bytes === 0);
}

/** The charge with as much more output as the estimate has; a stream's hidden output is reasoning. */
function withHidden(seen: Charge, estimated: number, { bounds, isStreamed }: Charged): Charge {
  const { output, reasoning } = seen.tokens;
  const more = Math.min(estimated, bounds.completion) - output - reasoning;
  if (more <= 0) return seen;
  const hidden = isStreamed ? { reasoning: reasoning + more } : { output: output + more };
  return { ...seen, tokens: { ...seen.tokens, ...hidden }, basis: "estimated" };
}

type Completion = Pick<TokenCounts, "output" | "reasoning">;

/** The count, or the report where that has more in all. */
function atLeast(counted: Completion, { output, reasoning }: Completion): Completion {
  return counted.output + counted.reasoning >= output + reasoning ? counted : { output, reasoning };
}

interface Counts {
  answer: Completion;
  /** Tokens of the prompt's text. */
  prompt: number;
}

/** Tokens of the answer's text and of the prompt's; undefined where they cannot be counted now. */
async function countAll(
  tokenCounter: Gateway["tokenCounter"],
  { output, reasoning }: Meter,
  promptTexts: readonly string[],
): Promise<Counts | undefined> {
  const counts = await tokenCounter.count([[output.text()], [reasoning.text()], promptTexts]);
  if (counts === undefined) return undefined;
  const [outputTokens = 0, reasoningTokens = 0, prompt = 0] = counts;
  return { answer: { output: output.scaled(outputTokens), reasoning: reasoning.scaled(reasoningTokens) }, prompt };
}

/** The prompt as reported where it was, and the larger completion of count and report. */
function countedCharge(report: Report | undefined, { answer, prompt }: Counts, { estimate, bounds }: Charged): Charge {
  const tokens =
    report === undefined
      ? { ...NO_TOKENS, input: estimate.likelyBesideText + prompt, ...answer }
      : { ...report.tokens, ...atLeast(answer, report.tokens) };
  return limited(tokens, "counted", report?.tokens, bounds);
}

/** A charge within the bounds; `bounded` where a report was above them. */
function limited(
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
