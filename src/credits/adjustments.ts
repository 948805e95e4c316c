import { isoTime } from "../api/time.ts";
import { assertAmount, type MicroCredits, minimum } from "./amount.ts";
import { type Batch, creditedOf, holdOf, recordBooking, requestOf, wholeChargeOf } from "./batch.ts";
import type { AdjustmentRow, CreditTransition, GrantRow, GrantTransition, RevokeTransition } from "./books.ts";
import { countInBudgets } from "./budget-counters.ts";
import { addCredit, addGrant, type Funds, revocableIn, revokeFrom, sumOfDraws } from "./funds.ts";
import type { Outcomes } from "./outcomes.ts";
import { beganBefore } from "./request-id.ts";

/** Adds a grant. A repetition of an earlier one changes nothing. */
export function grant(batch: Batch, funds: Funds, transition: GrantTransition): Outcomes["grant"] {
  assertAmount(transition.amount);
  const { grant, first } = addGrant(funds, transition, batch.nowMs);
  if (!first && !isSameGrant(grant, transition)) {
    const { id, amount, effectiveAtMs, expiresAtMs, priority, createdAtMs } = grant;
    return { outcome: "reference_mismatch", first: { id, amount, effectiveAtMs, expiresAtMs, priority, createdAtMs } };
  }
  if (first) recordBooking(batch, transition, grant);
  return { outcome: "granted", grantId: grant.id, balance: { ...funds.balance }, repeated: !first };
}

/** Returns true if a transition repeats the one that made the grant: the same id, or the same reference and terms. */
function isSameGrant(grant: GrantRow, transition: GrantTransition): boolean {
  if (grant.id === transition.grantId) return true;
  const { amount, effectiveAtMs, expiresAtMs, priority } = transition;
  // A grant without a time took effect when it was booked.
  const isSameStart = grant.effectiveAtMs === (effectiveAtMs ?? grant.createdAtMs);
  const isSameEnd = grant.expiresAtMs === expiresAtMs;
  return grant.amount === amount && grant.priority === priority && isSameStart && isSameEnd;
}

/** Revokes an amount, or all available credits if none is named. */
export function revoke(batch: Batch, funds: Funds, transition: RevokeTransition): Outcomes["revoke"] {
  const earlier = findEarlier(batch, transition);
  if (earlier !== undefined) {
    if (!isRepetition(earlier, transition)) return { outcome: "reference_mismatch", first: earlier };
    return { outcome: "revoked", adjustment: earlier, balance: { ...funds.balance }, repeated: true };
  }
  const { amount, grantId } = transition;
  if (amount !== null) assertAmount(amount);
  const named = grantId === null ? null : funds.grants.get(grantId);
  if (named === undefined) return { outcome: "unknown_grant" };
  const most = revocableIn(funds, named);
  if (amount !== null && amount > most) return { outcome: "excessive", most };
  const draws = revokeFrom(funds, amount ?? most, named);
  const terms = { isAll: amount === null, grantId, amount: sumOfDraws(draws), draws };
  const adjustment = { ...newAdjustment(batch, transition), ...terms };
  batch.adjustments.push(adjustment);
  recordBooking(batch, transition, adjustment);
  return { outcome: "revoked", adjustment, balance: { ...funds.balance }, repeated: false };
}

/** Refunds spent credits, of the named request or of any. */
export function credit(batch: Batch, funds: Funds, transition: CreditTransition): Outcomes["credit"] {
  const earlier = findEarlier(batch, transition);
  if (earlier !== undefined) {
    if (!isRepetition(earlier, transition)) return { outcome: "reference_mismatch", first: earlier };
    return { outcome: "credited", adjustment: earlier, balance: { ...funds.balance }, repeated: true };
  }
  const { amount, holdId, organizationId, expiresAtMs } = transition;
  assertAmount(amount);
  const beforeMs = funds.balance.closedBeforeMs;
  if (holdId !== null && beganBefore(holdId, beforeMs)) return { outcome: "closed", beforeMs };
  const corrected = holdId === null ? ANY_REQUEST : correctedBy(batch, { organizationId, holdId });
  if (corrected === undefined) return { outcome: "missing" };
  const { tokenId, budgets } = corrected;
  const most = minimum(funds.balance.spent, corrected.charged ?? funds.balance.spent);
  if (amount > most || corrected.isRunning) return { outcome: "excessive", most };
  const draws = [addCredit(funds, transition, batch.nowMs)];
  funds.balance.spent -= amount;
  // The refund counts in the window in which its request was admitted.
  countInBudgets(batch, { organizationId, budgets }, { spent: -amount }, "existing");
  const adjustment = { ...newAdjustment(batch, transition), amount, draws, holdId, tokenId, budgets, expiresAtMs };
  batch.adjustments.push(adjustment);
  recordBooking(batch, transition, adjustment);
  return { outcome: "credited", adjustment, balance: { ...funds.balance }, repeated: false };
}

/** The request or requests that a credit corrects. */
interface Corrected extends Pick<AdjustmentRow, "tokenId" | "budgets"> {
  /** Its charge less its credits, 0 while it runs; null: all that was spent. */
  charged: MicroCredits | null;
  isRunning: boolean;
}

const ANY_REQUEST: Corrected = { charged: null, tokenId: null, budgets: null, isRunning: false };

/** Returns the request that a credit names; undefined if there is none. */
function correctedBy(batch: Batch, name: { organizationId: string; holdId: string }): Corrected | undefined {
  const request = requestOf(batch, name);
  if (request !== undefined) {
    const charged = wholeChargeOf(batch, request).charged - creditedOf(batch, request);
    return { charged, tokenId: request.tokenId, budgets: request.budgets, isRunning: false };
  }
  const open = holdOf(batch, name);
  return open && { charged: 0n, tokenId: open.tokenId, budgets: open.budgets, isRunning: true };
}

function findEarlier(batch: Batch, transition: RevokeTransition | CreditTransition): AdjustmentRow | undefined {
  const { organizationId, kind, adjustmentId, reference } = transition;
  const own = batch.adjustments.filter((row) => row.organizationId === organizationId && row.kind === kind);
  const alike = (row: AdjustmentRow) => reference !== null && row.reference === reference;
  return own.find(({ id }) => id === adjustmentId) ?? own.find(alike);
}

/**
 * Returns true if a transition repeats the one that made the adjustment: the same id, or the same reference and terms. Notes
 * are not compared.
 */
function isRepetition(row: AdjustmentRow, transition: RevokeTransition | CreditTransition): boolean {
  if (row.id === transition.adjustmentId) return true;
  if (transition.kind === "credit") {
    const { amount, holdId, expiresAtMs } = transition;
    return row.amount === amount && row.holdId === holdId && row.expiresAtMs === expiresAtMs;
  }
  const { amount, grantId } = transition;
  const isSameAmount = amount === null ? row.isAll : !row.isAll && row.amount === amount;
  return isSameAmount && row.grantId === grantId;
}

function newAdjustment(
  { nowMs }: Batch,
  { organizationId, adjustmentId: id, kind, reference, note }: RevokeTransition | CreditTransition,
): Omit<AdjustmentRow, "amount" | "draws"> {
  const terms = { isAll: false, grantId: null, expiresAtMs: null, holdId: null, tokenId: null, settlement: null };
  return { organizationId, id, kind, ...terms, budgets: null, reference, note, madeAtMs: nowMs };
}

/** The terms of a booking but for its amount, as they are requested or stored. */
export type BookedTerms = Partial<
  Pick<GrantRow, "priority"> &
    Pick<AdjustmentRow, "isAll" | "grantId" | "holdId" | "expiresAtMs" | "reference" | "note">
> & { effectiveAtMs?: number | null };

/** Returns the terms of a booking for its audit record. */
export function auditedBooking(terms: BookedTerms): Record<string, unknown> {
  const { isAll: all, grantId, holdId, effectiveAtMs = null, expiresAtMs = null, priority, reference, note } = terms;
  const times = { effective_at: isoTime(effectiveAtMs), expires_at: isoTime(expiresAtMs) };
  return { all, grant_id: grantId, request_id: holdId, ...times, priority, reference, note };
}
