import {
  ApiError,
  type ErrorCode,
  StoppedError,
  StoreUnavailableError,
  UpstreamError,
  type UpstreamFailure,
} from "../errors.ts";
import { retryHeaders } from "./limits.ts";

interface Consequence {
  /** Public code. A bad key or model name of the operator is never the caller's fault. */
  code: ErrorCode;
  /**
   * Next destination of the request while the client has received nothing: another route; the same route again if there
   * is no other; only a route with a larger context window; or none, because every upstream would or should refuse it.
   */
  next: "elsewhere" | "elsewhere or again" | "larger" | "nowhere";
  /**
   * Meaning for the circuit of the upstream: it works, and the request was wrong; it failed; it asks for a pause, or failed
   * if it states no time; or nothing, because it was not called.
   */
  circuit: "works" | "failed" | "paused" | "unchanged";
}

/** Consequences of each way in which an upstream can fail. docs/providers.md has them as a table. */
export const CONSEQUENCES: Readonly<Record<UpstreamFailure, Consequence>> = {
  rejected: { code: "upstream_rejected", next: "nowhere", circuit: "works" },
  unsupported: { code: "unsupported_value", next: "elsewhere", circuit: "unchanged" },
  content_filter: { code: "content_filter", next: "nowhere", circuit: "works" },
  context_length: { code: "context_length_exceeded", next: "larger", circuit: "works" },
  credentials: { code: "upstream_error", next: "elsewhere", circuit: "failed" },
  misconfigured: { code: "upstream_error", next: "elsewhere", circuit: "failed" },
  rate_limited: { code: "overloaded", next: "elsewhere", circuit: "paused" },
  overloaded: { code: "overloaded", next: "elsewhere", circuit: "failed" },
  // An upstream may close an idle connection at the moment of its use: the next connection works.
  unavailable: { code: "upstream_unavailable", next: "elsewhere or again", circuit: "failed" },
  timeout: { code: "upstream_timeout", next: "elsewhere", circuit: "failed" },
  malformed: { code: "upstream_error", next: "elsewhere", circuit: "failed" },
  failed: { code: "upstream_error", next: "elsewhere", circuit: "failed" },
};

/** Returns the public error for a failure of the service or an upstream. */
export function publicError(failure: unknown): ApiError {
  if (failure instanceof ApiError) return failure;
  if (failure instanceof UpstreamError) return toApiError(failure);
  if (failure instanceof StoreUnavailableError) return new ApiError("store_unavailable", undefined, { cause: failure });
  if (failure instanceof StoppedError) {
    const headers = { "retry-after": "1" };
    return new ApiError("overloaded", "The service is stopping. Send the request again.", { cause: failure, headers });
  }
  return new ApiError("internal_error", undefined, { cause: failure });
}

/** Returns an upstream's failure as an error of the catalog, without the upstream's private text. */
export function toApiError(error: UpstreamError): ApiError {
  const { failure, publicReason: reason } = error;
  const isOwn = failure === "unsupported" || failure === "malformed";
  const message = reason === undefined || isOwn ? reason : `The model's provider said: ${reason}`;
  const headers = error.retryAfterSeconds === undefined ? {} : retryHeaders(error.retryAfterSeconds);
  const param = error.param === undefined ? {} : { param: error.param };
  return new ApiError(CONSEQUENCES[failure].code, message, { ...param, cause: error, headers });
}
