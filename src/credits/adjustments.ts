import { DAY_MS, isoTime } from "../api/time.ts";
import type { WrittenRows } from "../stores/admin-schema.ts";
import { assertAmount, creditsFromMicro, type MicroCredits, minimum } from "./amount.ts";
import type { Account } from "./batch.ts";
import type {
  AdjustmentRow,
  CreditTransition,
  GrantRow,
  GrantTransition,
  RedeemTransition,
  RevokeTransition,
  VoucherRow,
} from "./books.ts";
import { countInBudgets } from "./budget-counters.ts";
import { addCredit, addGrant, NO_TERMS, revocableIn, revokeFrom, sumOfDraws } from "./funds.ts";
import { creditedOf, wholeChargeOf } from "./holds.ts";
import { voucherGrantId } from "./names.ts";
import type { Outcomes } from "./outcomes.ts";
import { beganBefore } from "./request-id.ts";

/** Adds a grant. A repetition of an earlier one changes nothing. */
export function grant(account: Account, transition: GrantTransition): Outcomes["grant"] {
  assertAmount(transition.amount);
  const { grant, first } = addGrant(account, transition);
  if (!first && !isSameGrant(grant, transition)) {
    const { id, amount, effectiveAtMs, expiresAtMs, priority, createdAtMs } = grant;
    return { outcome: "reference_mismatch", first: { id, amount, effectiveAtMs, expiresAtMs, priority, createdAtMs } };
  }
  if (first) recordBooking(account, transition, grant, { credit_grant: [{ ...grant }] });
  return { outcome: "granted", grantId: grant.id, balance: { ...account.balance }, repeated: !first };
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

/** Grants the credits of a voucher. A repetition by the same organization changes nothing. */
export function redeem(account: Account, transition: RedeemTransition): Outcomes["redeem"] {
  const { organizationId, nowMs, vouchers } = account;
  const { voucherId, amount, priority, creditDays } = transition;
  const grantId = voucherGrantId(voucherId);
  if (account.grants.get(grantId) !== undefined) {
    return { outcome: "granted", grantId, balance: { ...account.balance }, repeated: true };
  }
  const voucher = vouchers.get(voucherId);
  if (voucher === undefined) return { outcome: "unusable", reason: "revoked" };
  const reason = reasonAgainst(account, voucher, transition);
  if (reason !== undefined) return { outcome: "unusable", reason };
  const redeemed = { id: voucherId, organizationId, redeemedAtMs: nowMs };
  vouchers.set(voucherId, { ...voucher, ...redeemed });
  const expiresAtMs = creditDays === null ? null : nowMs + creditDays * DAY_MS;
  const terms = { effectiveAtMs: null, expiresAtMs, priority, reference: voucherId };
  const { grant } = addGrant(account, { kind: "grant", organizationId, grantId, amount, ...terms });
  recordBooking(account, transition, grant, { credit_grant: [{ ...grant }], voucher: [redeemed] });
  return { outcome: "granted", grantId, balance: { ...account.balance }, repeated: false };
}

/** Returns why an organization that has not redeemed a voucher cannot do so now; undefined if it can. */
function reasonAgainst(
  { grants, isClosed, nowMs }: Account,
  { organizationId, isRevoked }: VoucherRow,
  { voucherId, expiresAtMs }: RedeemTransition,
) {
  // An operator may have granted it by hand, under its id.
  const isUsed = organizationId !== null || grants.values().some(({ reference }) => reference === voucherId);
  if (isUsed) return "redeemed";
  if (isRevoked) return "revoked";
  if (expiresAtMs !== null && expiresAtMs <= nowMs) return "expired";
  return isClosed ? "closed" : undefined;
}

/** Revokes an amount, or all available credits if none is named. */
export function revoke(account: Account, transition: RevokeTransition): Outcomes["revoke"] {
  const earlier = findEarlier(account, transition);
  if (earlier !== undefined) {
    if (!isRepetition(earlier, transition)) return { outcome: "reference_mismatch", first: earlier };
    return { outcome: "revoked", adjustment: earlier, balance: { ...account.balance }, repeated: true };
  }
  const { amount, grantId } = transition;
  if (amount !== null) assertAmount(amount);
  const named = grantId === null ? null : account.grants.get(grantId);
  if (named === undefined) return { outcome: "unknown_grant" };
  const most = revocableIn(account, named);
  if (amount !== null && amount > most) return { outcome: "excessive", most };
  const draws = revokeFrom(account, amount ?? most, named);
  const terms = { isAll: amount === null, grantId, amount: sumOfDraws(draws), draws };
  const adjustment = { ...newAdjustment(account, transition), ...terms };
  account.adjustments.insert(adjustment.id, adjustment);
  recordBooking(account, transition, adjustment, { adjustment: [adjustment] });
  return { outcome: "revoked", adjustment, balance: { ...account.balance }, repeated: false };
}

/** Refunds spent credits, of the named request or of any. */
export function credit(account: Account, transition: CreditTransition): Outcomes["credit"] {
  const earlier = findEarlier(account, transition);
  if (earlier !== undefined) {
    if (!isRepetition(earlier, transition)) return { outcome: "reference_mismatch", first: earlier };
    return { outcome: "credited", adjustment: earlier, balance: { ...account.balance }, repeated: true };
  }
  const { amount, holdId, expiresAtMs } = transition;
  assertAmount(amount);
  const beforeMs = account.balance.closedBeforeMs;
  if (holdId !== null && beganBefore(holdId, beforeMs)) return { outcome: "closed", beforeMs };
  const corrected = holdId === null ? ANY_REQUEST : correctedBy(account, holdId);
  if (corrected === undefined) return { outcome: "missing" };
  const { tokenId, budgets } = corrected;
  const most = minimum(account.balance.spent, corrected.charged ?? account.balance.spent);
  if (amount > most || corrected.isRunning) return { outcome: "excessive", most };
  const draws = [addCredit(account, transition)];
  account.balance.spent -= amount;
  // The refund counts in the window in which its request was admitted.
  countInBudgets(account, budgets, { spent: -amount }, "existing");
  const adjustment = { ...newAdjustment(account, transition), amount, draws, holdId, tokenId, budgets, expiresAtMs };
  account.adjustments.insert(adjustment.id, adjustment);
  const rows = {
    adjustment: [adjustment],
    credit_grant: [{ id: adjustment.id, ...account.grants.get(adjustment.id) }],
  };
  recordBooking(account, transition, adjustment, rows);
  return { outcome: "credited", adjustment, balance: { ...account.balance }, repeated: false };
}

interface Corrected extends Pick<AdjustmentRow, "tokenId" | "budgets"> {
  /** Its charge less its credits, 0 while it runs; null: all that was spent. */
  charged: MicroCredits | null;
  isRunning: boolean;
}

const ANY_REQUEST: Corrected = { charged: null, tokenId: null, budgets: null, isRunning: false };

/** Returns the request that a credit names; undefined if there is none. */
function correctedBy(account: Account, holdId: string): Corrected | undefined {
  const request = account.requests.get(holdId);
  if (request !== undefined) {
    const charged = wholeChargeOf(account, request).charged - creditedOf(account, request);
    return { charged, tokenId: request.tokenId, budgets: request.budgets, isRunning: false };
  }
  const open = account.holds.get(holdId);
  return open && { charged: 0n, tokenId: open.tokenId, budgets: open.budgets, isRunning: true };
}

function findEarlier(
  { adjustments }: Account,
  { kind, adjustmentId, reference }: RevokeTransition | CreditTransition,
): AdjustmentRow | undefined {
  const sameId = adjustments.get(adjustmentId);
  if (sameId?.kind === kind) return sameId;
  return adjustments.values().find((row) => row.kind === kind && reference !== null && row.reference === reference);
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
  { organizationId, nowMs }: Account,
  { adjustmentId: id, kind, reference, note }: RevokeTransition | CreditTransition,
): Omit<AdjustmentRow, "amount" | "draws"> {
  return { ...NO_TERMS, organizationId, id, kind, reference, note, madeAtMs: nowMs };
}

function recordBooking(
  { organizationId, nowMs, newAuditEntries }: Account,
  { audit }: GrantTransition | RedeemTransition | RevokeTransition | CreditTransition,
  { id: subjectId, amount }: { id: string; amount: MicroCredits },
  rows: WrittenRows,
): void {
  if (audit === undefined || audit === null) return;
  const after = { ...audit.after, amount: creditsFromMicro(amount) };
  newAuditEntries.push({ ...audit, organizationId, subjectId, madeAtMs: nowMs, before: null, after, rows });
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
