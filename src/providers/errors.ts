import type { IncomingHttpHeaders } from "node:http";
import { detailsOf, isObject, type JsonObject, objectsIn, parseJson, textOf } from "../api/json.ts";
import { UpstreamError, type UpstreamFailure } from "./provider.ts";
import type { Scrub } from "./scrub.ts";

/** Returns the failure of an answer whose status is not 200, by the status and by known codes and wordings. */
export function statusFailure(status: number, headers: IncomingHttpHeaders, text: string, scrub: Scrub): UpstreamError {
  return toError(status, `The upstream answered ${status}`, readComplaint(text, headers), scrub);
}

/** Returns the failure that an answer with status 200 contains as an error object; undefined if there is none. */
export function failureInside(answer: JsonObject, scrub: Scrub): UpstreamError | undefined {
  const isError = answer.error !== undefined && answer.error !== null;
  if (!isError && answer.object !== "error") return undefined;
  return complaintFailure(toComplaint(answer), scrub);
}

/** Returns an answer that has been parsed, if it is an object. Throws UpstreamError if it is not, or contains an error. */
export function answerObject(value: unknown, scrub: Scrub): JsonObject {
  if (value === undefined) throw new UpstreamError("malformed", "The upstream sent something that is not JSON");
  if (!isObject(value)) throw new UpstreamError("malformed", "The upstream sent JSON that is not an object");
  const failure = failureInside(value, scrub);
  if (failure !== undefined) throw failure;
  return value;
}

/** Returns the failure for an error object that has been read from an answer. */
export function complaintFailure(complaint: Complaint, scrub: Scrub): UpstreamError {
  const status = complaint.status ?? statusOfWords(complaint.words);
  return toError(status, "The upstream answered with an error", complaint, scrub);
}

function toError(status: number, what: string, complaint: Complaint, scrub: Scrub): UpstreamError {
  const { message, words } = complaint;
  const failure = failureOf(status, complaint);
  const isBusy = failure === "rate_limited" || failure === "overloaded";
  const retryAfterSeconds = isBusy ? complaint.retryAfterSeconds : undefined;
  const said = (scrub.reason ?? scrub(message)) || undefined;
  const isCallers = failure === "rejected" || failure === "context_length" || failure === "content_filter";
  // The message goes to the log, so it contains no text of the upstream except a code.
  const publicReason = isCallers ? said : undefined;
  const text = CODE.test(words) ? `${what} (${scrub(words)})` : what;
  return new UpstreamError(failure, text, { said, retryAfterSeconds, publicReason });
}

const CODE = /^[a-z][a-z_]{0,60}( [a-z][a-z_]{0,60}){0,3}$/;
const REJECTING = new Set([400, 413, 422]);
/** The usual codes and wordings for a model that an upstream does not have; their status varies. */
const UNKNOWN_MODEL_WORDS = /model_not_found|invalid_model|model_not_available|model_decommissioned|deploymentnotfound/;
const UNKNOWN_MODEL =
  /^the provided model identifier is invalid|^(the )?model\b.{0,120}\b(does not exist|not exist|not found|not available|been (deprecated|decommissioned|removed|retired))\b/;
/** Words for a fault of the operator's key or account, which some upstreams send with the status of a bad request. */
const ACCOUNT = new RegExp(
  [
    "insufficient_quota",
    "billing_",
    "insufficient_balance",
    "exceeded_current_quota_error",
    "account_deactivated",
    "api_key_invalid",
    "expiredtoken",
    "unrecognizedclient",
    "api key (not valid|expired)",
    "(incorrect|invalid) api key",
    "credit balance is too low",
    "organization has been disabled",
    "user location is not supported",
  ].join("|"),
);
const CONTENT_FILTER =
  /content_filter|content_policy|content filtering policy|responsibleaipolicy|data_inspection_failed|content exists risk/;
const FLAGGED = /your input was flagged|content violates usage guidelines/;
/** The usual wordings for a prompt that is too long: OpenAI, vLLM, llama.cpp, Ollama, Mistral, Gemini, Anthropic, Cohere. */
const CONTEXT_LENGTH = new RegExp(
  [
    "context_length",
    "exceed_context_size",
    "(maximum|max|model's|available) (context|prompt) (length|size|window)",
    "exceeds? (the )?(model's )?(available )?context",
    "context (length|size|window) (of|is|exceeded)",
    "prompt is too long",
    "input (length|is) (exceeds|too long)",
    "input token count .{0,40}exceeds",
    "too many tokens: (total number of tokens in the prompt|size limit exceeded)",
    "too large for model with \\d+ maximum context",
    "reduce the length of the (messages|prompt|input)",
  ].join("|"),
);

function failureOf(status: number, { message, words }: Complaint): UpstreamFailure {
  const said = message.toLowerCase();
  // OpenRouter and xAI refuse flagged content with 403, the status of a key without permission.
  if (status === 403 && FLAGGED.test(said)) return "content_filter";
  if (status === 401 || status === 402 || status === 403) return "credentials";
  if (ACCOUNT.test(words) || (REJECTING.has(status) && ACCOUNT.test(said))) return "credentials";
  if (status === 429) return "rate_limited";
  if (status === 503 || status === 529) return "overloaded";
  if (status === 408 || status === 504) return "timeout";
  if (status >= 200 && status < 400) return "malformed";
  if (status === 404 || status === 410 || UNKNOWN_MODEL_WORDS.test(words)) return "misconfigured";
  if (!REJECTING.has(status)) return "failed";
  if (UNKNOWN_MODEL.test(said)) return "misconfigured";
  if (CONTENT_FILTER.test(words) || CONTENT_FILTER.test(said)) return "content_filter";
  if (CONTEXT_LENGTH.test(words) || CONTEXT_LENGTH.test(said)) return "context_length";
  return "rejected";
}

/** Codes of OpenAI's Responses API for a prompt or an image that it refuses. */
const REFUSED_INPUT = /invalid_prompt|image_|_image/;

/** Returns the status that fits the code and type of an error object, as in OpenAI's error guide. */
function statusOfWords(words: string): number {
  if (REFUSED_INPUT.test(words)) return 400;
  if (/rate_limit|too_?many_?requests|resource_exhausted|throttling/.test(words)) return 429;
  if (/overloaded|unavailable/.test(words)) return 503;
  if (/authentication|permission|api_key|unauthori[sz]ed|forbidden|accessdenied/.test(words)) return 401;
  if (/timeout|timed_out/.test(words)) return 504;
  if (/invalid_request|bad_?request|context_length|content_filter|unprocessable|validation/.test(words)) return 400;
  if (/not_found/.test(words)) return 404;
  return 500;
}

/** An upstream's error, read from any of the usual shapes. */
interface Complaint {
  message: string;
  /** All codes, types and reasons of the error in lower case, joined by spaces. */
  words: string;
  /** The status in the body, which gateways in front of upstreams write there. */
  status: number | undefined;
  /** Seconds to wait before the next attempt, if the body or a header states them. */
  retryAfterSeconds: number | undefined;
}

/** Reads an error from the body and the headers of an answer. */
export function readComplaint(text: string, headers: IncomingHttpHeaders): Complaint {
  const complaint = toComplaint(parseJson(text));
  // Amazon names the exception in a header: `ThrottlingException:http://…`.
  const [exception] = String(headers["x-amzn-errortype"] ?? "").split(":", 1);
  return {
    ...complaint,
    words: `${complaint.words} ${exception}`.trim().toLowerCase(),
    retryAfterSeconds: retryAfterSeconds(headers) ?? complaint.retryAfterSeconds,
  };
}

/**
 * Reads an error object, whose shape depends on the provider: OpenAI and compatible APIs `{error: {message, code, type}}`,
 * Anthropic `{error: {type, message}}`, Google `{error: {status, details}}` or a list of these, Amazon and Cohere
 * `{message}`, xAI `{code, error}`, Mistral `{message}` or `{detail: [{msg}]}`.
 */
export function toComplaint(answer: unknown): Complaint {
  const body = detailsOf(Array.isArray(answer) ? answer[0] : answer);
  const error = isObject(body.error) ? body.error : body;
  const message =
    textOf(error.message) ?? textOf(body.error) ?? textOf(body.message) ?? textOf(body.Message) ?? detailOf(body);
  const details = objectsIn(error.details);
  const codes = [error.code, error.type, error.status, error.__type, detailsOf(error.innererror).code];
  const words = [...codes, ...details.map(({ reason }) => reason)].filter((word) => typeof word === "string");
  return {
    message,
    words: [...new Set(words)].join(" ").toLowerCase(),
    status: statusIn(error.code) ?? statusIn(error.status),
    retryAfterSeconds: delayOf(details),
  };
}

/** Reads FastAPI's shape, which Mistral and many self-hosted servers use. */
function detailOf({ detail }: JsonObject): string {
  if (!Array.isArray(detail)) return textOf(detail) ?? "";
  return detail.map((one) => textOf(detailsOf(one).msg) ?? "").join("; ");
}

/** Returns the seconds of Google's retry information, `{retryDelay: "37s"}` (google.rpc.RetryInfo). */
function delayOf(details: readonly JsonObject[]): number | undefined {
  const delay = details.map(({ retryDelay }) => textOf(retryDelay)).find((text) => text !== undefined);
  const seconds = /^(\d+(?:\.\d+)?)s$/.exec(delay ?? "")?.[1];
  return seconds === undefined ? undefined : wholeSeconds(Number(seconds));
}

function statusIn(value: unknown): number | undefined {
  const number = typeof value === "string" && /^\d{3}$/.test(value) ? Number(value) : value;
  return typeof number === "number" && number >= 400 && number <= 599 ? number : undefined;
}

const SECONDS_MAX = 86_400;

/** Returns the seconds of a Retry-After header (RFC 9110), from 0 to a day. A date counts from that of the answer. */
function retryAfterSeconds(headers: IncomingHttpHeaders): number | undefined {
  const value = headers["retry-after"]?.trim();
  if (value === undefined || value === "") return undefined;
  const seconds = /^\d+(\.\d+)?$/.test(value) ? Number(value) : secondsUntil(value, headers.date);
  return Number.isNaN(seconds) ? undefined : wholeSeconds(seconds);
}

function wholeSeconds(seconds: number): number {
  return Math.min(Math.max(Math.ceil(seconds), 0), SECONDS_MAX);
}

function secondsUntil(date: string, answered: string | undefined): number {
  // Date.parse accepts much that is not a date, such as "-5".
  if (!date.endsWith(" GMT")) return Number.NaN;
  return (Date.parse(date) - Date.parse(answered ?? "")) / 1000;
}
