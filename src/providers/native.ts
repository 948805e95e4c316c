import type { NativeRequest } from "../api/wire.ts";
import { type Scrub, scrubFor } from "./errors.ts";
import { EVENT_STREAM, JSON_TYPE, mediaTypeOf, unknownType } from "./http/answer.ts";
import { bearerKey, UpstreamClient } from "./http/upstream-client.ts";
import { MessagesReader } from "./native/messages.ts";
import { ResponsesReader } from "./native/responses.ts";
import { toResponsesBody } from "./native/responses-request.ts";
import { readAnswer, StreamedAnswer, type WireReader } from "./openai/answer.ts";
import {
  once,
  type Provider,
  type ProviderAnswer,
  type ProviderCall,
  UpstreamError,
  type UpstreamRequest,
} from "./provider.ts";
import type { Environment, ProviderSettings, SecondWire } from "./settings.ts";

/** A wire on which requests pass unchanged to upstreams that speak it. */
interface NativeWire {
  /** Path below the base address. */
  path: string;
  keyHeaders(settings: ProviderSettings): Record<string, string>;
  /** Returns the body with the model and the bound that the gateway has chosen. */
  body(native: NativeRequest, request: UpstreamRequest): object;
  reader(scrub: Scrub): WireReader;
}

/** The version of the Messages API that its reader knows ("API versioning" in Anthropic's documentation). */
const ANTHROPIC_VERSION = "2023-06-01";

const WIRES: Readonly<Record<NativeRequest["wire"], NativeWire>> = {
  messages: {
    path: "/messages",
    keyHeaders: ({ apiKey }) => ({ "anthropic-version": ANTHROPIC_VERSION, ...(apiKey && { "x-api-key": apiKey }) }),
    body: ({ body }, { model, max_tokens, stream }) => ({ ...body, model, max_tokens, stream }),
    reader: () => new MessagesReader(),
  },
  responses: {
    path: "/responses",
    keyHeaders: bearerKey,
    // The upstream stores nothing: this service continues conversations itself.
    body: ({ body }, { model, max_tokens: max_output_tokens, stream }) => {
      const { previous_response_id: _ours, stream_options: _events, ...rest } = body;
      return { ...rest, model, max_output_tokens, stream, store: false };
    },
    reader: (scrub) => new ResponsesReader(scrub),
  },
};

/**
 * Adds a second wire to a provider: requests on this wire pass to the upstream unchanged, all others are sent as before.
 * `settings.baseUrl` must be set. Throws OperatorError if a setting is wrong.
 */
export function withSecondWire(
  provider: Provider,
  second: SecondWire,
  settings: ProviderSettings,
  environment: Environment,
): Provider {
  return new NativeProvider(provider, second, settings, environment);
}

class NativeProvider implements Provider {
  readonly id: string;
  readonly nativeWire: NativeRequest["wire"];
  readonly isPrivate: boolean;
  readonly convert?: NonNullable<Provider["convert"]>;
  readonly listModels?: NonNullable<Provider["listModels"]>;
  readonly #inner: Provider;
  readonly #wire: NativeWire;
  readonly #servesOnly: RegExp | undefined;
  readonly #client: UpstreamClient;

  constructor(inner: Provider, { wire, servesOnly }: SecondWire, settings: ProviderSettings, environment: Environment) {
    this.id = inner.id;
    this.nativeWire = wire;
    this.isPrivate = inner.isPrivate === true;
    if (inner.convert !== undefined) this.convert = inner.convert.bind(inner);
    if (inner.listModels !== undefined) this.listModels = inner.listModels.bind(inner);
    this.#inner = inner;
    this.#wire = WIRES[wire];
    this.#servesOnly = servesOnly;
    this.#client = new UpstreamClient(settings, environment, this.#wire.keyHeaders(settings));
  }

  async complete(call: ProviderCall): Promise<ProviderAnswer> {
    const { request, native } = call;
    if (native !== undefined)
      return { chunks: await this.#send(call, this.#wire.body(native, request), native.headers) };
    if (this.#servesOnly?.test(request.model) !== true) return this.#inner.complete(call);
    const { body, ignored } = toResponsesBody(request);
    return { ignored, chunks: await this.#send(call, body, {}) };
  }

  async close(): Promise<void> {
    await Promise.all([this.#inner.close(), this.#client.close()]);
  }

  async #send(
    { request, signal }: ProviderCall,
    body: object,
    headers: Readonly<Record<string, string>>,
  ): Promise<ProviderAnswer["chunks"]> {
    const { path, reader: createReader } = this.#wire;
    const scrub = scrubFor(request, this.#client.scrub);
    const options = { isStreamed: request.stream, headers, signal, scrub };
    const answer = await this.#client.post(path, JSON.stringify(body), options);
    const type = mediaTypeOf(answer.headers) || (request.stream ? EVENT_STREAM : JSON_TYPE);
    const reader = createReader(scrub);
    // Unlike a chat completion, an answer of the other kind could not be passed on as the client expects it.
    if (type === EVENT_STREAM && request.stream) return new StreamedAnswer(answer.body, scrub, reader);
    if (type === JSON_TYPE && !request.stream) return once([await readAnswer(answer.body, scrub, reader)]);
    if (type !== EVENT_STREAM && type !== JSON_TYPE) throw unknownType(answer);
    answer.body.destroy();
    throw new UpstreamError("malformed", "The upstream ignored the field `stream`");
  }
}
