import type { AnswerPiece, ReportedUsage } from "../api/answer.ts";
import type { ChatCompletionRequest } from "../api/chat/request.ts";
import type { EmbeddingVector } from "../api/embeddings/answer.ts";
import type { EmbeddingOrder } from "../api/embeddings/decode.ts";
import type { NativeRequest } from "../api/wire.ts";
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
  /** The wire besides chat completions on which requests pass to this upstream unchanged. */
  readonly nativeWire?: NativeRequest["wire"];
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
  /** Creates embeddings, and rejects as `complete` does; absent where the provider cannot. The caller checks the vectors. */
  embed?(call: ProviderEmbeddingCall): Promise<ProviderEmbeddings>;
  /** True if `embed` takes token ids besides texts. */
  readonly takesTokenIds?: boolean;
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
  /** The request on the wire of `nativeWire`; the model and the output bound of `request` replace its own. */
  native?: NativeRequest | undefined;
  signal: AbortSignal;
}

export interface ProviderAnswer {
  /** One item for each read from the wire, so that many small events cost one turn of the loop. */
  chunks: AsyncIterable<readonly UpstreamChunk[]>;
  /** Hints of the request that could not be told to this upstream, by their names. */
  ignored?: readonly string[];
}

export interface ProviderEmbeddingCall extends EmbeddingOrder {
  /** The upstream's own name of the model. */
  model: string;
  signal: AbortSignal;
}

/** Embeddings as an upstream sent them: untrusted. */
export interface ProviderEmbeddings {
  /** Vectors in the order of the inputs. */
  vectors: readonly (EmbeddingVector | undefined)[];
  /** Undefined where the upstream reports no usage. */
  usage: UpstreamUsage | undefined;
  responseId?: string | undefined;
  /** Hints of the request that could not be told to this upstream, by their names. */
  ignored?: readonly string[];
}

/** A piece of an answer, as an upstream sent it. */
export type UpstreamChunk = AnswerPiece;

/** Counters as an upstream reported them. */
export type UpstreamUsage = ReportedUsage;
