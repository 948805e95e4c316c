import type { PricesByClass, TokensByClass } from "../api/admin/common.ts";
import {
  type ClassRow,
  FURTHER_CLASSES,
  FURTHER_ROWS,
  type FurtherClass,
  PRICE_CLASSES,
  PRICE_ROWS,
  type PriceClass,
  TOKEN_CLASSES,
  type TokenClass,
} from "../api/price-classes.ts";
import {
  ceilDivide,
  type MicroCredits,
  maximum,
  PICO_PER_MICRO,
  type PicoCredits,
  powerOfTen,
  readDecimal,
} from "./amount.ts";

/** A value for each class of tokens, and for those parts and calls that have one. */
type ByClass<Value> = Record<TokenClass, Value> & { [Class in FurtherClass]?: Value };

/** Usage: counts by class. A part is counted in its class too. A part or call has no count of 0. */
export type TokenCounts = ByClass<number>;

/**
 * Pico-credits per token, or per call. A part without a price of its own costs as much as its class, and a call without one
 * costs nothing.
 */
export interface UnitPrices extends ByClass<PicoCredits> {
  /** Absent where these prices apply to every request on the route. */
  tier?: PriceTier;
}

/** The requests that prices apply to. */
export interface PriceTier {
  /** The price list of an organization. */
  list?: string;
  /** YYYY-MM-DD in UTC, from which on they are in force. */
  from?: string;
  serviceTier?: string;
  /** Prompts of more tokens, */
  abovePromptTokens?: number;
  /** and of at most so many. */
  promptTokensMax?: number;
}

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
  for (const name of TOKEN_CLASSES) {
    const count = tokens[name];
    if (count !== 0) pico += BigInt(count) * prices[name];
  }
  for (const { class: name } of furtherRowsIn(tokens))
    pico += BigInt(tokens[name] ?? 0) * differenceToClass(prices, name);
  return ceilDivide(pico, PICO_PER_MICRO);
}

/** Returns what a request costs at a price: of a retry, the part that the attempts before it were not charged. */
export function amountDue(price: MicroCredits, retry: { paid: MicroCredits } | null): MicroCredits {
  if (retry === null) return price;
  return price > retry.paid ? price - retry.paid : 0n;
}

/** Returns what a part or call costs in addition to its class; below 0 where it is cheaper. */
function differenceToClass(prices: UnitPrices, name: FurtherClass): PicoCredits {
  const own = prices[name];
  if (own === undefined) return 0n;
  const row = PRICE_CLASSES[name];
  return "partOf" in row ? own - prices[row.partOf] : own;
}

/** Returns the price of a class, a part or a call, stated or not. */
export function unitPrice(prices: UnitPrices, { class: name, partOf }: Pick<ClassRow, "class" | "partOf">) {
  return prices[name] ?? (partOf === undefined ? 0n : prices[partOf]);
}

/** Returns the dearer of two prices, class by class: a hold at this price covers either. */
export function dearer(a: UnitPrices, b: UnitPrices): UnitPrices {
  if (a === b) return a;
  const prices: UnitPrices = { ...FREE };
  for (const row of PRICE_ROWS) {
    if (a[row.class] !== undefined || b[row.class] !== undefined)
      prices[row.class] = maximum(unitPrice(a, row), unitPrice(b, row));
  }
  return prices;
}

/** Makes a function of objects that computes each result once: many requests have the same prices, route and token. */
export function computedOnce<Key extends object, Result>(compute: (key: Key) => Result): (key: Key) => Result {
  const results = new WeakMap<Key, Result>();
  return (key) => {
    let result = results.get(key);
    if (result === undefined) {
      result = compute(key);
      results.set(key, result);
    }
    return result;
  };
}

/** Tells whether nothing has a price. */
export const isFree = computedOnce((prices: UnitPrices) => PRICE_ROWS.every((row) => (prices[row.class] ?? 0n) === 0n));

/** Returns the rows of the parts and calls that have a value: few requests have any. */
export function furtherRowsIn(values: ByClass<unknown>): typeof FURTHER_ROWS {
  if (Object.keys(values).length === TOKEN_CLASSES.length) return [];
  return FURTHER_ROWS.filter((row) => values[row.class] !== undefined);
}

/** Returns prices without those of some parts and calls. */
export function withoutPrices(prices: UnitPrices, isLeftOut: (row: ClassRow) => unknown): UnitPrices {
  const out = furtherRowsIn(prices).filter(isLeftOut);
  if (out.length === 0) return prices;
  const names: readonly string[] = out.map((row) => row.class);
  return Object.fromEntries(Object.entries(prices).filter(([name]) => !names.includes(name))) as unknown as UnitPrices;
}

/** Returns the prices that a charge of these tokens needs, as the books keep them: of parts and calls only those used. */
export function pricesUsed(prices: UnitPrices, tokens: TokenCounts): UnitPrices {
  return withoutPrices(prices, (row) => tokens[row.class] === undefined);
}

/** Adds counts, class by class; `sign` -1 subtracts them. */
export function addTokens(tokens: TokenCounts, more: TokenCounts, sign: 1 | -1 = 1): TokenCounts {
  const sum: TokenCounts = { ...NO_TOKENS };
  for (const name of TOKEN_CLASSES) sum[name] = tokens[name] + sign * more[name];
  for (const name of FURTHER_CLASSES) {
    const count = (tokens[name] ?? 0) + sign * (more[name] ?? 0);
    if (count !== 0) sum[name] = count;
  }
  return sum;
}

/** Returns the tokens with their parts limited to the classes, and calls to `callsMost` of each kind. */
export function fitted(tokens: TokenCounts, callsMost: number): TokenCounts {
  const counts: TokenCounts = { ...NO_TOKENS };
  for (const name of TOKEN_CLASSES) counts[name] = tokens[name];
  const room: Record<TokenClass, number> = { ...counts };
  for (const { class: name, partOf, onlyIf } of FURTHER_ROWS) {
    const most = onlyIf === "callsMost" ? callsMost : 1;
    const count = Math.min(tokens[name] ?? 0, partOf === undefined ? most : room[partOf]);
    if (count === 0) continue;
    counts[name] = count;
    if (partOf !== undefined) room[partOf] -= count;
  }
  return counts;
}

/**
 * Converts a price per million tokens to pico-credits per token, at `perDollar` credits per dollar (by default it is in credits)
 * and with `markup` on top ("0.2" makes it a fifth dearer), rounded up once at the pico-credit. All are decimal texts. Returns
 * undefined if one is not a non-negative decimal, or the price is above a billion credits.
 */
export function parsePrice(
  amountPerMillionTokens: string,
  { perDollar = "1", markup = "0" }: { perDollar?: string; markup?: string } = {},
): PicoCredits | undefined {
  const amount = readDecimal(amountPerMillionTokens);
  const rate = readDecimal(perDollar);
  const part = readDecimal(markup);
  if (amount === undefined || rate === undefined || part === undefined) return undefined;
  const factor = powerOfTen(part.scale) + part.value;
  const divisor = powerOfTen(amount.scale + rate.scale + part.scale);
  const price = ceilDivide(amount.value * rate.value * factor * PICO_PER_MICRO, divisor);
  return price <= PICO_CREDITS_A_TOKEN_MAX ? price : undefined;
}

/**
 * Multiplies prices by a decimal text, each rounded up once at the pico-credit. Returns undefined if the text is not a
 * non-negative decimal, or a price gets above a billion credits.
 */
export function scaledPrices(prices: UnitPrices, factor: string): UnitPrices | undefined {
  const by = readDecimal(factor);
  if (by === undefined) return undefined;
  const scaled: UnitPrices = { ...prices };
  for (const { class: name } of PRICE_ROWS) {
    const price = prices[name];
    if (price === undefined) continue;
    scaled[name] = ceilDivide(price * by.value, powerOfTen(by.scale));
    if (scaled[name] > PICO_CREDITS_A_TOKEN_MAX) return undefined;
  }
  return scaled;
}

/** Returns the counts. Throws RangeError if one is not a natural number or a part exceeds its class: a defect of the caller. */
export function assertCounts(tokens: TokenCounts): TokenCounts {
  if (!areCounts(tokens)) throw new RangeError("a count of tokens is not a natural number, or a part above its class");
  return tokens;
}

/** Tells whether the counts are natural numbers, and the parts of each class at most the class. */
export function areCounts(tokens: TokenCounts): boolean {
  const rest: Record<TokenClass, number> = { ...tokens };
  for (const { class: name, partOf } of furtherRowsIn(tokens)) {
    const count = tokens[name] ?? 0;
    if (!isNatural(count)) return false;
    if (partOf !== undefined) rest[partOf] -= count;
  }
  return TOKEN_CLASSES.every((name) => isNatural(tokens[name]) && rest[name] >= 0);
}

function isNatural(count: number): boolean {
  return Number.isSafeInteger(count) && count >= 0;
}

/** Formats token counts for the admin API. */
export function tokensByClass(tokens: TokenCounts): TokensByClass {
  return byName(tokens, ALL_CLASSES, (count) => count) as TokensByClass;
}

/** Formats prices for the admin API, in credits per million tokens; those of calls in credits a call. */
export function pricesByClass(prices: UnitPrices): PricesByClass {
  return byName(prices, ALL_CLASSES, displayPrice) as PricesByClass;
}

/** In the order of the APIs. */
const ALL_CLASSES: readonly PriceClass[] = [...TOKEN_CLASSES, ...FURTHER_CLASSES];

/** Converts a price of a class or a part to credits per million tokens, one of a call to credits a call. */
export function displayPrice(price: PicoCredits, name: PriceClass): number {
  return Number(price) / ("isCall" in PRICE_CLASSES[name] ? 1e12 : 1e6);
}

/** Returns the values of some classes by their names in the APIs. */
export function byName<Value>(
  values: ByClass<Value>,
  classes: readonly PriceClass[],
  format: (value: Value, name: PriceClass) => number,
): Record<string, number> {
  const found: Record<string, number> = {};
  for (const name of classes) {
    const value = values[name];
    if (value !== undefined) found[PRICE_CLASSES[name].name] = format(value, name);
  }
  return found;
}
