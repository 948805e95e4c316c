import { calcPrice, findProvider, type ModelInfo, type TieredPrices } from "@pydantic/genai-prices";
import { dearer, parseDollarPrice, type UnitPrices } from "../credits/price.ts";
import type { DollarPrice } from "./facts.ts";
import type { ShortPromptPrices } from "./model.ts";

/** Conversion of dollars to credits, as decimal texts. */
export interface CreditSettings {
  perDollar: string;
  markup: string;
}

/** A model in the price data. */
export interface PricedModel {
  prices: UnitPrices;
  shortPrompt?: ShortPromptPrices;
  name: string | undefined;
  /** Tokens. */
  contextWindow: number | undefined;
  deprecated: boolean;
}

/** Why a model that the price data lists has no price by tokens alone. */
export type Unpriced = "unknown" | "charged by the request";

type ModelPrice = Exclude<ModelInfo["prices"], unknown[]>;
type ConditionalPrice = Extract<ModelInfo["prices"], unknown[]>[number];

/** Fees for each request, in addition to its tokens, that a caller cannot avoid: such a model searches on every request. */
const REQUEST_FEES = ["requests_kcount", "output_citation_mtok"];
/** Models that search on every request. Each search has a fee, which the price data does not list with the model. */
const ALWAYS_SEARCHES = /search-preview|deep-research|sonar/;

/**
 * Returns the known price of a provider's model at a time, in milliseconds since 1970, or why there is none. The price is
 * never lower than the provider's own: the highest of prices that depend on the time of day, and the dated price that is in
 * force. If the price rises with the length of the prompt, `prices` has the highest one, and `shortPrompt` that of short
 * prompts. Cached and written input without a price of its own costs as much as input, and reasoning as much as output.
 */
export function knownPrice(
  pricesId: string,
  model: string,
  credits: CreditSettings,
  nowMs: number,
): PricedModel | Unpriced {
  const provider = findProvider({ providerId: pricesId });
  const listed =
    provider === undefined ? undefined : calcPrice({}, model, { provider, timestamp: new Date(nowMs) })?.model;
  if (listed === undefined) return "unknown";
  const now = pricesNow(listed.prices, nowMs);
  if (ALWAYS_SEARCHES.test(model) || now.some((price) => REQUEST_FEES.some((fee) => price[fee] !== undefined))) {
    return "charged by the request";
  }
  const [first, ...others] = now.map((price) => readPrice(price, credits));
  const read = others.reduce(dearerPrice, first);
  if (read === undefined) return "unknown";
  const { prices, shortPrompt } = read;
  const { name, context_window: contextWindow, deprecated = false } = listed;
  return { prices, ...(shortPrompt && { shortPrompt }), name, contextWindow, deprecated };
}

/** Converts a price of the service's own table to credits; undefined if it is not a valid price. */
export function tablePrice(dollars: DollarPrice, credits: CreditSettings): UnitPrices | undefined {
  const input = parseDollarPrice(dollars.input, credits);
  const output = parseDollarPrice(dollars.output, credits);
  const cachedInput = parseDollarPrice(dollars.cachedInput ?? dollars.input, credits);
  const cacheWrite = parseDollarPrice(dollars.cacheWrite ?? dollars.input, credits);
  if (input === undefined || output === undefined) return undefined;
  if (cachedInput === undefined || cacheWrite === undefined) return undefined;
  return { input, cachedInput, cacheWrite, output, reasoning: output };
}

/** Returns the higher of a price of the price data and one of the table, so that an outdated price causes no loss. */
export function dearerOf(priced: PricedModel | Unpriced, table: UnitPrices | undefined): PricedModel | Unpriced {
  if (table === undefined || priced === "charged by the request") return priced;
  if (priced === "unknown") {
    return { prices: table, name: undefined, contextWindow: undefined, deprecated: false };
  }
  const { shortPrompt } = priced;
  return {
    ...priced,
    prices: dearer(priced.prices, table),
    ...(shortPrompt && { shortPrompt: { ...shortPrompt, prices: dearer(shortPrompt.prices, table) } }),
  };
}

/** Returns the id in the price data of the provider at an address; undefined if it has none. */
export function pricesIdOf(baseUrl: string | null): string | undefined {
  return baseUrl === null ? undefined : findProvider({ providerApiUrl: baseUrl })?.id;
}

/** Returns the dated price that is in force, and all prices that depend on the time of day. */
function pricesNow(prices: ModelInfo["prices"], nowMs: number): ModelPrice[] {
  if (!Array.isArray(prices)) return [prices];
  const isInForce = ({ constraint }: ConditionalPrice) =>
    constraint === undefined ||
    (constraint.type === "start_date" && Date.parse(`${constraint.start_date}T00:00:00Z`) <= nowMs);
  const dated = prices.findLast(isInForce);
  const daily = prices.filter(({ constraint }) => constraint?.type === "time_of_date");
  return [...(dated === undefined ? [] : [dated]), ...daily].map((price) => price.prices);
}

/** Undefined if input or output has no price. */
type ReadPrice = { prices: UnitPrices; shortPrompt?: ShortPromptPrices } | undefined;

function readPrice(price: ModelPrice, credits: CreditSettings): ReadPrice {
  const dearest = unitPrices(price, credits, (tiered) => [tiered.base, ...tiered.tiers.map((tier) => tier.price)]);
  if (dearest === undefined) return undefined;
  const starts = Object.values(price).flatMap((value) =>
    isTiered(value) ? value.tiers.map(({ start }) => start) : [],
  );
  const short = unitPrices(price, credits, (tiered) => [tiered.base]);
  if (starts.length === 0 || short === undefined) return { prices: dearest };
  return { prices: dearest, shortPrompt: { promptTokensMax: Math.min(...starts), prices: short } };
}

function unitPrices(
  price: ModelPrice,
  credits: CreditSettings,
  choose: (tiered: TieredPrices) => number[],
): UnitPrices | undefined {
  const read = (key: string) => {
    const value = price[key];
    if (value === undefined) return undefined;
    const dollars = isTiered(value) ? choose(value) : [value];
    // Printing a JSON number restores its decimal text, so that no price is computed with floats.
    const parsed = dollars.map((number) => parseDollarPrice(String(number), credits));
    return parsed.reduce((a, b) => (a === undefined || b === undefined ? undefined : a > b ? a : b));
  };
  const input = read("input_mtok");
  const output = read("output_mtok");
  if (input === undefined || output === undefined) return undefined;
  const reasoning = read("output_reasoning_mtok") ?? output;
  return {
    input,
    cachedInput: read("cache_read_mtok") ?? input,
    cacheWrite: read("cache_write_mtok") ?? input,
    output,
    reasoning,
  };
}

function dearerPrice(a: ReadPrice, b: ReadPrice): ReadPrice {
  if (a === undefined || b === undefined) return undefined;
  const prices = dearer(a.prices, b.prices);
  const bounds = [a, b].flatMap(({ shortPrompt }) => (shortPrompt === undefined ? [] : [shortPrompt.promptTokensMax]));
  if (bounds.length === 0) return { prices };
  const short = dearer(a.shortPrompt?.prices ?? a.prices, b.shortPrompt?.prices ?? b.prices);
  return { prices, shortPrompt: { promptTokensMax: Math.min(...bounds), prices: short } };
}

function isTiered(value: ModelPrice[string]): value is TieredPrices {
  return typeof value === "object";
}

/** Returns one line about a fault of the credit settings; undefined if they are valid. */
export function creditSettingsFault({ perDollar, markup }: CreditSettings): string | undefined {
  if (!parseDollarPrice("1", { perDollar, markup: "0" })) {
    return `credits.perDollar: found ${JSON.stringify(perDollar)}; allowed: a decimal number above 0, such as 1`;
  }
  if (parseDollarPrice("1", { perDollar, markup }) === undefined) {
    return `credits.markup: found ${JSON.stringify(markup)}; allowed: a decimal number, 0 or more, such as 0.2`;
  }
  return undefined;
}
