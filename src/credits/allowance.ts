import type { MicroCredits } from "./amount.ts";
import type { GrantTransition } from "./books.ts";

/** Credits that an organization is granted again every month. Times are milliseconds since 1970. */
export interface AllowanceRow {
  organizationId: string;
  id: string;
  amount: MicroCredits;
  priority: number;
  /** Whether what is left of a month's grant lapses when the next month begins. */
  lapses: boolean;
  /** What it is for; unique in its organization. */
  reference: string | null;
  /** When the first month begins; the others begin on the same day of the month at the same time, in UTC. */
  anchorAtMs: number;
  /** When the first month begins that no grant was made for. */
  nextAtMs: number;
  createdAtMs: number;
  endedAtMs: number | null;
}

export interface Period {
  startMs: number;
  endMs: number;
}

/** The month that a time lies in, counted from the anchor; the first one for a time before it. */
export function periodAt(anchorAtMs: number, atMs: number): Period {
  const [anchor, at] = [new Date(anchorAtMs), new Date(Math.max(atMs, anchorAtMs))];
  const years = at.getUTCFullYear() - anchor.getUTCFullYear();
  let months = years * 12 + at.getUTCMonth() - anchor.getUTCMonth();
  if (monthAfter(anchorAtMs, months) > at.getTime()) months -= 1;
  return { startMs: monthAfter(anchorAtMs, months), endMs: monthAfter(anchorAtMs, months + 1) };
}

/** Of a month: made twice, by whomever, it is booked once. */
export function grantOfPeriod(allowance: AllowanceRow, { startMs, endMs }: Period): GrantTransition {
  const { organizationId, id, amount, priority, lapses } = allowance;
  const day = new Date(startMs).toISOString().slice(0, 10);
  return {
    kind: "grant",
    organizationId,
    grantId: `${id}_${day}`,
    amount,
    effectiveAtMs: startMs,
    expiresAtMs: lapses ? endMs : null,
    priority,
    reference: `allowance/${id}/${day}`,
  };
}

const DAY_MS = 86_400_000;

/** The same day of the month and time, or the last day of a month that is shorter. */
function monthAfter(anchorAtMs: number, months: number): number {
  const anchor = new Date(anchorAtMs);
  const [year, month] = [anchor.getUTCFullYear(), anchor.getUTCMonth() + months];
  const lastDay = new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
  return Date.UTC(year, month, Math.min(anchor.getUTCDate(), lastDay)) + (anchorAtMs % DAY_MS);
}
