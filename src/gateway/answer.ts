import type { AnswerEnd, AnswerHead, AnswerPiece } from "../api/answer.ts";
import { type CatalogModel, type Route, upstreamOf } from "../catalog/model.ts";
import { formatCredits } from "../credits/amount.ts";
import type { ApiError } from "../errors.ts";
import type { Admission } from "./admit.ts";
import { budgetHeaders } from "./budget-answers.ts";
import type { Gateway, GatewayCall } from "./gateway.ts";
import { rateLimitHeaders } from "./limits.ts";

/** Receives an answer. One implementation writes a stream, one a document; the gateway knows no more of HTTP than this. */
export interface AnswerSink {
  /** True where pieces reach the client as they arrive. */
  readonly streams: boolean;
  /** Begins the answer: the upstream has begun to answer. */
  open(head: AnswerHead): void;
  /** Takes pieces of the answer; returns a promise where the client reads more slowly than the upstream writes. */
  push(pieces: readonly AnswerPiece[]): Promise<void> | undefined;
  /** Ends the answer, which is complete and whose charge is committed; returns a promise where something is stored first. */
  close(end: AnswerEnd): Promise<void> | undefined;
  /** Ends an answer that failed after `open`, on a sink that streams. */
  fail(error: ApiError): void;
}

/** Returns the headers of a deprecated model: Deprecation (RFC 9745) and Sunset (RFC 8594). */
export function deprecationHeaders({
  deprecatedSince,
  shutdownDate,
}: Pick<CatalogModel, "deprecatedSince" | "shutdownDate">): Record<string, string> {
  return {
    ...(deprecatedSince !== null && { deprecation: `@${deprecatedSince}` }),
    ...(shutdownDate !== null && { sunset: new Date(shutdownDate).toUTCString() }),
  };
}

/** Returns the head of an answer that an upstream has begun. */
export function headOf(
  gateway: Pick<Gateway, "clock">,
  { facts, available, tightest, maxTokens, isShortened, requestLimit, tokenLimit }: Admission,
  { model, route, ignored }: { model: CatalogModel; route: Route; ignored: readonly string[] },
): AnswerHead {
  const headers = rateLimitHeaders([requestLimit, tokenLimit]);
  headers["x-credits-available"] = formatCredits(available);
  Object.assign(headers, budgetHeaders(tightest));
  // A header takes ASCII alone; names of local models may be anything.
  headers["x-tollgate-route"] = encodeURI(upstreamOf(route).toWellFormed());
  if (ignored.length > 0) headers["x-tollgate-ignored"] = ignored.join(", ");
  if (isShortened) headers["x-tollgate-max-tokens"] = String(maxTokens);
  Object.assign(headers, deprecationHeaders(model));
  return {
    id: facts.holdId.replaceAll("-", ""),
    created: Math.floor(gateway.clock() / 1000),
    model: model.id,
    organizationId: facts.organizationId,
    headers,
  };
}

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
    "x-tollgate-idempotent-replay": "true",
    ...deprecationHeaders(model),
  };
  return { id, created, model: model.id, organizationId: principal.organizationId, headers: replayHeaders };
}
