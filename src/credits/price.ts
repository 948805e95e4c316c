import { ceilDivide, type MicroCredits, PICO_PER_MICRO, type PicoCredits, parseDecimal } from "./amount.ts";

/** Tokens by class, disjoint: a cached token is not also an input token, a reasoning token not also an output token. */
export interface TokenCounts {
  input: number;
  cachedInput: number;
  cacheWrite: number;
  output: number;
  reasoning: number;
}

/** Pico-credits a token, by class. */
export interface UnitPrices {
  input: PicoCredits;
  cachedInput: PicoCredits;
  cacheWrite: PicoCredits;
  output: PicoCredits;
  reasoning: PicoCredits;
}

export const TOKEN_CLASSES = ["input", "cachedInput", "cacheWrite", "output", "reasoning"] as const;
export const NO_TOKENS: TokenCounts = { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 };
export const FREE: UnitPrices = { input: 0n, cachedInput: 0n, cacheWrite: 0n, output: 0n, reasoning: 0n };

/** What the tokens cost, rounded up once for the whole request: ceil(sum(tokens x pico-price) / 10^6). */
export function priceOf(tokens: TokenCounts, prices: UnitPrices): MicroCredits {
  let pico = 0n;
  for (const tokenClass of TOKEN_CLASSES) pico += BigInt(tokens[tokenClass]) * prices[tokenClass];
  return ceilDivide(pico, PICO_PER_MICRO);
}

/** The dearer of two prices, class by class: a hold at this price covers either. */
export function dearer(a: UnitPrices, b: UnitPrices): UnitPrices {
  const prices = { ...FREE };
  for (const tokenClass of TOKEN_CLASSES) {
    prices[tokenClass] = a[tokenClass] > b[tokenClass] ? a[tokenClass] : b[tokenClass];
  }
  return prices;
}

/**
 * A price in credits per million tokens, as a decimal text, to pico-credits a token, rounded up at the pico-credit.
 * `markup` is a decimal text too: "0.2" makes the price a fifth dearer, applied before the one rounding.
 * Returns undefined when either is not a non-negative decimal.
 */
export function parsePrice(creditsPerMillionTokens: string, markup = "0"): PicoCredits | undefined {
  const digits = 30;
  const price = parseDecimal(creditsPerMillionTokens, digits);
  const factor = parseDecimal(markup, digits);
  if (price === undefined || factor === undefined) return undefined;
  const one = 10n ** BigInt(digits);
  return ceilDivide(price * (one + factor) * 1_000_000n, one * one);
}

/** Pico-credits a token to credits per million tokens. */
export function pricePerMillion(price: PicoCredits): number {
  return Number(price) / 1e6;
}
