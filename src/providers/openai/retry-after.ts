import type { IncomingHttpHeaders } from "node:http";

const SECONDS_MAX = 86_400;

/**
 * Seconds of a Retry-After header, from 0 to a day: a number of seconds, or a date (RFC 9110, section 10.2.3), which is
 * read against the answer's own Date, since the two clocks need not agree. Undefined where it is absent, or is neither.
 */
export function retryAfterSeconds(headers: IncomingHttpHeaders): number | undefined {
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
