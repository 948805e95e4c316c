import { LABEL_CHARACTERS_MAX } from "../api/chat/request.ts";
import type { Principal } from "../api/principal.ts";
import { type TASKS, type Task, taskOf, workOf } from "../api/tasks.ts";
import type { StatedOutput } from "../api/wire.ts";
import { isStorable, printable } from "../api/wording.ts";
import type { Catalog, CatalogModel, Route } from "../catalog/model.ts";
import { isModel } from "../credits/budgets.ts";
import type { PromptEstimate } from "../credits/estimate.ts";
import type { HoldFacts } from "../credits/facts.ts";
import { ApiError, OperatorError } from "../errors.ts";
import type { Provider, ProviderAnswer } from "../providers/provider.ts";

/** A request as it will run: its bounds, its routes, and what its kind of answer is. */
export interface Plan {
  /** Name of the operation in metrics and traces: `gen_ai.operation.name` of OpenTelemetry's semantic conventions. */
  operation: "chat" | (typeof TASKS)[Task]["operation"];
  model: CatalogModel;
  /** Routes of the model whose upstreams can take the request, in the order of the catalog. */
  routes: readonly [Route, ...Route[]];
  /** Matches the routes that are tried before the others; absent if the request prefers none. */
  isPreferred?: (route: Route) => boolean;
  /** Hints that the model does not take, by the wire's names, listed in the header `x-tollgate-ignored`. */
  ignored: readonly string[];
  /** Labels that are stored with the charge. */
  labels: HoldFacts["metadata"];
  output: StatedOutput;
  estimate: PromptEstimate;
  /** True where the client asked for a stream. */
  isStreamed: boolean;
  /** True if nothing but the input is charged: a report of too few tokens of it is then compared with a count. */
  isInputOnly: boolean;
  /** Returns the texts of the prompt, for a tokenizer. */
  promptTexts(): readonly string[];
  /** Sends the request on a route. Rejects like the provider. `ignored` of the answer has the wire's names. */
  send(provider: Provider, route: Route, maxTokens: number): Promise<ProviderAnswer>;
}

const MODEL_ID_SHOWN_CHARACTERS_MAX = 128;

type ModelUser = Pick<
  Principal,
  "organizationId" | "organizationKind" | "organizationModels" | "models" | "aliases" | "priceList"
>;

/** Tells whether a principal may use and see a model. */
export function mayUse({ organizationKind, organizationModels, models }: ModelUser, { id, playground }: CatalogModel) {
  if (organizationKind === "playground" && !playground) return false;
  if (organizationModels !== null && !organizationModels.some((pattern) => isModel(pattern, id))) return false;
  return models === null || models.has(id);
}

/** Returns the models at the prices and with the aliases of a principal's organization. Throws internal_error if they are not configured. */
export function catalogFor(catalog: Catalog, { aliases, priceList, organizationId }: ModelUser): Catalog {
  const own = priceList === null ? catalog : catalog.byPriceList.get(priceList);
  if (own !== undefined) return aliases === null ? own : withAliases(own, aliases);
  const cause = new OperatorError(`priceLists: missing the list "${priceList}", which ${organizationId} has`);
  throw new ApiError("internal_error", undefined, { cause });
}

/** Adds the aliases of an organization, in front of those of the service. An alias is ignored if its model does not exist or a model has its name. */
export function withAliases(catalog: Catalog, aliases: Readonly<Record<string, string>>): Catalog {
  const modelOf = (id: string) => {
    const model = catalog.find(id);
    return model?.id === id ? model : undefined;
  };
  const find = (name: string) =>
    modelOf(name) ?? (Object.hasOwn(aliases, name) ? modelOf(aliases[name] ?? "") : catalog.find(name));
  return {
    ...{ find, list: () => catalog.list(), byPriceList: catalog.byPriceList },
    get aliases() {
      const names = [...catalog.aliases.keys(), ...Object.keys(aliases)];
      const entries = names.flatMap((alias): [string, CatalogModel][] => {
        const model = find(alias);
        return model === undefined || model.id === alias ? [] : [[alias, model]];
      });
      return new Map(entries);
    },
  };
}

/** Returns a model that a principal may use, at its prices. Throws model_not_found, model_not_allowed or internal_error. */
export function modelFor(catalog: Catalog, principal: Principal, modelId: string): CatalogModel {
  const model = catalogFor(catalog, principal).find(modelId);
  if (model === undefined) throw modelNotFound(modelId);
  if (!mayUse(principal, model)) {
    throw new ApiError("model_not_allowed", `The access token may not use the model \`${shownModel(modelId)}\`.`, {
      param: "model",
    });
  }
  return model;
}

/** Returns the error for a model that does something else. */
export function refuseTask(model: CatalogModel, wanted: Task | undefined): ApiError {
  const own = workOf(taskOf(undefined, model.capabilities));
  const { work } = workOf(wanted);
  const hint = own.work === work ? "" : ` It supports ${own.work}: send the request to ${own.path}.`;
  return new ApiError("unsupported_value", `The model '${model.id}' does not support ${work}.${hint}`, {
    param: "model",
  });
}

/**
 * Returns a model that a principal may use for a task, and its routes to the providers that can take the request. Throws
 * model_not_found, model_not_allowed or unsupported_value.
 */
export function modelForTask(
  { catalog, providers }: { catalog: Catalog; providers: ReadonlyMap<string, Provider> },
  { principal, request }: { principal: Principal; request: { model: string } },
  task: Task,
  takes: (provider: Provider) => unknown,
): Pick<Plan, "model" | "routes"> {
  const model = modelFor(catalog, principal, request.model);
  if (taskOf(undefined, model.capabilities) !== task) throw refuseTask(model, task);
  const [first, ...others] = model.routes.filter(({ providerId }) => {
    const provider = providers.get(providerId);
    return provider !== undefined && takes(provider);
  });
  if (first === undefined) throw refuseTask(model, task);
  return { model, routes: [first, ...others] };
}

function shownModel(modelId: string): string {
  return printable(modelId, MODEL_ID_SHOWN_CHARACTERS_MAX);
}

/** Returns the error for a model that does not exist or that the caller may not see. */
export function modelNotFound(modelId: string): ApiError {
  const message = `The model \`${shownModel(modelId)}\` does not exist or you do not have access to it.`;
  return new ApiError("model_not_found", message, { param: "model" });
}

/**
 * Returns the labels of a request: its `metadata`, its end user as `user` if that is free, what its token pins, and as
 * `requested_model` the alias by which it names its model.
 */
export function labelsOf(
  metadata: HoldFacts["metadata"],
  user: string | undefined,
  { id }: CatalogModel,
  requested: string,
  pins: Principal["pins"],
): HoldFacts["metadata"] {
  const isUserPinned = pins !== null && Object.hasOwn(pins, "user");
  const hasUser = user !== undefined && user !== "" && metadata?.user === undefined && !isUserPinned;
  if (!hasUser && requested === id && pins === null) return metadata && storable(metadata);
  return storable({
    ...metadata,
    ...pinnedLabels(metadata, pins ?? {}),
    ...(hasUser && { user: user.slice(0, LABEL_CHARACTERS_MAX) }),
    ...(requested !== id && { requested_model: requested.slice(0, LABEL_CHARACTERS_MAX) }),
  });
}

/**
 * Replaces what the stores cannot keep by U+FFFD. Budgets count by these texts, so they must come back from the store as they
 * went in; a cut through an emoji, as `slice` makes, is no reason to refuse a request.
 */
function storable(labels: Record<string, string>): Record<string, string> {
  const pairs = Object.entries(labels);
  if (pairs.flat().every(isStorable)) return labels;
  const kept = (text: string) => text.toWellFormed().replaceAll("\0", "\uFFFD");
  return Object.fromEntries(pairs.map(([key, value]) => [kept(key), kept(value)]));
}

/** Returns the labels that a caller cannot choose. Throws invalid_value if the request states another value of one. */
function pinnedLabels(metadata: HoldFacts["metadata"], pins: NonNullable<Principal["pins"]>): Record<string, string> {
  const labels: [key: string, value: string][] = [];
  for (const [key, value] of Object.entries(pins)) {
    const stated = metadata !== null && Object.hasOwn(metadata, key) ? metadata[key] : undefined;
    if (stated !== undefined && stated !== value) {
      const message = `Invalid 'metadata.${key}': your access token has another value for it. Leave it out.`;
      throw new ApiError("invalid_value", message, { param: `metadata.${key}` });
    }
    if (value !== null) labels.push([key, value]);
  }
  return Object.fromEntries(labels);
}

/**
 * Orders routes for a request: as listed, or, where they have weights, at random so that the share of requests that a
 * route gets first is its weight. `random` returns numbers from 0 up to 1. Routes that the request prefers come before the
 * others.
 */
export function inOrder(
  routes: readonly Route[],
  random: () => number,
  isPreferred?: (route: Route) => boolean,
): readonly Route[] {
  const ordered = byWeight(routes, random);
  if (isPreferred === undefined) return ordered;
  return [...ordered.filter(isPreferred), ...ordered.filter((route) => !isPreferred(route))];
}

function byWeight(routes: readonly Route[], random: () => number): readonly Route[] {
  if (routes.length === 1 || routes[0]?.weight === undefined) return routes;
  // The first of several exponential variables is each with a probability in proportion to its rate, and so on for the rest.
  const drawn = routes.map((route) => ({ route, at: -Math.log(1 - random()) / (route.weight ?? 1) }));
  return drawn.sort((one, other) => one.at - other.at).map(({ route }) => route);
}
