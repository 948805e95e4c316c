import { once } from "../../api/answer.ts";
import type { EmbeddingInput, EmbeddingOrder } from "../../api/embeddings/request.ts";
import { dimensionsOf, type EmbeddingVector, NumbersText } from "../../api/embeddings/vector.ts";
import type { CatalogModel } from "../../catalog/model.ts";
import { estimateInput, estimateInputs } from "../../credits/estimate.ts";
import { ApiError, UpstreamError } from "../../errors.ts";
import type { ProviderAnswer, ProviderEmbeddings } from "../../providers/provider.ts";
import type { Gateway, GatewayCall } from "../gateway.ts";
import { labelsOf, modelForTask, type Plan } from "../plan.ts";

type EmbeddingCall = GatewayCall<"embedding">;

/** Plans a request of embeddings. Throws model_not_found, model_not_allowed, unsupported_value, invalid_value or context_length_exceeded. */
export function planEmbedding(
  { catalog, providers, longTasks }: Pick<Gateway, "catalog" | "providers" | "longTasks">,
  call: EmbeddingCall,
): Plan {
  const { principal, request, output, requestId, traceparent, signal, room } = call;
  const isTokens = request.inputs.some((input) => typeof input !== "string");
  const { model, routes } = modelForTask({ catalog, providers }, call, "embedding", ({ embed }) => embed);
  refuseDimensions(model, request.dimensions);
  refuseTooLongInput(model, request.inputs);
  const [first, ...others] = routes.filter(({ providerId }) => !isTokens || providers.get(providerId)?.takesTokenIds);
  if (first === undefined) throw notForTokens(model);
  const { dimensions, ...rest } = request;
  // Some models refuse the field even with their own length.
  const isDefault = dimensions === undefined || dimensions === model.embedding?.dimensions;
  const order = isDefault ? rest : request;
  return {
    operation: "embeddings",
    model,
    routes: [first, ...others],
    ignored: [],
    labels: labelsOf(null, request.user, model, request.model, call.principal.pins),
    output,
    estimate: estimateInputs(request.inputs),
    isStreamed: false,
    isInputOnly: true,
    promptTexts: () => request.inputs.filter((input) => typeof input === "string"),
    send: async (provider, route) => {
      if (provider.embed === undefined) throw new Error(`The provider '${provider.id}' creates no embeddings`);
      const inTurn = <Result>(work: () => Result) => longTasks.run(principal.organizationId, work);
      const answer = await provider.embed({
        ...order,
        model: route.model,
        requestId,
        traceparent,
        signal,
        inTurn,
        room,
      });
      signal.throwIfAborted();
      return toAnswer(answer, request);
    },
  };
}

/** Returns embeddings as an answer of one piece, which no other route can replace. Throws UpstreamError if they are not whole. */
function toAnswer(embeddings: ProviderEmbeddings, { inputs, dimensions }: EmbeddingOrder): ProviderAnswer {
  const { usage, responseId, ignored = [] } = embeddings;
  const vectors = checked(embeddings, inputs, dimensions);
  return { chunks: once([{ vectors, finish_reason: "stop", usage, responseId }]), ignored };
}

/** Checks that there is one vector for each input, all of the same length. Throws UpstreamError. */
function checked(
  answer: ProviderEmbeddings,
  inputs: readonly EmbeddingInput[],
  wanted: number | undefined,
): readonly EmbeddingVector[] {
  const [only, ...others] = answer.vectors;
  // Its numbers are checked, and there is no length to compare theirs with.
  const isAlone = inputs.length === 1 && others.length === 0 && wanted === undefined;
  if (isAlone && only instanceof NumbersText) return [only];
  const vectors: EmbeddingVector[] = [];
  let dimensions = wanted;
  for (const vector of answer.vectors) {
    const found = dimensionsOf(vector);
    if (vector === undefined || found === undefined) {
      throw new UpstreamError("malformed", "The upstream's answer has an embedding that is not a vector");
    }
    dimensions ??= found;
    if (found !== dimensions) {
      throw new UpstreamError("malformed", `The upstream answered ${found} dimensions instead of ${dimensions}`);
    }
    vectors.push(vector);
  }
  if (vectors.length === inputs.length) return vectors;
  throw new UpstreamError("malformed", "The upstream's answer does not have one embedding for each input");
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
