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
  /** Whether the playground organization may use it. */
  playground: boolean;
  /** Request fields that the model's upstream refuses though its kind takes them, e.g. `temperature`. */
  refusedParameters: ReadonlySet<string>;
  /** Bound of the tokens that one image may count. */
  imageTokensMax: number;
  /** What a hold covers and a listing shows at most: the dearest of all routes, at their dearest. */
  prices: UnitPrices;
  /** What a short prompt pays on the dearest route, where long prompts are dearer. */
  shortPrompt?: ShortPromptPrices;
  /** Tried in this order, or by their weights; at least one. */
  routes: readonly Route[];
}

export interface Route {
  providerId: string;
  /** The upstream's own name of the model. */
  model: string;
  /** The dearest that a token of each class can cost here. */
  prices: UnitPrices;
  /** What a short prompt pays, where long prompts are dearer. */
  shortPrompt?: ShortPromptPrices;
  /** How often it comes first beside the other routes of its model, which then have weights too. */
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

/** What a request with this prompt pays on a route: the prices of a short prompt where they apply, else the dearest. */
export function pricesAt(route: Pick<Route, "prices" | "shortPrompt">, promptTokens: number): UnitPrices {
  const { shortPrompt, prices } = route;
  return shortPrompt !== undefined && promptTokens <= shortPrompt.promptTokensMax ? shortPrompt.prices : prices;
}

/** What the rest of the service sees of the catalog; the content may change while it runs. */
export interface Catalog {
  find(id: string): CatalogModel | undefined;
  list(): readonly CatalogModel[];
}
