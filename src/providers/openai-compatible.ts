import { fitFields, refusalOf } from "./fields.ts";
import { EVENT_STREAM, JSON_TYPE, mediaTypeOf, readText, unknownType } from "./http/answer.ts";
import { bearerKey, UpstreamClient } from "./http/upstream-client.ts";
import { isObject, parseJson } from "./json.ts";
import { readAnswer, StreamedAnswer } from "./openai/answer.ts";
import { ChunkReader } from "./openai/chunks.ts";
import { EMBEDDINGS_BYTES_MAX, LONG_CHARACTERS, readEmbeddings, toEmbeddingBody } from "./openai/embeddings.ts";
import { DEFAULT_REQUEST_FORMAT, type RequestFormat, refusedHints, toRequestBody } from "./openai/request.ts";
import {
  once,
  type Provider,
  type ProviderAnswer,
  type ProviderCall,
  type ProviderEmbeddingCall,
  type ProviderEmbeddings,
  UpstreamError,
  type UpstreamRequest,
} from "./provider.ts";
import { fitSchemas } from "./schemas.ts";
import { scrubFor } from "./scrub.ts";
import { type Environment, isPrivateUpstream, type ProviderSettings } from "./settings.ts";

/**
 * Creates a provider for an upstream that speaks OpenAI's chat completions. `environment` names proxies. Throws
 * OperatorError if a setting is wrong.
 */
export function createOpenAiCompatible(settings: ProviderSettings, environment: Environment): Provider {
  return new OpenAiCompatible(settings, environment);
}

class OpenAiCompatible implements Provider {
  readonly id: string;
  readonly isPrivate: boolean;
  readonly takesTokenIds = true;
  readonly #client: UpstreamClient;
  readonly #requestFormat: RequestFormat;

  constructor(settings: ProviderSettings, environment: Environment) {
    this.id = settings.id;
    this.isPrivate = isPrivateUpstream(settings.baseUrl);
    this.#requestFormat = { ...DEFAULT_REQUEST_FORMAT, ...settings.requestFormat };
    this.#client = new UpstreamClient(settings, environment, bearerKey(settings));
  }

  convert(request: UpstreamRequest): UpstreamError | undefined {
    return refusalOf(request, this.#requestFormat.fields);
  }

  async complete(call: ProviderCall): Promise<ProviderAnswer> {
    const { request: given, signal } = call;
    const { request: fitted, ignored: left } = fitFields(given, this.#requestFormat.fields);
    const { request, ignored: keywords } = fitSchemas(fitted, this.#requestFormat.schemas ?? undefined);
    const scrub = scrubFor(request, this.#client.scrub);
    const body = toRequestBody(request, this.#requestFormat);
    const options = { isStreamed: request.stream, identity: call, signal, scrub };
    const answer = await this.#client.post("/chat/completions", body, options);
    // The content type decides, not the request: some upstreams never stream, others always do.
    const type = mediaTypeOf(answer.headers) || (request.stream ? EVENT_STREAM : JSON_TYPE);
    const ignored = [...left, ...keywords, ...refusedHints(request, this.#requestFormat)];
    if (type === EVENT_STREAM) return { ignored, chunks: new StreamedAnswer(answer.body, scrub, new ChunkReader()) };
    if (type !== JSON_TYPE) throw unknownType(answer);
    return { ignored, chunks: once([await readAnswer(answer.body, scrub, new ChunkReader())]) };
  }

  async embed(call: ProviderEmbeddingCall): Promise<ProviderEmbeddings> {
    const body = toEmbeddingBody(call, this.#requestFormat);
    const { signal } = call;
    const { scrub } = this.#client;
    const answer = await this.#client.post("/embeddings", body, { isStreamed: false, identity: call, signal, scrub });
    const text = await readText(answer.body, EMBEDDINGS_BYTES_MAX);
    const read = () => readEmbeddings(text, call, scrub);
    return text.length > LONG_CHARACTERS ? call.inTurn(read) : read();
  }

  async listModels(signal: AbortSignal): Promise<string[]> {
    const answer = await this.#client.get("/models", signal);
    const list = parseJson(await readText(answer.body));
    if (list === undefined) throw new UpstreamError("malformed", "The list of models is not JSON");
    if (!isObject(list) || !Array.isArray(list.data)) {
      throw new UpstreamError("malformed", "The list of models has no `data`");
    }
    const ids = list.data.map((model: unknown) => (isObject(model) ? model.id : undefined));
    return ids.filter((id) => typeof id === "string");
  }

  async close(): Promise<void> {
    await this.#client.close();
  }
}
