import { type AllowanceRow, grantOfPeriod, periodAt } from "../credits/allowance.ts";
import type { AuditRow } from "../credits/audit.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { Store } from "../stores/store.ts";
import type { BookCredits } from "./commit-queue.ts";

/** Grants are booked a minute before their month begins, so that they take effect on time even if no process runs then. */
const AHEAD_MS = 60_000;
const PAGE_ROWS = 500;

export interface AllowanceOptions {
  allowances: Pick<Store["allowances"], "due" | "advance">;
  book: BookCredits;
}

/**
 * Books the grants of months that have begun or will soon; several processes may do it at once. An allowance that fails does
 * not prevent the others. Rejects with StoreUnavailableError, or with the error of the first that failed.
 */
export async function grantAllowances(options: AllowanceOptions): Promise<void> {
  for (;;) {
    const { nowMs, rows } = await options.allowances.due({ aheadMs: AHEAD_MS, limit: PAGE_ROWS });
    let failure: { error: unknown } | undefined;
    for (const row of rows) {
      try {
        await grantMonths(options, row, nowMs);
      } catch (error) {
        if (error instanceof StoreUnavailableError) throw error;
        failure ??= { error };
      }
    }
    if (failure !== undefined) throw failure.error;
    if (rows.length < PAGE_ROWS) return;
  }
}

/** Books the due grants of an allowance. Missed months are granted only if their grants do not expire. */
async function grantMonths({ allowances, book }: AllowanceOptions, row: AllowanceRow, nowMs: number): Promise<void> {
  const current = periodAt(row.anchorAtMs, nowMs);
  let nextAtMs = row.lapses ? Math.max(row.nextAtMs, current.startMs) : row.nextAtMs;
  while (nextAtMs <= nowMs + AHEAD_MS) {
    const period = periodAt(row.anchorAtMs, nextAtMs);
    await book(grantOfPeriod(row, period));
    nextAtMs = period.endMs;
  }
  await allowances.advance(row, nextAtMs);
}

/** Creates an allowance, or finds that of its reference and terms, and books what is due. Rejects with StoreUnavailableError. */
export async function openAllowance(
  options: AllowanceOptions & { allowances: Store["allowances"] },
  terms: Omit<AllowanceRow, "priority" | "nextAtMs" | "endedAtMs">,
  audit?: AuditRow,
) {
  const wanted = { ...terms, priority: 0, nextAtMs: terms.anchorAtMs, endedAtMs: null };
  const first = await options.allowances.insert(wanted, audit);
  if (!hasTermsOf(first, wanted)) return { outcome: "reference_mismatch" as const, row: first };
  // Also for a repeated request: the process that wrote the allowance may have died before it booked the grant.
  await grantAllowances(options);
  const row = (await options.allowances.find(first.organizationId, first.id)) ?? first;
  return { outcome: "created" as const, row, repeated: first.id !== wanted.id };
}

/** Compares the terms of two allowances. An allowance without a start time begins when it is created. */
function hasTermsOf(first: AllowanceRow, wanted: AllowanceRow): boolean {
  const startsWhenCreated = ({ anchorAtMs, createdAtMs }: AllowanceRow) => anchorAtMs === createdAtMs;
  const isSameStart = startsWhenCreated(wanted) ? startsWhenCreated(first) : first.anchorAtMs === wanted.anchorAtMs;
  return first.amount === wanted.amount && first.lapses === wanted.lapses && isSameStart;
}

/** Ends an allowance; this month's grant stays. Returns the row, and whether it had ended. Rejects with StoreUnavailableError. */
export async function closeAllowance(
  { allowances, book }: AllowanceOptions & { allowances: Store["allowances"] },
  row: AllowanceRow,
  nowMs: number,
  audit?: AuditRow,
): Promise<{ row: AllowanceRow; repeated: boolean }> {
  const { organizationId, id, anchorAtMs } = row;
  const isEnded = await allowances.end(row, nowMs, audit);
  // The next month's grant may already be booked.
  const startMs = nowMs < anchorAtMs ? anchorAtMs : periodAt(anchorAtMs, nowMs).endMs;
  const next = grantOfPeriod(row, periodAt(anchorAtMs, startMs));
  const { grantId } = next;
  // Another process may be about to book it. It is booked only once, so book it here in order to revoke it.
  if (isEnded && startMs <= nowMs + 2 * AHEAD_MS) await book(next);
  const terms = { grantId, amount: null, reference: grantId, note: "the allowance has ended" };
  await book({ kind: "revoke", organizationId, adjustmentId: `${grantId}_ended`, ...terms });
  return { row: (await allowances.find(organizationId, id)) ?? row, repeated: !isEnded };
}
