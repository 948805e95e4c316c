import type { Dispatcher } from "undici";
import { OperatorError } from "../errors.ts";
import { readErrorText, readText } from "./http/body.ts";
import { createDispatcher } from "./http/dispatcher.ts";
import { exchange, type HttpAnswer } from "./http/exchange.ts";
import { refuseOwnHeaders } from "./http/own-headers.ts";
import { isPrivateUpstream, scrubFor } from "./images.ts";
import { readAnswer, StreamedAnswer } from "./openai/answer.ts";
import { EMBEDDINGS_BYTES_MAX, readEmbeddings, toEmbeddingBody } from "./openai/embeddings.ts";
import { type Scrub, statusFailure } from "./openai/errors.ts";
import { isObject } from "./openai/json.ts";
import { DEFAULT_REQUEST_FORMAT, type RequestFormat, refusedHints, toRequestBody } from "./openai/request.ts";
import { createScrub } from "./openai/scrub.ts";
import {
  type Provider,
  type ProviderAnswer,
  type ProviderCall,
  type ProviderEmbeddingCall,
  type ProviderEmbeddings,
  type UpstreamChunk,
  UpstreamError,
} from "./provider.ts";
import type { Environment, ProviderSettings } from "./settings.ts";

/** Makes a provider for an upstream that speaks OpenAI's wire, chat completions. Throws OperatorError. */
export function createOpenAiCompatible(settings: ProviderSettings, environment: Environment): Provider {
  return new OpenAiCompatible(settings, environment);
}

class OpenAiCompatible implements Provider {
  readonly id: string;
  readonly isPrivate: boolean;
  readonly takesTokenIds = true;
  readonly #dispatcher: Dispatcher;
  readonly #base: URL;
  /** Parts of the address, taken out once: URL makes them anew at every look. */
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
      streamed: toHeaders(settings, "text/event-stream"),
      unstreamed: toHeaders(settings, "application/json"),
    };
  }

  async complete({ request, signal }: ProviderCall): Promise<ProviderAnswer> {
    const scrub = scrubFor(request, this.#scrub);
    const headers = request.stream ? this.#headers.streamed : this.#headers.unstreamed;
    const body = toRequestBody(request, this.#requestFormat);
    const answer = await this.#send("POST", "/chat/completions", { headers, body, signal, scrub });
    // The content type decides, not the request: some upstreams never stream, others always do.
    const type = mediaType(answer) || (request.stream ? EVENT_STREAM : JSON_TYPE);
    const ignored = refusedHints(request, this.#requestFormat);
    const told = ignored === undefined ? {} : { ignored };
    if (type === EVENT_STREAM) return { ...told, chunks: new StreamedAnswer(answer.body, scrub) };
    refuseUnless(type === JSON_TYPE, answer, `The upstream answered with the content type '${type.slice(0, 80)}'`);
    return { ...told, chunks: once(await readAnswer(answer.body, scrub)) };
  }

  async embed(call: ProviderEmbeddingCall): Promise<ProviderEmbeddings> {
    const body = toEmbeddingBody(call, this.#requestFormat);
    const headers = this.#headers.unstreamed;
    const scrub = this.#scrub;
    const answer = await this.#send("POST", "/embeddings", { headers, body, signal: call.signal, scrub });
    return readEmbeddings(await readText(answer.body, EMBEDDINGS_BYTES_MAX), call.inputs.length, scrub);
  }

  async listModels(signal: AbortSignal): Promise<string[]> {
    const answer = await this.#send("GET", "/models", {
      headers: this.#headers.unstreamed,
      body: null,
      signal,
      scrub: this.#scrub,
    });
    const text = await readText(answer.body);
    let list: unknown;
    try {
      list = JSON.parse(text);
    } catch {
      throw new UpstreamError("malformed", "The list of models is not JSON");
    }
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
    if (answer.status !== 200) {
      throw statusFailure(answer.status, answer.headers, await readErrorText(answer.body), scrub);
    }
    const encoding = answer.headers["content-encoding"] ?? "identity";
    refuseUnless(encoding.toLowerCase() === "identity", answer, "The upstream encoded its answer, unasked");
    return answer;
  }
}

const EVENT_STREAM = "text/event-stream";
const JSON_TYPE = "application/json";

function mediaType({ headers }: HttpAnswer): string {
  return (headers["content-type"] ?? "").split(";", 1).join("").trim().toLowerCase();
}

function refuseUnless(isFit: boolean, answer: HttpAnswer, message: string): void {
  if (isFit) return;
  answer.body.destroy();
  throw new UpstreamError("malformed", message);
}

async function* once(chunk: UpstreamChunk): AsyncGenerator<readonly UpstreamChunk[]> {
  yield [chunk];
}

function toBase({ id, kind, baseUrl }: ProviderSettings): URL {
  const allowed = "an address such as http://127.0.0.1:11434/v1";
  if (baseUrl === null) throw new OperatorError(`providers '${id}': the kind ${kind} needs baseUrl, ${allowed}`);
  const url = URL.parse(baseUrl);
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw new OperatorError(`providers '${id}': baseUrl must be ${allowed}`);
  }
  // Not repeated in the message: what stands there is a password.
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
