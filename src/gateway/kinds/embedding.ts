import { once } from "../../api/answer.ts";
import type { EmbeddingInput, EmbeddingOrder } from "../../api/embeddings/request.ts";
import { dimensionsOf, NumbersText } from "../../api/embeddings/vector.ts";
import type { CatalogModel, Route } from "../../catalog/model.ts";
import { estimateInput, estimateInputs } from "../../credits/estimate.ts";
import { ApiError, UpstreamError } from "../../errors.ts";
import type { UpstreamChunk } from "../../providers/provider.ts";
import type { GatewayCall } from "../gateway.ts";
import { modelFor, type Plan } from "../plan.ts";
import { planTask, type TaskPlanner } from "./task.ts";

/** Plans a request of embeddings. Throws model_not_found, model_not_allowed, unsupported_value, invalid_value or context_length_exceeded. */
export function planEmbedding(gateway: TaskPlanner, call: GatewayCall<"embedding">): Plan {
  const { request, signal } = call;
  const { inputs, user, dimensions, ...rest } = request;
  const texts = inputs.filter((input) => typeof input === "string");
  // Some models refuse the field even with their own length.
  const isDefault = dimensions === modelFor(gateway.catalog, call.principal, request.model).embedding?.dimensions;
  const order = { ...call, request: isDefault ? { ...rest, inputs, user } : request };
  const plan = planTask(gateway, order, "embedding", { texts, calls: {}, user });
  refuseDimensions(plan.model, dimensions);
  refuseTooLongInput(plan.model, inputs);
  const isTokens = texts.length < inputs.length;
  const takesInputs = ({ providerId }: Route) => !isTokens || gateway.providers.get(providerId)?.takesTokenIds;
  const [first, ...others] = plan.routes.filter(takesInputs);
  if (first === undefined) {
    const message = `The model '${plan.model.id}' takes no token ids in 'input'. Send the input as text.`;
    throw new ApiError("unsupported_value", message, { param: "input" });
  }
  return {
    ...plan,
    routes: [first, ...others],
    estimate: estimateInputs(inputs),
    isInputOnly: true,
    send: async (provider, route, maxTokens) => {
      const answer = await plan.send(provider, route, maxTokens);
      const { value: [piece = {}] = [] } = await answer.chunks[Symbol.asyncIterator]().next();
      signal.throwIfAborted();
      // Checked here, where another route can still replace the answer.
      return { ...answer, chunks: once([{ ...piece, vectors: checked(piece, request) }]) };
    },
  };
}

/** Checks that there is one vector for each input, all of the same length. Throws UpstreamError. */
function checked({ vectors = [] }: UpstreamChunk, { inputs, dimensions: wanted }: EmbeddingOrder) {
  // Its numbers are checked, and there is no length to compare theirs with.
  const isAlone = inputs.length === 1 && vectors.length === 1 && wanted === undefined;
  if (isAlone && vectors[0] instanceof NumbersText) return vectors;
  let dimensions = wanted;
  for (const vector of vectors) {
    const found = dimensionsOf(vector);
    if (found === undefined) {
      throw new UpstreamError("malformed", "The upstream's answer has an embedding that is not a vector");
    }
    dimensions ??= found;
    if (found !== dimensions) {
      throw new UpstreamError("malformed", `The upstream answered ${found} dimensions instead of ${dimensions}`);
    }
  }
  if (vectors.length === inputs.length) return vectors;
  throw new UpstreamError("malformed", "The upstream's answer does not have one embedding for each input");
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
