import type { Capability, Category } from "../contract/model.ts";
import { parsePrice, type UnitPrices } from "../credits/price.ts";
import { OperatorError } from "../errors.ts";
import { compose } from "./compose.ts";
import { findFacts, offeredDollars } from "./facts.ts";
import {
  type CreditSettings,
  dearerOf,
  knownPrice,
  type PricedModel,
  pricesIdOf,
  tablePrice,
  type Unpriced,
} from "./known-prices.ts";
import { identify, type KnownProvider, type ProviderIdentity } from "./known-providers.ts";
import type { CatalogModel, Route } from "./model.ts";
import { SANDBOX_PROVIDER, sandboxModels } from "./sandbox.ts";

/** A model as the configuration states it. Prices are decimal texts, in credits per million tokens. */
export interface ModelSettings {
  id: string;
  routes: readonly { provider: string; model: string }[];
  price?: { input: string; cachedInput?: string; output: string };
  name?: string;
  category?: Category;
  description?: string;
  capabilities?: readonly Capability[];
  contextWindow?: number;
  maxOutputTokens?: number;
  cutoffDate?: string;
  playground?: boolean;
}

/** What the models of the configuration are seen against. */
export interface Surroundings {
  providers: readonly ProviderIdentity[];
  credits: CreditSettings;
  nowMs: number;
}

const PRICE_WORDS =
  "input and output, in credits per million tokens, such as { input: 0.25, output: 2 }, or a model of a known provider whose price is known";

/** The models of the configuration. Throws OperatorError with one line that names the key, what was found, and what is allowed. */
export function configuredModels(settings: readonly ModelSettings[], surroundings: Surroundings): CatalogModel[] {
  const seen = new Set<string>();
  return settings.map((model, index) => {
    const key = `models[${index}]`;
    checkName(`${key}.id`, model.id);
    if (seen.has(model.id)) refuse(`${key}.id`, `found ${quote(model.id)} a second time`, "each id once");
    seen.add(model.id);
    return configuredModel(key, model, surroundings);
  });
}

function configuredModel(key: string, settings: ModelSettings, surroundings: Surroundings): CatalogModel {
  const stated = settings.price === undefined ? undefined : statedPrices(`${key}.price`, settings.price);
  const found = settings.routes.map((route, index): FoundRoute => {
    const provider = providerOf(`${key}.routes[${index}]`, route, surroundings.providers);
    const priced = priceOfRoute(provider, route.model, surroundings);
    return { provider, model: route.model, known: identify(provider), priced };
  });
  const [first, ...others] = found;
  if (first === undefined) return refuse(`${key}.routes`, "found an empty list", "at least one { provider, model }");
  const routeOf = (route: FoundRoute) => pricedRoute(`${key}.price`, route, stated);
  const priced = typeof first.priced === "string" ? undefined : first.priced;
  const facts = findFacts(first.known?.id, first.model);
  const compatible = found.flatMap(({ known, provider }) => (known?.kind === provider.kind ? [known] : []));
  return compose({
    id: settings.id,
    routes: [routeOf(first), ...others.map(routeOf)],
    facts,
    stated: settings,
    knownName: priced?.name,
    knownContextWindow: facts === undefined ? priced?.contextWindow : undefined,
    lacks: compatible.flatMap(({ lacks }) => lacks),
    refuses: compatible.flatMap(({ refuses }) => refuses),
    isDeprecated: priced?.deprecated ?? false,
    sentence: `The model ${first.model} of the provider ${first.provider.id}.`,
  });
}

interface FoundRoute {
  provider: ProviderIdentity;
  model: string;
  known: KnownProvider | undefined;
  priced: PricedModel | Unpriced;
}

function pricedRoute(key: string, { provider, model, priced }: FoundRoute, stated: UnitPrices | undefined): Route {
  if (stated !== undefined) return { providerId: provider.id, model, prices: stated };
  if (typeof priced === "string") return refuse(key, whyUnpriced(priced, provider.id, model), PRICE_WORDS);
  const { prices, shortPrompt } = priced;
  return { providerId: provider.id, model, prices, ...(shortPrompt && { shortPrompt }) };
}

/** What a model costs at a provider, or why that is not known. */
export function priceOfRoute(
  provider: ProviderIdentity,
  model: string,
  { credits, nowMs }: Surroundings,
): PricedModel | Unpriced {
  if (provider.kind === SANDBOX_PROVIDER.kind) {
    const sandbox = sandboxModels().find(({ routes }) => routes[0]?.model === model);
    if (sandbox === undefined) return "unknown";
    const { name, contextWindow, prices } = sandbox;
    return { name, contextWindow, prices, deprecated: false };
  }
  const known = identify(provider);
  const pricesId = known?.pricesId ?? pricesIdOf(provider.baseUrl);
  const priced = pricesId === undefined ? "unknown" : knownPrice(pricesId, model, credits, nowMs);
  const dollars = known === undefined ? undefined : offeredDollars(known.id, model);
  return dearerOf(priced, dollars && tablePrice(dollars, credits));
}

function statedPrices(key: string, price: { input: string; cachedInput?: string; output: string }): UnitPrices {
  const read = (name: "input" | "cachedInput" | "output", text: string) => {
    const parsed = parsePrice(text);
    return parsed ?? refuse(`${key}.${name}`, `found ${quote(text)}`, "a decimal number, 0 or more, such as 0.25");
  };
  const input = read("input", price.input);
  const output = read("output", price.output);
  const cachedInput = price.cachedInput === undefined ? input : read("cachedInput", price.cachedInput);
  return { input, cachedInput, cacheWrite: input, output, reasoning: output };
}

function providerOf(
  key: string,
  { provider: id, model }: { provider: string; model: string },
  providers: readonly ProviderIdentity[],
): ProviderIdentity {
  const provider = providers.find((candidate) => candidate.id === id);
  checkName(`${key}.model`, model);
  const ids = providers.map((candidate) => candidate.id).join(", ");
  return provider ?? refuse(`${key}.provider`, `found ${quote(id)}`, ids);
}

function whyUnpriced(reason: Unpriced, providerId: string, model: string): string {
  const found = `found no price for the model ${quote(model)} of the provider ${quote(providerId)}`;
  return reason === "unknown" ? found : `${found}, which charges for each request beside the tokens`;
}

const SPACE_OR_CONTROL = /[\s\p{Cc}]/u;

function checkName(key: string, name: string): void {
  if (name.length >= 1 && name.length <= 200 && !SPACE_OR_CONTROL.test(name)) return;
  refuse(key, `found ${quote(name)}`, "1 to 200 characters without spaces and control characters");
}

function quote(text: string): string {
  const quoted = JSON.stringify(text);
  return quoted.length > 80 ? `${quoted.slice(0, 77)}…"` : quoted;
}

function refuse(key: string, found: string, allowed: string): never {
  throw new OperatorError(`${key}: ${found}; allowed: ${allowed}`);
}
