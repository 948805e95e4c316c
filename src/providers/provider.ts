import type { Delta, FinishReason } from "../api/chat/completion.ts";
import type { ChatCompletionRequest } from "../api/chat/request.ts";
import type { UpstreamError } from "../errors.ts";

export { UpstreamError, type UpstreamFailure } from "../errors.ts";

/**
 * The seam to an upstream. A provider answers with chunks whether the caller streams or not; an unstreamed answer is
 * their fold. Each provider is a row in `registry.ts`.
 */
export interface Provider {
  readonly id: string;
  /** True if a request itself can ask for a failure, which then predicts nothing about the next request. */
  readonly isScripted?: boolean;
  /** True for an upstream in a private network: it is sent no image addresses, which it would fetch from there. */
  readonly isPrivate?: boolean;
  /**
   * Converts the messages of a request to the wire's own form, for `complete`. Returns UpstreamError where the wire cannot
   * express the request. Absent on wires that send messages as they are.
   */
  convert?(request: UpstreamRequest): ConvertedPrompt | UpstreamError;
  /**
   * Resolves when the upstream has accepted the request and begun to answer; rejects with UpstreamError before that.
   * The chunks reject with UpstreamError when the answer breaks off. Aborting `signal` ends the upstream's
   * connection at once, before and during the answer, and rejects with the signal's reason; ending the iteration early
   * ends the connection too; not pulling chunks pauses it.
   */
  complete(call: ProviderCall): Promise<ProviderAnswer>;
  /** Lists the upstream's own model names; only where it serves a model list. */
  listModels?(signal: AbortSignal): Promise<string[]>;
  /** Closes connections. */
  close(): Promise<void>;
}

/** A request as it goes to an upstream: nulls gone, `instructions` among the messages, what the model cannot taken out. */
export type UpstreamRequest = Omit<
  ChatCompletionRequest,
  "instructions" | "max_completion_tokens" | "metadata" | "n" | "max_tokens" | "stream"
> & {
  /** The upstream's own name of the model. */
  model: string;
  max_tokens: number;
  stream: boolean;
};

/** Messages in a wire's own form. Only the provider that made it reads more than the count. */
export interface ConvertedPrompt {
  /** Number of messages that are converted: the last ones of the request that is sent. */
  messageCount: number;
}

export interface ProviderCall {
  request: UpstreamRequest;
  /** Result of `convert` for the messages of the request, without instructions before them. */
  prompt?: ConvertedPrompt | undefined;
  signal: AbortSignal;
}

export interface ProviderAnswer {
  /** One item for each read from the wire, so that many small events cost one turn of the loop. */
  chunks: AsyncIterable<readonly UpstreamChunk[]>;
  /** Hints of the request that could not be told to this upstream, by their names. */
  ignored?: readonly string[];
}

/** A piece of an answer. The internal chunk is the wire's own, so that compatible upstreams pass through. */
export interface UpstreamChunk {
  /** The upstream's own name of the model, where it tells. */
  model?: string;
  /** The upstream's own id of the answer, as its invoices and its support know it. */
  responseId?: string;
  delta?: Delta;
  logprobs?: unknown;
  finish_reason?: FinishReason;
  usage?: UpstreamUsage;
}

/** Counters as the upstream reported them: untrusted, checked by whoever charges them. */
export interface UpstreamUsage {
  prompt_tokens?: unknown;
  completion_tokens?: unknown;
  cached_tokens?: unknown;
  cache_write_tokens?: unknown;
  reasoning_tokens?: unknown;
  /** The upstream's own cost of the answer, in its own unit (OpenRouter's documentation, "Usage Accounting": `cost`). */
  cost?: unknown;
}
