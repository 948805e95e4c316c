import { CAPABILITIES, type Capability, type Category, type CutoffBasis, type Model } from "../api/model.ts";
import { CALL_ROWS } from "../api/price-classes.ts";
import type { LimitSettings } from "../api/principal.ts";
import { TASKS, taskOf } from "../api/tasks.ts";
import { PICO_PER_MICRO, type PicoCredits } from "../credits/amount.ts";
import {
  computedOnce,
  dearer,
  FREE,
  type PriceTier,
  pricesByClass,
  type UnitPrices,
  withoutPrices,
} from "../credits/price.ts";

/** A model that callers may name, with everything that routes, holds and listings need. */
export interface CatalogModel {
  id: string;
  name: string;
  ownedBy: string;
  category: Category;
  description: string;
  capabilities: ReadonlySet<Capability>;
  contextWindow: number;
  /** True if the context window is unknown; `contextWindow` is then a bound of it. */
  hasUnknownWindow?: boolean;
  /** The model's own maximum, in tokens; the context window if it is unknown. */
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
  imageTokensMax: number;
  /** Limits of the model for all callers together; absent without any. */
  limits?: Partial<LimitSettings>;
  /** Present for models that create embeddings, which do not chat. Their context window bounds each input. */
  embedding?: EmbeddingSizes;
  /** The highest prices of all routes. Holds are computed from them, and no listing shows more. */
  prices: UnitPrices;
  /** The highest prices of shorter prompts of all routes; absent if all prompts cost the same. */
  tiers?: readonly PromptTier[];
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

/** The prices of a route or a model. */
export interface PriceList {
  /** The prices of the longest prompts, or of all. */
  prices: UnitPrices;
  /** Prices of shorter prompts, by their length; absent if all prompts cost the same. */
  tiers?: readonly PromptTier[];
  /** Prices of answers that the upstream reports to have served at another service tier than the usual one. */
  serviceTiers?: Readonly<Record<string, PriceList>>;
  /** The next dated prices, and when they take effect, in milliseconds since 1970; absent if there are none. */
  next?: PriceList & { fromMs: number };
  /** All dated prices, the oldest first; absent if the prices never changed. */
  history?: readonly DatedPrices[];
}

/** Prices from a time on, in milliseconds since 1970; null: from the beginning. */
export interface DatedPrices {
  fromMs: number | null;
  prices: UnitPrices;
}

/** Returns the prices of a model at each change of one of its routes, the highest of all routes, the oldest first. */
export function priceHistory(routes: readonly Route[]): DatedPrices[] {
  const dates = routes.flatMap(({ history = [] }) => history.map(({ fromMs }) => fromMs ?? 0));
  return [...new Set(dates)]
    .sort((one, other) => one - other)
    .flatMap((fromMs) => {
      const inForce = routes.map(({ history, prices }) =>
        history === undefined ? prices : history.findLast((dated) => (dated.fromMs ?? 0) <= fromMs)?.prices,
      );
      const known = inForce.filter((prices) => prices !== undefined);
      return known.length === 0 ? [] : [{ fromMs: fromMs === 0 ? null : fromMs, prices: known.reduce(dearer) }];
    });
}

export interface Route extends PriceList {
  providerId: string;
  /** The upstream's own name of the model. */
  model: string;
  /** Share of requests that try this route first, relative to the model's other routes. Either all routes have a weight or none. */
  weight?: number;
  contextWindow?: number;
  /** True if the provider runs tools of its own, whose results count as prompt tokens. */
  runsTools?: boolean;
  /** The most calls of each class, such as searches, that one answer is charged for; absent if none has a price. */
  callsMost?: number;
  /** True if the provider counts reasoning tokens outside `max_tokens`. */
  countsReasoningBeside?: boolean;
  next?: Route & { fromMs: number };
}

/** The most calls of each class that one answer is charged for if neither the configuration nor the request sets it. */
export const CALLS_MOST_DEFAULT = 10;

/** Returns the name of an upstream in the books, in headers and in logs. */
export const upstreamOf = computedOnce(
  ({ providerId, model }: Pick<Route, "providerId" | "model">) => `${providerId}/${model}`,
);

/** Prices of a request whose prompt has at most `promptTokensMax` tokens of all classes together. */
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

/** Makes a list of the prices of prompts of more than `above` tokens, in ascending order from 0 on, and notes in each when it applies. */
export function priceList(byLength: readonly { above: number; prices: UnitPrices }[], tier: PriceTier = {}): PriceList {
  const all = byLength.map(({ above, prices }, index) => {
    const promptTokensMax = byLength[index + 1]?.above;
    const length = { ...(above > 0 && { abovePromptTokens: above }), ...(promptTokensMax && { promptTokensMax }) };
    const own = { ...tier, ...length };
    return { promptTokensMax, prices: Object.keys(own).length === 0 ? prices : { ...prices, tier: own } };
  });
  const { prices = FREE } = all.at(-1) ?? {};
  const tiers = all.flatMap(({ promptTokensMax, prices }) => (promptTokensMax ? { promptTokensMax, prices } : []));
  return tiers.length === 0 ? { prices } : { prices, tiers };
}

/** Returns the lengths of a prompt above which a price begins, in ascending order from 0 on. */
export function startsOf(lengths: readonly number[]): number[] {
  return [0, ...new Set(lengths)].sort((one, other) => one - other);
}

/** Returns the highest prices of several lists, for each length of a prompt. */
export function dearestList(lists: readonly PriceList[]): Pick<PriceList, "prices" | "tiers"> {
  const starts = startsOf(lists.flatMap(({ tiers = [] }) => tiers.map(({ promptTokensMax }) => promptTokensMax)));
  return priceList(
    starts.map((above) => ({ above, prices: lists.map((list) => pricesAt(list, above + 1)).reduce(dearer) })),
  );
}

/** Returns a model with other routes, at the highest prices of them. */
export function withRoutes({ tiers: _tiers, ...model }: CatalogModel, routes: readonly Route[]): CatalogModel {
  return { ...model, ...dearestList(routes), routes };
}

/** Returns all prices of a list, those of short prompts first, then those of its service tiers. */
export function allPrices({ prices, tiers = [], serviceTiers = {} }: PriceList): UnitPrices[] {
  return [...tiers.map((tier) => tier.prices), prices, ...Object.values(serviceTiers).flatMap(allPrices)];
}

/** Returns the highest price of each class for a prompt of at most this length, at any service tier. */
export function highestPricesAt(list: PriceList, promptTokensMost: number): UnitPrices {
  if (list.tiers === undefined && list.serviceTiers === undefined) return list.prices;
  const possible = allPrices(list).filter(({ tier }) => promptTokensMost > (tier?.abovePromptTokens ?? -1));
  return possible.reduce(dearer);
}

const CAPABILITY_OF_FIELD: { [Field in string]?: Capability } = {
  tools: "tools",
  tool_choice: "tools",
  parallel_tool_calls: "tools",
  response_format: "structured_output",
  reasoning_effort: "reasoning",
};

/** Tells whether a model takes a field of a request. */
export function takesField({ refusedParameters, capabilities }: CatalogModel, field: string): boolean {
  const needed = CAPABILITY_OF_FIELD[field];
  return !refusedParameters.has(field) && (needed === undefined || capabilities.has(needed));
}

/** The models that callers may name. The content may change while the service runs. */
export interface Catalog {
  /** Finds a model by its id or by an alias; its `id` then differs from the name. */
  find(name: string): CatalogModel | undefined;
  list(): readonly CatalogModel[];
  /** Models by their aliases; one that ends with `*` stands for all names with this beginning. */
  readonly aliases: ReadonlyMap<string, CatalogModel>;
  /** The same models at the prices of organizations, by the names of the price lists. */
  readonly byPriceList: ReadonlyMap<string, Catalog>;
}

/** Tells whether an alias stands for all names with this beginning. */
export function isPrefix(alias: string): boolean {
  return alias.endsWith("*");
}

/** Fields of a completion request that some models take and others do not. */
const PARAMETERS = [
  ...["max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "seed", "frequency_penalty"],
  ...["presence_penalty", "logit_bias", "logprobs", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls"],
  ...["response_format", "reasoning_effort"],
];

/** The number that is listed for an unknown context window, because clients need one: most models have at least this. */
const ASSUMED_CONTEXT_WINDOW_TOKENS = 32_768;

/** The limits of a model's answers. */
export type OutputLimits = Pick<CatalogModel, "hasUnknownWindow" | "contextWindow" | "maxOutputTokens">;

/** Tells whether neither the context window nor the longest answer of a model is known. */
export function isUndescribed(model: OutputLimits): boolean {
  return model.hasUnknownWindow === true && model.maxOutputTokens === model.contextWindow;
}

/** Converts a model to its form in `GET /v1/models`, under its id or an alias. The prices are those of a short prompt first, then those of longer ones. */
export function toApiModel(model: CatalogModel, name = model.id): Model {
  const window = model.hasUnknownWindow === true ? null : model.contextWindow;
  return {
    id: name,
    object: "model",
    ...(name !== model.id && { alias_of: model.id }),
    created: model.created,
    owned_by: model.ownedBy,
    category: model.category,
    name: model.name,
    description: model.description,
    capabilities: CAPABILITIES.filter((capability) => model.capabilities.has(capability)),
    context_window: window ?? ASSUMED_CONTEXT_WINDOW_TOKENS,
    max_output_tokens: isUndescribed(model) ? ASSUMED_CONTEXT_WINDOW_TOKENS : model.maxOutputTokens,
    ...(model.embedding?.dimensions !== undefined && { dimensions: model.embedding.dimensions }),
    context_length: window,
    max_input_tokens: window,
    input_modalities: model.capabilities.has("vision") ? ["text", "image"] : ["text"],
    supported_parameters: supportedParameters(model),
    cutoff_date: model.cutoffDate,
    cutoff_basis: model.cutoffBasis,
    pricing: pricingText(model),
    pricing_details: pricingDetails(model),
    deprecated: model.deprecatedSince !== null,
    shutdown_date: model.shutdownDate,
    replacement: model.replacement,
  };
}

/** `structured_outputs` is OpenRouter's name of a `response_format` with a schema, which clients look for. */
function supportedParameters(model: CatalogModel): string[] {
  const task = taskOf(undefined, model.capabilities);
  if (task !== undefined) {
    const { properties, required }: { properties: object; required: readonly string[] } = TASKS[task].request;
    return Object.keys(properties).filter((field) => !required.includes(field));
  }
  const taken = PARAMETERS.filter((field) => takesField(model, field));
  const takesSchema = taken.includes("response_format") && takesField(model, "response_format.json_schema");
  return takesSchema ? [...taken, "structured_outputs"] : taken;
}

function pricesByLength({ prices, tiers = [] }: CatalogModel): readonly [UnitPrices, ...UnitPrices[]] {
  const [first = prices, ...longer] = allPrices({ prices, tiers });
  return [first, ...longer];
}

function pricingDetails(model: CatalogModel): Model["pricing_details"] {
  const [prices, ...longer] = pricesByLength(model);
  const listed = (own: UnitPrices) => pricesByClass(chargedPrices(model, own));
  const tiers = longer.map((own) => ({ above_prompt_tokens: own.tier?.abovePromptTokens ?? 0, ...listed(own) }));
  return {
    unit: "credits_per_million_tokens",
    ...listed(prices),
    ...(tiers.length > 0 && { tiers }),
  };
}

/** Leaves out the prices of calls that no route makes. */
export function chargedPrices({ routes }: Pick<CatalogModel, "routes">, prices: UnitPrices): UnitPrices {
  const hasCalls = routes.some(({ callsMost = 0 }) => callsMost > 0);
  return withoutPrices(prices, ({ onlyIf }) => onlyIf === "callsMost" && !hasCalls);
}

function pricingText(model: CatalogModel): string {
  const [prices, ...longer] = pricesByLength(model);
  const fees = CALL_ROWS.flatMap(({ class: name, setting }) => {
    const price = chargedPrices(model, prices)[name];
    return price === undefined ? [] : `${figure(price / MILLION)} ${setting.replace("per", "per ").toLowerCase()}`;
  });
  const hasTask = taskOf(undefined, model.capabilities) !== undefined;
  if (hasTask && fees.length > 0 && prices.input + prices.output === 0n)
    return fees.join("; ").replace(" ", " credits ");
  if (model.embedding !== undefined) return `${figure(prices.input)} credits per million input tokens`;
  const text = `${figure(prices.input)} credits per million input tokens, ${figure(prices.output)} per million output tokens`;
  const tiers = longer.map(({ tier, input, output }) => {
    return `; with a prompt of more than ${tier?.abovePromptTokens?.toLocaleString("en-US")} tokens ${figure(input)} and ${figure(output)}`;
  });
  return [text + tiers.join(""), ...fees].join("; ");
}

/** A price of a call is that of a million calls divided by a million. */
const MILLION = 1_000_000n;

/** Writes a price in credits per million tokens exactly, with at least two decimals: "2.00", "0.0375". */
function figure(price: PicoCredits): string {
  const fraction = (price % PICO_PER_MICRO).toString().padStart(6, "0").replace(/0+$/, "").padEnd(2, "0");
  return `${price / PICO_PER_MICRO}.${fraction}`;
}
