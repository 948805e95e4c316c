import type { Delta, FinishReason } from "../api/chat/completion.ts";
import type { ChatCompletionRequest } from "../api/chat/request.ts";
import type { UpstreamError } from "../errors.ts";

export { UpstreamError, type UpstreamFailure } from "../errors.ts";

/**
 * An upstream. A provider answers with chunks whether the caller streams or not; an unstreamed answer combines them. Each
 * provider is a row in `registry.ts`.
 */
export interface Provider {
  readonly id: string;
  /** True if a request can demand a failure. Such a failure says nothing about the next request. */
  readonly isScripted?: boolean;
  /** True for an upstream in a private network. It is sent no image addresses, because it would fetch them from there. */
  readonly isPrivate?: boolean;
  /**
   * Converts the messages of a request to the wire's own form, for `complete`. Returns UpstreamError if the wire cannot
   * express the request. Absent on wires that send messages unchanged.
   */
  convert?(request: UpstreamRequest): ConvertedPrompt | UpstreamError;
  /**
   * Sends a request. Resolves when the upstream has begun to answer, and rejects with UpstreamError if it refuses or
   * cannot be reached. The chunks reject with UpstreamError if the answer breaks off. Aborting `signal` closes the
   * connection at once, before and during the answer, and rejects with the signal's reason. Ending the iteration early
   * also closes the connection; not reading chunks pauses it.
   */
  complete(call: ProviderCall): Promise<ProviderAnswer>;
  /** Lists the upstream's own model names. Absent if it serves no model list. Rejects with UpstreamError. */
  listModels?(signal: AbortSignal): Promise<string[]>;
  /** Closes connections. */
  close(): Promise<void>;
}

/** A request to an upstream: without nulls and unsupported hints, and with `instructions` among the messages. */
export type UpstreamRequest = Omit<
  ChatCompletionRequest,
  "instructions" | "max_completion_tokens" | "metadata" | "n" | "max_tokens" | "stream"
> & {
  /** The upstream's own name of the model. */
  model: string;
  max_tokens: number;
  stream: boolean;
};

/** Messages in a wire's own form. Only the provider that converted them reads more than the count. */
export interface ConvertedPrompt {
  /** Number of converted messages: the last ones of the request that is sent. */
  messageCount: number;
}

export interface ProviderCall {
  request: UpstreamRequest;
  /** Result of `convert` for the messages of the request, without instructions before them. */
  prompt?: ConvertedPrompt | undefined;
  signal: AbortSignal;
}

export interface ProviderAnswer {
  /** One item for each read from the connection, so that many small events cost one turn of the event loop. */
  chunks: AsyncIterable<readonly UpstreamChunk[]>;
  /** Names of the request's hints that this upstream does not support. */
  ignored?: readonly string[];
}

/** Returns the chunks of an unstreamed answer as the only item of an iteration. */
export async function* once(chunks: readonly UpstreamChunk[]): AsyncGenerator<readonly UpstreamChunk[]> {
  yield chunks;
}

/** A piece of an answer, in the form of OpenAI's wire, so that chunks of compatible upstreams pass through unchanged. */
export interface UpstreamChunk {
  /** The upstream's own name of the model, if it reports one. */
  model?: string;
  /** The upstream's own id of the answer, by which its support can find it. */
  responseId?: string;
  delta?: Delta;
  logprobs?: unknown;
  finish_reason?: FinishReason;
  usage?: UpstreamUsage;
}

/** Token counts as the upstream reported them: untrusted, and checked by the charge. */
export interface UpstreamUsage {
  prompt_tokens?: unknown;
  completion_tokens?: unknown;
  cached_tokens?: unknown;
  cache_write_tokens?: unknown;
  reasoning_tokens?: unknown;
  /** The upstream's own cost of the answer, in the upstream's unit ("Usage Accounting" in OpenRouter's documentation). */
  cost?: unknown;
}
