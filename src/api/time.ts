export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
const TIME = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2}))?$/;

/** Parses a day (its 00:00 UTC) or a time of ISO 8601 to milliseconds since 1970; undefined for other text. */
export function parseTime(text: string): number | undefined {
  if (!TIME.test(text)) return undefined;
  const timeMs = Date.parse(text);
  // Date.parse reads February 30 as March 1.
  const day = Date.parse(text.slice(0, 10));
  const isDay = !Number.isNaN(day) && new Date(day).toISOString().startsWith(text.slice(0, 10));
  return isDay && !Number.isNaN(timeMs) ? timeMs : undefined;
}

/** Formats milliseconds since 1970 as an ISO 8601 time in UTC; null stays null. */
export function isoTime(timeMs: number): string;
export function isoTime(timeMs: number | null): string | null;
export function isoTime(timeMs: number | null): string | null {
  return timeMs === null ? null : new Date(timeMs).toISOString();
}

/** Returns the first millisecond of the day of a time, in UTC. */
export function dayStart(timeMs: number): number {
  return Math.floor(timeMs / DAY_MS) * DAY_MS;
}

/** Formats the day of a time, in UTC: `2026-05-31`. */
export function isoDay(timeMs: number): string {
  return isoTime(timeMs).slice(0, "YYYY-MM-DD".length);
}

/** Returns the start, in UTC, of the month of a time, or of the month that begins so many months later. */
export function monthStart(timeMs: number, monthsLater = 0): number {
  const time = new Date(timeMs);
  return Date.UTC(time.getUTCFullYear(), time.getUTCMonth() + monthsLater, 1);
}

/** Formats the month of a time, in UTC: `2026-05`. */
export function isoMonth(timeMs: number): string {
  return isoTime(timeMs).slice(0, "YYYY-MM".length);
}
