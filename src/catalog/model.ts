import { CAPABILITIES, type Capability, type Category, type CutoffBasis, type Model } from "../api/model.ts";
import { PICO_PER_MICRO, type PicoCredits } from "../credits/amount.ts";
import { pricePerMillion, type UnitPrices } from "../credits/price.ts";

/** A model that callers may name, with everything that routes, holds and listings need. */
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
  /** Unix seconds since when the model is known to be deprecated; null if it is not. */
  deprecatedSince: number | null;
  shutdownDate: string | null;
  replacement: string | null;
  /** True if the playground organization may use the model. */
  playground: boolean;
  /** Request fields that the model's upstream refuses although its kind supports them, such as `temperature`. */
  refusedParameters: ReadonlySet<string>;
  /** Bound of the tokens that one image may count. */
  imageTokensMax: number;
  /** Present for models that create embeddings, which do not chat. Their context window bounds each input. */
  embedding?: EmbeddingSizes;
  /** The highest prices of all routes. Holds are computed from them, and no listing shows more. */
  prices: UnitPrices;
  /** The highest short-prompt prices of all routes; absent if long prompts cost the same. */
  shortPrompt?: ShortPromptPrices;
  /** Routes in the order in which they are tried, unless they have weights; at least one. */
  routes: readonly Route[];
}

/** Lengths of an embedding model's vectors. */
export interface EmbeddingSizes {
  /** Default length; undefined if unknown. */
  dimensions?: number;
  /** Lengths that a request may ask for: some, or all up to the default. Undefined if the upstream decides. */
  choices?: readonly number[] | "shorter";
}

export interface Route {
  providerId: string;
  /** The upstream's own name of the model. */
  model: string;
  /** The highest price of each token class on this route. */
  prices: UnitPrices;
  /** Prices of a short prompt; absent if long prompts cost the same. */
  shortPrompt?: ShortPromptPrices;
  /** Share of requests that try this route first, relative to the model's other routes. Either all routes have a weight or none. */
  weight?: number;
  /** Tokens, if known. */
  contextWindow?: number;
  /** True if the provider runs tools of its own, whose results count as prompt tokens. */
  runsTools?: boolean;
  /** True if the provider counts reasoning tokens outside `max_tokens`. */
  countsReasoningBeside?: boolean;
}

/** Returns the name of an upstream in the books, in headers and in logs. */
export function upstreamOf({ providerId, model }: Pick<Route, "providerId" | "model">): string {
  return `${providerId}/${model}`;
}

/** Prices of a request whose prompt has at most `promptTokensMax` tokens of all classes together. */
export interface ShortPromptPrices {
  promptTokensMax: number;
  prices: UnitPrices;
}

/** Returns the prices of a route for a prompt of this length: the short-prompt prices if they apply, else the highest. */
export function pricesAt(route: Pick<Route, "prices" | "shortPrompt">, promptTokens: number): UnitPrices {
  const { shortPrompt, prices } = route;
  return shortPrompt !== undefined && promptTokens <= shortPrompt.promptTokensMax ? shortPrompt.prices : prices;
}

/** The models that callers may name. The content may change while the service runs. */
export interface Catalog {
  find(id: string): CatalogModel | undefined;
  list(): readonly CatalogModel[];
}

/** Converts a model to its form in `GET /v1/models`. `pricing_details` has the prices of a short prompt; `pricing` adds those of a long one. */
export function toApiModel(model: CatalogModel): Model {
  const usual = model.shortPrompt?.prices ?? model.prices;
  return {
    id: model.id,
    object: "model",
    created: model.created,
    owned_by: model.ownedBy,
    category: model.category,
    name: model.name,
    description: model.description,
    capabilities: CAPABILITIES.filter((capability) => model.capabilities.has(capability)),
    context_window: model.contextWindow,
    max_output_tokens: model.maxOutputTokens,
    ...(model.embedding?.dimensions !== undefined && { dimensions: model.embedding.dimensions }),
    cutoff_date: model.cutoffDate,
    cutoff_basis: model.cutoffBasis,
    pricing: pricingText(model),
    pricing_details: {
      unit: "credits_per_million_tokens",
      input: pricePerMillion(usual.input),
      cached_input: pricePerMillion(usual.cachedInput),
      output: pricePerMillion(usual.output),
    },
    deprecated: model.deprecatedSince !== null,
    shutdown_date: model.shutdownDate,
    replacement: model.replacement,
  };
}

function pricingText(model: CatalogModel): string {
  const { prices, shortPrompt } = model;
  const usual = shortPrompt?.prices ?? prices;
  if (model.embedding !== undefined) return `${figure(usual.input)} credits per million input tokens`;
  const text = `${figure(usual.input)} credits per million input tokens, ${figure(usual.output)} per million output tokens`;
  if (shortPrompt === undefined) return text;
  const bound = shortPrompt.promptTokensMax.toLocaleString("en-US");
  return `${text}; with a prompt of more than ${bound} tokens ${figure(prices.input)} and ${figure(prices.output)}`;
}

/** Writes a price in credits per million tokens exactly, with at least two decimals: "2.00", "0.0375". */
function figure(price: PicoCredits): string {
  const fraction = (price % PICO_PER_MICRO).toString().padStart(6, "0").replace(/0+$/, "").padEnd(2, "0");
  return `${price / PICO_PER_MICRO}.${fraction}`;
}
