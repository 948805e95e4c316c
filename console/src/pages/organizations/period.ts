/** Days of the reader's calendar, `YYYY-MM-DD`, both included; empty: open at that end. */
export interface Days {
  from: string;
  to: string;
}

/** The same as times for the service: from the first moment of the first day up to that of the day after the last. */
export function periodOf({ from, to }: Days): Record<string, string> {
  const start = new Date(`${from}T00:00:00`);
  const end = new Date(`${to}T00:00:00`);
  const period: Record<string, string> = {};
  if (!Number.isNaN(start.getTime())) period.from = start.toISOString();
  if (!Number.isNaN(end.getTime())) {
    end.setDate(end.getDate() + 1);
    period.to = end.toISOString();
  }
  return period;
}

/** From six days ago on, with no end: what is booked from now on is in it, too. */
export function lastWeek(nowMs: number): Days {
  const day = new Date(nowMs);
  day.setDate(day.getDate() - 6);
  const two = (part: number) => String(part).padStart(2, "0");
  return { from: `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())}`, to: "" };
}
