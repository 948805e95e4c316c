import type { CompletionUsage, FinishReason } from "../api/completion.ts";
import type { ApiError } from "../errors.ts";
import type { UpstreamChunk } from "../providers/provider.ts";

/** A piece of an answer, as the upstream gave it. */
export type AnswerPiece = UpstreamChunk;

/** What is known of an answer when the upstream has begun it. */
export interface AnswerHead {
  /** `chatcmpl-…` */
  id: string;
  /** Unix seconds. */
  created: number;
  /** The catalog's id. */
  model: string;
  organizationId: string;
  headers: Record<string, string>;
}

/** What is known of an answer when its charge is committed. */
export interface AnswerEnd {
  finishReason: FinishReason;
  usage: CompletionUsage;
  /** What was charged and what is left; for answers whose headers have not gone out. */
  headers: Record<string, string>;
}

/** Where an answer goes: one for streamed answers, one that folds. The gateway knows no more of HTTP than this. */
export interface AnswerSink {
  /** Whether pieces reach the client as they come. */
  readonly streams: boolean;
  /** The upstream has begun to answer. */
  open(head: AnswerHead): void;
  /** Takes pieces of the answer; a promise where the client reads more slowly than the upstream writes. */
  push(pieces: readonly AnswerPiece[]): Promise<void> | undefined;
  /** The answer is complete and its charge committed: the last byte may go. */
  close(end: AnswerEnd): void;
  /** The answer broke off after `open`, on a sink that streams. */
  fail(error: ApiError): void;
}
