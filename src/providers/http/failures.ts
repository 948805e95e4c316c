import { errors } from "undici";
import { UpstreamError, type UpstreamFailure } from "../provider.ts";

const TIMEOUTS = new Set(["UND_ERR_CONNECT_TIMEOUT", "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT", "ETIMEDOUT"]);

/**
 * A failure of the connection in the service's terms: a timeout; `malformed` where what came is not HTTP; otherwise
 * `unavailable` before the answer's headers and `failed` after them.
 */
export function connectionFailure(error: unknown, hasHeaders: boolean): UpstreamError {
  if (error instanceof UpstreamError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new UpstreamError(kindOf(error, hasHeaders), `The connection to the upstream failed: ${message}`, {
    cause: error,
  });
}

function kindOf(error: unknown, hasHeaders: boolean): UpstreamFailure {
  if (TIMEOUTS.has(codeOf(error))) return "timeout";
  if (error instanceof errors.HeadersOverflowError || isNotHttp(error)) return "malformed";
  return hasHeaders ? "failed" : "unavailable";
}

/** The parser complains too where a connection ended inside an answer; that is a reset like any other. */
function isNotHttp(error: unknown): boolean {
  return error instanceof errors.HTTPParserError && !/\bEOF\b/i.test(error.message);
}

function codeOf(error: unknown): string {
  if (typeof error !== "object" || error === null || !("code" in error)) return "";
  return typeof error.code === "string" ? error.code : "";
}
