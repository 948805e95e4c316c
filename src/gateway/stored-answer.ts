import type { AnswerHead, AnswerPiece } from "../api/answer.ts";
import type { AnswerFold } from "../api/answer-fold.ts";
import type { FinishReason, OtherFields, ReplyMessage } from "../api/chat/completion.ts";
import { type EmbeddingVector, NumbersText } from "../api/embeddings/vector.ts";
import type { TokenCounts } from "../credits/price.ts";

/** A longer answer is not stored: its idempotency key then counts as interrupted. */
const STORED_CHARACTERS_MAX = 1024 * 1024;

/** An answer as it is stored under its idempotency key. The conversation before it is in the request. */
export interface StoredAnswer {
  id: string;
  created: number;
  /** Unix seconds. */
  ended: number;
  /** The headers `x-tollgate-…` of the answer. */
  headers: Record<string, string>;
  message: ReplyMessage;
  logprobs: unknown;
  /** Those of an answer of embeddings. */
  vectors?: readonly EmbeddingVector[];
  /** Fields of the answer and of its choice that are only passed on; absent if there are none. */
  whole?: OtherFields;
  choice?: OtherFields;
  finishReason: FinishReason;
  tokens: TokenCounts;
}

/** Returns the JSON text of a complete answer to store under its idempotency key; null where it is too long. */
export function storedText(
  { id, created, headers }: AnswerHead,
  fold: Pick<AnswerFold, "message" | "logprobs" | "whole" | "choice" | "vectors">,
  { tokens, ended }: Pick<StoredAnswer, "tokens" | "ended">,
  finishReason: FinishReason = "stop",
): string | null {
  const { vectors } = fold;
  // Their text is as long, and would be made only to be measured.
  if (vectors !== undefined && charactersOf(vectors) > STORED_CHARACTERS_MAX) return null;
  const stored: StoredAnswer = {
    id,
    created,
    ended,
    headers: Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith("x-tollgate-"))),
    message: fold.message(),
    logprobs: fold.logprobs,
    ...(vectors && { vectors }),
    ...(Object.keys(fold.whole).length > 0 && { whole: fold.whole }),
    ...(Object.keys(fold.choice).length > 0 && { choice: fold.choice }),
    finishReason,
    tokens,
  };
  const text = JSON.stringify(stored);
  return text.length > STORED_CHARACTERS_MAX ? null : text;
}

/** Returns the characters of the JSON of vectors, or fewer. */
function charactersOf(vectors: readonly EmbeddingVector[]): number {
  return vectors.reduce((sum, vector) => sum + (vector instanceof NumbersText ? vector.json : vector).length, 0);
}

/** Returns a whole answer as one piece; the fold of that piece is the answer again. */
export function pieceOf({
  message,
  logprobs,
  vectors,
  whole,
  choice,
}: Pick<StoredAnswer, "message" | "logprobs" | "vectors" | "whole" | "choice">): AnswerPiece {
  const { role: _role, tool_calls, ...rest } = message;
  const calls = tool_calls?.map((call, index) => ({ index, ...call }));
  const delta = { ...rest, ...(calls && { tool_calls: calls }) };
  return { delta, logprobs, ...(vectors && { vectors }), ...(whole && { whole }), ...(choice && { choice }) };
}
