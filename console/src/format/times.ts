const LOCALE = "en";
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

const moment = new Intl.DateTimeFormat(LOCALE, {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const date = new Intl.DateTimeFormat(LOCALE, { year: "numeric", month: "short", day: "numeric" });
/** Days of the service are in UTC. */
const utcDay = new Intl.DateTimeFormat(LOCALE, { month: "short", day: "numeric", timeZone: "UTC" });
const clock = new Intl.DateTimeFormat(LOCALE, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const relative = new Intl.RelativeTimeFormat(LOCALE, { numeric: "always", style: "short" });

/** Formats a time to the second in the user's time zone. */
export function formatMoment(at: string | number): string {
  return moment.format(new Date(at));
}

export function formatDate(at: string | number): string {
  return date.format(new Date(at));
}

export function formatClock(at: string | number): string {
  return clock.format(new Date(at));
}

/** Formats a UTC day of the service, such as `2026-11-21`, as `Nov 21`. */
export function formatDay(day: string): string {
  return utcDay.format(new Date(`${day.slice(0, 10)}T00:00:00Z`));
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
