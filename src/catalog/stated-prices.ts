import { parsePrice, type UnitPrices } from "../credits/price.ts";
import { quote, refuse } from "./refuse.ts";

/** A price of the configuration: decimal texts, in credits per million tokens. */
export interface StatedPrice {
  input: string;
  cachedInput?: string;
  cacheWrite?: string;
  output: string;
  reasoning?: string;
}

/** A price from a day on, YYYY-MM-DD in UTC; the first one of a list may do without: it was always so. */
export type DatedPrice = StatedPrice & { from?: string };

/** One price, or several of which each is in force from its day until the next one's. */
export type PriceSettings = StatedPrice | readonly DatedPrice[];

const DAY_WORDS = "a later date than the one before it, as YYYY-MM-DD";

/**
 * The price in force at a moment. Throws OperatorError with one line that names the key for a mistake in any of the prices,
 * and where none is in force yet.
 */
export function statedPrices(key: string, settings: PriceSettings, nowMs: number): UnitPrices {
  if (!isList(settings)) return readPrice(key, settings);
  let before = Number.NEGATIVE_INFINITY;
  let inForce: UnitPrices | undefined;
  for (const [index, price] of settings.entries()) {
    const fromMs = startOf(`${key}[${index}].from`, price, index, before);
    const prices = readPrice(`${key}[${index}]`, price);
    if (fromMs <= nowMs) inForce = prices;
    before = fromMs;
  }
  const first = settings[0]?.from ?? "nothing";
  return inForce ?? refuse(`${key}[0].from`, `found ${quote(first)}`, "a date that is not in the future, or no date");
}

function isList(settings: PriceSettings): settings is readonly DatedPrice[] {
  return Array.isArray(settings);
}

function startOf(key: string, { from }: DatedPrice, index: number, before: number): number {
  if (from === undefined) return index === 0 ? Number.NEGATIVE_INFINITY : refuse(key, "missing", DAY_WORDS);
  const fromMs = Date.parse(`${from}T00:00:00Z`);
  return fromMs > before || index === 0 ? fromMs : refuse(key, `found ${quote(from)}`, DAY_WORDS);
}

function readPrice(key: string, price: StatedPrice): UnitPrices {
  const read = (name: keyof StatedPrice, text: string) =>
    parsePrice(text) ?? refuse(`${key}.${name}`, `found ${quote(text)}`, "a decimal number, 0 or more, such as 0.25");
  const input = read("input", price.input);
  const output = read("output", price.output);
  return {
    input,
    cachedInput: read("cachedInput", price.cachedInput ?? price.input),
    cacheWrite: read("cacheWrite", price.cacheWrite ?? price.input),
    output,
    reasoning: read("reasoning", price.reasoning ?? price.output),
  };
}
