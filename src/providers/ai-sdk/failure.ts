import { complaintFailure, readComplaint, type Scrub, toComplaint } from "../openai/errors.ts";
import { isObject } from "../openai/json.ts";
import { UpstreamError } from "../provider.ts";

/** Number of nested `cause` errors that are searched, because packages wrap the errors of their fetch function. */
const CAUSES_MAX = 8;

/**
 * Converts an error that a package threw, or sent within a stream, to an UpstreamError; returns the signal's reason if it
 * was aborted. `failure` is the failure of the connection, if there was one, and takes precedence over the package's error.
 * The package's own messages are dropped, because they quote the answer.
 */
export function toUpstreamError(error: unknown, failure: unknown, signal: AbortSignal, scrub: Scrub): unknown {
  if (signal.aborted) return signal.reason;
  const known = failure ?? upstreamErrorIn(error);
  if (known !== undefined) return known;
  if (!(error instanceof Error)) return complaintFailure(complaintOf(error), scrub);
  if (UNTELLABLE.has(error.name)) {
    const publicReason = scrub(error.message);
    return new UpstreamError("unsupported", "The request cannot be told on this wire", { publicReason });
  }
  const told = toldAtOnce(error);
  if (told !== undefined) return complaintFailure(readComplaint(told, {}), scrub);
  return new UpstreamError("malformed", `The upstream's answer cannot be read (${error.name})`);
}

/** Errors of the packages for a request that they cannot put into words. */
const UNTELLABLE = new Set(["AI_UnsupportedFunctionalityError", "AI_InvalidPromptError", "AI_InvalidArgumentError"]);

/** Returns the error that an upstream sent in the first event of a stream; some packages report it as an error answer with a status. */
function toldAtOnce(error: Error): string | undefined {
  if (error.name !== "AI_APICallError" || !("statusCode" in error) || !("responseBody" in error)) return undefined;
  const { statusCode, responseBody } = error;
  const isError = typeof statusCode === "number" && statusCode >= 400;
  return isError && typeof responseBody === "string" ? responseBody : undefined;
}

/** The service's own error among the causes of another. */
function upstreamErrorIn(error: unknown): UpstreamError | undefined {
  let current = error;
  for (let depth = 0; depth < CAUSES_MAX && current instanceof Error; depth += 1) {
    if (current instanceof UpstreamError) return current;
    current = current.cause;
  }
  return undefined;
}

/** The packages tell an error in the middle of a stream as `{message, type, code, statusCode, data}`. */
function complaintOf(error: unknown) {
  if (!isObject(error)) return toComplaint({ message: typeof error === "string" ? error : "" });
  const { message, type, code, statusCode } = error;
  return toComplaint({ error: { message, type, code: code ?? statusCode, status: statusCode } });
}
