import { firstAddress } from "../api/chat/image-address.ts";
import { type ChatCompletionRequest, type ContentPart, MAX_TOKENS_DEFAULT } from "../api/chat/request.ts";
import type { Principal } from "../api/principal.ts";
import type { NativeRequest, StatedOutput } from "../api/wire.ts";
import { printable } from "../api/wording.ts";
import { type Catalog, type CatalogModel, type Route, takesField } from "../catalog/model.ts";
import type { PromptEstimate } from "../credits/estimate.ts";
import { ApiError, UpstreamError } from "../errors.ts";
import type { ConvertedPrompt, Provider, UpstreamRequest } from "../providers/provider.ts";
import { toApiError } from "./failures.ts";
import type { CompletionCall, Gateway } from "./gateway.ts";

/** A request as it will run. */
export interface Plan {
  model: CatalogModel;
  /** Routes of the model whose upstreams can take the request, in the order of the catalog. */
  routes: readonly [Route, ...Route[]];
  /** Matches the routes that are tried before the others; absent if the request prefers none. */
  isPreferred?: (route: Route) => boolean;
  /** The messages as the wires of these routes need them; a route whose wire sends them as they are has no entry. */
  prompts: ReadonlyMap<Route, ConvertedPrompt>;
  /** The request, fitted to the model. */
  request: ChatCompletionRequest;
  /** Hints that the model does not take, listed in the header `x-tollgate-ignored`. */
  ignored: readonly string[];
  output: StatedOutput;
}

const MODEL_ID_SHOWN_CHARACTERS_MAX = 128;

/**
 * Plans a request: finds its model, fits the request to it and selects the routes that can take it. Throws invalid_value,
 * model_not_found, model_not_allowed or unsupported_value.
 */
export function planFor(
  gateway: Pick<Gateway, "catalog" | "providers" | "completionMaxTokens">,
  call: Pick<CompletionCall, "principal" | "request" | "output" | "native">,
): Plan {
  const { principal, request, output, native } = call;
  refuseAboveSetting(gateway, output);
  const model = modelFor(gateway.catalog, principal, request.model);
  if (!model.capabilities.has("chat")) throw notForChat(model);
  refuseAboveModel(output, model);
  const fitted = fitToModel(request, model);
  const routes = routesFor(gateway, model, { request: fitted.request, output, native });
  const isNative = ({ providerId }: Route) => nativeFor(gateway.providers.get(providerId), native) !== undefined;
  const preference = native?.prefersNative === true ? { isPreferred: isNative } : {};
  return { model, ...routes, ...preference, request: fitted.request, ignored: fitted.ignored, output };
}

/** Tells whether a principal may use and see a model. */
export function mayUse(principal: Pick<Principal, "organizationKind" | "models">, model: CatalogModel): boolean {
  if (principal.organizationKind === "playground" && !model.playground) return false;
  return principal.models === null || principal.models.has(model.id);
}

/** Returns a model that a principal may use. Throws model_not_found or model_not_allowed. */
export function modelFor(catalog: Catalog, principal: Principal, modelId: string): CatalogModel {
  const model = catalog.find(modelId);
  if (model === undefined) throw modelNotFound(modelId);
  if (!mayUse(principal, model)) {
    throw new ApiError("model_not_allowed", `The access token may not use the model \`${model.id}\`.`, {
      param: "model",
    });
  }
  return model;
}

function notForChat({ id, capabilities }: CatalogModel): ApiError {
  const hint = capabilities.has("embeddings") ? " It creates embeddings: send them to /v1/embeddings." : "";
  const message = `The model '${id}' does not support chat completions.${hint}`;
  return new ApiError("unsupported_value", message, { param: "model" });
}

/** Returns the error for a model that does not exist or that the caller may not see. */
export function modelNotFound(modelId: string): ApiError {
  const name = printable(modelId, MODEL_ID_SHOWN_CHARACTERS_MAX);
  const message = `The model \`${name}\` does not exist or you do not have access to it.`;
  return new ApiError("model_not_found", message, { param: "model" });
}

/** Refuses a `max_tokens` above the setting `completions.maxTokens`, whatever the model. Throws invalid_value. */
export function refuseAboveSetting(
  { completionMaxTokens: bound }: OutputSetting,
  { param, tokens, isLimitedBySetting }: StatedOutput,
): void {
  if (bound === "model" || !isLimitedBySetting || tokens === undefined || tokens <= bound) return;
  const message = `max_tokens is too large: ${tokens}. This service allows at most ${bound} (its setting completions.maxTokens). Use max_completion_tokens to ask for up to the model's own maximum.`;
  throw new ApiError("invalid_value", message, { param });
}

/** Refuses a bound above the model's own maximum, under either name. Throws invalid_value. */
export function refuseAboveModel({ param, tokens }: StatedOutput, { maxOutputTokens }: OutputLimits): void {
  if (tokens === undefined || tokens <= maxOutputTokens) return;
  // The wording that OpenAI's clients know.
  const message = `${param} is too large: ${tokens}. This model supports at most ${maxOutputTokens} completion tokens, whereas you provided ${tokens}.`;
  throw new ApiError("invalid_value", message, { param });
}

/**
 * Returns the most output tokens of a request that states no bound: the smallest of `completions.maxTokens`, the model's
 * maximum, and the rest of the context window. Up to the contract's default the likely length of the prompt is subtracted
 * from the window; beyond it a cautious one, because an upstream refuses a request whose prompt and `max_tokens` do not
 * fit together.
 */
export function defaultOutputTokens(
  { completionMaxTokens }: OutputSetting,
  { maxOutputTokens, contextWindow }: OutputLimits,
  { likely, most }: PromptEstimate,
): number {
  const allowed = completionMaxTokens === "model" ? maxOutputTokens : Math.min(completionMaxTokens, maxOutputTokens);
  const likelyRoom = Math.min(MAX_TOKENS_DEFAULT, contextWindow - likely);
  const cautiousRoom = contextWindow - Math.min(most, likely * CAUTION);
  return Math.max(1, Math.min(allowed, Math.max(likelyRoom, cautiousRoom)));
}

/** Factor by which a prompt may exceed its likely length: code and text in scripts of few bytes make more tokens. */
const CAUTION = 2;

type OutputSetting = Pick<Gateway, "completionMaxTokens">;
type OutputLimits = Pick<CatalogModel, "maxOutputTokens" | "contextWindow">;

/** Fields that can be left out without changing the meaning of a request. */
const HINTS: ReadonlySet<keyof ChatCompletionRequest> = new Set([
  "user",
  "seed",
  "logit_bias",
  "parallel_tool_calls",
  "presence_penalty",
  "frequency_penalty",
  "temperature",
  "top_p",
  "reasoning_effort",
] as const);

/** Tests for OpenAI's defaults: a field with its default value can be left out. */
const DEFAULTS: { [Field in keyof ChatCompletionRequest]?: (value: ChatCompletionRequest[Field]) => boolean } = {
  presence_penalty: (value) => value === 0,
  frequency_penalty: (value) => value === 0,
  temperature: (value) => value === 1,
  top_p: (value) => value === 1,
  parallel_tool_calls: (value) => value === true,
  logprobs: (value) => value === false,
  top_logprobs: (value) => value === 0,
  logit_bias: (value) => Object.keys(value ?? {}).length === 0,
  tools: (value) => value?.length === 0,
  response_format: (value) => value?.type === "text",
  tool_choice: (value) => value === "auto",
  stop: (value) => value?.length === 0,
};

/**
 * Fits a request to a model: removes and names hints that the model does not take. Throws unsupported_value, naming the
 * model's capabilities, where a removal would change the answer.
 */
export function fitToModel(
  request: ChatCompletionRequest,
  model: CatalogModel,
): { request: ChatCompletionRequest; ignored: string[] } {
  const fitted: ChatCompletionRequest = { ...request };
  const stated = Object.keys(request) as (keyof ChatCompletionRequest)[];
  const excess = stated.filter((field) => fitted[field] !== undefined && !takesField(model, field));
  for (const field of excess) {
    const isDefault = DEFAULTS[field] as ((value: unknown) => boolean) | undefined;
    if (isDefault?.(fitted[field])) delete fitted[field];
  }
  refuseUnsupported(fitted, model);
  const ignored = excess.filter((field) => HINTS.has(field) && fitted[field] !== undefined);
  for (const hint of ignored) delete fitted[hint];
  return { request: fitted, ignored };
}

function refuseUnsupported(request: ChatCompletionRequest, model: CatalogModel): void {
  for (const field of ["tools", "response_format", "logprobs", "top_logprobs", "stop"] as const) {
    if (request[field] !== undefined && !takesField(model, field)) throw unsupported(field, model);
  }
  const format = request.response_format;
  // Without a schema any JSON is allowed.
  const isAnyJson = format?.type === "json_schema" && format.json_schema.schema === undefined;
  const type = isAnyJson ? "json_object" : format?.type;
  if (model.refusedParameters.has(`response_format.${type}`)) throw unsupported("response_format.type", model, type);
  const takesAddresses = !model.refusedParameters.has("image_url.address");
  if (model.capabilities.has("vision") && takesAddresses) return;
  for (const [index, message] of request.messages.entries()) {
    if (!Array.isArray(message.content)) continue;
    const part = message.content.findIndex((candidate) => candidate.type === "image_url" && !canTake(candidate, model));
    if (part < 0) continue;
    const byBytes = model.capabilities.has("vision") ? "an address, but only data:image/…;base64,…" : undefined;
    throw unsupported(`messages[${index}].content[${part}]`, model, byBytes);
  }
}

/** Every model with vision takes an image sent as bytes; an address only where the upstream fetches it. */
function canTake(part: Extract<ContentPart, { type: "image_url" }>, { capabilities }: CatalogModel): boolean {
  return capabilities.has("vision") && part.image_url.url.startsWith("data:");
}

function unsupported(param: string, model: CatalogModel, value?: string): ApiError {
  const capabilities = [...model.capabilities].join(", ");
  const what = value === undefined ? `'${param}'` : `'${param}' to be ${value}`;
  const message = `The model '${model.id}' does not support ${what}. Its capabilities are: ${capabilities}.`;
  return new ApiError("unsupported_value", message, { param });
}

const NO_PROMPTS: Plan["prompts"] = new Map();

/**
 * Selects the routes whose upstreams can take the request, and converts its prompt for their wires. Throws the first
 * refusal where none can.
 */
export function routesFor(
  { providers }: Pick<Gateway, "providers">,
  model: CatalogModel,
  { request, output, native }: Pick<CompletionCall, "request" | "output" | "native">,
): Pick<Plan, "routes" | "prompts"> {
  const address = firstAddress(request.messages);
  const maxTokens = output.tokens ?? model.maxOutputTokens;
  let prompts: Map<Route, ConvertedPrompt> | undefined;
  let refusal: UpstreamError | undefined;
  const [first, ...others] = model.routes.filter((route) => {
    const provider = providers.get(route.providerId);
    const isForeign = provider?.isPrivate === true && address !== undefined;
    // The results of a search are prompt tokens, which only the hold of such a route covers.
    const isSearch = request.web_search_options !== undefined && route.runsTools !== true;
    const isNative = nativeFor(provider, native) !== undefined;
    const converted = isNative ? undefined : convertFor(provider, route, request, maxTokens);
    const refused = isForeign ? refuseAddress(address) : refuseNeeded(native, isNative);
    const prompt = refused ?? (isSearch ? refuseSearch() : converted);
    if (prompt instanceof UpstreamError) {
      refusal ??= prompt;
      return false;
    }
    if (prompt === undefined) return true;
    prompts ??= new Map();
    prompts.set(route, prompt);
    return true;
  });
  if (first !== undefined) return { routes: [first, ...others], prompts: prompts ?? NO_PROMPTS };
  throw refusal === undefined ? new Error(`${model.id} has no route`) : toApiError(refusal);
}

/** Returns the request on its own wire if the upstream speaks it, so that it passes unchanged. */
export function nativeFor(
  provider: Pick<Provider, "nativeWire"> | undefined,
  native: NativeRequest | undefined,
): NativeRequest | undefined {
  return native !== undefined && provider?.nativeWire === native.wire ? native : undefined;
}

function convertFor(
  provider: Provider | undefined,
  route: Route,
  request: ChatCompletionRequest,
  maxTokens: number,
): ConvertedPrompt | UpstreamError | undefined {
  if (provider?.convert === undefined) return undefined;
  // Without `instructions`: their system message would shift the message indexes that an error names.
  const { instructions: _instructions, ...rest } = request;
  return provider.convert(forUpstream(rest, route, maxTokens));
}

/** Refuses a field that only an upstream of the request's own wire can take. */
function refuseNeeded(native: NativeRequest | undefined, isNative: boolean): UpstreamError | undefined {
  if (native?.needed === undefined || isNative) return undefined;
  const { needed: param } = native;
  const publicReason = `Invalid '${param}': the providers of this model do not support it.`;
  return new UpstreamError("unsupported", "The field exists on the request's own wire only", { publicReason, param });
}

function refuseSearch(): UpstreamError {
  const publicReason = "Invalid 'web_search_options': this model does not search the web.";
  return new UpstreamError("unsupported", "The route runs no tools", { publicReason, param: "web_search_options" });
}

function refuseAddress(place: string): UpstreamError {
  const [what, type] = place.endsWith("image_url.url") ? ["images", "image/…"] : ["files", "…"];
  const publicReason = `Invalid '${place}': this model takes ${what} by their bytes alone, as data:${type};base64,….`;
  return new UpstreamError("unsupported", "The upstream is private and must fetch no addresses", {
    publicReason,
    param: place,
  });
}

/** Returns the request as it is sent upstream on a route, with at most `maxTokens` of output. */
export function forUpstream(request: ChatCompletionRequest, route: Route, maxTokens: number): UpstreamRequest {
  const { instructions, max_completion_tokens: _other, metadata: _kept, n: _one, ...rest } = request;
  return {
    ...rest,
    model: route.model,
    messages:
      instructions === undefined ? request.messages : [{ role: "system", content: instructions }, ...request.messages],
    max_tokens: maxTokens,
    stream: request.stream === true,
  };
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
