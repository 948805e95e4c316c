import type { Capability, Category, CutoffBasis } from "../contract/model.ts";
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
  /** At most 4096. */
  maxOutputTokens: number;
  /** YYYY-MM-DD. */
  cutoffDate: string;
  cutoffBasis: CutoffBasis;
  /** Unix seconds of the release. */
  created: number;
  deprecated: boolean;
  shutdownDate: string | null;
  replacement: string | null;
  /** Whether the playground organization may use it. */
  playground: boolean;
  /** Request fields that the model's upstream refuses though its kind takes them, e.g. `temperature`. */
  refusedParameters: ReadonlySet<string>;
  /** Bound of the tokens that one image may count. */
  imageTokensMax: number;
  prices: UnitPrices;
  /** Tried in this order; at least one. */
  routes: readonly Route[];
}

export interface Route {
  providerId: string;
  /** The upstream's own name of the model. */
  model: string;
  prices: UnitPrices;
}

/** What the rest of the service sees of the catalog; the content may change while it runs. */
export interface Catalog {
  find(id: string): CatalogModel | undefined;
  list(): readonly CatalogModel[];
}
