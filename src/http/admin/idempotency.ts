import type { AdminKeyOutcome } from "../../admin/idempotency-keys.ts";
import { ApiError } from "../../errors.ts";
import { fingerprintOf, IDEMPOTENCY_HEADER, idempotencyKeyOf } from "../idempotency.ts";
import type { AdminCall, AdminEndpoint, AdminServices } from "./endpoint.ts";

/**
 * Runs an operation. A POST with an Idempotency-Key runs once: repetitions get the first response again, without a secret
 * that it contained. Throws idempotency_mismatch, idempotency_in_progress or idempotency_interrupted.
 */
export async function handleOnce(services: AdminServices, endpoint: AdminEndpoint, call: AdminCall): Promise<unknown> {
  const key = endpoint.method === "POST" ? idempotencyKeyOf(call.request) : null;
  if (key === null) return endpoint.handle(services, call);
  const { keys } = services;
  const name = { scope: scopeOf(endpoint, call), key };
  const claim = await keys.claim(name, fingerprintOfCall(endpoint, call));
  if (claim.outcome === "replayed") {
    call.reply.code(claim.status).header("x-tollgate-idempotent-replay", "true");
    return claim.answer;
  }
  if (claim.outcome !== "claimed") throw refusalOf(claim.outcome);
  try {
    const answer = await endpoint.handle(services, call);
    await keys.answer(name, call.reply.statusCode, withoutSecret(endpoint, answer));
    return answer;
  } catch (error) {
    // A refusal changed nothing. Any other failure may have come after the change.
    const isRefusal = error instanceof ApiError && error.status < 500;
    await (isRefusal ? keys.free(name) : keys.interrupt(name));
    throw error;
  }
}

/** Returns the scope of a key: all operators share one, and so do the members of an organization. */
function scopeOf({ isRepeatable = true }: AdminEndpoint, { who }: AdminCall): string {
  if (!isRepeatable) refuseHeader("this operation takes none; send the request without it.");
  if (who === null) refuseHeader("sign in first; keys belong to the operator or to an organization.");
  return who.role === "operator" ? "operator" : who.token.organizationId;
}

function refuseHeader(reason: string): never {
  const message = `Invalid header '${IDEMPOTENCY_HEADER}': ${reason}`;
  throw new ApiError("invalid_value", message, { param: IDEMPOTENCY_HEADER });
}

function fingerprintOfCall({ operationId }: AdminEndpoint, { params, query, body = {} }: AdminCall): string {
  return fingerprintOf({ operationId, params, query, body });
}

/** Returns the parts of a response that may be stored. */
function withoutSecret({ secret }: AdminEndpoint, answer: unknown): unknown {
  if (secret === undefined) return answer;
  const shown = answer as Record<string, unknown>;
  return { ...shown, [secret.field]: null, hint: secret.hint(shown) };
}

function refusalOf(outcome: Exclude<AdminKeyOutcome["outcome"], "claimed" | "replayed">): ApiError {
  if (outcome === "in_progress") {
    return new ApiError("idempotency_in_progress", undefined, { headers: { "retry-after": "1" } });
  }
  const headers = { "x-should-retry": "false" };
  if (outcome === "mismatch") {
    const message = "This Idempotency-Key was used for another request. Use a new key.";
    return new ApiError("idempotency_mismatch", message, { headers });
  }
  const message =
    "The first request with this Idempotency-Key did not complete, so it is not known whether it changed anything. Check that, then use a new key.";
  return new ApiError("idempotency_interrupted", message, { headers });
}
