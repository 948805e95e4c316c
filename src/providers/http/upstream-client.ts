import type { Dispatcher } from "undici";
import { OperatorError } from "../../errors.ts";
import type { RequestIdentity } from "../provider.ts";
import { createScrub, privateTextsOf, type Scrub } from "../scrub.ts";
import { type Environment, identityHeaders, type ProviderSettings } from "../settings.ts";
import { accepted, EVENT_STREAM, JSON_TYPE } from "./answer.ts";
import { createDispatcher, exchange, type HttpAnswer } from "./exchange.ts";

/** Returns the header with the key of an upstream, in the form of most APIs; none without a key. */
export function bearerKey({ apiKey }: Pick<ProviderSettings, "apiKey">): Record<string, string> {
  return apiKey === null ? {} : { authorization: `Bearer ${apiKey}` };
}

type MediaTypes = { accept: string; contentType: string };

interface PostOptions {
  isStreamed: boolean;
  /** The media types of the request and of its answer where they are not those of JSON or of a stream. */
  types?: MediaTypes | undefined;
  identity: RequestIdentity;
  /** Headers of this request alone, in lower case; those of the settings override them. */
  headers?: Readonly<Record<string, string>>;
  signal: AbortSignal;
  scrub: Scrub;
}

/** Sends requests to the JSON API of one upstream. Rejects with UpstreamError if an answer has another status than 200. */
export class UpstreamClient {
  readonly scrub: Scrub;
  readonly #dispatcher: Dispatcher;
  readonly #settings: ProviderSettings;
  /** Read once, because URL computes its parts at every access. */
  readonly #address: Pick<URL, "origin" | "pathname" | "search">;
  /** Headers of every request, which those of one request do not replace. */
  readonly #headers: Readonly<Record<string, string>>;

  /** `key` contains the headers with the upstream's key. Throws OperatorError if a setting is wrong. */
  constructor(settings: ProviderSettings, environment: Environment, key: Readonly<Record<string, string>>) {
    const { origin, pathname, search } = toBase(settings);
    this.#settings = settings;
    this.#address = { origin, pathname: pathname.replace(/\/+$/, ""), search };
    this.#dispatcher = createDispatcher(settings.timeouts, environment, { origin });
    this.scrub = createScrub(privateTextsOf(settings, environment));
    this.#headers = toHeaders(settings, key);
  }

  /** `path` starts at the base address; `body` is JSON unless `types` says otherwise. */
  post(path: string, body: string | Buffer, options: PostOptions): Promise<HttpAnswer> {
    const { isStreamed, types, identity, headers: further, signal, scrub } = options;
    const { accept, contentType } = types ?? { accept: isStreamed ? EVENT_STREAM : JSON_TYPE, contentType: JSON_TYPE };
    const ofIdentity = identityHeaders(this.#settings, identity);
    const headers = { ...further, ...ofIdentity, accept, "content-type": contentType, ...this.#headers };
    return this.#send(path, { method: "POST", headers, body }, signal, scrub);
  }

  postTask(path: string, body: string | Buffer, call: RequestIdentity & { signal: AbortSignal }, types?: MediaTypes) {
    return this.post(path, body, { isStreamed: false, types, identity: call, signal: call.signal, scrub: this.scrub });
  }

  get(path: string, signal: AbortSignal): Promise<HttpAnswer> {
    return this.#send(path, { method: "GET", headers: { accept: JSON_TYPE, ...this.#headers } }, signal, this.scrub);
  }

  async close(): Promise<void> {
    await this.#dispatcher.destroy();
  }

  #send(
    path: string,
    request: Pick<Dispatcher.DispatchOptions, "method" | "headers" | "body">,
    signal: AbortSignal,
    scrub: Scrub,
  ): Promise<HttpAnswer> {
    const { firstByteMs: headersTimeout, idleMs: bodyTimeout } = this.#settings.timeouts;
    const { origin, pathname, search } = this.#address;
    const options = { ...request, origin, path: `${pathname}${path}${search}`, headersTimeout, bodyTimeout };
    return exchange(this.#dispatcher, options, signal).then((answer) => accepted(answer, scrub));
  }
}

/** The configuration has checked the address and the headers. */
function toBase({ id, kind, baseUrl }: ProviderSettings): URL {
  if (baseUrl !== null) return new URL(baseUrl);
  const allowed = "an address such as http://127.0.0.1:11434/v1";
  throw new OperatorError(`providers '${id}': the kind ${kind} needs baseUrl, ${allowed}`);
}

/** Headers of the settings override the others. */
function toHeaders({ id, headers }: ProviderSettings, key: Readonly<Record<string, string>>): Record<string, string> {
  if (!Object.values(key).every((value) => /^[\t\x20-\x7e\x80-\xff]*$/.test(value))) {
    throw new OperatorError(`providers '${id}': apiKey has a character that no header may have`);
  }
  const own = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]);
  return { "accept-encoding": "identity", "user-agent": "tollgate", ...key, ...Object.fromEntries(own) };
}
