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
  readonly #key: Readonly<Record<string, string>>;
  /** Read once, because URL computes its parts at every access. */
  readonly #address: Pick<URL, "origin" | "pathname" | "search">;
  readonly #headers: { streamed: string[]; unstreamed: string[] };
  /** Names of these headers, which those of one request do not replace. */
  readonly #names: ReadonlySet<string>;

  /** `key` contains the headers with the upstream's key. Throws OperatorError if a setting is wrong. */
  constructor(settings: ProviderSettings, environment: Environment, key: Readonly<Record<string, string>>) {
    const { origin, pathname, search } = toBase(settings);
    this.#settings = settings;
    this.#key = key;
    this.#address = { origin, pathname: pathname.replace(/\/+$/, ""), search };
    this.#dispatcher = createDispatcher(settings.timeouts, environment, { origin });
    this.scrub = createScrub(privateTextsOf(settings, environment));
    this.#headers = {
      streamed: toHeaders(settings, key, { accept: EVENT_STREAM }),
      unstreamed: toHeaders(settings, key, { accept: JSON_TYPE }),
    };
    this.#names = new Set(this.#headers.unstreamed.filter((_text, index) => index % 2 === 0));
  }

  /** `path` starts at the base address; `body` is JSON unless `types` says otherwise. */
  post(path: string, body: string | Buffer, options: PostOptions): Promise<HttpAnswer> {
    const { isStreamed, types, identity, headers: further, signal, scrub } = options;
    const usual = isStreamed ? this.#headers.streamed : this.#headers.unstreamed;
    const headers = types === undefined ? [...usual] : toHeaders(this.#settings, this.#key, types);
    const ofRequest = { ...further, ...identityHeaders(this.#settings, identity) };
    for (const name in ofRequest) if (!this.#names.has(name)) headers.push(name, ofRequest[name] ?? "");
    return this.#send(path, { method: "POST", headers, body }, signal, scrub);
  }

  postTask(path: string, body: string | Buffer, call: RequestIdentity & { signal: AbortSignal }, types?: MediaTypes) {
    return this.post(path, body, { isStreamed: false, types, identity: call, signal: call.signal, scrub: this.scrub });
  }

  get(path: string, signal: AbortSignal): Promise<HttpAnswer> {
    return this.#send(path, { method: "GET", headers: this.#headers.unstreamed }, signal, this.scrub);
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

/** Returns the headers of every request as alternating names and values. Headers of the settings override the others. */
function toHeaders(
  settings: ProviderSettings,
  key: Readonly<Record<string, string>>,
  { accept, contentType = JSON_TYPE }: { accept: string; contentType?: string },
): string[] {
  if (!Object.values(key).every((value) => /^[\t\x20-\x7e\x80-\xff]*$/.test(value))) {
    throw new OperatorError(`providers '${settings.id}': apiKey has a character that no header may have`);
  }
  const headers = new Map([
    ["content-type", contentType],
    ["accept", accept],
    ["accept-encoding", "identity"],
    ["user-agent", "tollgate"],
    ...Object.entries(key),
  ]);
  for (const [name, value] of Object.entries(settings.headers)) headers.set(name.toLowerCase(), value);
  return [...headers].flat();
}
