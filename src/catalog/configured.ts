import type { Static } from "typebox";
import { CALL_ROWS, PRICE_ROWS } from "../api/price-classes.ts";
import { TASKS, type Task, taskOf } from "../api/tasks.ts";
import type { ModelSchema } from "../config/upstream-schema.ts";
import { FREE, type PriceTier, parsePrice, type UnitPrices } from "../credits/price.ts";
import { OperatorError } from "../errors.ts";
import type { KnownProvider } from "../providers/registry.ts";
import { compose } from "./compose.ts";
import { findFacts, type ModelFacts, offeredDollars } from "./facts.ts";
import { type CreditSettings, knownPrice, type PricedModel, pricesIdOf, type Unpriced } from "./known-prices.ts";
import { identify, limitsOf, type ProviderIdentity } from "./known-providers.ts";
import {
  allPrices,
  CALLS_MOST_DEFAULT,
  type CatalogModel,
  type DatedPrices,
  type PriceList,
  priceList,
  type Route,
  startsOf,
} from "./model.ts";
import { SANDBOX_PROVIDER, sandboxModel } from "./sandbox.ts";

/** A model of the configuration. */
export type ModelSettings = Static<typeof ModelSchema>;
type RouteSettings = ModelSettings["routes"][number];
/** One price, or a list of dated prices, each of which inherits every key that it does not state. */
type PriceSettings = NonNullable<ModelSettings["price"]>;
/** A price that takes effect on a day, YYYY-MM-DD in UTC. The first price of a list may have no day. */
type DatedPrice = Extract<PriceSettings, readonly unknown[]>[number];
type StatedTiers = NonNullable<DatedPrice["serviceTiers"]>[string];
type StatedClasses = NonNullable<StatedTiers["abovePromptTokens"]>[string];

/** Providers, credit settings and time, by which the configured models are checked and priced. */
export interface CatalogContext {
  providers: readonly ProviderIdentity[];
  credits: CreditSettings;
  nowMs: number;
}

const PRICE_WORDS =
  "input and output, in credits per million tokens, such as { input: 0.25, output: 2 }, or a model of a known provider whose price is known";

/** Creates a model of the configuration. Throws OperatorError with one line that has the key, the value and the allowed values. */
export function configuredModel(key: string, settings: ModelSettings, context: CatalogContext): CatalogModel {
  const task = taskOfSettings(settings, context);
  const priceOf = (place: string, price: PriceSettings | undefined) =>
    price === undefined ? undefined : statedPrices(`${place}.price`, price, { ...context, task });
  const stated = priceOf(key, settings.price);
  const found = settings.routes.map((route, index): FoundRoute => {
    const place = `${key}.routes[${index}]`;
    const provider =
      context.providers.find(({ id }) => id === route.provider) ??
      fail(`${place}.provider`, `found ${quote(route.provider)}`, context.providers.map(({ id }) => id).join(", "));
    const [known, facts] = [identify(provider), factsAt(provider, route.model)];
    const priced = priceOfRoute(provider, route.model, context);
    return { ...route, provider, known, facts, priced, stated: priceOf(place, route.price) ?? stated };
  });
  checkWeights(`${key}.routes`, settings.routes);
  const [first, ...others] = found;
  if (first === undefined) return fail(`${key}.routes`, "found an empty list", "at least one { provider, model }");
  const routeOf = (route: FoundRoute) => pricedRoute(`${key}.price`, route, task);
  const priced = typeof first.priced === "string" ? undefined : first.priced;
  const facts = first.facts && others.flatMap((other) => other.facts ?? []).reduce(common, first.facts);
  const limits = found.flatMap(({ known, provider }) => (known === undefined ? [] : [limitsOf(known, provider)]));
  checkTask(key, settings, task);
  const model = compose({
    id: settings.id,
    routes: [routeOf(first), ...others.map(routeOf)],
    facts,
    stated: settings,
    knownName: priced?.name,
    knownContextWindow: facts === undefined ? priced?.contextWindow : undefined,
    lacks: limits.flatMap(({ lacks }) => lacks),
    refuses: limits.flatMap(({ refuses }) => refuses),
    isDeprecated: priced?.deprecated ?? false,
    task,
    sentence: `The model ${first.model} of the provider ${first.provider.id}.`,
  });
  return settings.limits === undefined ? model : { ...model, limits: settings.limits };
}

function taskOfSettings({ category, capabilities, routes }: ModelSettings, { providers }: CatalogContext) {
  const stated = taskOf(category, capabilities);
  const [route] = routes;
  const provider = providers.find(({ id }) => id === route?.provider);
  if (stated !== undefined || category !== undefined || route === undefined || provider === undefined) return stated;
  if (provider.kind === SANDBOX_PROVIDER.kind) return taskOf(undefined, sandboxModel(route.model)?.capabilities);
  return factsAt(provider, route.model)?.embedding && "embedding";
}

function checkTask(key: string, settings: ModelSettings, task: Task | undefined): void {
  const { category = task, capabilities = [], maxOutputTokens, dimensions } = settings;
  if (dimensions !== undefined && task !== "embedding") {
    fail(`${key}.dimensions`, `found ${dimensions}`, "only with the category embedding");
  }
  if (task === undefined) return;
  if (category !== task) fail(`${key}.category`, `found ${quote(String(category))}`, task);
  const { capability: own } = TASKS[task];
  const other = capabilities.find((capability) => capability !== own);
  if (other !== undefined) fail(`${key}.capabilities`, `found ${quote(other)}`, `${own} alone`);
  if (maxOutputTokens === undefined || TASKS[task].outputTokensMost > 0) return;
  fail(`${key}.maxOutputTokens`, `found ${maxOutputTokens}`, `nothing for a model of the category ${task}`);
}

interface FoundRoute extends Pick<RouteSettings, "model" | "weight" | "runsTools" | "callsMost"> {
  provider: ProviderIdentity;
  known: KnownProvider | undefined;
  facts: ModelFacts | undefined;
  priced: PricedModel | Unpriced;
  stated: PriceList | undefined;
}

function factsAt(provider: ProviderIdentity, model: string): ModelFacts | undefined {
  return findFacts(identify(provider)?.id, model);
}

/** Returns the facts that hold on both of two routes, with the larger context window. */
function common(one: ModelFacts, other: ModelFacts): ModelFacts {
  return {
    ...one,
    contextWindow: Math.max(one.contextWindow, other.contextWindow),
    maxOutputTokens: Math.min(one.maxOutputTokens, other.maxOutputTokens),
    can: one.can.filter((capability) => other.can.includes(capability)),
    refuses: [...new Set([...one.refuses, ...other.refuses])],
    imageTokensMax: Math.max(one.imageTokensMax, other.imageTokensMax),
  };
}

/** Throws OperatorError if only some routes of a model have weights, because a missing weight is ambiguous. */
function checkWeights(key: string, routes: ModelSettings["routes"]): void {
  const without = routes.findIndex(({ weight }) => weight === undefined);
  if (without < 0 || routes.every(({ weight }) => weight === undefined)) return;
  fail(`${key}[${without}].weight`, "found none, although others have one", "a weight for each route, or for none");
}

function pricedRoute(key: string, found: FoundRoute, task: Task | undefined): Route {
  const { provider, model, weight, runsTools, callsMost, known, facts, priced, stated } = found;
  const contextWindow = facts?.contextWindow ?? (typeof priced === "string" ? undefined : priced.contextWindow);
  const route: Unlisted = {
    providerId: provider.id,
    model,
    ...(weight !== undefined && { weight }),
    // The context window of an embedding model bounds each input alone, not their sum.
    ...(contextWindow !== undefined && task !== "embedding" && { contextWindow }),
    ...((known?.runsTools || runsTools) && { runsTools: true, callsMost: CALLS_MOST_DEFAULT }),
    ...(known?.countsReasoningBeside && { countsReasoningBeside: true }),
    ...(callsMost !== undefined && { callsMost }),
  };
  if (stated !== undefined) return routeAtPrices(route, stated);
  if (typeof priced === "string") {
    const why = `found no price for the model ${quote(model)} of the provider ${quote(provider.id)}`;
    return fail(key, priced === "unknown" ? why : `${why}, which charges for what no answer reports`, PRICE_WORDS);
  }
  const { prices, tiers, next } = priced;
  return { ...route, prices, ...(tiers && { tiers }), ...(next && { next: { ...route, ...next } }) };
}

type Unlisted = Omit<Route, keyof PriceList>;

/** Returns a route at stated prices instead of its own. */
export function routeAtPrices(
  {
    prices: _prices,
    tiers: _tiers,
    serviceTiers: _serviceTiers,
    next: _next,
    history: _history,
    ...route
  }: Unlisted & Partial<PriceList>,
  { next, ...list }: PriceList,
): Route {
  const callsMost = route.callsMost ?? (hasCallPrice(list) ? CALLS_MOST_DEFAULT : undefined);
  const own = { ...route, ...(callsMost !== undefined && { callsMost }), ...list };
  return next === undefined ? own : { ...own, next: { ...routeAtPrices(own, next), fromMs: next.fromMs } };
}

function hasCallPrice(list: PriceList): boolean {
  const callClasses = CALL_ROWS.filter(({ onlyIf }) => onlyIf === "callsMost").map((row) => row.class);
  return allPrices(list).some((prices) => callClasses.some((name) => prices[name] !== undefined));
}

/** Returns the known price of a provider's model, or why it has none. */
export function priceOfRoute(
  provider: ProviderIdentity,
  model: string,
  { credits, nowMs }: CatalogContext,
): PricedModel | Unpriced {
  if (provider.kind === SANDBOX_PROVIDER.kind) {
    const sandbox = sandboxModel(model);
    if (sandbox === undefined) return "unknown";
    const { name, contextWindow, prices } = sandbox;
    return { name, contextWindow, prices, deprecated: false };
  }
  const known = identify(provider);
  const dollars = known === undefined ? undefined : offeredDollars(known.id, model);
  const isEmbedding = factsAt(provider, model)?.embedding !== undefined;
  const pricesId = known?.pricesId ?? pricesIdOf(provider.baseUrl);
  return knownPrice(pricesId, model, { credits, nowMs, isEmbedding, dollars });
}

interface PriceContext {
  nowMs: number;
  task: Task | undefined;
}

const DAY_WORDS = "a later date than the one before it, as YYYY-MM-DD";

/** Returns the price in force at a time. Throws OperatorError if a price is invalid, or none is in force yet. */
export function statedPrices(key: string, settings: PriceSettings, { nowMs, task }: PriceContext): PriceList {
  if (!Array.isArray(settings)) return readPrice(key, settings, task);
  let beforeMs = Number.NEGATIVE_INFINITY;
  let stated: DatedPrice = {};
  let inForce: PriceList | undefined;
  let next: PriceList["next"];
  const history: DatedPrices[] = [];
  for (const [index, price] of settings.entries()) {
    const fromMs = startOf(`${key}[${index}].from`, price, index, beforeMs);
    stated = { ...stated, ...price };
    const prices = readPrice(`${key}[${index}]`, stated, task);
    if (fromMs <= nowMs) inForce = prices;
    else next ??= { ...prices, fromMs };
    history.push({ fromMs: Number.isFinite(fromMs) ? fromMs : null, prices: prices.prices });
    beforeMs = fromMs;
  }
  const first = settings[0]?.from ?? "nothing";
  if (inForce !== undefined) return { ...inForce, ...(next && { next }), ...(history.length > 1 && { history }) };
  return fail(`${key}[0].from`, `found ${quote(first)}`, "a date that is not in the future, or no date");
}

function startOf(key: string, { from }: DatedPrice, index: number, before: number): number {
  if (from === undefined) return index === 0 ? Number.NEGATIVE_INFINITY : fail(key, "missing", DAY_WORDS);
  const fromMs = Date.parse(`${from}T00:00:00Z`);
  return fromMs > before || index === 0 ? fromMs : fail(key, `found ${quote(from)}`, DAY_WORDS);
}

function readPrice(key: string, { serviceTiers, images = {}, from, ...stated }: DatedPrice, task: Task | undefined) {
  const tier = from === undefined ? {} : { from };
  const byKind = Object.entries(images);
  const perImage =
    stated.perImage ??
    Object.values(images)
      .sort((a, b) => Number(a) - Number(b))
      .at(-1);
  const usual = perImage === undefined ? stated : { ...stated, perImage };
  const list = readTiers(key, [usual], { tier, task });
  if (serviceTiers === undefined && byKind.length === 0) return list;
  const tiers = { ...serviceTiers, ...Object.fromEntries(byKind.map(([name, text]) => [name, { perImage: text }])) };
  const lists = Object.entries(tiers).map(([serviceTier, own]) => {
    const place = serviceTier in images ? `${key}.images` : `${key}.serviceTiers`;
    const options = { tier: { ...tier, serviceTier }, task };
    return [serviceTier, readTiers(`${place}.${serviceTier}`, [usual, own], options)];
  });
  return { ...list, serviceTiers: Object.fromEntries(lists) };
}

/** Reads prices by the length of the prompt. A class that is not stated costs as for shorter ones, or as usually. */
function readTiers(
  key: string,
  statements: readonly StatedTiers[],
  { tier, task }: { tier: PriceTier; task: Task | undefined },
): PriceList {
  const bounds = statements.flatMap(({ abovePromptTokens = {} }) => Object.keys(abovePromptTokens).map(Number));
  const byLength = startsOf(bounds).map((above) => {
    const stated = statements.flatMap(({ abovePromptTokens = {}, ...classes }) => {
      const longer = Object.entries(abovePromptTokens).filter(([bound]) => Number(bound) <= above);
      return [classes, ...longer.map(([, own]) => own)];
    });
    const place = above === 0 ? key : `${key}.abovePromptTokens.${above}`;
    return { above, prices: readClasses(place, Object.assign({}, ...stated), task) };
  });
  return priceList(byLength, tier);
}

const DECIMAL_WORDS = "a decimal number, 0 or more, such as 0.25";
/** A price a call is read as one of a million calls. */
const A_MILLION = "1000000";

function readClasses(key: string, price: StatedClasses, task: Task | undefined): UnitPrices {
  const missing = (name: string) => fail(`${key}.${name}`, "missing", DECIMAL_WORDS);
  // A model that is charged by the image needs no price of tokens.
  const isByCall = task !== undefined && CALL_ROWS.some((row) => row.onlyIf && price[row.setting] !== undefined);
  const needsOutput = task !== "embedding" && !isByCall;
  const { input: prompt = missing("input"), output: completion = needsOutput ? missing("output") : "0" } = price;
  const stated = { ...price, input: prompt, output: completion };
  const prices: UnitPrices = { ...FREE };
  for (const { class: name, setting, costsAs, isCall } of PRICE_ROWS) {
    const text = stated[setting];
    if (text === undefined) {
      if (costsAs !== undefined) prices[name] = prices[costsAs];
      continue;
    }
    const parsed = isCall ? parsePrice(text, { perDollar: A_MILLION }) : parsePrice(text);
    prices[name] = parsed ?? fail(`${key}.${setting}`, `found ${quote(text)}`, DECIMAL_WORDS);
  }
  return prices;
}

/** Quotes a configured value for an error message: on one line, at most 80 characters. */
function quote(text: string): string {
  const quoted = JSON.stringify(text);
  return quoted.length > 80 ? `${quoted.slice(0, 77)}…"` : quoted;
}

/** Throws OperatorError with one line about a mistake in the configuration. */
export function fail(key: string, found: string, allowed: string): never {
  throw new OperatorError(`${key}: ${found}; allowed: ${allowed}`);
}
