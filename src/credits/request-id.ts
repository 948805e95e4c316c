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

/** Returns true if a request is booked more than a day away from the time in its id; also true for an id without a time. */
export function isBookedLate(id: string, bookedAtMs: number): boolean {
  const timeMs = timeOfId(id);
  return timeMs === undefined || Math.abs(bookedAtMs - timeMs) > LATE_AFTER_MS;
}

/** Returns true if a request began before a time, by its id; false if the time is null. */
export function beganBefore(id: string, timeMs: number | null): timeMs is number {
  return timeMs !== null && id < idAt(timeMs);
}
