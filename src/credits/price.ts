import { ceilDivide, type MicroCredits, PICO_PER_MICRO, type PicoCredits, powerOfTen, readDecimal } from "./amount.ts";

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
export type TokenClass = (typeof TOKEN_CLASSES)[number];
export const NO_TOKENS: TokenCounts = { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 };
export const FREE: UnitPrices = { input: 0n, cachedInput: 0n, cacheWrite: 0n, output: 0n, reasoning: 0n };

/** A billion credits per million tokens: what the largest usage comes to at this price still fits a signed 64-bit integer. */
const PICO_CREDITS_A_TOKEN_MAX: PicoCredits = 10n ** 15n;

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
 * Returns undefined when either is not a non-negative decimal, or the price is above a billion credits.
 */
export function parsePrice(creditsPerMillionTokens: string, markup = "0"): PicoCredits | undefined {
  return parseDollarPrice(creditsPerMillionTokens, { perDollar: "1", markup });
}

/**
 * A price in dollars per million tokens to pico-credits a token, at `perDollar` credits a dollar and with `markup` on
 * top, rounded up once at the pico-credit. All three are decimal texts. Returns undefined when one is not a
 * non-negative decimal, or the price is above a billion credits.
 */
export function parseDollarPrice(
  dollarsPerMillionTokens: string,
  { perDollar, markup }: { perDollar: string; markup: string },
): PicoCredits | undefined {
  const dollars = readDecimal(dollarsPerMillionTokens);
  const rate = readDecimal(perDollar);
  const part = readDecimal(markup);
  if (dollars === undefined || rate === undefined || part === undefined) return undefined;
  const factor = powerOfTen(part.scale) + part.value;
  const divisor = powerOfTen(dollars.scale + rate.scale + part.scale);
  const price = ceilDivide(dollars.value * rate.value * factor * PICO_PER_MICRO, divisor);
  return price <= PICO_CREDITS_A_TOKEN_MAX ? price : undefined;
}

/** Pico-credits a token to credits per million tokens. */
export function pricePerMillion(price: PicoCredits): number {
  return Number(price) / 1e6;
}
