import { firstImageAddress } from "../api/image-address.ts";
import type { Capability } from "../api/model.ts";
import type { ChatCompletionRequest, ContentPart, RequestMessage } from "../api/request.ts";
import type { CatalogModel, Route } from "../catalog/model.ts";
import { ApiError, UpstreamError } from "../errors.ts";
import type { Provider, UpstreamRequest } from "../providers/provider.ts";
import type { Gateway } from "./gateway.ts";
import { outputParam, refuseAboveModel } from "./output-bounds.ts";
import { toApiError } from "./upstream-errors.ts";

/** A request as a model can take it. */
export interface PreparedRequest {
  request: ChatCompletionRequest;
  /** Fields that were only hints and that the model does not take; told in `x-tollgate-ignored`. */
  ignored: string[];
}

/** Fields that may be left out without changing what was asked for. */
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

/** OpenAI's defaults: a field that states one says nothing. */
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
 * Fits a request to what a model can: hints that it refuses are taken out and named, what would change the answer is
 * refused with unsupported_value naming the model's capabilities. Throws ApiError.
 */
export function prepare(request: ChatCompletionRequest, model: CatalogModel): PreparedRequest {
  refuseAboveModel(request, model);
  const fitted: ChatCompletionRequest = { ...request };
  const stated = Object.keys(request) as (keyof ChatCompletionRequest)[];
  const excess = stated.filter((field) => fitted[field] !== undefined && cannotTake(model, field));
  for (const field of excess) {
    const isDefault = DEFAULTS[field] as ((value: unknown) => boolean) | undefined;
    if (isDefault?.(fitted[field])) delete fitted[field];
  }
  refuseUnsupported(fitted, model);
  const ignored = excess.filter((field) => HINTS.has(field) && fitted[field] !== undefined);
  for (const hint of ignored) delete fitted[hint];
  return { request: fitted, ignored };
}

/** The capability without which a model takes no such field. */
const NEEDED: Partial<Record<keyof ChatCompletionRequest, Capability>> = {
  tools: "tools",
  tool_choice: "tools",
  parallel_tool_calls: "tools",
  response_format: "structured_output",
  reasoning_effort: "reasoning",
};

function cannotTake(model: CatalogModel, field: keyof ChatCompletionRequest): boolean {
  const needed = NEEDED[field];
  return model.refusedParameters.has(field) || (needed !== undefined && !model.capabilities.has(needed));
}

function refuseUnsupported(request: ChatCompletionRequest, model: CatalogModel): void {
  for (const field of ["tools", "response_format", "logprobs", "top_logprobs", "stop"] as const) {
    if (request[field] !== undefined && cannotTake(model, field)) throw unsupported(field, model);
  }
  const format = request.response_format;
  // Without a schema there is nothing to keep to but JSON.
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

/** An image by its bytes is taken by every model that sees, one by its address only where the upstream fetches it. */
function canTake(part: Extract<ContentPart, { type: "image_url" }>, { capabilities }: CatalogModel): boolean {
  return capabilities.has("vision") && part.image_url.url.startsWith("data:");
}

function unsupported(param: string, model: CatalogModel, value?: string): ApiError {
  const capabilities = [...model.capabilities].join(", ");
  const what = value === undefined ? `'${param}'` : `'${param}' to be ${value}`;
  const message = `The model '${model.id}' does not support ${what}. Its capabilities are: ${capabilities}.`;
  return new ApiError("unsupported_value", message, { param });
}

/** The routes whose upstreams can be told the request. Throws ApiError where none can: the caller then hears why the first one cannot. */
export function routesFor(
  { providers }: Pick<Gateway, "providers">,
  model: CatalogModel,
  request: ChatCompletionRequest,
): [Route, ...Route[]] {
  const imageAddress = firstImageAddress(request.messages);
  let refusal: UpstreamError | undefined;
  const [first, ...others] = model.routes.filter((route) => {
    const provider = providers.get(route.providerId);
    const isForeign = provider?.isPrivate === true && imageAddress !== undefined;
    const refused = isForeign ? refuseImageAddress(imageAddress) : refusalOf(provider, { route, model, request });
    refusal ??= refused;
    return refused === undefined;
  });
  if (first !== undefined) return [first, ...others];
  throw refusal === undefined ? new Error(`${model.id} has no route`) : toApiError(refusal);
}

function refusalOf(
  provider: Provider | undefined,
  { route, model, request }: { route: Route; model: CatalogModel; request: ChatCompletionRequest },
): UpstreamError | undefined {
  if (provider?.refusal === undefined) return undefined;
  // Without `instructions`, whose system message would shift the places that a refusal names.
  const { instructions: _instructions, ...rest } = request;
  const maxTokens = request[outputParam(request)] ?? model.maxOutputTokens;
  return provider.refusal(forUpstream(rest, route, maxTokens));
}

function refuseImageAddress(place: string): UpstreamError {
  const publicReason = `Invalid '${place}': this model takes images by their bytes alone, as data:image/…;base64,….`;
  return new UpstreamError("unsupported", "The upstream is private and must fetch no addresses", {
    publicReason,
    param: place,
  });
}

/** The request as it goes upstream on a route, at most `maxTokens` long. */
export function forUpstream(request: ChatCompletionRequest, route: Route, maxTokens: number): UpstreamRequest {
  const { instructions, max_completion_tokens: _other, metadata: _kept, n: _one, ...rest } = request;
  const first: RequestMessage[] = instructions === undefined ? [] : [{ role: "system", content: instructions }];
  return {
    ...rest,
    model: route.model,
    messages: [...first, ...request.messages],
    max_tokens: maxTokens,
    stream: request.stream === true,
  };
}
