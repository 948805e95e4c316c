import type { TSchema } from "typebox";
import type { AnswerEnd, AnswerHead, AnswerPiece } from "./answer.ts";
import type { AnswerFold } from "./answer-fold.ts";
import type { ChatCompletionRequest } from "./chat/request.ts";
import type { EmbeddingOrder } from "./embeddings/request.ts";
import type { ImageRequest } from "./images/request.ts";
import type { SpeechRequest } from "./speech/request.ts";
import type { TranscriptionRequest } from "./transcription/request.ts";

/** An error as the wires encode it. */
export interface PublicError {
  status: number;
  code: string;
  type: string;
  message: string;
  param: string | null;
  fields: Record<string, unknown>;
}

export interface ErrorFormat {
  schema: TSchema;
  status(error: Pick<PublicError, "status" | "code">): number;
  body(error: PublicError, requestId: string): object;
}

/** A request of any inbound wire in the internal form, and the encoders of its answer. */
export type DecodedRequest =
  | DecodedCompletion
  | DecodedEmbedding
  | DecodedImages
  | DecodedSpeech
  | DecodedTranscription;

export interface DecodedCompletion extends Decoded, Streamable {
  kind: "completion";
  request: ChatCompletionRequest;
  /**
   * Stores what later requests can refer to, before the last byte of the answer is sent. Takes the whole answer, as `document`
   * or the encoder's `close` returns it. Never rejects. Absent if nothing is stored.
   */
  keep?(answer: unknown): Promise<void>;
}

export type DecodedEmbedding = DecodedTask<"embedding", EmbeddingOrder>;
export type DecodedImages = DecodedTask<"image", ImageRequest>;
export type DecodedTranscription = DecodedTask<"transcription", TranscriptionRequest>;

interface DecodedTask<Kind extends string, Asked> extends Decoded {
  kind: Kind;
  request: Asked;
}

/** Audio is always streamed. */
export interface DecodedSpeech extends Omit<Decoded, "document">, Streamable {
  kind: "speech";
  request: SpeechRequest;
}

interface Streamable {
  /** Begins a streamed answer: adds its first events, and returns the encoder of the others. */
  events(head: AnswerHead, add: AddEvent): EventEncoder;
}

interface Decoded {
  output: StatedOutput;
  /** The request on its own wire, for upstreams that speak it too; absent on the chat completions wire. */
  native?: NativeRequest;
  /** Fields that have no effect, listed in the header `x-tollgate-ignored`. */
  ignored?: readonly string[];
  /** Returns the wire's name of a field that an error names in the internal form. */
  paramOf(param: string): string;
  /** Media type of the body, if it is not JSON. */
  contentType?: string;
  /** Returns the body of a complete answer that is not streamed: an object, its JSON, or other text. */
  document(head: AnswerHead, answer: AnswerFold, end: AnswerEnd): object | string;
}

/** The bound that a request states for its answer, and the field that states it. */
export interface StatedOutput {
  param: string;
  /** Undefined if the request states no bound. */
  tokens: number | undefined;
  /** True if the setting `completions.maxTokens` limits it; all other bounds are lowered to what the model allows. */
  isLimitedBySetting: boolean;
}

/** A request on a wire other than chat completions, as its client sent it. */
export interface NativeRequest {
  wire: "responses" | "messages" | "generateContent" | "completions";
  body: Readonly<Record<string, unknown>>;
  /** Headers of the wire that the upstream receives too, such as `anthropic-beta`. */
  headers: Readonly<Record<string, string>>;
  /** Hints that only upstreams of this wire receive; elsewhere they are listed in the header `x-tollgate-ignored`. */
  hints?: readonly string[];
  /** Path of the first field that changes the answer and that only upstreams of this wire can take. */
  needed?: string | undefined;
  /** Tools whose definitions the upstream writes into the prompt, and which are only on this wire: those of its maker. */
  typedTools?: number;
  /** True if it has such a tool, or a call or a result of one, in a form that not every upstream of this wire knows. */
  hasTypedParts?: boolean;
  /** Bytes of its parts that `messages` of the internal form lack: each may be a token of the prompt. */
  uncountedBytes?: number;
  search?: NativeSearch | undefined;
  hasHourCache?: boolean;
  /** True if upstreams of this wire shall be asked first, because others can only approximate a field of the request. */
  prefersNative?: boolean;
}

/** A search of the upstream. Only routes take it whose holds cover its results. */
export interface NativeSearch {
  param: string;
  /** Its name in the header `x-tollgate-ignored` where it is left out: the request has other tools, and demands none. */
  ignoredAs?: string | undefined;
}

/** Adds one server-sent event to the response: whole lines with the empty line at its end. */
export type AddEvent = (event: string) => void;

/** Writes the rest of a streamed answer as server-sent events. `close` or `fail` ends the answer. */
export interface EventEncoder {
  /** Event that is sent while nothing else is, so that proxies keep the connection open. */
  readonly keepAlive: string;
  /** Media type of the stream, if it does not consist of server-sent events. */
  readonly contentType?: string | undefined;
  /** True if each character that it adds is a byte. Such a stream has no place for a failure: its connection is cut. */
  readonly isBinary?: boolean;
  push(pieces: readonly AnswerPiece[]): void;
  /** Returns the whole answer, where a wire keeps something of it. */
  close(end: AnswerEnd): unknown;
  fail(error: PublicError): void;
}
