import type { AnswerEnd, AnswerHead, AnswerPiece } from "../api/answer.ts";
import type { AnswerFold } from "../api/answer-fold.ts";
import { NumbersText } from "../api/embeddings/vector.ts";
import { type CatalogModel, upstreamOf } from "../catalog/model.ts";
import { formatCredits } from "../credits/amount.ts";
import type { TokenCounts } from "../credits/price.ts";
import type { ApiError } from "../errors.ts";
import { type Admission, budgetHeaders } from "./admit.ts";
import type { Answered } from "./attempt.ts";
import type { Gateway, GatewayCall } from "./gateway.ts";
import { rateLimitHeaders } from "./limits.ts";
import type { Plan } from "./plan.ts";

/** Receives an answer. One implementation writes a stream, one a document; the gateway knows no more of HTTP than this. */
export interface AnswerSink {
  /** True where pieces reach the client as they arrive. */
  readonly streams: boolean;
  /** Begins the answer: the upstream has begun to answer. */
  open(head: AnswerHead): void;
  /**
   * Takes pieces of the answer; returns a promise where the client reads more slowly than the upstream writes. `isFinished` tells
   * that all choices that have begun are finished: usually only the usage and the end follow.
   */
  push(pieces: readonly AnswerPiece[], isFinished: boolean): Promise<void> | undefined;
  /** Ends the answer, which is complete and whose charge is committed; returns a promise where something is stored first. */
  close(end: AnswerEnd): Promise<void> | undefined;
  /** Ends an answer that failed after `open`, on a sink that streams. */
  fail(error: ApiError): void;
}

/** Returns the headers of a deprecated model: Deprecation (RFC 9745) and Sunset (RFC 8594). */
export function deprecationHeaders(model: Pick<CatalogModel, "deprecatedSince" | "shutdownDate">) {
  return {
    ...(model.deprecatedSince !== null && { deprecation: `@${model.deprecatedSince}` }),
    ...(model.shutdownDate !== null && { sunset: new Date(model.shutdownDate).toUTCString() }),
  };
}

/** Returns the head of an answer that an upstream has begun. */
export function headOf(
  gateway: Pick<Gateway, "clock">,
  { facts, available, tightest, estimate, maxTokens, isShortened, requestLimit, tokenLimit }: Admission,
  { model }: Pick<Plan, "model">,
  { route, answer: { contentType } }: Answered,
  ignored: readonly string[],
): AnswerHead {
  const headers = rateLimitHeaders([requestLimit, tokenLimit]);
  headers["x-credits-available"] = formatCredits(available);
  if (tightest !== undefined) Object.assign(headers, budgetHeaders(tightest));
  // A header takes ASCII alone; names of local models may be anything.
  headers["x-tollgate-route"] = encodeURI(upstreamOf(route).toWellFormed());
  if (ignored.length > 0) headers["x-tollgate-ignored"] = ignored.join(", ");
  if (isShortened) headers["x-tollgate-max-tokens"] = String(maxTokens);
  if (model.deprecatedSince !== null || model.shutdownDate !== null) Object.assign(headers, deprecationHeaders(model));
  if (contentType !== undefined) headers["content-type"] = contentType;
  return {
    id: facts.holdId.replaceAll("-", ""),
    created: Math.floor(gateway.clock() / 1000),
    model: model.id,
    organizationId: facts.organizationId,
    promptTokens: estimate.likely,
    headers,
  };
}

/** Marks an answer that was charged before. */
export const REPLAY_HEADER = "x-tollgate-idempotent-replay";

/** Returns the head of an answer that is sent again: its own headers, with the current limits and credits. */
export function headOfReplay(
  { principal }: Pick<GatewayCall, "principal">,
  model: CatalogModel,
  { id, created, headers }: Pick<AnswerHead, "id" | "created" | "headers">,
  { available, requestLimit, tokenLimit }: Pick<Admission, "available" | "requestLimit" | "tokenLimit">,
): AnswerHead {
  const replayHeaders = {
    ...rateLimitHeaders([requestLimit, tokenLimit]),
    "x-credits-available": formatCredits(available),
    ...headers,
    [REPLAY_HEADER]: "true",
    ...deprecationHeaders(model),
  };
  return { id, created, model: model.id, organizationId: principal.organizationId, headers: replayHeaders };
}

export type Folded = Omit<AnswerFold, "add" | "document">;

/** A longer answer is not stored: its idempotency key then counts as interrupted. */
export const STORED_CHARACTERS_MAX = 1024 * 1024;

/** An answer as it is stored under its idempotency key. The conversation before it is in the request. */
export interface StoredAnswer extends Pick<AnswerHead, "id" | "created">, Required<Pick<AnswerEnd, "reasons">> {
  ended: number;
  /** The headers `x-tollgate-…` of the answer, and its media type if it is not JSON. */
  headers: Record<string, string>;
  /** The whole answer, as a piece for each choice. Their fold is the answer again. */
  pieces: readonly AnswerPiece[];
  tokens: TokenCounts;
}

/** Returns the JSON text of a complete answer to store under its idempotency key; null where it is too long. */
export function storedText(
  { id, created, headers }: AnswerHead,
  fold: Folded,
  { tokens, ended, reasons }: Pick<StoredAnswer, "tokens" | "ended" | "reasons">,
): string | null {
  const { vectors } = fold;
  const lengths = (vectors ?? []).map((vector) => (vector instanceof NumbersText ? vector.json : vector).length);
  // Their text is as long, or longer, and would be made only to be measured.
  if (lengths.reduce((sum, length) => sum + length, 0) > STORED_CHARACTERS_MAX) return null;
  const own = Object.fromEntries(
    Object.entries(headers).filter(([name]) => name.startsWith("x-tollgate-") || name === "content-type"),
  );
  const stored: StoredAnswer = { id, created, ended, headers: own, pieces: fold.choices.map(pieceOf), reasons, tokens };
  const text = JSON.stringify(stored);
  return text.length > STORED_CHARACTERS_MAX ? null : text;
}

function pieceOf([index, fold]: [number, Folded]): AnswerPiece {
  const { vectors, logprobs, whole, choice } = fold;
  const { role: _role, tool_calls, ...rest } = fold.message();
  const calls = tool_calls?.map((call, index) => ({ index, ...call }));
  return {
    index,
    delta: { ...rest, ...(calls && { tool_calls: calls }) },
    logprobs,
    ...(vectors && { vectors }),
    ...(Object.keys(whole).length > 0 && { whole }),
    ...(Object.keys(choice).length > 0 && { choice }),
  };
}
