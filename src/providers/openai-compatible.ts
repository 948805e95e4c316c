import type { Dispatcher } from "undici";
import { OperatorError } from "../errors.ts";
import { createScrub, type Scrub, scrubFor } from "./errors.ts";
import { fitFields, refusalOf } from "./fields.ts";
import { EVENT_STREAM, JSON_TYPE, mediaTypeOf, readText, refuseFailure, unknownType } from "./http/answer.ts";
import { createDispatcher, exchange, type HttpAnswer } from "./http/exchange.ts";
import { isObject, parseJson } from "./json.ts";
import { readAnswer, StreamedAnswer } from "./openai/answer.ts";
import { DEFAULT_REQUEST_FORMAT, type RequestFormat, refusedHints, toRequestBody } from "./openai/request.ts";
import {
  once,
  type Provider,
  type ProviderAnswer,
  type ProviderCall,
  UpstreamError,
  type UpstreamRequest,
} from "./provider.ts";
import { type Environment, isPrivateUpstream, type ProviderSettings, refuseOwnHeaders } from "./settings.ts";

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
  readonly #dispatcher: Dispatcher;
  readonly #base: URL;
  /** Parts of the address, read once, because URL computes them at every access. */
  readonly #origin: string;
  readonly #path: string;
  readonly #search: string;
  readonly #settings: ProviderSettings;
  readonly #requestFormat: RequestFormat;
  readonly #scrub: Scrub;
  readonly #headers: { streamed: string[]; unstreamed: string[] };

  constructor(settings: ProviderSettings, environment: Environment) {
    this.id = settings.id;
    this.isPrivate = isPrivateUpstream(settings.baseUrl);
    this.#settings = settings;
    this.#base = toBase(settings);
    this.#origin = this.#base.origin;
    this.#path = this.#base.pathname.replace(/\/+$/, "");
    this.#search = this.#base.search;
    this.#requestFormat = { ...DEFAULT_REQUEST_FORMAT, ...settings.requestFormat };
    this.#dispatcher = createDispatcher(this.#base, settings.timeouts, environment);
    this.#scrub = createScrub([
      ...(settings.apiKey === null ? [] : [settings.apiKey]),
      ...Object.values(settings.headers),
      this.#base.host,
      this.#base.hostname,
    ]);
    this.#headers = {
      streamed: toHeaders(settings, EVENT_STREAM),
      unstreamed: toHeaders(settings, JSON_TYPE),
    };
  }

  convert(request: UpstreamRequest): UpstreamError | undefined {
    return refusalOf(request, this.#requestFormat.fields);
  }

  async complete({ request: given, signal }: ProviderCall): Promise<ProviderAnswer> {
    const { request, ignored: left } = fitFields(given, this.#requestFormat.fields);
    const scrub = scrubFor(request, this.#scrub);
    const headers = request.stream ? this.#headers.streamed : this.#headers.unstreamed;
    const body = toRequestBody(request, this.#requestFormat);
    const answer = await this.#send("POST", "/chat/completions", { headers, body, signal, scrub });
    // The content type decides, not the request: some upstreams never stream, others always do.
    const type = mediaTypeOf(answer.headers) || (request.stream ? EVENT_STREAM : JSON_TYPE);
    const ignored = [...left, ...refusedHints(request, this.#requestFormat)];
    if (type === EVENT_STREAM) return { ignored, chunks: new StreamedAnswer(answer.body, scrub) };
    if (type !== JSON_TYPE) throw unknownType(answer);
    return { ignored, chunks: once([await readAnswer(answer.body, scrub)]) };
  }

  async listModels(signal: AbortSignal): Promise<string[]> {
    const answer = await this.#send("GET", "/models", {
      headers: this.#headers.unstreamed,
      body: null,
      signal,
      scrub: this.#scrub,
    });
    const list = parseJson(await readText(answer.body));
    if (list === undefined) throw new UpstreamError("malformed", "The list of models is not JSON");
    if (!isObject(list) || !Array.isArray(list.data)) {
      throw new UpstreamError("malformed", "The list of models has no `data`");
    }
    const ids = list.data.map((model: unknown) => (isObject(model) ? model.id : undefined));
    return ids.filter((id) => typeof id === "string");
  }

  async close(): Promise<void> {
    await this.#dispatcher.destroy();
  }

  async #send(
    method: "GET" | "POST",
    path: string,
    { headers, body, signal, scrub }: { headers: string[]; body: string | null; signal: AbortSignal; scrub: Scrub },
  ): Promise<HttpAnswer> {
    const { firstByteMs, idleMs } = this.#settings.timeouts;
    const answer = await exchange(this.#dispatcher, this.#origin, {
      method,
      path: `${this.#path}${path}${this.#search}`,
      headers,
      body,
      firstByteMs,
      idleMs,
      signal,
    });
    await refuseFailure(answer, scrub);
    return answer;
  }
}

function toBase({ id, kind, baseUrl }: ProviderSettings): URL {
  const allowed = "an address such as http://127.0.0.1:11434/v1";
  if (baseUrl === null) throw new OperatorError(`providers '${id}': the kind ${kind} needs baseUrl, ${allowed}`);
  const url = URL.parse(baseUrl);
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new OperatorError(`providers '${id}': baseUrl must be ${allowed}`);
  }
  // The message does not repeat the address, because it contains a password.
  if (url.username !== "" || url.password !== "") {
    throw new OperatorError(`providers '${id}': baseUrl must not hold a user name or password; use apiKey or headers`);
  }
  return url;
}

function toHeaders(settings: ProviderSettings, accept: string): string[] {
  const { id, apiKey, headers } = settings;
  refuseOwnHeaders(settings);
  const all = new Map([
    ["content-type", JSON_TYPE],
    ["accept", accept],
    ["accept-encoding", "identity"],
    ["user-agent", "tollgate"],
  ]);
  if (apiKey !== null) all.set("authorization", `Bearer ${apiKey}`);
  for (const [given, value] of Object.entries(headers)) {
    const name = given.toLowerCase();
    if (!/^[a-z0-9!#$%&'*+.^_`|~-]+$/.test(name)) {
      throw new OperatorError(`providers '${id}': headers has '${given}', which is no header's name`);
    }
    all.set(name, value);
  }
  for (const [name, value] of all) {
    if (/^[\t\x20-\x7e\x80-\xff]*$/.test(value)) continue;
    const what = name === "authorization" ? "apiKey" : `headers.${name}`;
    throw new OperatorError(`providers '${id}': ${what} has a character that no header may have`);
  }
  return [...all].flat();
}
