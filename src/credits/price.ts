import type { PricesByClass, TokensByClass } from "../api/admin/common.ts";
import { ceilDivide, type MicroCredits, PICO_PER_MICRO, type PicoCredits, powerOfTen, readDecimal } from "./amount.ts";

/** Tokens by class, disjoint: a cached token is not also an input token, a reasoning token not also an output token. */
export interface TokenCounts {
  input: number;
  cachedInput: number;
  cacheWrite: number;
  output: number;
  reasoning: number;
}

/** Pico-credits per token, by class. */
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

/** A billion credits per million tokens: the cost of the largest usage at this price fits a signed 64-bit integer. */
const PICO_CREDITS_A_TOKEN_MAX: PicoCredits = 10n ** 15n;

/** Returns the cost of tokens, rounded up once for the whole request: ceil(sum(tokens x pico-price) / 10^6). */
export function priceOf(tokens: TokenCounts, prices: UnitPrices): MicroCredits {
  let pico = 0n;
  for (const tokenClass of TOKEN_CLASSES) pico += BigInt(tokens[tokenClass]) * prices[tokenClass];
  return ceilDivide(pico, PICO_PER_MICRO);
}

/** Returns the dearer of two prices, class by class: a hold at this price covers either. */
export function dearer(a: UnitPrices, b: UnitPrices): UnitPrices {
  const prices = { ...FREE };
  for (const tokenClass of TOKEN_CLASSES) {
    prices[tokenClass] = a[tokenClass] > b[tokenClass] ? a[tokenClass] : b[tokenClass];
  }
  return prices;
}

/**
 * Converts a price in credits per million tokens, as a decimal text, to pico-credits per token, rounded up at the
 * pico-credit. `markup` is a decimal text too: "0.2" makes the price a fifth dearer, applied before the one rounding.
 * Returns undefined if either is not a non-negative decimal, or the price is above a billion credits.
 */
export function parsePrice(creditsPerMillionTokens: string, markup = "0"): PicoCredits | undefined {
  return parseDollarPrice(creditsPerMillionTokens, { perDollar: "1", markup });
}

/**
 * Converts a price in dollars per million tokens to pico-credits per token, at `perDollar` credits per dollar and with
 * `markup` on top, rounded up once at the pico-credit. All three are decimal texts. Returns undefined if one is not a
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

/** Converts pico-credits per token to credits per million tokens. */
export function pricePerMillion(price: PicoCredits): number {
  return Number(price) / 1e6;
}

/** Returns the counts. Throws RangeError if one is not a natural number, which is a defect of the caller. */
export function assertCounts(tokens: TokenCounts): TokenCounts {
  const natural = TOKEN_CLASSES.every(
    (tokenClass) => Number.isSafeInteger(tokens[tokenClass]) && tokens[tokenClass] >= 0,
  );
  if (!natural) throw new RangeError("a count of tokens is not a natural number");
  return tokens;
}

/** Formats token counts for the admin API. */
export function tokensByClass({ input, cachedInput, cacheWrite, output, reasoning }: TokenCounts): TokensByClass {
  return { input, cached_input: cachedInput, cache_write: cacheWrite, output, reasoning };
}

/** Formats prices for the admin API, in credits per million tokens. */
export function pricesByClass({ input, cachedInput, cacheWrite, output, reasoning }: UnitPrices): PricesByClass {
  return {
    input: pricePerMillion(input),
    cached_input: pricePerMillion(cachedInput),
    cache_write: pricePerMillion(cacheWrite),
    output: pricePerMillion(output),
    reasoning: pricePerMillion(reasoning),
  };
}
