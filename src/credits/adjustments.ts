import { type MicroCredits, minimum } from "./amount.ts";
import { type Batch, chargeOf, creditedOf, holdOf, recordBooking, requestOf, tokenBalanceOf } from "./batch.ts";
import type { AdjustmentRow, CreditTransition, Outcomes, RevokeTransition } from "./books.ts";
import { assertAmount } from "./checks.ts";
import { sumOf } from "./draws.ts";
import { giveCredit, type Purse, revocableIn, revoke as revokeFrom } from "./purse.ts";

/** Takes back what is asked for, or all that is available where no amount is named. */
export function revoke(batch: Batch, purse: Purse, transition: RevokeTransition): Outcomes["revoke"] {
  const earlier = findEarlier(batch, transition);
  if (earlier !== undefined) {
    if (!isRepetition(earlier, transition)) return { outcome: "reference_mismatch", first: earlier };
    return { outcome: "revoked", adjustment: earlier, balance: { ...purse.balance }, repeated: true };
  }
  const { amount, grantId } = transition;
  if (amount !== null) assertAmount(amount);
  const named = grantId === null ? null : purse.grants.get(grantId);
  if (named === undefined) return { outcome: "unknown_grant" };
  const most = revocableIn(purse, named);
  if (amount !== null && amount > most) return { outcome: "excessive", most };
  const draws = revokeFrom(purse, amount ?? most, named);
  const terms = { isAll: amount === null, grantId, amount: sumOf(draws), draws };
  const adjustment = { ...newAdjustment(batch, transition), ...terms };
  batch.adjustments.push(adjustment);
  recordBooking(batch, transition, adjustment);
  return { outcome: "revoked", adjustment, balance: { ...purse.balance }, repeated: false };
}

/** Gives back what was spent: of the hold that is named, or of anything. */
export function credit(batch: Batch, purse: Purse, transition: CreditTransition): Outcomes["credit"] {
  const earlier = findEarlier(batch, transition);
  if (earlier !== undefined) {
    if (!isRepetition(earlier, transition)) return { outcome: "reference_mismatch", first: earlier };
    return { outcome: "credited", adjustment: earlier, balance: { ...purse.balance }, repeated: true };
  }
  const { amount, holdId, organizationId, expiresAtMs } = transition;
  assertAmount(amount);
  const charged =
    holdId === null ? { charged: purse.balance.spent, tokenId: null, isRunning: false } : chargedFor(batch, transition);
  if (charged === undefined) return { outcome: "missing" };
  const most = minimum(purse.balance.spent, charged.charged);
  if (amount > most || charged.isRunning) return { outcome: "excessive", most };
  const draws = [giveCredit(purse, transition, batch.nowMs)];
  purse.balance.spent -= amount;
  const { tokenId } = charged;
  // The token may spend again what was charged to it wrongly.
  const tokenBalance = tokenId === null ? undefined : tokenBalanceOf(batch, { organizationId, tokenId });
  if (tokenBalance !== undefined) tokenBalance.spent -= amount;
  const adjustment = { ...newAdjustment(batch, transition), amount, draws, holdId, tokenId, expiresAtMs };
  batch.adjustments.push(adjustment);
  recordBooking(batch, transition, adjustment);
  return { outcome: "credited", adjustment, balance: { ...purse.balance }, repeated: false };
}

/** Returns the charge of the named request less its credits, 0 while it runs. Undefined where there is none. */
function chargedFor(
  batch: Batch,
  { organizationId, holdId }: CreditTransition,
): { charged: MicroCredits; tokenId: string; isRunning: boolean } | undefined {
  if (holdId === null) return undefined;
  const request = requestOf(batch, { organizationId, holdId });
  if (request !== undefined) {
    const charged = chargeOf(batch, request).charged - creditedOf(batch, request);
    return { charged, tokenId: request.tokenId, isRunning: false };
  }
  const open = holdOf(batch, { organizationId, holdId });
  return open && { charged: 0n, tokenId: open.details.tokenId, isRunning: true };
}

function findEarlier(batch: Batch, transition: RevokeTransition | CreditTransition): AdjustmentRow | undefined {
  const { organizationId, kind, adjustmentId, reference } = transition;
  const own = batch.adjustments.filter((row) => row.organizationId === organizationId && row.kind === kind);
  const alike = (row: AdjustmentRow) => reference !== null && row.reference === reference;
  return own.find(({ id }) => id === adjustmentId) ?? own.find(alike);
}

/**
 * Whether a transition is the one that made the adjustment, sent again: the same id, or the same reference and the same
 * terms. Its note says why and is not compared.
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
  return { organizationId, id, kind, ...terms, reference, note, madeAtMs: nowMs };
}
