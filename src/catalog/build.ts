import { FREE } from "../credits/price.ts";
import { OperatorError } from "../errors.ts";
import { LOCAL_SERVERS } from "../providers/local-servers.ts";
import { KNOWN_PROVIDERS, type KnownProvider } from "../providers/registry.ts";
import { compose } from "./compose.ts";
import { type CatalogContext, configuredModel, fail, type ModelSettings, priceOfRoute } from "./configured.ts";
import { findFacts, offeredBy } from "./facts.ts";
import type { CreditSettings } from "./known-prices.ts";
import { identify, type ProviderIdentity } from "./known-providers.ts";
import type { FoundServer } from "./local-servers.ts";
import { type Catalog, type CatalogModel, isPrefix } from "./model.ts";
import { atPriceList, type PriceListSettings } from "./price-lists.ts";
import { SANDBOX_PROVIDER, sandboxModels } from "./sandbox.ts";

export interface CatalogSources {
  /** The models of the configuration; empty: all models that the providers are known to offer. */
  models: readonly ModelSettings[];
  /** Further names of the models; absent: those that a start without configured models has. */
  aliases?: AliasSettings | undefined;
  /** All providers that the configuration or a key in the environment sets up. The sandbox's provider may be missing. */
  providers: readonly ProviderIdentity[];
  credits: CreditSettings;
  priceLists?: PriceListSettings | undefined;
  sandbox?: { enabled: boolean };
  found?: readonly FoundServer[];
}

/** An immutable catalog. */
export interface FixedCatalog extends Catalog {
  /** Notes for the operator, one line each: for example models that are not offered because they have no price per token. */
  readonly notes: readonly string[];
}

function fixedCatalog(
  models: readonly CatalogModel[],
  aliases: ReadonlyMap<string, CatalogModel>,
  notes: readonly string[] = [],
  byPriceList: ReadonlyMap<string, Catalog> = new Map(),
): FixedCatalog {
  const list = models.toSorted((a, b) => (a.id < b.id ? -1 : 1));
  const byId = new Map(list.map((model) => [model.id, model]));
  const prefixes = [...aliases]
    .filter(([alias]) => isPrefix(alias))
    .map(([alias, model]) => [alias.slice(0, -1), model] as const)
    .sort(([a], [b]) => b.length - a.length);
  const find = (name: string) => {
    const model = byId.get(name) ?? (isPrefix(name) ? undefined : aliases.get(name));
    return model ?? prefixes.find(([prefix]) => name.startsWith(prefix))?.[1];
  };
  return { notes, aliases, byPriceList, find, list: () => list };
}

/** Builds the catalog at a time, in milliseconds since 1970. Throws OperatorError with one line for a mistake. */
export function buildCatalog(sources: CatalogSources, nowMs: number): FixedCatalog {
  const hasSandbox = sources.sandbox?.enabled !== false;
  const context = { ...sources, providers: withSandbox(sources.providers, hasSandbox), nowMs };
  const models = new Map(
    sources.models.map((model, index) => [model.id, configuredModel(`models[${index}]`, model, context)]),
  );
  const notes: string[] = [];
  if (sources.models.length === 0) addKnownModels(models, context, notes);
  const builtIn = hasSandbox ? sandboxModels() : [];
  for (const model of [...(sources.found ?? []).flatMap(foundModels), ...builtIn]) {
    if (!models.has(model.id)) models.set(model.id, model);
  }
  const all = [...models.values()].map((model, _index, others) => withReplacement(model, others));
  const byId = new Map(all.map((model) => [model.id, model]));
  const aliases = resolveAliases(sources.aliases, byId, sources.models.length > 0);
  const byPriceList = new Map<string, Catalog>();
  for (const [name, list] of Object.entries(sources.priceLists ?? {})) {
    for (const id of Object.keys(list.prices)) {
      if (!byId.has(id)) refuseMissing(`priceLists.${name}.prices`, id, byId, sources.models.length > 0);
    }
    const priced = all.map((model) => atPriceList(model, name, list, nowMs));
    const at = new Map(priced.map((model) => [model.id, model]));
    const named = [...aliases].map(([alias, { id }]) => [alias, at.get(id) as CatalogModel] as const);
    byPriceList.set(name, fixedCatalog(priced, new Map(named)));
  }
  return fixedCatalog(all, aliases, notes, byPriceList);
}

/** Converts a model's replacement to its id in this catalog, if the catalog contains it. */
function withReplacement(model: CatalogModel, all: readonly CatalogModel[]): CatalogModel {
  const { replacement, routes } = model;
  if (replacement === null) return model;
  const isReplacement = ({ routes: [route] }: CatalogModel) =>
    route?.providerId === routes[0]?.providerId &&
    (route?.model === replacement || route?.model.endsWith(`/${replacement}`));
  const listed = all.find(isReplacement);
  return listed === undefined ? model : { ...model, replacement: listed.id };
}

function withSandbox(providers: readonly ProviderIdentity[], hasSandbox: boolean): ProviderIdentity[] {
  if (!hasSandbox) {
    const own = providers.find(({ kind }) => kind === SANDBOX_PROVIDER.kind);
    if (own === undefined) return [...providers];
    throw new OperatorError(
      `providers: '${own.id}' has the kind ${own.kind}, but sandbox.enabled is false; remove the provider or the setting`,
    );
  }
  const other = providers.find(({ id, kind }) => id === SANDBOX_PROVIDER.id && kind !== SANDBOX_PROVIDER.kind);
  if (other !== undefined) {
    throw new OperatorError(
      `providers: found the id "${other.id}" with the kind "${other.kind}"; allowed: any other id, because that one belongs to the built-in models`,
    );
  }
  return providers.some(({ id }) => id === SANDBOX_PROVIDER.id) ? [...providers] : [...providers, SANDBOX_PROVIDER];
}

/** Adds the models that known providers offer. The first provider of a model gets its plain id, the others `provider/model`. */
function addKnownModels(models: Map<string, CatalogModel>, context: CatalogContext, notes: string[]): void {
  const present = context.providers.map((provider) => ({ provider, known: identify(provider) }));
  for (const known of KNOWN_PROVIDERS) {
    for (const { provider } of present.filter((candidate) => candidate.known === known)) {
      const unpriced: string[] = [];
      for (const name of offeredBy(known.id)) {
        const id = models.has(name) ? `${provider.id}/${name}` : name;
        const model = knownModel(id, name, { provider, known }, context);
        if (model === "charged beyond the report") unpriced.push(name);
        else if (model !== undefined && !models.has(id)) models.set(id, model);
      }
      if (unpriced.length === 0) continue;
      notes.push(
        `${unpriced.join(", ")}: not offered, because ${provider.id} charges for what no answer reports; to offer one, state a price for it under models`,
      );
    }
  }
}

/** Returns a provider's known model, made as one of the configuration that states nothing else; undefined without facts or a price. */
function knownModel(
  id: string,
  name: string,
  { provider, known }: { provider: ProviderIdentity; known: KnownProvider },
  context: CatalogContext,
): CatalogModel | "charged beyond the report" | undefined {
  const facts = findFacts(known.id, name);
  if (facts === undefined) return undefined;
  if (facts.shutdownDate !== null && Date.parse(facts.shutdownDate) <= context.nowMs) return undefined;
  const priced = priceOfRoute(provider, name, context);
  if (typeof priced === "string") return priced === "unknown" ? undefined : priced;
  return configuredModel("models", { id, routes: [{ provider: provider.id, model: name }] }, context);
}

function foundModels(server: FoundServer): CatalogModel[] {
  return server.models.map(({ name, embedding, contextWindow, fileDate, can }) => {
    const kind = embedding === undefined ? "model" : "embedding model";
    const facts = findFacts(undefined, name);
    return compose({
      id: `${server.id}/${name}`,
      routes: [{ providerId: server.id, model: name, prices: FREE }],
      facts: facts && { ...facts, ownedBy: server.id },
      stated: { ...embedding, ...(can && { capabilities: [...can] }) },
      knownContextWindow: contextWindow,
      fileDate,
      refuses: server.refuses,
      task: embedding && "embedding",
      sentence: `The ${kind} ${name} on the ${server.name} server of this machine.`,
    });
  });
}

/** Models by the names that the configuration gives them: a name, or the beginning of names with a `*`. */
type AliasSettings = Readonly<Record<string, string>>;

/** The beginnings of the names that Claude Code and Gemini CLI ask for if they have no setting of a model. */
const DEFAULT_ALIASES = ["claude-", "gemini-"];

/** Returns the models by their aliases, by default those that known clients ask for. Throws OperatorError. */
function resolveAliases(
  stated: AliasSettings | undefined,
  models: ReadonlyMap<string, CatalogModel>,
  hasConfiguredModels: boolean,
): ReadonlyMap<string, CatalogModel> {
  const aliases = stated ?? {};
  const resolved = new Map<string, CatalogModel>();
  for (const [alias, target] of Object.entries(aliases)) {
    const key = `aliases.${alias}`;
    const model = models.get(target);
    if (models.has(alias)) fail(key, `found the id of a model`, "a name that no model has");
    if (model !== undefined) resolved.set(alias, model);
    else if (Object.hasOwn(aliases, target)) {
      fail(key, `found another alias, ${JSON.stringify(target)}`, `the id of the model itself, ${aliases[target]}`);
    } else refuseMissing(key, target, models, hasConfiguredModels);
  }
  if (stated !== undefined || hasConfiguredModels) return resolved;
  for (const beginning of DEFAULT_ALIASES) {
    const usual = usualModel([...models.values()], beginning);
    if (usual !== undefined) resolved.set(`${beginning}*`, usual);
  }
  return resolved;
}

/** Throws OperatorError for the id of a model that does not exist, unless a local server may have it later. */
function refuseMissing(
  key: string,
  id: string,
  models: ReadonlyMap<string, CatalogModel>,
  hasConfiguredModels: boolean,
): void {
  if (!hasConfiguredModels && LOCAL_SERVERS.some((server) => id.startsWith(`${server.id}/`))) return;
  const ids = [...models.keys()].sort();
  const shown = ids.length <= IDS_SHOWN_MAX ? ids : [...ids.slice(0, IDS_SHOWN_MAX), "…"];
  fail(key, `found ${JSON.stringify(id)}, which is no model`, shown.join(", "));
}

const IDS_SHOWN_MAX = 8;

/** Returns the newest model with tools of the cheaper half of a family, else of all models, else of the sandbox. */
function usualModel(models: readonly CatalogModel[], beginning: string): CatalogModel | undefined {
  const able = models.filter(
    ({ capabilities, deprecatedSince }) => capabilities.has("tools") && deprecatedSince === null,
  );
  const isBuiltIn = ({ routes }: CatalogModel) => routes[0]?.providerId === SANDBOX_PROVIDER.id;
  const others = able.filter((model) => !isBuiltIn(model));
  const sameFamily = others.filter(({ id }) => id.includes(beginning));
  const [first = []] = [sameFamily, others, able].filter((group) => group.length > 0);
  const byPrice = first.toSorted((a, b) => Number(a.prices.output - b.prices.output));
  const cheaper = byPrice.slice(0, Math.ceil(byPrice.length / 2));
  return cheaper.sort((a, b) => b.created - a.created || (a.id < b.id ? -1 : 1))[0];
}
