import { type AllowanceRow, grantOfPeriod, periodAt } from "../credits/allowance.ts";
import type { AuditRow } from "../credits/audit.ts";
import type { GrantTransition, RevokeTransition } from "../credits/books.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { AllowanceRows } from "../stores/queries/allowances.ts";

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
 * is booked once, and only after it the allowance moves on. One that cannot be granted keeps no other from it. Rejects
 * with StoreUnavailableError, and with what kept the first one from being granted.
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

/** Outcome of a request for an allowance. */
export type AllowanceCreation =
  | { outcome: "created"; row: AllowanceRow; repeated: boolean }
  /** The organization has this other allowance under the reference. */
  | { outcome: "reference_mismatch"; row: AllowanceRow };

/**
 * Writes an allowance with its audit entry, and makes its first grant at once where its time has come. Gives the row as it is then: that of the
 * first allowance of the reference, where there was one of the same terms before. Rejects with StoreUnavailableError.
 */
export async function createAllowance(
  options: AllowanceOptions & { allowances: AllowanceRows },
  terms: Omit<AllowanceRow, "priority" | "nextAtMs" | "endedAtMs">,
  audit?: AuditRow,
): Promise<AllowanceCreation> {
  const wanted = { ...terms, priority: 0, nextAtMs: terms.anchorAtMs, endedAtMs: null };
  const first = await options.allowances.insert(wanted, audit);
  if (!hasTermsOf(first, wanted)) return { outcome: "reference_mismatch", row: first };
  // Repeated, too: the process that wrote it may have died before its grant.
  await grantAllowances(options);
  const row = (await findAllowance(options.allowances, first.organizationId, first.id)) ?? first;
  return { outcome: "created", row, repeated: first.id !== wanted.id };
}

/** An allowance that names no time begins when it is created. */
function hasTermsOf(first: AllowanceRow, wanted: AllowanceRow): boolean {
  const beginsAtOnce = ({ anchorAtMs, createdAtMs }: AllowanceRow) => anchorAtMs === createdAtMs;
  const isSameStart = beginsAtOnce(wanted) ? beginsAtOnce(first) : first.anchorAtMs === wanted.anchorAtMs;
  return first.amount === wanted.amount && first.lapses === wanted.lapses && isSameStart;
}

/**
 * Ends an allowance; what was granted for the current month stays. Tells the row as it is then, and whether it had ended
 * before. Rejects with StoreUnavailableError.
 */
export async function endAllowance(
  {
    allowances,
    grant,
    revoke,
  }: {
    allowances: AllowanceRows;
    grant: AllowanceOptions["grant"];
    revoke: (revocation: RevokeTransition) => Promise<unknown>;
  },
  row: AllowanceRow,
  nowMs: number,
  audit?: AuditRow,
): Promise<{ row: AllowanceRow; repeated: boolean }> {
  const { organizationId, id, anchorAtMs } = row;
  const isEnded = await allowances.end(row, nowMs, audit);
  // The next month's grant stands in the books a little before it takes effect.
  const startMs = nowMs < anchorAtMs ? anchorAtMs : periodAt(anchorAtMs, nowMs).endMs;
  const next = grantOfPeriod(row, periodAt(anchorAtMs, startMs));
  const { grantId } = next;
  // Another process may be about to make it: it is booked once, and so only here, to be taken back.
  if (isEnded && startMs <= nowMs + 2 * AHEAD_MS) await grant(next);
  const terms = { grantId, amount: null, reference: grantId, note: "the allowance has ended" };
  await revoke({ kind: "revoke", organizationId, adjustmentId: `${grantId}_ended`, ...terms });
  return { row: (await findAllowance(allowances, organizationId, id)) ?? row, repeated: !isEnded };
}

/** An allowance of an organization, or (null) of any. */
export async function findAllowance(
  allowances: Pick<AllowanceRows, "list">,
  organizationId: string | null,
  id: string,
): Promise<AllowanceRow | undefined> {
  // The list goes on after an id, and this one is the first that can follow its own text without the last character.
  const page = await allowances.list({ organizationId, after: id.slice(0, -1), limit: PAGE_ROWS });
  return page.find((row) => row.id === id);
}
