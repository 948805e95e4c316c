import type { EmbeddingInput, EmbeddingOrder } from "../api/embeddings/decode.ts";
import type { CatalogModel } from "../catalog/model.ts";
import { estimateInput, estimateInputs, type PromptEstimate } from "../credits/estimate.ts";
import { ApiError } from "../errors.ts";
import type { EmbeddingCall, Gateway } from "./gateway.ts";
import { modelFor, type Plan } from "./plan.ts";

/** A request of embeddings as it will run. */
export interface EmbeddingPlan extends Pick<Plan, "model" | "routes" | "output"> {
  request: EmbeddingOrder;
  estimate: PromptEstimate;
}

/** Plans a request of embeddings. Throws model_not_found, model_not_allowed, unsupported_value, invalid_value or context_length_exceeded. */
export function planForEmbeddings(
  { catalog, providers }: Pick<Gateway, "catalog" | "providers">,
  { principal, request }: Pick<EmbeddingCall, "principal" | "request">,
): EmbeddingPlan {
  const model = modelFor(catalog, principal, request.model);
  if (model.embedding === undefined) throw notForEmbeddings(model);
  refuseDimensions(model, request.dimensions);
  refuseTooLongInput(model, request.inputs);
  const isTokens = request.inputs.some((input) => typeof input !== "string");
  const [first, ...others] = model.routes.filter(({ providerId }) => {
    const provider = providers.get(providerId);
    return provider?.embed !== undefined && (!isTokens || provider.takesTokenIds === true);
  });
  if (first === undefined) throw isTokens ? notForTokens(model) : notForEmbeddings(model);
  const { dimensions, ...rest } = request;
  // Some models refuse the field even with their own length.
  const isDefault = dimensions === undefined || dimensions === model.embedding.dimensions;
  return {
    model,
    routes: [first, ...others],
    request: isDefault ? rest : request,
    // Nothing is charged as output.
    output: { param: "input", tokens: 0, isLimitedBySetting: false },
    estimate: estimateInputs(request.inputs),
  };
}

function notForEmbeddings({ id, capabilities }: CatalogModel): ApiError {
  const hint = capabilities.has("chat") ? " It chats: send it to /v1/chat/completions." : "";
  return new ApiError("unsupported_value", `The model '${id}' does not support embeddings.${hint}`, { param: "model" });
}

function notForTokens({ id }: CatalogModel): ApiError {
  const message = `The model '${id}' takes no token ids in 'input'. Send the input as text.`;
  return new ApiError("unsupported_value", message, { param: "input" });
}

function refuseDimensions({ id, embedding = {} }: CatalogModel, wanted: number | undefined): void {
  const { dimensions, choices } = embedding;
  if (wanted === undefined || wanted === dimensions || choices === undefined) return;
  const param = "dimensions";
  if (choices === "shorter") {
    if (dimensions === undefined || wanted <= dimensions) return;
    const message = `Invalid 'dimensions': ${wanted}. The model '${id}' supports at most ${dimensions}.`;
    throw new ApiError("invalid_value", message, { param });
  }
  if (choices.includes(wanted)) return;
  const allowed = choices.length === 0 ? `only ${dimensions}` : choices.join(", ");
  const message = `Invalid 'dimensions': ${wanted}. The model '${id}' supports ${allowed}.`;
  throw new ApiError("unsupported_value", message, { param });
}

function refuseTooLongInput({ contextWindow }: CatalogModel, inputs: readonly EmbeddingInput[]): void {
  const index = inputs.findIndex((input) => estimateInput(input).least > contextWindow);
  const input = inputs[index];
  if (input === undefined) return;
  const param = inputs.length === 1 ? "input" : `input[${index}]`;
  const message = `This model's maximum input length is ${contextWindow} tokens. However, '${param}' comes to at least ${estimateInput(input).least} tokens. Please shorten it.`;
  throw new ApiError("context_length_exceeded", message, { param });
}
