import { isoTime } from "../api/time.ts";
import type { AllowanceRow } from "../credits/allowance.ts";
import { formatCredits } from "../credits/amount.ts";
import type { AdjustmentRow, GrantTerms } from "../credits/books.ts";

/** Says that a reference belongs to another grant, and to which. */
export function grantMismatch(reference: string | null, first: GrantTerms): string {
  const { id, amount, effectiveAtMs, expiresAtMs, priority, createdAtMs } = first;
  const start = effectiveAtMs === createdAtMs ? "" : `, in effect from ${isoTime(effectiveAtMs)}`;
  const rank = priority === 0 ? "" : `, with priority ${priority}`;
  const terms = `${formatCredits(amount)} credits${start}, ${expiryOf(expiresAtMs)}${rank}`;
  return mismatch(reference, `grant ${id} of ${terms}`, createdAtMs);
}

/** Says that a reference belongs to another revocation or credit, and to which. */
export function adjustmentMismatch(reference: string | null, first: AdjustmentRow): string {
  const { kind, id, amount, isAll, grantId, holdId, expiresAtMs, madeAtMs } = first;
  const credits = `${formatCredits(amount)} credits`;
  if (kind === "credit") {
    const request = holdId === null ? "" : ` for the request ${holdId}`;
    return mismatch(reference, `credit ${id} of ${credits}${request}, ${expiryOf(expiresAtMs)}`, madeAtMs);
  }
  const all = isAll ? ", everything that was available," : "";
  const source = grantId === null ? "" : ` from ${grantId}`;
  return mismatch(reference, `revocation ${id} of ${credits}${all}${source}`, madeAtMs);
}

/** Says that a reference belongs to another allowance, and to which. */
export function allowanceMismatch(reference: string | null, first: AllowanceRow): string {
  const { id, amount, lapses, anchorAtMs, createdAtMs } = first;
  const rest = lapses ? "expires" : "stays";
  const terms = `${formatCredits(amount)} credits a month from ${isoTime(anchorAtMs)}, of which the rest ${rest}`;
  return mismatch(reference, `allowance ${id} of ${terms}`, createdAtMs);
}

function mismatch(reference: string | null, first: string, madeAtMs: number): string {
  const text = JSON.stringify(reference);
  return `The reference ${text} was used with other terms: ${first}, made at ${isoTime(madeAtMs)}. Use another reference.`;
}

function expiryOf(expiresAtMs: number | null): string {
  return expiresAtMs === null ? "without expiry" : `expiring at ${isoTime(expiresAtMs)}`;
}
