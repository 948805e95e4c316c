import type { FinishReason, ReplyMessage } from "../api/completion.ts";
import type { TokenCounts } from "../credits/price.ts";
import { AnswerFold } from "./answer-fold.ts";
import type { AnswerEnd, AnswerHead, AnswerPiece, AnswerSink } from "./sink.ts";

/** How long an answer is given again to whoever comes with its key. */
export const KEY_KEPT_MS = 24 * 60 * 60 * 1000;
/** Of the text that is kept. A longer answer is given once, and its key counts as interrupted then. */
const KEPT_CHARACTERS_MAX = 1024 * 1024;

/** What an answer is given again from; the conversation before it stands in the request. */
export interface KeptAnswer {
  id: string;
  created: number;
  /** Those that tell of the answer: `x-tollgate-…`. */
  headers: Record<string, string>;
  message: ReplyMessage;
  logprobs: unknown;
  finishReason: FinishReason;
  tokens: TokenCounts;
}

/** Hands an answer on to its client and remembers it meanwhile: for whoever comes with its key, or to be looked at. */
export class KeepingSink implements AnswerSink {
  readonly streams: boolean;
  readonly #client: AnswerSink;
  readonly #hasKey: boolean;
  readonly #fold = new AnswerFold();
  #head: AnswerHead | undefined;

  constructor(client: AnswerSink, { hasKey }: { hasKey: boolean }) {
    this.#client = client;
    this.#hasKey = hasKey;
    this.streams = client.streams;
  }

  open(head: AnswerHead): void {
    this.#head = head;
    this.#client.open(head);
  }

  push(pieces: readonly AnswerPiece[]): Promise<void> | undefined {
    this.#fold.add(pieces);
    return this.#client.push(pieces);
  }

  close(end: AnswerEnd): void {
    this.#client.close(end);
  }

  fail(...[error]: Parameters<AnswerSink["fail"]>): void {
    this.#client.fail(error);
  }

  /** What has come of the answer. */
  message(): ReplyMessage {
    return this.#fold.message();
  }

  /** The complete answer as text to keep under its key; null where it has none, or is too long. */
  answer(tokens: TokenCounts, finishReason: FinishReason = "stop"): string | null {
    if (!this.#hasKey || this.#head === undefined) return null;
    const { id, created, headers } = this.#head;
    const kept: KeptAnswer = {
      id,
      created,
      headers: Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith("x-tollgate-"))),
      message: this.#fold.message(),
      logprobs: this.#fold.logprobs,
      finishReason,
      tokens,
    };
    const text = JSON.stringify(kept);
    return text.length > KEPT_CHARACTERS_MAX ? null : text;
  }
}
