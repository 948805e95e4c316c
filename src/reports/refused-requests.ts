import type { RequestDetail, RequestSummary } from "../api/admin/request.ts";
import { isoTime } from "../api/time.ts";
import { timeOfId } from "../credits/request-id.ts";
import { invalidCursor } from "../errors.ts";
import type { RefusalEntry } from "../stores/store.ts";

/** Milliseconds since 1970 of a UUIDv7, or of the beginning of one. Throws ApiError (invalid_value) for other text. */
export function timeOfUuidV7(id: string): number {
  const timeMs = timeOfId(id);
  if (timeMs === undefined) throw invalidCursor();
  return timeMs;
}

/** A refused request as the list shows it: nothing was held, used or charged. */
export function refusalSummary(refusal: RefusalEntry): RequestSummary {
  const endedAtMs = timeOfUuidV7(refusal.id);
  const { status, message, endpoint, count } = refusal;
  return {
    object: "request",
    id: refusal.id,
    request_id: refusal.requestId,
    organization_id: refusal.organizationId,
    organization_name: refusal.organizationName,
    token_id: refusal.tokenId,
    token_name: refusal.tokenName,
    model: refusal.model,
    route: null,
    status: "refused",
    failure: refusal.code,
    refusal: { status, message, endpoint, count },
    is_streamed: null,
    tokens: { input: 0, cached_input: 0, cache_write: 0, output: 0, reasoning: 0 },
    held: 0,
    charged: 0,
    created_at: isoTime(endedAtMs - refusal.durationMs),
    ended_at: isoTime(endedAtMs),
    first_token_ms: null,
    duration_ms: refusal.durationMs,
  };
}

/** A refused request explained. */
export function refusalDetail(refusal: RefusalEntry): RequestDetail {
  return {
    ...refusalSummary(refusal),
    prices: null,
    basis: null,
    ending: null,
    shortfall: 0,
    credited: 0,
    attempts: [],
    provider_response_id: null,
    provider_cost: null,
    events: [],
    draws: [],
    metadata: null,
    keeps_conversations: false,
    has_conversation: false,
    is_idempotent: false,
  };
}
