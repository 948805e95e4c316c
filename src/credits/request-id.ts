/** Ids of requests are UUIDv7: their first 48 bits are milliseconds since 1970 (RFC 9562, section 5.7). */
const ID_TIME = /^([0-9a-f]{8})-([0-9a-f]{4})(?:-|$)/;

/** A request that is booked later than this after the time in its id is marked as late. */
export const LATE_AFTER_MS = 86_400_000;

/** Returns the beginning of every UUIDv7 of a millisecond: none of them is smaller. */
export function idAt(timeMs: number): string {
  const digits = Math.max(0, timeMs).toString(16).padStart(12, "0");
  return `${digits.slice(0, 8)}-${digits.slice(8)}`;
}

/** Returns the millisecond of a UUIDv7, or of the beginning of one; undefined for any other text. */
export function timeOfId(id: string): number | undefined {
  const [, high, low] = ID_TIME.exec(id) ?? [];
  return high === undefined || low === undefined ? undefined : Number.parseInt(high + low, 16);
}

/** A UUID, or its 32 digits behind the prefix of a wire's ids or of an `x-request-id`. */
const PREFIXED_ID =
  /^(?:chatcmpl-|cmpl-|resp_|msg_|req_)?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})$/;

/**
 * Returns the UUID in the id of an answer (`chatcmpl-…`, `cmpl-…`, `resp_…`, `msg_…`) or in an `x-request-id`; undefined for any
 * other text.
 */
export function uuidIn(id: string): string | undefined {
  const [, ...parts] = PREFIXED_ID.exec(id) ?? [];
  return parts.length === 0 ? undefined : parts.join("-");
}

/** True for an `x-request-id`: it has a UUIDv7 of its own, made when the request arrived. */
export function isAccessId(id: string): boolean {
  return id.startsWith("req_");
}

/** Returns true if a request is booked more than a day away from the time in its id; also true for an id without a time. */
export function isBookedLate(id: string, bookedAtMs: number): boolean {
  const timeMs = timeOfId(id);
  return timeMs === undefined || Math.abs(bookedAtMs - timeMs) > LATE_AFTER_MS;
}

/** Returns true if a request began before a time, by its id; false if the time is null. */
export function beganBefore(id: string, timeMs: number | null): timeMs is number {
  return timeMs !== null && id < idAt(timeMs);
}
