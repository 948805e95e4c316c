import { firstAddress } from "../../api/chat/image-address.ts";
import type { ChatCompletionRequest, ContentPart } from "../../api/chat/request.ts";
import type { NativeRequest } from "../../api/wire.ts";
import { CALLS_MOST_DEFAULT, type CatalogModel, type Route, takesField } from "../../catalog/model.ts";
import { estimatePrompt, promptTexts } from "../../credits/estimate.ts";
import { ApiError, UpstreamError, unsupportedField } from "../../errors.ts";
import type { Provider, UpstreamRequest } from "../../providers/provider.ts";
import { toApiError } from "../failures.ts";
import type { Gateway, GatewayCall } from "../gateway.ts";
import { refuseAboveModel, refuseAboveSetting, refuseAboveWindow } from "../output-bound.ts";
import { labelsOf, modelFor, type Plan, refuseTask } from "../plan.ts";

type CompletionCall = GatewayCall<"completion">;

type Planned = Pick<CompletionCall, "principal" | "request" | "output" | "native" | "paramOf" | "signal"> &
  Partial<Pick<CompletionCall, "requestId" | "traceparent" | "room">>;
type Planner = Pick<Gateway, "catalog" | "providers" | "completionMaxTokens">;

/**
 * Plans a completion. Throws like `planPrompt`, or context_length_exceeded for a prompt that cannot fit into the model's context
 * window, alone or with a bound that is not lowered.
 */
export function planCompletion(gateway: Planner, call: Planned): Plan {
  const plan = planPrompt(gateway, call);
  refuseAboveWindow(gateway, plan);
  return plan;
}

/**
 * Plans a completion whose prompt may be too long: finds its model, fits the request to it and selects the routes that can
 * take it. Throws invalid_value, model_not_found, model_not_allowed or unsupported_value.
 */
export function planPrompt(gateway: Planner, call: Planned): Plan {
  const { principal, output, native, paramOf } = call;
  refuseAboveSetting(gateway, output);
  const model = modelFor(gateway.catalog, principal, call.request.model);
  if (!model.capabilities.has("chat")) throw refuseTask(model, undefined);
  refuseAboveModel(gateway, output, model);
  const { request, ignored } = fitToModel(call.request, model);
  const { safety_identifier, user = call.request.metadata?.user } = call.request;
  // Anthropic's `metadata.user_id` states an end user, and no label.
  const metadata = paramOf("user") === "metadata.user_id" ? null : (call.request.metadata ?? null);
  const estimate = estimatePrompt(request, model);
  const { routes, prompts } = routesFor(gateway, model, { request, output, native });
  const isNative = ({ providerId }: Route) => nativeFor(gateway.providers.get(providerId), native) !== undefined;
  return {
    operation: "chat",
    model,
    routes,
    ...(native?.prefersNative === true && { isPreferred: isNative }),
    ignored: ignored.map(paramOf),
    labels: labelsOf(metadata, safety_identifier ?? user, model, call.request.model, principal.pins),
    output,
    estimate: {
      ...estimate,
      most: estimate.most + (native?.typedTools ?? 0) * TYPED_TOOL_TOKENS_MOST + (native?.uncountedBytes ?? 0),
      hasHourCache: estimate.hasHourCache || native?.hasHourCache === true,
    },
    isStreamed: request.stream === true,
    isInputOnly: false,
    promptTexts: () => promptTexts(request),
    send: (provider, route, maxTokens) =>
      send(call, provider, route, forUpstream(request, route, maxTokens), prompts?.get(route)),
  };
}

/**
 * Tokens of a tool that the upstream defines: Anthropic documents up to 735 for the tool and 499 for the system prompt
 * ("Computer use tool", "Pricing").
 */
const TYPED_TOOL_TOKENS_MOST = 2_000;

/** Sends a completion upstream: as it came where the upstream speaks its wire, else as a chat completion. */
async function send(
  { native: sent, paramOf, requestId, traceparent, signal, room }: Omit<Planned, "principal" | "request" | "output">,
  provider: Provider,
  route: Route,
  request: UpstreamRequest,
  prompt: object | undefined,
): ReturnType<Plan["send"]> {
  const native = nativeFor(provider, sent);
  const searchesMost = route.runsTools === true ? (route.callsMost ?? CALLS_MOST_DEFAULT) : 0;
  const answer = await provider.complete({
    request: native === undefined ? withSearch(request, demandedSearch(sent)) : request,
    prompt,
    native,
    searchesMost,
    traceparent,
    signal,
    room,
    ...(requestId && { requestId }),
  });
  const leftOut = searchesMost === 0 && sent?.search?.ignoredAs !== undefined ? [sent.search.ignoredAs] : [];
  const hints = native === undefined ? (sent?.hints ?? []) : leftOut;
  return { ...answer, ignored: [...(answer.ignored ?? []).map(paramOf), ...hints] };
}

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
  const stated = Object.keys(request) as (keyof ChatCompletionRequest)[];
  const excess = stated.filter((field) => request[field] !== undefined && !takesField(model, field));
  const fitted = excess.length === 0 ? request : { ...request };
  for (const field of excess) {
    const isDefault = DEFAULTS[field] as ((value: unknown) => boolean) | undefined;
    if (isDefault?.(fitted[field])) delete fitted[field];
  }
  const refused = NEEDED.find((field) => excess.includes(field) && fitted[field] !== undefined);
  if (refused !== undefined) throw unsupported(refused, model);
  refuseUnsupported(fitted, model);
  const ignored = excess.filter((field) => HINTS.has(field) && fitted[field] !== undefined);
  for (const hint of ignored) delete fitted[hint];
  return { request: fitted, ignored };
}

/** Fields without which an answer would be another one. */
const NEEDED = ["tools", "response_format", "logprobs", "top_logprobs", "stop"] as const;

function refuseUnsupported(request: ChatCompletionRequest, model: CatalogModel): void {
  const format = request.response_format;
  // Without a schema any JSON is allowed.
  const isAnyJson = format?.type === "json_schema" && format.json_schema.schema === undefined;
  const type = isAnyJson ? "json_object" : format?.type;
  if (type !== undefined && model.refusedParameters.has(`response_format.${type}`)) {
    throw unsupported("response_format.type", model, type);
  }
  const takesAddresses = !model.refusedParameters.has("image_url.address");
  const hasVision = model.capabilities.has("vision");
  if (hasVision && takesAddresses) return;
  for (const [index, message] of request.messages.entries()) {
    if (!Array.isArray(message.content)) continue;
    // Every model with vision takes an image sent as bytes; an address only where the upstream fetches it.
    const isRefused = (one: ContentPart) =>
      one.type === "image_url" && !(hasVision && one.image_url.url.startsWith("data:"));
    const part = message.content.findIndex(isRefused);
    if (part < 0) continue;
    const byBytes = hasVision ? "an address, but only data:image/…;base64,…" : undefined;
    throw unsupported(`messages[${index}].content[${part}]`, model, byBytes);
  }
}

function unsupported(param: string, model: CatalogModel, value?: string): ApiError {
  const capabilities = [...model.capabilities].join(", ");
  const what = value === undefined ? `'${param}'` : `'${param}' to be ${value}`;
  const message = `The model '${model.id}' does not support ${what}. Its capabilities are: ${capabilities}.`;
  return new ApiError("unsupported_value", message, { param });
}

/**
 * Selects the routes whose upstreams can take the request, and converts its prompt for their wires: a route whose wire sends
 * messages as they are has no prompt, and `prompts` is absent if there is none. Throws the first refusal where none can.
 */
export function routesFor(
  { providers }: Pick<Gateway, "providers">,
  model: CatalogModel,
  { request, output, native }: Pick<CompletionCall, "request" | "output" | "native">,
): { routes: Plan["routes"]; prompts: ReadonlyMap<Route, object> | undefined } {
  const address = firstAddress(request.messages);
  const maxTokens = Math.min(output.tokens ?? model.maxOutputTokens, model.maxOutputTokens);
  const search = request.web_search_options !== undefined ? "web_search_options" : demandedSearch(native);
  let prompts: Map<Route, object> | undefined;
  let refusal: UpstreamError | undefined;
  const routes: Route[] = [];
  for (const route of model.routes) {
    const provider = providers.get(route.providerId);
    const isForeign = provider?.isPrivate === true && address !== undefined;
    // The results of a search are prompt tokens, which only the hold of a route with tools covers.
    const isRefused = search !== undefined && route.runsTools !== true;
    const isNative = nativeFor(provider, native) !== undefined;
    // Not every upstream of text completions takes every field.
    const isConverted = !isNative || native?.wire === "completions";
    const asked = isConverted ? withSearch(forUpstream(request, route, maxTokens), search) : undefined;
    const converted = asked && unlessRefused(() => provider?.convert?.(asked));
    const refused = isForeign ? refuseAddress(address) : refuseNeeded(native, isNative);
    const prompt = refused ?? (isRefused ? refuseSearch(search) : converted);
    if (prompt instanceof UpstreamError) {
      refusal ??= prompt;
      continue;
    }
    const isSearchless = isNative
      ? native?.wire !== "completions" && native?.search === undefined
      : provider?.searchesIfAsked === true && search === undefined && request.modalities === undefined;
    const used = isSearchless ? withoutCalls(route) : route;
    routes.push(used);
    if (prompt === undefined) continue;
    prompts ??= new Map();
    prompts.set(used, prompt);
  }
  const [first, ...others] = routes;
  if (first !== undefined) return { routes: [first, ...others], prompts };
  throw refusal === undefined ? new Error(`${model.id} has no route`) : toApiError(refusal);
}

/** Returns the result of a conversion, or the UpstreamError with which it refuses a request. */
function unlessRefused<Result>(convert: () => Result): Result | UpstreamError {
  try {
    return convert();
  } catch (error) {
    if (error instanceof UpstreamError) return error;
    throw error;
  }
}

/** Returns the request on its own wire if the upstream speaks it, so that it passes unchanged. */
function nativeFor(
  provider: Pick<Provider, "nativeWire" | "lacksTypedTools"> | undefined,
  native: NativeRequest | undefined,
): NativeRequest | undefined {
  if (native === undefined || provider?.nativeWire !== native.wire) return undefined;
  return provider.lacksTypedTools === true && native.hasTypedParts === true ? undefined : native;
}

/** Refuses a field that only an upstream of the request's own wire can take. */
function refuseNeeded(native: NativeRequest | undefined, isNative: boolean): UpstreamError | undefined {
  if (native?.needed === undefined || isNative) return undefined;
  const reason = "the providers of this model do not support it";
  return unsupportedField(native.needed, reason, "The field exists on the request's own wire only");
}

/** Returns a route of which the hold need not cover calls: on a wire with tools, an upstream runs only those of the request. */
function withoutCalls(route: Route): Route {
  if (route.runsTools !== true) return route;
  const { runsTools: _tools, callsMost: _calls, ...others } = route;
  return others;
}

/** Returns the path of a search without which the request would have another meaning. */
function demandedSearch(native: NativeRequest | undefined): string | undefined {
  return native?.search?.ignoredAs === undefined ? native?.search?.param : undefined;
}

/** Returns a request that demands a search, for upstreams that do not speak the wire on which it does. */
function withSearch(request: UpstreamRequest, search: string | undefined): UpstreamRequest {
  return search === undefined ? request : { web_search_options: {}, ...request };
}

function refuseSearch(param: string): UpstreamError {
  return unsupportedField(param, "this model does not search the web", "The route runs no tools");
}

function refuseAddress(place: string): UpstreamError {
  const [what, type] = place.endsWith("image_url.url") ? ["images", "image/…"] : ["files", "…"];
  const reason = `this model takes ${what} by their bytes alone, as data:${type};base64,…`;
  return unsupportedField(place, reason, "The upstream is private and must fetch no addresses");
}

/** Returns the request as it is sent upstream on a route, with at most `maxTokens` of output. */
export function forUpstream(request: ChatCompletionRequest, route: Route, maxTokens: number): UpstreamRequest {
  const { n = 1, stream = false } = request;
  // JSON leaves out what is undefined. V8 copies an object slowly without some of its fields.
  const without = { max_completion_tokens: undefined, metadata: undefined, n: n > 1 ? n : undefined };
  return { ...request, ...without, model: route.model, max_tokens: maxTokens, stream };
}
