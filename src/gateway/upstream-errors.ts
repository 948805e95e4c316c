import { ApiError, type UpstreamError, type UpstreamFailure } from "../errors.ts";

const RETRY_AFTER_SECONDS_MAX = 60;

/** What a caller is told of each way in which an upstream can fail. An operator's bad key or model name is never the caller's fault. */
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

/** An upstream's failure as the catalog's error, with nothing of the upstream's private text. */
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
