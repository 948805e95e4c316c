import { calcPrice, findProvider, type ModelInfo, type TieredPrices } from "@pydantic/genai-prices";
import { pick } from "../api/json.ts";
import { PRICE_ROWS } from "../api/price-classes.ts";
import { FREE, parsePrice, type UnitPrices } from "../credits/price.ts";
import type { ListedPrice } from "./facts.ts";
import { dearestList, type PriceList, priceList, startsOf } from "./model.ts";

/** Conversion of dollars to credits, as decimal texts. */
export interface CreditSettings {
  perDollar: string;
  markup: string;
}

type KnownPrices = Pick<PriceList, "prices" | "tiers">;
/** A model in the price data. */
export interface PricedModel extends KnownPrices {
  next?: KnownPrices & { fromMs: number };
  name: string | undefined;
  contextWindow: number | undefined;
  deprecated: boolean;
}

/** Why a model has no price: it is not listed, or is charged for what an answer does not report. */
export type Unpriced = "unknown" | "charged beyond the report";

interface PriceOptions {
  credits: CreditSettings;
  nowMs: number;
  /** True if output needs no price, because there is none. */
  isEmbedding: boolean;
  /** A further price of the model: the higher one applies, so that an outdated price causes no loss. */
  dollars?: ListedPrice | undefined;
}
type ReadOptions = Pick<PriceOptions, "credits" | "isEmbedding">;

type ConditionalPrice = Extract<ModelInfo["prices"], unknown[]>[number];

/** A price of tokens that no answer reports. */
const CITATIONS = "output_citation_mtok";
/** A fee for each request, in addition to its tokens. */
const REQUESTS = "requests_kcount";
/** Models that search on every request. The price data lists the fee of each search only as a fee for each request. */
const ALWAYS_SEARCHES = /search-preview|deep-research|sonar/;

/**
 * Returns the known price of a provider's model at a time, in milliseconds since 1970, or why there is none. The price is
 * never lower than the provider's own: the highest of prices that depend on the time of day, and the dated price that is in
 * force. If the price rises with the length of the prompt, `prices` has the highest one, and `tiers` those of shorter
 * prompts. Cached and written input without a price of its own costs as much as input, and reasoning as much as output.
 */
export function knownPrice(
  pricesId: string | undefined,
  model: string,
  { nowMs, dollars, ...options }: PriceOptions,
): PricedModel | Unpriced {
  const provider = pricesId === undefined ? undefined : findProvider({ providerId: pricesId });
  const listed =
    provider === undefined ? undefined : calcPrice({}, model, { provider, timestamp: new Date(nowMs) })?.model;
  const now = listed === undefined ? [] : pricesNow(listed.prices, nowMs);
  const isByRequest = now.every((price) => price[REQUESTS] !== undefined);
  if ((ALWAYS_SEARCHES.test(model) && !isByRequest) || now.some((price) => price[CITATIONS] !== undefined)) {
    return "charged beyond the report";
  }
  const read = now.map((price) => readPrice(price, options)).filter((list) => list !== undefined);
  const own = dollars && readPrice(dollars, options);
  // A price of which one part cannot be read counts as none.
  const lists = [...(read.length < now.length ? [] : read), ...(own === undefined ? [] : [own])];
  if (lists.length === 0) return "unknown";
  const { id, name, context_window, deprecated = false } = listed ?? {};
  // The price data finds models by parts of their names, which need not have the same context window.
  const contextWindow = id === model ? context_window : undefined;
  const fromMs = listed && nextStartMs(listed.prices, nowMs);
  const later = fromMs === undefined ? "unknown" : knownPrice(pricesId, model, { nowMs: fromMs, dollars, ...options });
  const priced = { ...dearestList(lists), name, contextWindow, deprecated };
  if (fromMs === undefined || typeof later === "string") return priced;
  return { ...priced, next: { ...pick(later, ["prices", "tiers"]), fromMs } };
}

/** Returns the id in the price data of the provider at an address; undefined if it has none. */
export function pricesIdOf(baseUrl: string | null): string | undefined {
  return baseUrl === null ? undefined : findProvider({ providerApiUrl: baseUrl })?.id;
}

/** Returns the dated price that is in force, and all prices that depend on the time of day. */
function pricesNow(prices: ModelInfo["prices"], nowMs: number): ListedPrice[] {
  if (!Array.isArray(prices)) return [prices];
  const dated = prices.findLast((price) => startOf(price) <= nowMs);
  const daily = prices.filter(({ constraint }) => constraint?.type === "time_of_date");
  return [...(dated === undefined ? [] : [dated]), ...daily].map((price) => price.prices);
}

/** Returns when the next dated price takes effect; undefined if there is none. */
function nextStartMs(prices: ModelInfo["prices"], nowMs: number): number | undefined {
  const starts = Array.isArray(prices)
    ? prices.map(startOf).filter((ms) => ms > nowMs && ms < Number.POSITIVE_INFINITY)
    : [];
  return starts.length === 0 ? undefined : Math.min(...starts);
}

/** Returns when a price takes effect, in milliseconds since 1970. One of a time of the day never does by itself. */
function startOf({ constraint }: ConditionalPrice): number {
  if (constraint === undefined) return Number.NEGATIVE_INFINITY;
  return constraint.type === "start_date" ? Date.parse(`${constraint.start_date}T00:00:00Z`) : Number.POSITIVE_INFINITY;
}

/** Undefined if input or output has no price and needs one. */
function readPrice(price: ListedPrice, options: ReadOptions): PriceList | undefined {
  const starts = Object.values(price).flatMap((value) =>
    isTiered(value) ? value.tiers.map(({ start }) => start) : [],
  );
  const byLength = startsOf(starts).flatMap((above) => {
    const prices = unitPrices(price, options, ({ base, tiers }) => {
      return [base, ...tiers.filter(({ start }) => start <= above).map((tier) => tier.price)];
    });
    return prices === undefined ? [] : { above, prices };
  });
  return byLength.length === 0 ? undefined : priceList(byLength);
}

function unitPrices(
  price: ListedPrice,
  { credits, isEmbedding }: ReadOptions,
  choose: (tiered: TieredPrices) => number[],
): UnitPrices | undefined {
  const read = (key: string) => {
    const value = price[key];
    if (value === undefined) return undefined;
    const dollars = isTiered(value) ? choose(value) : [value];
    // Printing a JSON number restores its decimal text, so that no price is computed with floats.
    const parsed = dollars.map((number) => parsePrice(String(number), credits));
    return parsed.reduce((a, b) => (a === undefined || b === undefined ? undefined : a > b ? a : b));
  };
  const prices: UnitPrices = { ...FREE };
  for (const { class: name, costsAs, isCall, direction, priceData } of PRICE_ROWS) {
    const found = priceData === undefined ? undefined : read(priceData);
    if (found !== undefined) prices[name] = isCall ? found * UNITS_A_THOUSAND : found;
    else if (costsAs !== undefined) prices[name] = prices[costsAs];
    else if (direction === "input" || (direction === "output" && !isEmbedding)) return undefined;
  }
  return prices;
}

/** A price by the thousand is read as one by the million. */
const UNITS_A_THOUSAND = 1_000n;

function isTiered(value: ListedPrice[string]): value is TieredPrices {
  return typeof value === "object";
}
