import type { AnswerPiece, ReportedUsage } from "../api/answer.ts";
import type { ChatCompletionRequest } from "../api/chat/request.ts";
import type { EmbeddingOrder } from "../api/embeddings/request.ts";
import type { ImageRequest } from "../api/images/request.ts";
import type { SpeechRequest } from "../api/speech/request.ts";
import type { TranscriptionRequest } from "../api/transcription/request.ts";
import type { NativeRequest } from "../api/wire.ts";

export { UpstreamError, type UpstreamFailure, unsupportedField } from "../errors.ts";

/** An upstream. It answers with chunks, also if the caller does not stream. Each is a row in `registry.ts`. */
export interface Provider {
  readonly id: string;
  /** True if a request can demand a failure. Such a failure says nothing about the next request. */
  readonly isScripted?: boolean;
  /** True for an upstream in a private network. It is sent no image addresses, because it would fetch them from there. */
  readonly isPrivate?: boolean;
  /** The wire besides chat completions on which requests pass to this upstream. */
  readonly nativeWire?: NativeRequest["wire"];
  /** True if it does not know the tools that the maker of this wire defines: they are translated for it. */
  readonly lacksTypedTools?: boolean;
  /** True if it searches the web only for requests with `web_search_options`. */
  readonly searchesIfAsked?: boolean;
  /** Converts a conversation for `complete` alone to read. Throws UpstreamError if the upstream cannot take it. */
  convert?(request: UpstreamRequest): object | undefined;
  /**
   * Sends a request. Resolves when the upstream has begun to answer, and rejects with UpstreamError if it refuses or
   * cannot be reached. The chunks reject with UpstreamError if the answer breaks off. Aborting `signal` closes the
   * connection at once, before and during the answer, and rejects with the signal's reason. Ending the iteration early
   * also closes the connection; not reading chunks pauses it.
   */
  complete(call: ProviderCall): Promise<ProviderAnswer>;
  /** True if embeddings accept token IDs in addition to texts. */
  readonly takesTokenIds?: boolean;
  /** The tasks of models that do not chat, as far as the provider has them. They reject like `complete`. */
  readonly tasks?: ProviderTasks;
  /** Lists the upstream's own model names. Absent if it serves no model list. Rejects with UpstreamError. */
  listModels?(signal: AbortSignal): Promise<string[]>;
  close(): Promise<void>;
}

/** A request to an upstream: without nulls and unsupported hints. Its `instructions` are a system message before the others. */
export type UpstreamRequest = Omit<
  ChatCompletionRequest,
  "max_completion_tokens" | "metadata" | "max_tokens" | "stream"
> & {
  /** The upstream's own name of the model. */
  model: string;
  max_tokens: number;
  stream: boolean;
};

/** By what the upstream's log and the service's can find the same request. */
export interface RequestIdentity {
  requestId?: string;
  /** W3C Trace Context; only for upstreams that the operator trusts with it. */
  traceparent?: string | undefined;
}

/** The memory of an answer that is read whole. */
export interface AnswerRoom {
  /** Resolves when there is room for a long answer of at most so many bytes, or when nobody needs it any more. */
  reserve(bytes: number): Promise<void>;
  /** Gives back all but so many bytes. */
  keep(bytes: number): void;
}

export interface ProviderCall extends RequestIdentity {
  request: UpstreamRequest;
  /** Result of `convert` for the conversation of the request. */
  prompt?: object | undefined;
  /** The request on the wire of `nativeWire`; the model and the output bound of `request` replace its own. */
  native?: NativeRequest | undefined;
  /** The most searches that the upstream may run for a request on its own wire; 0 or absent if it may run none. */
  searchesMost?: number;
  signal: AbortSignal;
  /** Absent where nothing limits the memory of answers. */
  room?: AnswerRoom | undefined;
}

export interface ProviderAnswer {
  /** One item for each read from the connection, so that many small events cost one turn of the event loop. */
  chunks: AsyncIterable<readonly UpstreamChunk[]>;
  /** Names of the request's hints that this upstream does not support. */
  ignored?: readonly string[];
  /** Media type of an answer that is not JSON. */
  contentType?: string;
}

/** Tasks whose requests a provider takes as they are, except for the model, and answers with chunks. */
export interface TaskRequests {
  /** One chunk with the vectors in the order of the inputs, as the upstream sent them: the caller checks them. */
  embedding: EmbeddingOrder;
  /** Chunks with an image each in `delta.images`, and a last one with the fields of the answer and its usage. */
  image: ImageRequest;
  /** Chunks with the next bytes in `delta.audio.data`, as base64. The answer states its media type. */
  speech: SpeechRequest;
  /** One chunk with the text; `whole` has its segments and words, and `calls` the seconds, as far as the upstream states them. */
  transcription: TranscriptionRequest;
}
export interface TaskCall<Task extends keyof TaskRequests> extends RequestIdentity {
  request: TaskRequests[Task];
  model: string;
  signal: AbortSignal;
  /** Runs work of many milliseconds, such as parsing a long answer, in the caller's turn. */
  inTurn<Result>(work: () => Result): Promise<Result>;
  room?: AnswerRoom | undefined;
}
export type ProviderTasks = { [Task in keyof TaskRequests]?: (call: TaskCall<Task>) => Promise<ProviderAnswer> };

export type UpstreamChunk = AnswerPiece;

export type UpstreamUsage = ReportedUsage;
