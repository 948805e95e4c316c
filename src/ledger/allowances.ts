import { type AllowanceRow, grantOfPeriod, periodAt } from "../credits/allowance.ts";
import type { GrantTransition } from "../credits/books.ts";
import type { AllowanceRows } from "../stores/store.ts";

/** A grant stands in the books before its month begins, so that the month begins on time even if no process runs then. */
const AHEAD_MS = 60_000;
const PAGE_ROWS = 500;

export interface AllowanceOptions {
  allowances: Pick<AllowanceRows, "due" | "advance">;
  /** Books a grant, once for its reference. */
  grant: (grant: GrantTransition) => Promise<unknown>;
}

/**
 * Makes the grants of the months that have begun, or are about to. Any number of processes may do it at once: a grant
 * is booked once, and only after it the allowance moves on. Rejects with StoreUnavailableError.
 */
export async function grantAllowances(options: AllowanceOptions): Promise<void> {
  for (;;) {
    const { nowMs, rows } = await options.allowances.due({ aheadMs: AHEAD_MS, limit: PAGE_ROWS });
    for (const row of rows) await grantMonths(options, row, nowMs);
    if (rows.length < PAGE_ROWS) return;
  }
}

/** A month that has passed meanwhile is made up for only where its grant would still be in force. */
async function grantMonths({ allowances, grant }: AllowanceOptions, row: AllowanceRow, nowMs: number): Promise<void> {
  const current = periodAt(row.anchorAtMs, nowMs);
  let nextAtMs = row.lapses ? Math.max(row.nextAtMs, current.startMs) : row.nextAtMs;
  while (nextAtMs <= nowMs + AHEAD_MS) {
    const period = periodAt(row.anchorAtMs, nextAtMs);
    await grant(grantOfPeriod(row, period));
    nextAtMs = period.endMs;
  }
  await allowances.advance(row, nextAtMs);
}
