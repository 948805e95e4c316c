import { UpstreamError, type UpstreamFailure } from "../provider.ts";

const TIMEOUTS = new Set(["UND_ERR_CONNECT_TIMEOUT", "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT", "ETIMEDOUT"]);
/** The parser's word for a connection that ended inside an answer: a reset like any other. */
const CUT_OFF = "HPE_INVALID_EOF_STATE";

/**
 * A failure of the connection in the service's terms: a timeout; `malformed` where what came is not HTTP; otherwise
 * `unavailable` before the answer's headers and `failed` after them.
 */
export function connectionFailure(error: unknown, hasHeaders: boolean): UpstreamError {
  if (error instanceof UpstreamError) return error;
  const code = codeOf(error);
  const message = error instanceof Error ? error.message : String(error);
  return new UpstreamError(kindOf(code, hasHeaders), `The connection to the upstream failed: ${message}`, {
    cause: error,
  });
}

function kindOf(code: string, hasHeaders: boolean): UpstreamFailure {
  if (TIMEOUTS.has(code)) return "timeout";
  if (code === "UND_ERR_HEADERS_OVERFLOW") return "malformed";
  if (code.startsWith("HPE_") && code !== CUT_OFF) return "malformed";
  return hasHeaders ? "failed" : "unavailable";
}

function codeOf(error: unknown): string {
  if (typeof error !== "object" || error === null || !("code" in error)) return "";
  return typeof error.code === "string" ? error.code : "";
}
