import type { EmbeddingModelV4, LanguageModelV4FinishReason, LanguageModelV4StreamPart } from "@ai-sdk/provider";
import { once } from "../api/answer.ts";
import { isObject } from "../api/json.ts";
import { OperatorError } from "../errors.ts";
import { missingOf, notInstalledText } from "../internals/optional-packages.ts";
import { AnswerReader } from "./ai-sdk/answer.ts";
import { CallFetch, type CallSetup } from "./ai-sdk/call-fetch.ts";
import { leftOut, toCall } from "./ai-sdk/call-options.ts";
import type { AiSdkPrompt } from "./ai-sdk/prompt.ts";
import type { Connect, EmbeddingWire, Fetch, Wire } from "./ai-sdk/wire.ts";
import { complaintFailure, readComplaint, toComplaint } from "./errors.ts";
import { createDispatcher } from "./http/exchange.ts";
import {
  type Provider,
  type ProviderAnswer,
  type ProviderCall,
  type TaskCall,
  type UpstreamChunk,
  UpstreamError,
  type UpstreamFailure,
} from "./provider.ts";
import { createScrub, privateTextsOf, scrubFor } from "./scrub.ts";
import { type Environment, identityHeaders, type PromptCaching, type ProviderSettings } from "./settings.ts";

/** Returns the function that creates providers of a wire of an AI SDK package. It throws OperatorError. */
export function aiSdk(wire: Wire): (settings: ProviderSettings, environment: Environment) => Provider {
  return (settings, environment) => {
    const missing = missingOf(wire.packages);
    const fault = missing.length > 0 ? `needs ${notInstalledText(missing)}` : wire.fault(settings);
    if (fault !== undefined) throw new OperatorError(`providers '${settings.id}': the kind ${settings.kind} ${fault}`);
    const { id, timeouts, promptCaching: caching = "auto" } = settings;
    const { embedding } = wire;
    const dispatcher = createDispatcher(timeouts, environment, { readsAhead: false });
    const setup: CallSetup = { dispatcher, timeouts, scrub: createScrub(privateTextsOf(settings, environment)) };
    const closing = new AbortController();
    const fetchToken = tokenFetch(() => new CallFetch(setup, closing.signal, { isOfToken: true }));
    const upstream: Upstream = { ...setup, wire, settings, caching, connect: wire.connect(settings, fetchToken) };
    return {
      id,
      searchesIfAsked: true,
      convert: (request) => toCall(wire, request, caching).conversation,
      complete: (call) => complete(upstream, call),
      tasks: embedding && { embedding: (call) => embed(upstream, embedding, call) },
      close: async () => {
        closing.abort();
        await dispatcher.destroy();
      },
    };
  };
}

interface Upstream extends CallSetup {
  wire: Wire;
  settings: ProviderSettings;
  caching: PromptCaching;
  connect: Connect;
}

async function complete(upstream: Upstream, call: ProviderCall): Promise<ProviderAnswer> {
  const { wire, caching } = upstream;
  const { request, prompt, signal, room } = call;
  signal.throwIfAborted();
  const { options, ignored } = toCall(wire, request, caching, prompt as AiSdkPrompt | undefined);
  if (call.requestId !== undefined && wire.identify !== undefined) {
    const own = { ...options.providerOptions?.[wire.metadataKey], ...wire.identify(call.requestId) };
    options.providerOptions = { ...options.providerOptions, [wire.metadataKey]: own };
  }
  const headers = identityHeaders(upstream.settings, call);
  const scrub = scrubFor(request, upstream.scrub);
  const http = new CallFetch({ ...upstream, scrub }, signal, { headers, closing: wire.closing, room });
  const reader = new AnswerReader(wire);
  try {
    const model = (await connected(upstream, http)).languageModel(request.model);
    if (!request.stream) {
      const result = await model.doGenerate({ ...options, abortSignal: http.signal });
      http.keepRoom();
      return { ignored: [...ignored, ...leftOut(result.warnings, options)], chunks: once(reader.readResult(result)) };
    }
    const { stream } = await model.doStream({ ...options, abortSignal: http.signal });
    const parts = stream.getReader();
    const read = () => http.demand.during(parts.read());
    // The package's warnings come first, before any part of the upstream's answer.
    const { value: first } = await read();
    const left = first?.type === "stream-start" ? leftOut(first.warnings, options) : [];
    return { ignored: [...ignored, ...left], chunks: readParts(read, reader, http, signal) };
  } catch (error) {
    http.end();
    throw toUpstreamError(error, http, signal);
  }
}

async function embed(upstream: Upstream, wire: EmbeddingWire, call: TaskCall<"embedding">) {
  const { signal, room } = call;
  signal.throwIfAborted();
  const headers = identityHeaders(upstream.settings, call);
  const http = new CallFetch(upstream, signal, { headers, room, answersAtOnce: CALLS_AT_ONCE });
  try {
    const model = (await connected(upstream, http)).embeddingModel(call.model);
    const piece = await embedInCalls(model, wire, call, http.signal);
    http.keepRoom();
    return { chunks: once([piece]), ignored: call.request.user === undefined ? [] : ["user"] };
  } catch (error) {
    // The first failure ends the calls that still run, whose failures are the consequence.
    const failure = toUpstreamError(error, http, signal);
    http.end();
    throw failure;
  }
}

/** Inputs of one call of an upstream, where the package states no smaller number: an answer is bounded. */
const INPUTS_A_CALL_MAX = 64;
const CALLS_AT_ONCE = 4;

/** Creates embeddings in as many calls as they need. The tokens are unknown if one call does not report them. */
async function embedInCalls(
  model: EmbeddingModelV4,
  { options, inputsACall }: EmbeddingWire,
  { request: { inputs, dimensions }, model: name }: TaskCall<"embedding">,
  signal: AbortSignal,
): Promise<UpstreamChunk> {
  // Token ids are sent only to a provider that takes them.
  const texts = inputs as readonly string[];
  const most = inputsACall?.(name) ?? (await model.maxEmbeddingsPerCall) ?? INPUTS_A_CALL_MAX;
  const size = Math.min(most, INPUTS_A_CALL_MAX);
  const vectors: number[][] = [];
  let tokens: number | undefined = 0;
  let next = 0;
  const work = async () => {
    while (next < texts.length) {
      const start = next;
      next += size;
      const values = texts.slice(start, start + size);
      const providerOptions = options?.(dimensions, name) ?? {};
      const { embeddings, usage } = await model.doEmbed({ values, dimensions, providerOptions, abortSignal: signal });
      if (embeddings.length !== values.length) {
        throw new UpstreamError("malformed", "The upstream's answer does not have one embedding for each input");
      }
      for (const [index, vector] of embeddings.entries()) vectors[start + index] = vector;
      tokens = usage === undefined || tokens === undefined ? undefined : tokens + usage.tokens;
    }
  };
  await Promise.all(Array.from({ length: CALLS_AT_ONCE }, work));
  const usage = tokens === undefined ? undefined : { prompt_tokens: tokens, completion_tokens: 0 };
  return { vectors, usage, finish_reason: "stop" };
}

/** Returns the models of a package for one call. Rejects when the call is aborted, because fetching a token may take long. */
function connected({ connect }: Upstream, { fetch, signal }: CallFetch): ReturnType<Connect> {
  const aborted = new Promise<never>((_resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
  return Promise.race([connect(fetch), aborted]);
}

/** Fetches access tokens. These come from other servers than the upstream, so a refusal is reported as `credentials`. */
function tokenFetch(open: () => CallFetch): Fetch {
  return async (address, init) => {
    try {
      return await open().fetch(address, init);
    } catch (error) {
      if (!(error instanceof UpstreamError) || !SETTINGS_FAILURES.has(error.failure)) throw error;
      throw new UpstreamError("credentials", "The service's credentials were refused", { cause: error });
    }
  };
}

const SETTINGS_FAILURES: ReadonlySet<UpstreamFailure> = new Set(["rejected", "credentials", "malformed"]);

/** Reads a streamed answer as chunks. Yields all chunks before a failure, then throws it. Ending early closes the connection. */
async function* readParts(
  read: ReadableStreamDefaultReader<LanguageModelV4StreamPart>["read"],
  reader: AnswerReader,
  http: CallFetch,
  signal: AbortSignal,
): AsyncGenerator<readonly UpstreamChunk[]> {
  try {
    for (let next = await read(); !next.done; next = await read()) {
      const part = next.value;
      if (part.type === "error") throw part.error;
      if (part.type === "finish" && http.failure !== undefined && !hasEnded(part.finishReason)) break;
      const chunk = reader.readPart(part);
      if (chunk !== undefined) yield [chunk];
    }
    if (!reader.isFinished) {
      throw http.failure ?? new UpstreamError("failed", "The stream ended without a finish reason");
    }
  } catch (error) {
    throw toUpstreamError(error, http, signal);
  } finally {
    http.end();
  }
}

/** True if the upstream itself gave the finish reason: the answer is then complete even if the connection breaks. */
function hasEnded({ unified, raw }: LanguageModelV4FinishReason): boolean {
  return raw !== undefined && unified !== "error" && unified !== "interrupted";
}

/** Converts an error of a package, but for its message, which quotes the answer. A connection's failure comes first. */
function toUpstreamError(error: unknown, { failure, scrub }: CallFetch, signal: AbortSignal): unknown {
  if (signal.aborted) return signal.reason;
  if (failure !== undefined) return failure;
  if (error instanceof UpstreamError) return error;
  if (!(error instanceof Error)) return complaintFailure(complaintOf(error), scrub);
  if (UNSUPPORTED_ERRORS.has(error.name)) {
    const publicReason = scrub(error.message);
    return new UpstreamError("unsupported", "The request cannot be expressed on this wire", { publicReason });
  }
  const body = errorBodyOf(error);
  if (body !== undefined) return complaintFailure(readComplaint(body, {}), scrub);
  return new UpstreamError("malformed", `The upstream's answer cannot be read (${error.name})`);
}

const UNSUPPORTED_ERRORS = new Set([
  "AI_UnsupportedFunctionalityError",
  "AI_InvalidPromptError",
  "AI_InvalidArgumentError",
]);

/** Returns the body of an error that began a stream, which some packages report as an answer with an error status. */
function errorBodyOf(error: Error): string | undefined {
  if (error.name !== "AI_APICallError" || !("statusCode" in error) || !("responseBody" in error)) return undefined;
  const { statusCode, responseBody } = error;
  const isError = typeof statusCode === "number" && statusCode >= 400;
  return isError && typeof responseBody === "string" ? responseBody : undefined;
}

/** Reads an error in the middle of a stream, which the packages report as `{message, type, code, statusCode, data}`. */
function complaintOf(error: unknown) {
  if (!isObject(error)) return toComplaint({ message: typeof error === "string" ? error : "" });
  const { message, type, code, statusCode } = error;
  return toComplaint({ error: { message, type, code: code ?? statusCode, status: statusCode } });
}
