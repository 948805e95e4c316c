import type { PricesByClass, TokensByClass } from "../api/admin/common.ts";
import { ceilDivide, type MicroCredits, PICO_PER_MICRO, type PicoCredits, powerOfTen, readDecimal } from "./amount.ts";

/**
 * Tokens by class, disjoint: a cached token is not also an input token, a reasoning token not also an output token.
 * `further` counts the parts of these classes that can have a price of their own, and calls. Few requests have any, so it
 * is absent rather than empty, and has no count of 0.
 */
export interface TokenCounts {
  input: number;
  cachedInput: number;
  cacheWrite: number;
  output: number;
  reasoning: number;
  further?: Further<number>;
}

/**
 * Pico-credits per token, by class; the calls of `further` cost pico-credits per call. A part without a price of its own
 * costs as much as its class, and a call without one costs nothing.
 */
export interface UnitPrices {
  input: PicoCredits;
  cachedInput: PicoCredits;
  cacheWrite: PicoCredits;
  output: PicoCredits;
  reasoning: PicoCredits;
  further?: Further<PicoCredits>;
  /** Absent where these prices apply to every request on the route. */
  tier?: PriceTier;
}

/** The requests that prices apply to. */
export interface PriceTier {
  /** YYYY-MM-DD in UTC, from which on they are in force. */
  from?: string;
  /** The service tier that the provider reports. */
  serviceTier?: string;
  /** Prompts of more tokens, */
  abovePromptTokens?: number;
  /** and of at most so many. */
  promptTokensMax?: number;
}

export const TOKEN_CLASSES = ["input", "cachedInput", "cacheWrite", "output", "reasoning"] as const;
export type TokenClass = (typeof TOKEN_CLASSES)[number];

/** The class that each part belongs to; undefined for calls. Parts of one class are disjoint too. */
export const CLASS_OF_FURTHER = {
  cacheWrite1h: "cacheWrite",
  cachedAudio: "cachedInput",
  inputAudio: "input",
  inputImage: "input",
  outputAudio: "output",
  outputImage: "output",
  /** The request itself, counted once. */
  requests: undefined,
  searches: undefined,
  images: undefined,
} as const satisfies Record<string, TokenClass | undefined>;
export type FurtherClass = keyof typeof CLASS_OF_FURTHER;
export const FURTHER_CLASSES = Object.keys(CLASS_OF_FURTHER) as FurtherClass[];
export type Further<Value> = { [Class in FurtherClass]?: Value };

export const NO_TOKENS: TokenCounts = { input: 0, cachedInput: 0, cacheWrite: 0, output: 0, reasoning: 0 };
export const FREE: UnitPrices = { input: 0n, cachedInput: 0n, cacheWrite: 0n, output: 0n, reasoning: 0n };

/** A billion credits per million tokens: the cost of the largest usage at this price fits a signed 64-bit integer. */
const PICO_CREDITS_A_TOKEN_MAX: PicoCredits = 10n ** 15n;

/** Returns the tokens of a request by direction: cached ones are input, reasoning is output. */
export function tokenTotals(tokens: Record<TokenClass, number>): { input: number; output: number } {
  return {
    input: tokens.input + tokens.cachedInput + tokens.cacheWrite,
    output: tokens.output + tokens.reasoning,
  };
}

/**
 * Returns the cost of tokens and calls, rounded up once for the whole request: ceil(sum(count x pico-price) / 10^6), each
 * token at the price of its part, or of its class where it is in no part with a price of its own.
 */
export function priceOf(tokens: TokenCounts, prices: UnitPrices): MicroCredits {
  let pico = 0n;
  for (const tokenClass of TOKEN_CLASSES) pico += BigInt(tokens[tokenClass]) * prices[tokenClass];
  if (tokens.further !== undefined) pico += differenceOfParts(tokens.further, prices);
  return ceilDivide(pico, PICO_PER_MICRO);
}

/** Returns what parts and calls cost in addition to the price of their classes; below 0 where a part is cheaper. */
function differenceOfParts(further: Further<number>, prices: UnitPrices): PicoCredits {
  let pico = 0n;
  for (const name of FURTHER_CLASSES) {
    const count = further[name];
    if (count === undefined) continue;
    pico += BigInt(count) * (furtherPrice(prices, name) - classPrice(prices, name));
  }
  return pico;
}

/** Returns the price of a part or a call. */
export function furtherPrice(prices: UnitPrices, name: FurtherClass): PicoCredits {
  return prices.further?.[name] ?? classPrice(prices, name);
}

function classPrice(prices: UnitPrices, name: FurtherClass): PicoCredits {
  const whole = CLASS_OF_FURTHER[name];
  return whole === undefined ? 0n : prices[whole];
}

/** Returns the dearer of two prices, class by class: a hold at this price covers either. */
export function dearer(a: UnitPrices, b: UnitPrices): UnitPrices {
  if (a === b) return a;
  const prices = { ...FREE };
  for (const tokenClass of TOKEN_CLASSES) prices[tokenClass] = larger(a[tokenClass], b[tokenClass]);
  const stated = FURTHER_CLASSES.filter((name) => (a.further?.[name] ?? b.further?.[name]) !== undefined);
  const entries = stated.map((name) => [name, larger(furtherPrice(a, name), furtherPrice(b, name))]);
  return entries.length === 0 ? prices : { ...prices, further: Object.fromEntries(entries) };
}

function larger(a: PicoCredits, b: PicoCredits): PicoCredits {
  return a > b ? a : b;
}

/** Tells whether nothing has a price. */
export function isFree(prices: UnitPrices): boolean {
  if (TOKEN_CLASSES.some((tokenClass) => prices[tokenClass] !== 0n)) return false;
  return FURTHER_CLASSES.every((name) => furtherPrice(prices, name) === 0n);
}

/** By the prices that they were taken from, so that requests at one price share an object. */
const withoutFurther = new WeakMap<UnitPrices, UnitPrices>();

/** Returns the prices that a charge of these tokens needs, as the books keep them: of `further` only what was used. */
export function pricesUsed(prices: UnitPrices, { further }: TokenCounts): UnitPrices {
  if (prices.further === undefined) return prices;
  const used = FURTHER_CLASSES.filter((name) => further?.[name] !== undefined && prices.further?.[name] !== undefined);
  if (used.length > 0) {
    return { ...prices, further: Object.fromEntries(used.map((name) => [name, prices.further?.[name]])) };
  }
  let plain = withoutFurther.get(prices);
  if (plain === undefined) {
    const { further: _unused, ...rest } = prices;
    plain = rest;
    withoutFurther.set(prices, plain);
  }
  return plain;
}

/** Returns the counts without those of 0, or undefined where none is left. */
export function statedFurther(counts: Further<number>): Further<number> | undefined {
  const stated = FURTHER_CLASSES.filter((name) => (counts[name] ?? 0) !== 0);
  return stated.length === 0 ? undefined : Object.fromEntries(stated.map((name) => [name, counts[name]]));
}

/** Adds counts, class by class; `sign` -1 subtracts them. */
export function addTokens(tokens: TokenCounts, more: TokenCounts, sign: 1 | -1 = 1): TokenCounts {
  const sum: TokenCounts = { ...NO_TOKENS };
  for (const tokenClass of TOKEN_CLASSES) sum[tokenClass] = tokens[tokenClass] + sign * more[tokenClass];
  if (tokens.further === undefined && more.further === undefined) return sum;
  const counts = FURTHER_CLASSES.map((name) => [
    name,
    (tokens.further?.[name] ?? 0) + sign * (more.further?.[name] ?? 0),
  ]);
  const further = statedFurther(Object.fromEntries(counts));
  return further === undefined ? sum : { ...sum, further };
}

/** Returns the parts limited to their classes, and the calls to `callsMost` of each kind. */
export function fittingFurther(tokens: TokenCounts, callsMost: number): Further<number> | undefined {
  if (tokens.further === undefined) return undefined;
  const room: Record<TokenClass, number> = { ...tokens };
  const fitting: Further<number> = {};
  for (const name of FURTHER_CLASSES) {
    const count = tokens.further[name] ?? 0;
    const whole = CLASS_OF_FURTHER[name];
    if (whole === undefined) fitting[name] = Math.min(count, name === "requests" ? 1 : callsMost);
    else {
      fitting[name] = Math.min(count, room[whole]);
      room[whole] -= fitting[name];
    }
  }
  return statedFurther(fitting);
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

/** Returns the counts. Throws RangeError if one is not a natural number or a part exceeds its class: a defect of the caller. */
export function assertCounts(tokens: TokenCounts): TokenCounts {
  if (!areCounts(tokens)) throw new RangeError("a count of tokens is not a natural number, or a part above its class");
  return tokens;
}

/** Tells whether the counts are natural numbers, and the parts of each class at most the class. */
export function areCounts(tokens: TokenCounts): boolean {
  if (!TOKEN_CLASSES.every((tokenClass) => isNatural(tokens[tokenClass]))) return false;
  if (tokens.further === undefined) return true;
  const rest: Record<TokenClass, number> = { ...tokens };
  return FURTHER_CLASSES.every((name) => {
    const count = tokens.further?.[name] ?? 0;
    const whole = CLASS_OF_FURTHER[name];
    if (whole !== undefined) rest[whole] -= count;
    return isNatural(count) && (whole === undefined || rest[whole] >= 0);
  });
}

function isNatural(count: number): boolean {
  return Number.isSafeInteger(count) && count >= 0;
}

/** Formats token counts for the admin API. */
export function tokensByClass(tokens: TokenCounts): TokensByClass {
  return byName(tokens, (count) => count);
}

/** Formats prices for the admin API, in credits per million tokens; those of calls in credits a call. */
export function pricesByClass(prices: UnitPrices): PricesByClass {
  return byName(prices, displayPrice);
}

/** Converts a price of a class or a part to credits per million tokens, one of a call to credits a call. */
export function displayPrice(price: PicoCredits, name?: FurtherClass): number {
  const isOfCall = name !== undefined && CLASS_OF_FURTHER[name] === undefined;
  return isOfCall ? pricePerMillion(price) / 1e6 : pricePerMillion(price);
}

/** Names of the parts and calls in the APIs. */
const FURTHER_NAMES = {
  cacheWrite1h: "cache_write_1h",
  cachedAudio: "cached_audio",
  inputAudio: "input_audio",
  inputImage: "input_image",
  outputAudio: "output_audio",
  outputImage: "output_image",
  requests: "requests",
  searches: "searches",
  images: "images",
} as const satisfies Record<FurtherClass, string>;
type FurtherName = (typeof FURTHER_NAMES)[FurtherClass];

/** Returns values by their names in the APIs. */
export function furtherByName<Value>(
  values: Further<Value>,
  format: (value: Value, name: FurtherClass) => number,
): { [Name in FurtherName]?: number } {
  return Object.fromEntries(
    FURTHER_CLASSES.flatMap((name) => {
      const value = values[name];
      return value === undefined ? [] : [[FURTHER_NAMES[name], format(value, name)]];
    }),
  );
}

/** Returns the values of all classes, and those of parts and calls, by their names in the APIs. */
function byName<Value>(
  values: Record<TokenClass, Value> & { further?: Further<Value> },
  format: (value: Value, name?: FurtherClass) => number,
) {
  return {
    input: format(values.input),
    cached_input: format(values.cachedInput),
    cache_write: format(values.cacheWrite),
    output: format(values.output),
    reasoning: format(values.reasoning),
    ...(values.further && furtherByName(values.further, format)),
  };
}
