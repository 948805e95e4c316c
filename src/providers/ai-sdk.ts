import { createRequire } from "node:module";
import type { LanguageModelV4FinishReason, LanguageModelV4StreamPart } from "@ai-sdk/provider";
import packageJson from "../../package.json" with { type: "json" };
import { OperatorError } from "../errors.ts";
import { AnswerReader } from "./ai-sdk/answer.ts";
import { CallFetch, Connections } from "./ai-sdk/call-fetch.ts";
import { leftOut, toCall } from "./ai-sdk/call-options.ts";
import { embedInCalls } from "./ai-sdk/embed.ts";
import { toUpstreamError } from "./ai-sdk/failure.ts";
import type { AiSdkPrompt } from "./ai-sdk/prompt.ts";
import type { Connect, EmbeddingWire, Fetch, Wire } from "./ai-sdk/wire.ts";
import { refuseOwnHeaders } from "./http/own-headers.ts";
import { isPrivateUpstream, scrubFor } from "./images.ts";
import type { Scrub } from "./openai/errors.ts";
import { createScrub } from "./openai/scrub.ts";
import {
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
import type { Environment, ProviderSettings } from "./settings.ts";

/**
 * Returns the function that creates providers of a wire that an AI SDK package speaks; it throws OperatorError.
 * `defaultBaseUrl` is used where the settings have none.
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

/** Throws OperatorError if the package is not installed. Does not load it; the first call does. */
function refuseWithoutPackage(wire: Wire, { id, kind }: ProviderSettings): void {
  const versions: Record<string, string> = packageJson.optionalDependencies;
  try {
    createRequire(import.meta.url).resolve(wire.package);
  } catch {
    throw new OperatorError(
      `providers '${id}': the kind ${kind} needs the package ${wire.package}, which is not installed: npm install ${wire.package}@${versions[wire.package]}`,
    );
  }
}

class AiSdk implements Provider {
  readonly id: string;
  readonly isPrivate: boolean;
  readonly embed?: (call: ProviderEmbeddingCall) => Promise<ProviderEmbeddings>;
  readonly #wire: Wire;
  readonly #connections: Connections;
  readonly #scrub: Scrub;
  readonly #connect: Connect;
  readonly #closing = new AbortController();

  constructor(wire: Wire, settings: ProviderSettings, defaultBaseUrl: string | null, environment: Environment) {
    this.id = settings.id;
    this.#wire = wire;
    this.#connections = new Connections(settings.timeouts, environment);
    const { apiKey, accessKeyId, secretAccessKey, sessionToken, project, resourceName, baseUrl } = settings;
    this.isPrivate = isPrivateUpstream(baseUrl);
    const host = baseUrl === null ? null : (URL.parse(baseUrl)?.hostname ?? null);
    const secrets = [apiKey, accessKeyId, secretAccessKey, sessionToken, project, resourceName, host];
    this.#scrub = createScrub(
      [...secrets, ...Object.values(settings.headers)].filter((secret) => typeof secret === "string"),
    );
    const complete = { ...settings, baseUrl: baseUrl ?? defaultBaseUrl };
    this.#connect = wire.connect(complete, this.#fetchToken);
    const { embedding } = wire;
    if (embedding !== undefined) this.embed = (call) => this.#embed(embedding, embedding.connect(complete), call);
  }

  convert(request: UpstreamRequest): AiSdkPrompt | UpstreamError {
    try {
      return toCall(this.#wire, request).conversation;
    } catch (error) {
      if (error instanceof UpstreamError) return error;
      throw error;
    }
  }

  async complete({ request, prompt, signal }: ProviderCall): Promise<ProviderAnswer> {
    signal.throwIfAborted();
    const { options, ignored } = toCall(this.#wire, request, prompt as AiSdkPrompt | undefined);
    // Ends the connection, however deep in a package's pipes it is.
    const ended = new AbortController();
    const abortSignal = AbortSignal.any([signal, ended.signal]);
    const scrub = scrubFor(request, this.#scrub);
    const http = new CallFetch(this.#connections, scrub, abortSignal, this.#wire.closing);
    const fail = (error: unknown) => toUpstreamError(error, http.failure, signal, scrub);
    const reader = new AnswerReader(this.#wire);
    try {
      const models = await Promise.race([this.#connect(postOnly(http.fetch)), departure(abortSignal)]);
      const model = models(request.model);
      if (!request.stream) {
        const result = await model.doGenerate({ ...options, abortSignal });
        const left = leftOut(result.warnings);
        return { ignored: [...ignored, ...left], chunks: once(reader.readResult(result)) };
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

  async #embed(
    wire: EmbeddingWire,
    connect: ReturnType<EmbeddingWire["connect"]>,
    call: ProviderEmbeddingCall,
  ): Promise<ProviderEmbeddings> {
    call.signal.throwIfAborted();
    const ended = new AbortController();
    const signal = AbortSignal.any([call.signal, ended.signal]);
    const http = new CallFetch(this.#connections, this.#scrub, signal);
    try {
      const models = await connect(postOnly(http.fetch));
      return await embedInCalls(models(call.model), wire, { ...call, signal });
    } catch (error) {
      // The first failure ends the calls that still run, whose failures are the consequence.
      const failure = toUpstreamError(error, http.failure, call.signal, this.#scrub);
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
      if (!(error instanceof UpstreamError) || !OPERATORS.has(error.failure)) throw error;
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
const OPERATORS: ReadonlySet<UpstreamFailure> = new Set(["rejected", "credentials", "malformed"]);

/** Rejects when the signal aborts: fetching a token before the request may take long. */
function departure(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

async function* once(chunks: readonly UpstreamChunk[]): AsyncGenerator<readonly UpstreamChunk[]> {
  yield chunks;
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
