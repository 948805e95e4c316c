import { type Days, dayOf, daysOfMonth, formatMonth, lastDays, pastMonths } from "../format/times.ts";

const MONTHS_OFFERED = 12;
const THIS_MONTH = "month";

/** Returns the days of a chosen period: a number of days, this month or a month such as `2026-10`; null for another text. */
export function daysOfPeriod(period: string, nowMs: number): Days | null {
  if (/^[1-9]\d{0,2}$/.test(period)) return lastDays(Number(period), nowMs);
  if (period === THIS_MONTH) return { from: `${dayOf(nowMs).slice(0, 7)}-01`, to: dayOf(nowMs) };
  return pastMonths(MONTHS_OFFERED, nowMs).includes(period) ? daysOfMonth(period) : null;
}

interface PeriodChoiceProps {
  value: string;
  /** Periods before the months: numbers of days, and others that the page knows. */
  ranges: readonly (readonly [value: string, text: string])[];
  nowMs: number;
  onValue: (value: string) => void;
}

/** Select for a period that ends today, or for one of the past months, last month first. */
export function PeriodChoice({ value, ranges, nowMs, onValue }: PeriodChoiceProps) {
  return (
    <select
      className="filter"
      aria-label="Period (UTC)"
      value={value}
      onChange={(event) => onValue(event.target.value)}
    >
      {ranges.map(([range, text]) => (
        <option key={range} value={range}>
          {text}
        </option>
      ))}
      <option value={THIS_MONTH}>This month</option>
      <optgroup label="Months">
        {pastMonths(MONTHS_OFFERED, nowMs).map((month) => (
          <option key={month} value={month}>
            {formatMonth(month)}
          </option>
        ))}
      </optgroup>
    </select>
  );
}
