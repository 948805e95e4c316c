import type { StatementEntry } from "../../api/types.ts";
import { countOf } from "../../format/numbers.ts";

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

export const KIND_LABELS: Record<StatementEntry["kind"], string> = {
  grant: "Granted",
  charge: "Charged",
  revoke: "Revoked",
  credit: "Refunded",
  lapse: "Expired",
};

/** What something was for; what an allowance grants is told by its day instead of its ids. */
export function referenceLabel(reference: string): string {
  const day = /^allowance\/[^/]+\/(\d{4}-\d{2}-\d{2})$/.exec(reference)?.[1];
  return day === undefined ? reference : `Allowance ${day}`;
}

/** What an entry is about: the model and its tokens for a charge, what it was for else. */
export function entryDescription({ kind, model, tokens, reference, note, id }: StatementEntry): string {
  if (kind === "charge") {
    const count = tokens === null ? 0 : Object.values(tokens).reduce((sum, one) => sum + one, 0);
    return [model ?? id, count > 0 && countOf(count, "token")].filter(Boolean).join(", ");
  }
  return [reference && referenceLabel(reference), note].filter(Boolean).join(": ") || (id ?? "");
}
