const LOCALE = "en";
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** Times and days are in UTC, like those of statements, exports and the API, wherever the reader is. */
const timeZone = "UTC";
const date = new Intl.DateTimeFormat(LOCALE, { year: "numeric", month: "short", day: "numeric", timeZone });
const dayOfYear = new Intl.DateTimeFormat(LOCALE, { month: "short", day: "numeric", timeZone });
const month = new Intl.DateTimeFormat(LOCALE, { year: "numeric", month: "long", timeZone });
const clock = new Intl.DateTimeFormat(LOCALE, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
  timeZone,
});
const relative = new Intl.RelativeTimeFormat(LOCALE, { numeric: "always", style: "short" });

/** Formats a time to the second: `Nov 21, 2026, 14:05:09 UTC`. */
export function formatMoment(at: string | number): string {
  return `${formatDate(at)}, ${formatClock(at)}`;
}

export function formatDate(at: string | number): string {
  return date.format(new Date(at));
}

export function formatClock(at: string | number): string {
  return `${clock.format(new Date(at))} UTC`;
}

/** Formats the hour that begins at a time: `Nov 21, 14:00 UTC`. */
export function formatHour(at: string | number): string {
  return `${dayOfYear.format(new Date(at))}, ${clock.format(new Date(at)).slice(0, 2)}:00 UTC`;
}

/** Formats a day, such as `2026-11-21`, as `Nov 21`. */
export function formatDay(day: string): string {
  return dayOfYear.format(new Date(`${day.slice(0, 10)}T00:00:00Z`));
}

/** Returns the day of a time, such as `2026-11-21`. */
export function dayOf(at: string | number): string {
  return new Date(at).toISOString().slice(0, 10);
}

/** First and last day of a period, both included. */
export interface Days {
  from: string;
  to: string;
}

/** Returns the last `count` days, up to and including today. */
export function lastDays(count: number, nowMs: number): Days {
  return { from: dayOf(nowMs - (count - 1) * DAY_MS), to: dayOf(nowMs) };
}

/** Returns the months before the present one, such as `2026-10`, latest first. */
export function pastMonths(count: number, nowMs: number): string[] {
  const [year = 0, present = 0] = dayOf(nowMs).split("-").map(Number);
  return Array.from({ length: count }, (_, index) => dayOf(Date.UTC(year, present - 2 - index)).slice(0, 7));
}

/** Formats a month, such as `2026-10`, as `October 2026`. */
export function formatMonth(text: string): string {
  return month.format(new Date(`${text}-01T00:00:00Z`));
}

/** Returns the days of a month, such as `2026-10`. */
export function daysOfMonth(text: string): Days {
  const [year = 0, number = 0] = text.split("-").map(Number);
  return { from: `${text}-01`, to: dayOf(Date.UTC(year, number, 0)) };
}

export function daysLabel(days: number): string {
  return days === 1 ? "1 day" : `${days} days`;
}

/** Formats a time relative to now: `3 min. ago`, `in 2 days`. */
export function formatDistance(at: string | number, nowMs: number): string {
  const distanceMs = new Date(at).getTime() - nowMs;
  const size = Math.abs(distanceMs);
  if (size < 10_000) return "just now";
  if (size < MINUTE_MS) return relative.format(Math.trunc(distanceMs / 1000), "second");
  if (size < HOUR_MS) return relative.format(Math.trunc(distanceMs / MINUTE_MS), "minute");
  if (size < DAY_MS) return relative.format(Math.trunc(distanceMs / HOUR_MS), "hour");
  if (size < 60 * DAY_MS) return relative.format(Math.trunc(distanceMs / DAY_MS), "day");
  return formatDate(at);
}
