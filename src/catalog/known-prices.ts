import { calcPrice, findProvider, type ModelInfo, type TieredPrices } from "@pydantic/genai-prices";
import { type Further, type FurtherClass, parseDollarPrice, type UnitPrices } from "../credits/price.ts";
import type { DollarPrice } from "./facts.ts";
import { dearestList, type PriceList } from "./model.ts";

/** Conversion of dollars to credits, as decimal texts. */
export interface CreditSettings {
  perDollar: string;
  markup: string;
}

/** A model as the price data knows it. */
export interface PricedModel extends Pick<PriceList, "prices" | "tiers"> {
  name: string | undefined;
  /** Tokens. */
  contextWindow: number | undefined;
  deprecated: boolean;
}

/** Why a model has no price: it is not listed, or is charged for what an answer does not report. */
export type Unpriced = "unknown" | "charged beyond the report";

type ModelPrice = Exclude<ModelInfo["prices"], unknown[]>;
type ConditionalPrice = Extract<ModelInfo["prices"], unknown[]>[number];

/** A price of tokens that no report counts. */
const CITATIONS = "output_citation_mtok";
/** A price of each request. */
const REQUESTS = "requests_kcount";
/** Search is part of what these do, and is charged by the call, which the price data lists only as a price of the request. */
const ALWAYS_SEARCHES = /search-preview|deep-research|sonar/;

/**
 * The known price of a provider's model on a day. Never lower than what the provider can charge for a request: of prices
 * that depend on the time of day, the dearest counts; of dated prices, the one in force; of prices that rise with the
 * length of the prompt, the dearest stands in `prices` and those of shorter prompts in `tiers`. A class of tokens without a
 * price of its own costs what its whole costs: cached and written input as input, reasoning as output.
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
  const isByRequest = now.every((price) => price[REQUESTS] !== undefined);
  if ((ALWAYS_SEARCHES.test(model) && !isByRequest) || now.some((price) => price[CITATIONS] !== undefined)) {
    return "charged beyond the report";
  }
  const read = now.map((price) => readPrice(price, credits)).filter((list) => list !== undefined);
  if (read.length < now.length || read.length === 0) return "unknown";
  const { name, context_window: contextWindow, deprecated = false } = listed;
  return { ...dearestList(read), name, contextWindow, deprecated };
}

/** A price of the service's own table. Undefined where it is not a price. */
export function tablePrice(dollars: DollarPrice, credits: CreditSettings): UnitPrices | undefined {
  const input = parseDollarPrice(dollars.input, credits);
  const output = parseDollarPrice(dollars.output, credits);
  const cachedInput = parseDollarPrice(dollars.cachedInput ?? dollars.input, credits);
  const cacheWrite = parseDollarPrice(dollars.cacheWrite ?? dollars.input, credits);
  if (input === undefined || output === undefined) return undefined;
  if (cachedInput === undefined || cacheWrite === undefined) return undefined;
  return { input, cachedInput, cacheWrite, output, reasoning: output };
}

/** The dearer of a price of the price data and one of the table, so that an old one of either costs nobody anything. */
export function dearerOf(priced: PricedModel | Unpriced, table: UnitPrices | undefined): PricedModel | Unpriced {
  if (table === undefined || priced === "charged beyond the report") return priced;
  if (priced === "unknown") {
    return { prices: table, name: undefined, contextWindow: undefined, deprecated: false };
  }
  return { ...priced, ...dearestList([priced, { prices: table }]) };
}

/** The name in the price data of the provider at an address. */
export function pricesIdOf(baseUrl: string | null): string | undefined {
  return baseUrl === null ? undefined : findProvider({ providerApiUrl: baseUrl })?.id;
}

/** The dated price in force, and every one that comes and goes with the time of day. */
function pricesNow(prices: ModelInfo["prices"], nowMs: number): ModelPrice[] {
  if (!Array.isArray(prices)) return [prices];
  const isInForce = ({ constraint }: ConditionalPrice) =>
    constraint === undefined ||
    (constraint.type === "start_date" && Date.parse(`${constraint.start_date}T00:00:00Z`) <= nowMs);
  const dated = prices.findLast(isInForce);
  const daily = prices.filter(({ constraint }) => constraint?.type === "time_of_date");
  return [...(dated === undefined ? [] : [dated]), ...daily].map((price) => price.prices);
}

/** Undefined where input or output has no price. */
function readPrice(price: ModelPrice, credits: CreditSettings): PriceList | undefined {
  const starts = Object.values(price).flatMap((value) =>
    isTiered(value) ? value.tiers.map(({ start }) => start) : [],
  );
  const bounds = [...new Set(starts)].sort((a, b) => a - b);
  const upTo = (promptTokens: number) =>
    unitPrices(price, credits, ({ base, tiers }) => {
      return [base, ...tiers.filter(({ start }) => start < promptTokens).map((tier) => tier.price)];
    });
  const prices = upTo(Number.POSITIVE_INFINITY);
  if (prices === undefined) return undefined;
  const tiers = bounds.map((promptTokensMax) => ({ promptTokensMax, prices: upTo(promptTokensMax) ?? prices }));
  return tiers.length === 0 ? { prices } : { prices, tiers };
}

/** The names of prices in the price data: of parts by the token, of calls by the thousand. */
const FURTHER_PRICES: Partial<Record<FurtherClass, string>> = {
  cacheWrite1h: "cache_write_1h_mtok",
  cachedAudio: "cache_audio_read_mtok",
  inputAudio: "input_audio_mtok",
  inputImage: "input_image_mtok",
  outputAudio: "output_audio_mtok",
  outputImage: "output_image_mtok",
  requests: REQUESTS,
  searches: "web_searches_kcount",
};

function unitPrices(
  price: ModelPrice,
  credits: CreditSettings,
  choose: (tiered: TieredPrices) => number[],
): UnitPrices | undefined {
  const read = (key: string) => {
    const value = price[key];
    if (value === undefined) return undefined;
    const dollars = isTiered(value) ? choose(value) : [value];
    // A JSON number printed back is the decimal that was written: no price passes through arithmetic on floats.
    const parsed = dollars.map((number) => parseDollarPrice(String(number), credits));
    return parsed.reduce((a, b) => (a === undefined || b === undefined ? undefined : a > b ? a : b));
  };
  const input = read("input_mtok");
  const output = read("output_mtok");
  if (input === undefined || output === undefined) return undefined;
  const further: Further<bigint> = {};
  for (const [name, key] of Object.entries(FURTHER_PRICES) as [FurtherClass, string][]) {
    const found = read(key);
    if (found !== undefined) further[name] = key.endsWith("_kcount") ? found * UNITS_A_THOUSAND : found;
  }
  return {
    input,
    cachedInput: read("cache_read_mtok") ?? input,
    cacheWrite: read("cache_write_mtok") ?? input,
    output,
    reasoning: read("output_reasoning_mtok") ?? output,
    ...(Object.keys(further).length > 0 && { further }),
  };
}

/** A price by the thousand is read as one by the million. */
const UNITS_A_THOUSAND = 1_000n;

function isTiered(value: ModelPrice[string]): value is TieredPrices {
  return typeof value === "object";
}

/** The line that tells what is wrong with how dollars become credits; undefined when nothing is. */
export function creditSettingsFault({ perDollar, markup }: CreditSettings): string | undefined {
  if (!parseDollarPrice("1", { perDollar, markup: "0" })) {
    return `credits.perDollar: found ${JSON.stringify(perDollar)}; allowed: a decimal number above 0, such as 1`;
  }
  if (parseDollarPrice("1", { perDollar, markup }) === undefined) {
    return `credits.markup: found ${JSON.stringify(markup)}; allowed: a decimal number, 0 or more, such as 0.2`;
  }
  return undefined;
}
