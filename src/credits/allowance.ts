import { DAY_MS, isoDay, isoTime } from "../api/time.ts";
import type { ALLOWANCE } from "../stores/schema.ts";
import type { RowOf } from "../stores/table.ts";
import { creditsFromMicro } from "./amount.ts";
import type { GrantTransition } from "./books.ts";

export type AllowanceRow = RowOf<typeof ALLOWANCE>;

/** Returns the terms of an allowance for its audit record. */
export function auditedAllowance({
  amount,
  lapses,
  reference,
  anchorAtMs,
}: Pick<AllowanceRow, "amount" | "lapses" | "reference" | "anchorAtMs">) {
  return { amount: creditsFromMicro(amount), lapses, reference, begins_at: isoTime(anchorAtMs) };
}

/** Beginning of the references of the grants that allowances make. */
export const ALLOWANCE_REFERENCE = "allowance/";

/** Returns the month that contains a time, counted from the anchor; the first one for an earlier time. */
export function periodAt(anchorAtMs: number, atMs: number) {
  const [anchor, at] = [new Date(anchorAtMs), new Date(Math.max(atMs, anchorAtMs))];
  const years = at.getUTCFullYear() - anchor.getUTCFullYear();
  let months = years * 12 + at.getUTCMonth() - anchor.getUTCMonth();
  if (monthAfter(anchorAtMs, months) > at.getTime()) months -= 1;
  return { startMs: monthAfter(anchorAtMs, months), endMs: monthAfter(anchorAtMs, months + 1) };
}

/** Makes the grant of a month. Its id is fixed, so it is booked once, even by several processes. */
export function grantOfPeriod(
  allowance: AllowanceRow,
  { startMs, endMs }: ReturnType<typeof periodAt>,
): GrantTransition {
  const { organizationId, id, amount, priority, lapses } = allowance;
  const day = isoDay(startMs);
  return {
    kind: "grant",
    organizationId,
    grantId: `${id}_${day}`,
    amount,
    effectiveAtMs: startMs,
    expiresAtMs: lapses ? endMs : null,
    priority,
    reference: `${ALLOWANCE_REFERENCE}${id}/${day}`,
  };
}

/** Returns the same day and time of a later month, or the last day of a shorter month. */
function monthAfter(anchorAtMs: number, months: number): number {
  const anchor = new Date(anchorAtMs);
  const [year, month] = [anchor.getUTCFullYear(), anchor.getUTCMonth() + months];
  const lastDay = new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
  return Date.UTC(year, month, Math.min(anchor.getUTCDate(), lastDay)) + (anchorAtMs % DAY_MS);
}
