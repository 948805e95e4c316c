import { type ClassRow, PRICE_ROWS, TOKEN_CLASSES } from "../api/price-classes.ts";
import { FREE, furtherRowsIn, NO_TOKENS, type TokenCounts, type UnitPrices } from "./price.ts";

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

/** Encodes the tokens and prices of a charge. */
export function encodeLines(tokens: TokenCounts, prices: UnitPrices): string {
  const counts: TokenCounts = { ...tokens };
  for (const { class: name, partOf } of furtherRowsIn(tokens)) {
    if (partOf !== undefined) counts[partOf] -= tokens[name] ?? 0;
  }
  let lines = "";
  for (const row of hasOnlyClasses(tokens) && hasOnlyClasses(prices) ? CLASS_ROWS : PRICE_ROWS) {
    const price = priceText(prices, row);
    const count = counts[row.class] ?? 0;
    if (count === 0 && price === "") continue;
    lines += `${lines === "" ? "" : " "}${row.code}${count === 0 ? "" : count}${price}`;
  }
  return prices.tier === undefined ? lines : `${lines} ${JSON.stringify(prices.tier)}`;
}

const CLASS_ROWS = PRICE_ROWS.filter(({ direction }) => direction);
const hasOnlyClasses = (values: object) => Object.keys(values).length === TOKEN_CLASSES.length;

function priceText(prices: UnitPrices, row: ClassRow): string {
  const price = prices[row.class];
  const usual = row.costsAs === undefined ? 0n : prices[row.costsAs];
  const isStated = row.direction === undefined || price !== usual;
  if (price === undefined || !isStated) return "";
  // Few processors have instructions for a bigint's decimal text.
  return `@${price < EXACT_LIMIT ? Number(price) : price}`;
}

const INDEX_OF_CODE = new Map(PRICE_ROWS.map(({ code }, index) => [code, index]));
/** Each after the class that it costs as much as. */
const USUAL_PRICES = PRICE_ROWS.flatMap(({ class: name, costsAs }, index) =>
  costsAs ? [{ name, costsAs, index }] : [],
);

const LINE = /([a-z])(-?[1-9]\d*)?(?:@(0|[1-9]\d*))?(?: (?=.)|$)/y;

/** Decodes what `encodeLines` returned. Throws SyntaxError, with the line, for any other text. */
export function decodeLines(text: string): ChargeLines {
  const condition = text.indexOf(" {");
  const lines = condition < 0 ? text : text.slice(0, condition);
  const tokens: TokenCounts = { ...NO_TOKENS };
  const prices: UnitPrices = { ...FREE };
  let stated = 0;
  let last = -1;
  for (let at = 0; at < lines.length; at = LINE.lastIndex) {
    LINE.lastIndex = at;
    const [, code = "", count, price] = LINE.exec(lines) ?? [];
    const index = INDEX_OF_CODE.get(code) ?? -1;
    if (index <= last || (count === undefined && price === undefined)) {
      throw new SyntaxError(`${JSON.stringify(lines.slice(at).split(" ", 1)[0])} is not a line of a charge`);
    }
    const { class: name, partOf } = PRICE_ROWS[index] as ClassRow;
    if (count !== undefined) {
      tokens[name] = (tokens[name] ?? 0) + Number(count);
      if (partOf !== undefined) tokens[partOf] += Number(count);
    }
    if (price !== undefined) {
      prices[name] = BigInt(price.length < EXACT_DIGITS ? Number(price) : price);
      stated |= 1 << index;
    }
    last = index;
  }
  for (const { name, costsAs, index } of USUAL_PRICES) {
    if ((stated & (1 << index)) === 0) prices[name] = prices[costsAs];
  }
  if (condition >= 0) prices.tier = JSON.parse(text.slice(condition + 1));
  return { tokens, prices };
}

/** Numbers of fewer digits are exact. A bigint is made of one in a third of the time that its text takes. */
const EXACT_DIGITS = 16;
const EXACT_LIMIT = 10n ** 15n;
