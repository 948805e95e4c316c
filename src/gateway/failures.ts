import { ApiError, StoppedError, StoreUnavailableError, UpstreamError, type UpstreamFailure } from "../errors.ts";

const RETRY_AFTER_SECONDS_MAX = 60;

/** Public code of each way in which an upstream can fail. A bad key or model name of the operator is never the caller's fault. */
const CODES = {
  rejected: "upstream_rejected",
  unsupported: "unsupported_value",
  context_length: "context_length_exceeded",
  content_filter: "content_filter",
  credentials: "upstream_error",
  misconfigured: "upstream_error",
  overloaded: "overloaded",
  unavailable: "upstream_unavailable",
  timeout: "upstream_timeout",
  malformed: "upstream_error",
  failed: "upstream_error",
} as const satisfies Record<UpstreamFailure, string>;

interface Consequence {
  /**
   * Next destination of the request while the client has received nothing: another route; the same route again if there
   * is no other; only a route with a larger context window; or none, because every upstream would or should refuse it.
   */
  next: "elsewhere" | "elsewhere or again" | "larger" | "nowhere";
  /** True where the upstream is at fault, rather than the request. */
  isUpstreams: boolean;
}

/** Consequences of each way in which an upstream can fail. */
export const CONSEQUENCES: Readonly<Record<UpstreamFailure, Consequence>> = {
  rejected: { next: "nowhere", isUpstreams: false },
  unsupported: { next: "elsewhere", isUpstreams: false },
  content_filter: { next: "nowhere", isUpstreams: false },
  context_length: { next: "larger", isUpstreams: false },
  credentials: { next: "elsewhere", isUpstreams: true },
  misconfigured: { next: "elsewhere", isUpstreams: true },
  overloaded: { next: "elsewhere", isUpstreams: true },
  // An upstream may close an idle connection at the moment of its use: the next connection works.
  unavailable: { next: "elsewhere or again", isUpstreams: true },
  timeout: { next: "elsewhere", isUpstreams: true },
  malformed: { next: "elsewhere", isUpstreams: true },
  failed: { next: "elsewhere", isUpstreams: true },
};

/** Returns the public error for a failure of the service or an upstream. */
export function publicError(failure: unknown): ApiError {
  if (failure instanceof ApiError) return failure;
  if (failure instanceof UpstreamError) return toApiError(failure);
  if (failure instanceof StoreUnavailableError) return new ApiError("store_unavailable", undefined, { cause: failure });
  if (failure instanceof StoppedError) {
    return new ApiError("overloaded", "The service is stopping. Send the request again.", { cause: failure });
  }
  return new ApiError("internal_error", undefined, { cause: failure });
}

/** Returns an upstream's failure as an error of the catalog, without the upstream's private text. */
export function toApiError(error: UpstreamError): ApiError {
  const { failure, publicReason: reason } = error;
  const message = reason === undefined || failure === "unsupported" ? reason : `The model's provider said: ${reason}`;
  const headers: Record<string, string> = {};
  if (error.retryAfterSeconds !== undefined) {
    headers["retry-after"] = String(Math.min(error.retryAfterSeconds, RETRY_AFTER_SECONDS_MAX));
    if (error.retryAfterSeconds > RETRY_AFTER_SECONDS_MAX) headers["x-should-retry"] = "false";
  }
  const param = error.param === undefined ? {} : { param: error.param };
  return new ApiError(CODES[failure], message, { ...param, cause: error, headers });
}
