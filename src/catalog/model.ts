import type { Capability, Category, CutoffBasis } from "../api/model.ts";
import { dearer, type UnitPrices } from "../credits/price.ts";

/** A model that callers may name, with everything that routing, holding and listing need. */
export interface CatalogModel {
  id: string;
  name: string;
  ownedBy: string;
  category: Category;
  description: string;
  capabilities: ReadonlySet<Capability>;
  /** Tokens. */
  contextWindow: number;
  /** The model's own maximum, in tokens. */
  maxOutputTokens: number;
  /** YYYY-MM-DD. */
  cutoffDate: string;
  cutoffBasis: CutoffBasis;
  /** Unix seconds of the release. */
  created: number;
  /** Unix seconds since when it is known to be on its way out; null where it is not. */
  deprecatedSince: number | null;
  shutdownDate: string | null;
  replacement: string | null;
  /** True if the playground organization may use the model. */
  playground: boolean;
  /** Request fields that the model's upstream refuses though its kind takes them, e.g. `temperature`. */
  refusedParameters: ReadonlySet<string>;
  /** Bound of the tokens that one image may count. */
  imageTokensMax: number;
  /** The highest prices of all routes. Holds are computed from them, and no listing shows more. */
  prices: UnitPrices;
  /** The highest prices of shorter prompts of all routes; absent if all prompts cost the same. */
  tiers?: readonly PromptTier[];
  /** Routes in the order in which they are tried, unless they have weights; at least one. */
  routes: readonly Route[];
}

/** The prices of a route or a model. */
export interface PriceList {
  /** The prices of the longest prompts, or of all. */
  prices: UnitPrices;
  /** Prices of shorter prompts, by their length; absent if all prompts cost the same. */
  tiers?: readonly PromptTier[];
  /** Prices of answers that the upstream reports to have served at another service tier than the usual one. */
  serviceTiers?: Readonly<Record<string, PriceList>>;
}

export interface Route extends PriceList {
  providerId: string;
  /** The upstream's own name of the model. */
  model: string;
  /** Share of requests that try this route first, relative to the model's other routes. Either all routes have a weight or none. */
  weight?: number;
  /** Tokens, where it is known. */
  contextWindow?: number;
  /** True where the provider runs tools of its own, whose results count as prompt tokens. */
  runsTools?: boolean;
  /** Searches that one answer is charged for at most, and images; absent where neither is charged. */
  callsMost?: number;
  /** True where the provider counts reasoning tokens outside `max_tokens`. */
  countsReasoningBeside?: boolean;
}

/** Searches of an answer that are charged at most, and images, where the configuration states no other number. */
export const CALLS_MOST_DEFAULT = 10;

/** The name of an upstream in the books, in headers and in logs. */
export function upstreamOf({ providerId, model }: Pick<Route, "providerId" | "model">): string {
  return `${providerId}/${model}`;
}

/** Prices of a request whose prompt has at most so many tokens, all classes together. */
export interface PromptTier {
  promptTokensMax: number;
  prices: UnitPrices;
}

/** Returns the prices of a prompt of this length, at a service tier where that has prices of its own. */
export function pricesAt(list: PriceList, promptTokens: number, serviceTier?: string): UnitPrices {
  const { serviceTiers = {} } = list;
  // The name comes from the upstream: it must not find what every object inherits.
  const isStated = serviceTier !== undefined && Object.hasOwn(serviceTiers, serviceTier);
  const { tiers, prices } = (isStated ? serviceTiers[serviceTier] : undefined) ?? list;
  return tiers?.find(({ promptTokensMax }) => promptTokens <= promptTokensMax)?.prices ?? prices;
}

/** Returns the highest prices of several lists, for each length of a prompt. */
export function dearestList(lists: readonly PriceList[]): Pick<PriceList, "prices" | "tiers"> {
  const prices = lists.map((list) => list.prices).reduce(dearer);
  const bounds = new Set(lists.flatMap(({ tiers = [] }) => tiers.map(({ promptTokensMax }) => promptTokensMax)));
  if (bounds.size === 0) return { prices };
  const tiers = [...bounds]
    .sort((a, b) => a - b)
    .map((promptTokensMax) => {
      return { promptTokensMax, prices: lists.map((list) => pricesAt(list, promptTokensMax)).reduce(dearer) };
    });
  return { prices, tiers };
}

/** Returns the highest price of each class for a prompt of at most this length, at any service tier. */
export function highestPricesAt({ prices, tiers, serviceTiers }: PriceList, promptTokensMost: number): UnitPrices {
  if (tiers === undefined && serviceTiers === undefined) return prices;
  const shorter = (tiers ?? []).filter((_, index, all) => promptTokensMost > (all[index - 1]?.promptTokensMax ?? -1));
  const isWithin = promptTokensMost <= (tiers?.at(-1)?.promptTokensMax ?? -1);
  const others = Object.values(serviceTiers ?? {}).map((list) => highestPricesAt(list, promptTokensMost));
  const usual = [...shorter.map((tier) => tier.prices), ...(isWithin ? [] : [prices])];
  return [...usual, ...others].reduce(dearer);
}

/** Capabilities that a model needs to take a field of a request. */
const CAPABILITY_OF_FIELD: { [Field in string]?: Capability } = {
  tools: "tools",
  tool_choice: "tools",
  parallel_tool_calls: "tools",
  response_format: "structured_output",
  reasoning_effort: "reasoning",
};

/** Tells whether a model takes a field of a request. */
export function takesField(
  { refusedParameters, capabilities }: Pick<CatalogModel, "refusedParameters" | "capabilities">,
  field: string,
): boolean {
  const needed = CAPABILITY_OF_FIELD[field];
  return !refusedParameters.has(field) && (needed === undefined || capabilities.has(needed));
}

/** The models that callers may name. The content may change while the service runs. */
export interface Catalog {
  find(id: string): CatalogModel | undefined;
  list(): readonly CatalogModel[];
}
