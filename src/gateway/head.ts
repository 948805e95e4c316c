import type { FinishReason } from "../api/completion.ts";
import { type CatalogModel, type Route, upstreamOf } from "../catalog/model.ts";
import { formatCredits } from "../credits/amount.ts";
import type { Admission } from "./admit.ts";
import type { CompletionCall, Gateway } from "./gateway.ts";
import { rateLimitHeaders } from "./limits.ts";
import { usageOf } from "./meter.ts";
import type { Settlement } from "./settle.ts";
import type { AnswerEnd, AnswerHead } from "./sink.ts";

/** A model on its way out says so: Deprecation (RFC 9745) and Sunset (RFC 8594). */
export function farewellHeaders({
  deprecatedSince,
  shutdownDate,
}: Pick<CatalogModel, "deprecatedSince" | "shutdownDate">): Record<string, string> {
  return {
    ...(deprecatedSince !== null && { deprecation: `@${deprecatedSince}` }),
    ...(shutdownDate !== null && { sunset: new Date(shutdownDate).toUTCString() }),
  };
}

/** What goes out when an upstream has begun to answer. */
export function headOf(
  gateway: Gateway,
  call: CompletionCall,
  model: CatalogModel,
  route: Route,
  ignored: readonly string[],
  { facts, available, maxTokens, isShortened, tokenStanding }: Admission,
): AnswerHead {
  const headers: Record<string, string> = {
    ...rateLimitHeaders([call.requestStanding, tokenStanding]),
    "x-credits-available": formatCredits(available),
    // A header takes ASCII alone; names of local models may be anything.
    "x-tollgate-route": encodeURI(upstreamOf(route).toWellFormed()),
  };
  if (ignored.length > 0) headers["x-tollgate-ignored"] = ignored.join(", ");
  if (isShortened) headers["x-tollgate-max-tokens"] = String(maxTokens);
  Object.assign(headers, farewellHeaders(model));
  return {
    id: `chatcmpl-${facts.holdId.replaceAll("-", "")}`,
    created: Math.floor(gateway.clock() / 1000),
    model: model.id,
    organizationId: facts.organizationId,
    headers,
  };
}

/** What goes out before an answer that is given again: what was told of it then, and where things stand now. */
export function headOfReplay(
  call: CompletionCall,
  model: CatalogModel,
  { id, created, headers }: Pick<AnswerHead, "id" | "created" | "headers">,
  { available, tokenStanding }: Pick<Admission, "available" | "tokenStanding">,
): AnswerHead {
  const { organizationId } = call.principal;
  const told = {
    ...rateLimitHeaders([call.requestStanding, tokenStanding]),
    "x-credits-available": formatCredits(available),
    ...headers,
    "x-tollgate-idempotent-replay": "true",
    ...farewellHeaders(model),
  };
  return { id, created, model: model.id, organizationId, headers: told };
}

/** What goes out when the charge is committed. */
export function endOfAnswer(
  { tokens, charged, available }: Settlement,
  finishReason: FinishReason = "stop",
): AnswerEnd {
  const headers = { "x-credits-available": formatCredits(available), "x-credits-charged": formatCredits(charged) };
  return { finishReason, usage: usageOf(tokens, charged), headers };
}
