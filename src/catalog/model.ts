import type { Capability, Category, CutoffBasis } from "../api/model.ts";
import type { UnitPrices } from "../credits/price.ts";

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
  /** Tokens, where it is known. */
  contextWindow?: number;
  /** True where the provider runs tools of its own, whose results count as prompt tokens. */
  runsTools?: boolean;
  /** True where the provider counts reasoning tokens outside `max_tokens`. */
  countsReasoningBeside?: boolean;
}

/** The name of an upstream in the books, in headers and in logs. */
export function upstreamOf({ providerId, model }: Pick<Route, "providerId" | "model">): string {
  return `${providerId}/${model}`;
}

/** Prices of a request whose prompt has at most so many tokens, all classes together. */
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
