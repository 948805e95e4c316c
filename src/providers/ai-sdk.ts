import type { LanguageModelV4FinishReason, LanguageModelV4StreamPart } from "@ai-sdk/provider";
import { OperatorError } from "../errors.ts";
import { missingOf, notInstalledText } from "../internals/optional-packages.ts";
import { AnswerReader } from "./ai-sdk/answer.ts";
import { CallFetch, Connections } from "./ai-sdk/call-fetch.ts";
import { leftOut, toCall } from "./ai-sdk/call-options.ts";
import { embedInCalls } from "./ai-sdk/embed.ts";
import type { AiSdkPrompt } from "./ai-sdk/prompt.ts";
import type { Connect, EmbeddingWire, Fetch, Wire } from "./ai-sdk/wire.ts";
import { complaintFailure, readComplaint, toComplaint } from "./errors.ts";
import { isObject } from "./json.ts";
import {
  once,
  type Provider,
  type ProviderAnswer,
  type ProviderCall,
  type ProviderEmbeddingCall,
  type ProviderEmbeddings,
  type UpstreamChunk,
  UpstreamError,
  type UpstreamFailure,
  type UpstreamRequest,
} from "./provider.ts";
import { createScrub, privateTextsOf, type Scrub, scrubFor } from "./scrub.ts";
import {
  type Environment,
  identityHeaders,
  isPrivateUpstream,
  type PromptCaching,
  type ProviderSettings,
  refuseOwnHeaders,
} from "./settings.ts";

/**
 * Returns the function that creates providers of a wire that an AI SDK package speaks. `defaultBaseUrl` is used if the
 * settings have none. The function throws OperatorError if the settings are wrong or the package is not installed.
 */
export function aiSdk(
  wire: Wire,
  defaultBaseUrl: string | null,
): (settings: ProviderSettings, environment: Environment) => Provider {
  return (settings, environment) => {
    refuseWithoutPackage(wire, settings);
    refuseOwnHeaders(settings);
    const fault = wire.fault(settings);
    if (fault !== undefined) throw new OperatorError(`providers '${settings.id}': the kind ${settings.kind} ${fault}`);
    return new AiSdk(wire, settings, defaultBaseUrl, environment);
  };
}

/** Throws OperatorError if a package is not installed. Does not load it; the first call does. */
function refuseWithoutPackage({ packages }: Wire, { id, kind }: ProviderSettings): void {
  const missing = missingOf(packages);
  if (missing.length === 0) return;
  throw new OperatorError(`providers '${id}': the kind ${kind} needs ${notInstalledText(missing)}`);
}

class AiSdk implements Provider {
  readonly id: string;
  readonly isPrivate: boolean;
  readonly embed?: (call: ProviderEmbeddingCall) => Promise<ProviderEmbeddings>;
  readonly #wire: Wire;
  readonly #settings: ProviderSettings;
  readonly #connections: Connections;
  readonly #scrub: Scrub;
  readonly #connect: Connect;
  readonly #caching: PromptCaching;
  readonly #closing = new AbortController();

  constructor(wire: Wire, settings: ProviderSettings, defaultBaseUrl: string | null, environment: Environment) {
    this.id = settings.id;
    this.#wire = wire;
    this.#settings = settings;
    this.#caching = settings.promptCaching ?? "auto";
    this.#connections = new Connections(settings.timeouts, environment);
    const { baseUrl } = settings;
    this.isPrivate = isPrivateUpstream(baseUrl);
    this.#scrub = createScrub(privateTextsOf(settings, environment));
    const complete = { ...settings, baseUrl: baseUrl ?? defaultBaseUrl };
    this.#connect = wire.connect(complete, this.#fetchToken);
    const { embedding } = wire;
    if (embedding !== undefined) this.embed = (call) => this.#embed(embedding, call);
  }

  convert(request: UpstreamRequest): AiSdkPrompt | UpstreamError {
    try {
      return toCall(this.#wire, request, this.#caching).conversation;
    } catch (error) {
      if (error instanceof UpstreamError) return error;
      throw error;
    }
  }

  async complete(call: ProviderCall): Promise<ProviderAnswer> {
    const { request, prompt, signal } = call;
    signal.throwIfAborted();
    const { options, ignored } = toCall(this.#wire, request, this.#caching, prompt as AiSdkPrompt | undefined);
    // Closes the connection even if a package's pipes do not pass on a cancellation.
    const ended = new AbortController();
    const abortSignal = AbortSignal.any([signal, ended.signal]);
    const http = new CallFetch(this.#connections, scrubFor(request, this.#scrub), abortSignal, {
      headers: identityHeaders(this.#settings, call),
      closing: this.#wire.closing,
    });
    const fail = (error: unknown) => toUpstreamError(error, http.failure, signal, http.scrub);
    const reader = new AnswerReader(this.#wire);
    try {
      const models = await Promise.race([this.#connect(postOnly(http.fetch)), rejectOnAbort(abortSignal)]);
      const model = models.languageModel(request.model);
      if (!request.stream) {
        const result = await model.doGenerate({ ...options, abortSignal });
        return { ignored: [...ignored, ...leftOut(result.warnings)], chunks: once(reader.readResult(result)) };
      }
      const { stream } = await model.doStream({ ...options, abortSignal });
      const parts = stream.getReader();
      const read = () => http.demand.during(parts.read());
      // The package's warnings come first, before any part of the upstream's answer.
      const { value: first } = await read();
      const left = first?.type === "stream-start" ? leftOut(first.warnings) : [];
      const chunks = readParts({ read, reader, failure: () => http.failure, fail, end: () => ended.abort() });
      return { ignored: [...ignored, ...left], chunks };
    } catch (error) {
      ended.abort();
      throw fail(error);
    }
  }

  async #embed(wire: EmbeddingWire, call: ProviderEmbeddingCall): Promise<ProviderEmbeddings> {
    call.signal.throwIfAborted();
    const ended = new AbortController();
    const signal = AbortSignal.any([call.signal, ended.signal]);
    const headers = identityHeaders(this.#settings, call);
    const http = new CallFetch(this.#connections, this.#scrub, signal, { headers });
    try {
      const models = await Promise.race([this.#connect(postOnly(http.fetch)), rejectOnAbort(signal)]);
      return await embedInCalls(models.embeddingModel(call.model), wire, { ...call, signal });
    } catch (error) {
      // The first failure ends the calls that still run, whose failures are the consequence.
      const failure = toUpstreamError(error, http.failure, call.signal, http.scrub);
      ended.abort();
      throw failure;
    }
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#connections.close();
  }

  /** Fetches access tokens. These come from other servers than the upstream, so a refusal is reported as `credentials`. */
  readonly #fetchToken: Fetch = async (address, init) => {
    const http = new CallFetch(this.#connections, this.#scrub, this.#closing.signal);
    try {
      return await http.fetch(address, init);
    } catch (error) {
      if (!(error instanceof UpstreamError) || !SETTINGS_FAILURES.has(error.failure)) throw error;
      throw new UpstreamError("credentials", "The service's credentials were refused", { cause: error });
    }
  };
}

/** Restricts a package to POST requests, because some packages would fetch addresses that a prompt contains. */
function postOnly(fetch: Fetch): Fetch {
  return async (address, init) => {
    if (init?.method !== "POST") throw new UpstreamError("unsupported", "A package tried to fetch an address");
    return fetch(address, init);
  };
}

/** Failures of a token request that the operator's settings cause. */
const SETTINGS_FAILURES: ReadonlySet<UpstreamFailure> = new Set(["rejected", "credentials", "malformed"]);

/** Rejects when the signal aborts, because fetching a token before the request may take long. */
function rejectOnAbort(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

interface PartsOptions {
  read(): ReturnType<ReadableStreamDefaultReader<LanguageModelV4StreamPart>["read"]>;
  reader: AnswerReader;
  /** Returns the failure of the connection; undefined if it has not failed. */
  failure(): unknown;
  /** Converts an error to the one that the reader receives. */
  fail(error: unknown): unknown;
  /** Closes the connection. */
  end(): void;
}

/** Reads a streamed answer as chunks. Yields all chunks before a failure, then throws it. Ending early closes the connection. */
async function* readParts(options: PartsOptions): AsyncGenerator<readonly UpstreamChunk[]> {
  const { read, reader, failure, fail, end } = options;
  try {
    for (let next = await read(); !next.done; next = await read()) {
      const part = next.value;
      if (part.type === "error") throw part.error;
      if (part.type === "finish" && failure() !== undefined && !hasEnded(part.finishReason)) break;
      const chunk = reader.readPart(part);
      if (chunk !== undefined) yield [chunk];
    }
    if (!reader.isFinished) throw failure() ?? new UpstreamError("failed", "The stream ended without a finish reason");
  } catch (error) {
    throw fail(error);
  } finally {
    end();
  }
}

/** True if the upstream itself gave the finish reason: the answer is then complete even if the connection breaks. */
function hasEnded({ unified, raw }: LanguageModelV4FinishReason): boolean {
  return raw !== undefined && unified !== "error" && unified !== "interrupted";
}

/** Number of nested `cause` errors that are searched, because packages wrap the errors of their fetch function. */
const CAUSES_MAX = 8;

/**
 * Converts an error that a package threw, or sent within a stream, to an UpstreamError; returns the signal's reason if it
 * was aborted. `failure` is the failure of the connection, if there was one, and takes precedence over the package's error.
 * The package's own messages are dropped, because they quote the answer.
 */
function toUpstreamError(error: unknown, failure: unknown, signal: AbortSignal, scrub: Scrub): unknown {
  if (signal.aborted) return signal.reason;
  const known = failure ?? upstreamErrorIn(error);
  if (known !== undefined) return known;
  if (!(error instanceof Error)) return complaintFailure(complaintOf(error), scrub);
  if (UNSUPPORTED_ERRORS.has(error.name)) {
    const publicReason = scrub(error.message);
    return new UpstreamError("unsupported", "The request cannot be expressed on this wire", { publicReason });
  }
  const body = errorBodyOf(error);
  if (body !== undefined) return complaintFailure(readComplaint(body, {}), scrub);
  return new UpstreamError("malformed", `The upstream's answer cannot be read (${error.name})`);
}

/** Errors of the packages for a request that they cannot express. */
const UNSUPPORTED_ERRORS = new Set([
  "AI_UnsupportedFunctionalityError",
  "AI_InvalidPromptError",
  "AI_InvalidArgumentError",
]);

/**
 * Returns the body of an error that an upstream sent as the first event of a stream, which some packages report as an
 * answer with an error status; undefined for any other error.
 */
function errorBodyOf(error: Error): string | undefined {
  if (error.name !== "AI_APICallError" || !("statusCode" in error) || !("responseBody" in error)) return undefined;
  const { statusCode, responseBody } = error;
  const isError = typeof statusCode === "number" && statusCode >= 400;
  return isError && typeof responseBody === "string" ? responseBody : undefined;
}

/** Finds the service's own error among the causes of an error. */
function upstreamErrorIn(error: unknown): UpstreamError | undefined {
  let current = error;
  for (let depth = 0; depth < CAUSES_MAX && current instanceof Error; depth += 1) {
    if (current instanceof UpstreamError) return current;
    current = current.cause;
  }
  return undefined;
}

/** Reads an error in the middle of a stream, which the packages report as `{message, type, code, statusCode, data}`. */
function complaintOf(error: unknown) {
  if (!isObject(error)) return toComplaint({ message: typeof error === "string" ? error : "" });
  const { message, type, code, statusCode } = error;
  return toComplaint({ error: { message, type, code: code ?? statusCode, status: statusCode } });
}
