import { type Days, dayOf, daysOfMonth, formatHour, formatMonth, lastDays, pastMonths } from "../format/times.ts";

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const MINUTE_MS = 60_000;
const MONTHS_OFFERED = 12;
const THIS_MONTH = "month";
/** Choice of the first and the last day in two fields. */
const DATES = "dates";
const DAYS = /^(\d{4}-\d{2}-\d{2})\.\.(\d{4}-\d{2}-\d{2})$/;
const HOUR = /^\d{4}-\d{2}-\d{2}T\d{2}$/;
const LAST_HOURS = /^([1-9]\d{0,2})h$/;

/** Start and end of a period, as the API takes them; the end is exclusive. */
export interface Times {
  from: string;
  to?: string;
}

/**
 * Returns the days of a chosen period: a number of days, this month, a month such as `2026-10`, or the first and the last
 * day such as `2026-10-05..2026-10-09`; null for another text.
 */
export function daysOfPeriod(period: string, nowMs: number): Days | null {
  if (/^[1-9]\d{0,2}$/.test(period)) return lastDays(Number(period), nowMs);
  if (period === THIS_MONTH) return { from: `${dayOf(nowMs).slice(0, 7)}-01`, to: dayOf(nowMs) };
  if (pastMonths(MONTHS_OFFERED, nowMs).includes(period)) return daysOfMonth(period);
  const [, from = "", to = ""] = DAYS.exec(period) ?? [];
  return isDay(from) && isDay(to) && from <= to ? { from, to } : null;
}

function isDay(text: string): boolean {
  const timeMs = Date.parse(`${text}T00:00:00Z`);
  return !Number.isNaN(timeMs) && dayOf(timeMs) === text;
}

/** Returns the times of a chosen period: of its days, of an hour such as `2026-10-05T14`, or of the last hours (`24h`). */
export function timesOfPeriod(period: string, nowMs: number): Times | null {
  const hours = LAST_HOURS.exec(period)?.[1];
  // Rounded down to the minute, so that the query stays the same in between.
  if (hours !== undefined)
    return { from: isoTime(Math.floor((nowMs - Number(hours) * HOUR_MS) / MINUTE_MS) * MINUTE_MS) };
  const hourMs = HOUR.test(period) ? Date.parse(`${period}:00:00Z`) : Number.NaN;
  if (!Number.isNaN(hourMs)) return { from: isoTime(hourMs), to: isoTime(hourMs + HOUR_MS) };
  const days = daysOfPeriod(period, nowMs);
  return days && { from: isoTime(startOf(days.from)), to: isoTime(startOf(days.to) + DAY_MS) };
}

/** Returns the days before a period, as many as it has. */
export function daysBefore({ from, to }: Days): Days {
  const [fromMs, toMs] = [startOf(from), startOf(to)];
  return { from: dayOf(fromMs - (toMs - fromMs) - DAY_MS), to: dayOf(fromMs - DAY_MS) };
}

/** Returns the period of some days. */
export function periodOfDays({ from, to }: Days): string {
  return `${from}..${to}`;
}

const startOf = (day: string) => Date.parse(`${day}T00:00:00Z`);
const isoTime = (timeMs: number) => new Date(timeMs).toISOString();

interface PeriodChoiceProps {
  value: string;
  /** Periods before the months: numbers of days, and others that the page knows. */
  ranges: readonly (readonly [value: string, text: string])[];
  nowMs: number;
  onValue: (value: string) => void;
}

/** Select for a period that ends today, one of the past months, last month first, or days of choice. */
export function PeriodChoice({ value, ranges, nowMs, onValue }: PeriodChoiceProps) {
  const isDates = DAYS.test(value);
  const days = daysOfPeriod(value, nowMs) ?? lastDays(7, nowMs);
  return (
    <>
      <select
        className="filter"
        aria-label="Period (UTC)"
        value={isDates ? DATES : value}
        // The fields begin with the period that was shown.
        onChange={({ target }) => onValue(target.value === DATES ? periodOfDays(days) : target.value)}
      >
        {HOUR.test(value) && <option value={value}>{formatHour(`${value}:00:00Z`)}</option>}
        {ranges.map(([range, text]) => (
          <option key={range} value={range}>
            {text}
          </option>
        ))}
        <option value={THIS_MONTH}>This month</option>
        <option value={DATES}>Selected dates</option>
        <optgroup label="Months">
          {pastMonths(MONTHS_OFFERED, nowMs).map((month) => (
            <option key={month} value={month}>
              {formatMonth(month)}
            </option>
          ))}
        </optgroup>
      </select>
      {isDates && <DayFields days={days} onDays={(chosen) => onValue(periodOfDays(chosen))} />}
    </>
  );
}

/** Fields for the first and the last day. A day after the other one moves it along. */
function DayFields({ days, onDays }: { days: Days; onDays: (days: Days) => void }) {
  const set = (changes: Partial<Days>) => {
    const { from, to } = { ...days, ...changes };
    if (!isDay(from) || !isDay(to)) return;
    onDays(changes.from === undefined ? { from: from > to ? to : from, to } : { from, to: from > to ? from : to });
  };
  return (
    <>
      <DayField label="From" day={days.from} onDay={(from) => set({ from })} />
      <DayField label="To" day={days.to} onDay={(to) => set({ to })} />
    </>
  );
}

function DayField({ label, day, onDay }: { label: string; day: string; onDay: (day: string) => void }) {
  return (
    <label className="row">
      <span className="small faint">{label}</span>
      <input type="date" className="day" value={day} onChange={(event) => onDay(event.target.value)} />
    </label>
  );
}
