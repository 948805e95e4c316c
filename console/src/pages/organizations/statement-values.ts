import type { StatementEntry } from "../../api/types.ts";
import { countOf } from "../../format/numbers.ts";

/** Days in the user's time zone, `YYYY-MM-DD`, both included. An empty end is open. */
export interface Days {
  from: string;
  to: string;
}

/** Converts days to the query of a period: from the start of the first day to the end of the last one. */
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

/** Days from six days ago, with an open end so that new entries are included. */
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

/** Label of a reference. The reference of a monthly allowance is shortened to its day. */
export function referenceLabel(reference: string): string {
  const day = /^allowance\/[^/]+\/(\d{4}-\d{2}-\d{2})$/.exec(reference)?.[1];
  return day === undefined ? reference : `Allowance ${day}`;
}

/** Describes an entry: model and tokens of a charge, otherwise reference and note. */
export function entryDescription({ kind, model, tokens, reference, note, id }: StatementEntry): string {
  if (kind === "charge") {
    const count = tokens === null ? 0 : Object.values(tokens).reduce((sum, one) => sum + one, 0);
    return [model ?? id, count > 0 && countOf(count, "token")].filter(Boolean).join(", ");
  }
  return [reference && referenceLabel(reference), note].filter(Boolean).join(": ") || (id ?? "");
}
