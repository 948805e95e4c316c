import { once } from "../api/answer.ts";
import { isObject, objectsIn, parseJson, textOf } from "../api/json.ts";
import { OperatorError } from "../errors.ts";
import { fitFields } from "./fields.ts";
import { readText } from "./http/answer.ts";
import { bearerKey, UpstreamClient } from "./http/upstream-client.ts";
import { ask } from "./openai/answer.ts";
import { ChoicesReader, ChunkReader } from "./openai/chunks.ts";
import { EMBEDDINGS_BYTES_MAX, readEmbeddings, toEmbeddingBody } from "./openai/embeddings.ts";
import { DEFAULT_REQUEST_FORMAT, type RequestFormat, refusedHints, toRequestBody } from "./openai/request.ts";
import { makeImages, speak, transcribe } from "./openai/tasks.ts";
import { type Provider, type ProviderAnswer, type ProviderCall, type TaskCall, UpstreamError } from "./provider.ts";
import { AZURE, AZURE_FORMAT } from "./registry.ts";
import { fitSchemas } from "./schemas.ts";
import type { Environment, ProviderSettings } from "./settings.ts";

/** Creates a provider for an upstream that speaks OpenAI's chat completions. Throws OperatorError. */
export function createOpenAiCompatible(
  settings: ProviderSettings,
  environment: Environment,
  key: Readonly<Record<string, string>> = bearerKey(settings),
): Provider {
  const format = { ...DEFAULT_REQUEST_FORMAT, ...settings.requestFormat };
  const client = new UpstreamClient(settings, environment, key);
  return {
    id: settings.id,
    takesTokenIds: true,
    ...(format.servesTexts && { nativeWire: "completions" }),
    convert: (request) => fitFields(request, format.fields),
    complete: (call) => complete(client, format, call),
    tasks: {
      embedding: (call) => embed(client, format, call),
      image: (call) => makeImages(client, call),
      speech: (call) => speak(client, call),
      transcription: (call) => transcribe(client, call),
    },
    listModels: (signal) => listModels(client, signal),
    close: () => client.close(),
  };
}

/** Creates a provider for Azure OpenAI, as its row in the registry documents. Throws OperatorError. */
export function createAzure(settings: ProviderSettings, environment: Environment): Provider {
  const { id, apiKey, baseUrl, resourceName } = settings;
  if (baseUrl === null && !resourceName) {
    throw new OperatorError(`providers '${id}': the kind ${AZURE} needs resourceName or baseUrl`);
  }
  if (!apiKey) throw new OperatorError(`providers '${id}': the kind ${AZURE} needs apiKey`);
  const address = baseUrl ?? `https://${resourceName}.openai.azure.com/openai/v1`;
  const own = { ...settings, baseUrl: address, requestFormat: AZURE_FORMAT };
  // Its list has the models that can be deployed, not the deployments, whose names requests have.
  const { listModels: _deployable, ...provider } = createOpenAiCompatible(own, environment, { "api-key": apiKey });
  return provider;
}

async function complete(client: UpstreamClient, format: RequestFormat, call: ProviderCall): Promise<ProviderAnswer> {
  const { n = 1 } = call.request;
  const reader = () => (n > 1 ? new ChoicesReader(n) : new ChunkReader());
  if (call.native !== undefined) {
    const { model, max_tokens, stream } = call.request;
    const usage = stream ? { stream_options: { include_usage: true } } : {};
    const body = JSON.stringify({ ...call.native.body, model, max_tokens, stream, ...usage });
    return { chunks: await ask(client, call, { path: "/completions", body, reader }) };
  }
  const { request: fitted, ignored: left } = fitFields(call.request, format.fields);
  const { request, ignored: keywords } = fitSchemas(fitted, format.schemas);
  const ignored = [...left, ...keywords, ...refusedHints(request, format)];
  const body = toRequestBody(request, format);
  return { ignored, chunks: await ask(client, call, { path: "/chat/completions", body, reader }) };
}

async function embed(client: UpstreamClient, format: RequestFormat, call: TaskCall<"embedding">) {
  const answer = await client.postTask("/embeddings", toEmbeddingBody(call, format), call);
  const text = await readText(answer.body, { bytesMax: EMBEDDINGS_BYTES_MAX, room: call.room });
  return { chunks: once([await readEmbeddings(text, call, client.scrub)]) };
}

async function listModels(client: UpstreamClient, signal: AbortSignal): Promise<string[]> {
  const answer = await client.get("/models", signal);
  const list = parseJson(await readText(answer.body));
  if (!isObject(list) || !Array.isArray(list.data)) {
    throw new UpstreamError("malformed", "The list of models has no `data`");
  }
  return objectsIn(list.data).flatMap(({ id }) => textOf(id) ?? []);
}
