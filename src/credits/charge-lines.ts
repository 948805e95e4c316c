import { type ClassRow, PRICE_ROWS } from "../api/price-classes.ts";
import type { PicoCredits } from "./amount.ts";
import { FREE, NO_TOKENS, type TokenCounts, type UnitPrices } from "./price.ts";

/*
 * A charge as the books store it: one text of lines, a line for each class with a count or a price, and their condition.
 * `i20@2000000 c5@500000 o400@8000000 {"serviceTier":"flex"}` are 20 tokens of the class `i` at 2,000,000 pico-credits each,
 * and so on. The counts are disjoint: the charge is the sum of count x price, rounded up once. A line without a count has
 * only the price, one without a price that of the class that it costs as much as. Lines are in the order of the table.
 */

/** Tokens, or the signed differences of tokens, with their prices. */
export interface ChargeLines {
  tokens: TokenCounts;
  prices: UnitPrices;
}

/** A class with the parts that are counted in it too. */
const CLASSES = PRICE_ROWS.map((row) => ({
  class: row.class,
  code: row.code,
  parts: PRICE_ROWS.filter(({ partOf }) => partOf === row.class).map((part) => part.class),
}));

/** Encodes the tokens and prices of a charge. */
export function encodeLines(tokens: TokenCounts, prices: UnitPrices): string {
  let texts = textsOf.get(prices);
  if (texts === undefined) {
    texts = new PriceTexts(prices);
    textsOf.set(prices, texts);
  }
  return tokens === NO_TOKENS ? texts.unused : texts.withCounts(tokens);
}

/** By the prices: many requests have the same, and few processors have instructions for a bigint's decimal text. */
const textsOf = new WeakMap<UnitPrices, PriceTexts>();

/** The texts of prices, by class. */
class PriceTexts {
  readonly #byClass: readonly string[];
  readonly #tier: string;
  /** The lines of a request without tokens. */
  readonly unused: string;

  constructor(prices: UnitPrices) {
    this.#byClass = PRICE_ROWS.map((row) => {
      const price = prices[row.class];
      const isStated = row.direction === undefined || price !== usualPrice(prices, row);
      return price !== undefined && isStated ? `@${price}` : "";
    });
    this.#tier = prices.tier === undefined ? "" : ` ${JSON.stringify(prices.tier)}`;
    this.unused = this.withCounts(NO_TOKENS);
  }

  withCounts(tokens: TokenCounts): string {
    let text = "";
    for (let index = 0; index < CLASSES.length; index += 1) {
      const { class: name, code, parts } = CLASSES[index] as (typeof CLASSES)[number];
      const price = this.#byClass[index] as string;
      let count = tokens[name] ?? 0;
      for (const part of parts) count -= tokens[part] ?? 0;
      if (count === 0 && price === "") continue;
      if (text !== "") text += " ";
      text += count === 0 ? code + price : code + count + price;
    }
    return text + this.#tier;
  }
}

/** Returns the price of a class of tokens that states none. */
function usualPrice(prices: UnitPrices, { costsAs }: ClassRow): PicoCredits {
  return costsAs === undefined ? 0n : prices[costsAs];
}

const INDEX_OF_CODE = new Map(PRICE_ROWS.map(({ code }, index) => [code, index]));
/** Each after the class that it costs as much as. */
const USUAL_PRICES = PRICE_ROWS.flatMap(({ class: name, costsAs }, index) =>
  costsAs ? [{ name, costsAs, index }] : [],
);

/**
 * Decodes what `encodeLines` returned. Throws SyntaxError, with the line, for any other text. Reads characters, because a
 * verification decodes every request, and a regular expression takes several times as long.
 */
export function decodeLines(text: string): ChargeLines {
  const condition = text.indexOf(" {");
  const end = condition < 0 ? text.length : condition;
  const tokens: TokenCounts = { ...NO_TOKENS };
  const prices: UnitPrices = { ...FREE };
  let stated = 0;
  let last = -1;
  let at = 0;
  while (at < end) {
    const index = INDEX_OF_CODE.get(text.charAt(at)) ?? -1;
    const countEnd = endOfDigits(text, text.charAt(at + 1) === "-" ? at + 2 : at + 1);
    const lineEnd = text.charAt(countEnd) === "@" ? endOfDigits(text, countEnd + 1) : countEnd;
    const count = text.slice(at + 1, countEnd);
    const price = text.slice(countEnd + 1, lineEnd);
    const isWhole = lineEnd === end || (text.charAt(lineEnd) === " " && lineEnd + 1 < end);
    if (index <= last || !isWhole || !isLine(count, price, lineEnd - countEnd)) throw malformed(text.slice(at, end));
    const { class: name, partOf } = PRICE_ROWS[index] as ClassRow;
    if (count !== "") {
      const own = Number(count);
      tokens[name] = (tokens[name] ?? 0) + own;
      if (partOf !== undefined) tokens[partOf] += own;
    }
    if (price !== "") {
      prices[name] = BigInt(price.length < EXACT_DIGITS ? Number(price) : price);
      stated |= 1 << index;
    }
    last = index;
    at = lineEnd + 1;
  }
  for (const { name, costsAs, index } of USUAL_PRICES) {
    if ((stated & (1 << index)) === 0) prices[name] = prices[costsAs];
  }
  if (condition >= 0) prices.tier = JSON.parse(text.slice(condition + 1));
  return { tokens, prices };
}

/** Numbers of fewer digits are exact. A bigint is made of one in a third of the time that its text takes. */
const EXACT_DIGITS = 16;

function endOfDigits(text: string, from: number): number {
  let at = from;
  for (let code = text.charCodeAt(at); code >= 48 && code <= 57; code = text.charCodeAt(at)) at += 1;
  return at;
}

/** Tells whether a line has a count other than 0, or a price, each written in the one way. */
function isLine(count: string, price: string, priceLength: number): boolean {
  if (priceLength === 0) return count !== "" && isPlain(count, false);
  return price !== "" && isPlain(price, true) && (count === "" || isPlain(count, false));
}

function isPlain(digits: string, mayBeZero: boolean): boolean {
  const first = digits.charAt(digits.charAt(0) === "-" ? 1 : 0);
  return first !== "" && (first !== "0" || (mayBeZero && digits === "0"));
}

function malformed(rest: string): SyntaxError {
  return new SyntaxError(`${JSON.stringify(rest.split(" ", 1)[0])} is not a line of a charge`);
}
