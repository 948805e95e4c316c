import type { IncomingHttpHeaders } from "node:http";
import { isObject, type JsonObject, textOf } from "./json.ts";

/** An upstream's error, read from any of the usual shapes. */
export interface Complaint {
  message: string;
  /** All codes, types and reasons of the error in lower case, joined by spaces. */
  words: string;
  /** The status in the body, which gateways in front of upstreams write there. */
  status: number | undefined;
  /** Seconds to wait before the next attempt, if the body or a header states them. */
  retryAfterSeconds: number | undefined;
}

/** Reads the body of an error answer, and what its headers add. */
export function readComplaint(text: string, headers: IncomingHttpHeaders): Complaint {
  const complaint = toComplaint(parsed(text));
  // Amazon names the exception in a header: `ThrottlingException:http://…`.
  const [exception] = String(headers["x-amzn-errortype"] ?? "").split(":", 1);
  return {
    ...complaint,
    words: `${complaint.words} ${exception}`.trim().toLowerCase(),
    retryAfterSeconds: retryAfterSeconds(headers) ?? complaint.retryAfterSeconds,
  };
}

/**
 * Reads an error object, of which each provider has its own: OpenAI and those like it `{error: {message, code, type}}`,
 * Anthropic `{error: {type, message}}`, Google `{error: {status, details}}` or a list of that, Amazon and Cohere
 * `{message}`, xAI `{code, error}`, Mistral `{message}` or `{detail: [{msg}]}`.
 */
export function toComplaint(answer: unknown): Complaint {
  const body = Array.isArray(answer) ? answer[0] : answer;
  if (!isObject(body)) return { message: "", words: "", status: undefined, retryAfterSeconds: undefined };
  const error = isObject(body.error) ? body.error : body;
  const message =
    textOf(error.message) ?? textOf(body.error) ?? textOf(body.message) ?? textOf(body.Message) ?? detailOf(body);
  const inner = isObject(error.innererror) ? textOf(error.innererror.code) : undefined;
  const details = Array.isArray(error.details) ? error.details.filter(isObject) : [];
  const reasons = details.map(({ reason }) => textOf(reason));
  const codes = [error.code, error.type, error.status, error.__type].map(textOf);
  const words = [...codes, inner, ...reasons].filter((word) => word !== undefined);
  return {
    message,
    words: [...new Set(words)].join(" ").toLowerCase(),
    status: statusIn(error.code) ?? statusIn(error.status),
    retryAfterSeconds: delayOf(details),
  };
}

/** FastAPI's shape, which Mistral and many servers of one's own have. */
function detailOf({ detail }: JsonObject): string {
  if (!Array.isArray(detail)) return textOf(detail) ?? "";
  return detail.map((one) => (isObject(one) ? (textOf(one.msg) ?? "") : "")).join("; ");
}

/** Google's RetryInfo: `{retryDelay: "37s"}` (google.rpc.RetryInfo). */
function delayOf(details: readonly JsonObject[]): number | undefined {
  const delay = details.map(({ retryDelay }) => textOf(retryDelay)).find((text) => text !== undefined);
  const seconds = /^(\d{1,6}(?:\.\d+)?)s$/.exec(delay ?? "")?.[1];
  return seconds === undefined ? undefined : Math.ceil(Number(seconds));
}

function statusIn(value: unknown): number | undefined {
  const number = typeof value === "string" && /^\d{3}$/.test(value) ? Number(value) : value;
  return typeof number === "number" && number >= 400 && number <= 599 ? number : undefined;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const SECONDS_MAX = 86_400;

/**
 * Seconds of a Retry-After header, from 0 to a day: a number of seconds, or a date (RFC 9110, section 10.2.3), which is
 * read against the answer's own Date, since the two clocks need not agree. Undefined where it is absent, or is neither.
 */
function retryAfterSeconds(headers: IncomingHttpHeaders): number | undefined {
  const value = headers["retry-after"]?.trim();
  if (value === undefined || value === "") return undefined;
  const seconds = /^\d+(\.\d+)?$/.test(value) ? Number(value) : secondsUntil(value, headers.date);
  return Number.isFinite(seconds) ? Math.min(Math.max(Math.ceil(seconds), 0), SECONDS_MAX) : undefined;
}

function secondsUntil(date: string, answered: string | undefined): number {
  // The parser of dates takes much that is none, such as "-5".
  if (!date.endsWith(" GMT")) return Number.NaN;
  return (Date.parse(date) - Date.parse(answered ?? "")) / 1000;
}
