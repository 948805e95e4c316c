import { creditsFromMicro, type MicroCredits, minimum } from "./amount.ts";
import type { Account } from "./batch.ts";
import type { AdjustmentRow, PaymentRow, PaymentTransition } from "./books.ts";
import { addGrant, NO_TERMS, revokeFrom } from "./funds.ts";
import { grantsOfPayment, paymentGrantId } from "./names.ts";
import type { Outcomes } from "./outcomes.ts";
import { eventOf } from "./warnings.ts";

/*
 * Every function here preserves credits + debt = granted - revoked + covered + returned + withheld of a payment, unless its
 * comment names a part that the caller must book.
 */

/** Books the present state of a payment. Booking the same state again collects credits that were held when the money was refunded. */
export function bookPayment(account: Account, transition: PaymentTransition): Outcomes["payment"] {
  const { id, revision, audit, kind: _, ...stated } = transition;
  const earlier = account.payments.get(id);
  if ((earlier?.revision ?? 0) !== revision) return { outcome: "outdated" };
  const byHand = account.grants.values().find(({ reference }) => reference === id);
  if (earlier === undefined && byHand !== undefined) return { outcome: "granted_before", grantId: byHand.id };
  const before = earlier ?? { ...NEW_PAYMENT, id, ...stated, createdAtMs: account.nowMs };
  const { refunded, disputed } = stated;
  const payment = { ...before, covers: [...before.covers], refunded, disputed };
  payment.returned = (payment.credits * minimum(payment.amount, refunded + disputed)) / payment.amount;
  account.payments.set(id, payment);
  // Before anything else, so that it does not matter whether holds returned credits before or after the last collection.
  const written: Written = { payment: [], adjustment: collect(account, payment) };
  const change = payment.returned - before.returned;
  if (earlier === undefined) bookIn(account, payment, payment.credits - payment.returned, written);
  else if (change > 0n) takeBack(payment, change);
  else undo(account, payment, -change, written);
  written.adjustment.push(...collect(account, payment));
  const names = Object.keys(payment) as (keyof PaymentRow)[];
  const changed = earlier === undefined || names.some((name) => name !== "covers" && payment[name] !== before[name]);
  if (changed) {
    payment.revision += 1;
    const amount = creditsFromMicro(payment.credits);
    const after = { amount, returned: creditsFromMicro(payment.returned), debt: creditsFromMicro(openDebt(payment)) };
    const { organizationId, nowMs: madeAtMs } = account;
    const subject = { organizationId, subjectId: id, madeAtMs, before: null, after };
    account.newAuditEntries.push({ ...audit, ...subject, rows: writtenRows(account, before, payment, written) });
    if (payment.withheld > before.withheld) warnOfWithheld(account, payment);
  } else account.payments.set(id, before);
  return { outcome: "booked", payment: changed ? payment : before, changed };
}

const NEW_PAYMENT = {
  ...{ granted: 0n, grants: 0, revoked: 0n, covered: 0n, covers: [], returned: 0n },
  ...{ withheld: 0n, debt: 0n, debtCovered: 0n, revision: 0 },
};

/** Returns the debt that no payment has covered. */
export function openDebt({ debt, debtCovered }: Pick<PaymentRow, "debt" | "debtCovered">): MicroCredits {
  return debt - debtCovered;
}

/** Rows that a booking has written besides its payment and its grant: payments whose debts it covered, and revocations. */
type Written = { payment: PaymentRow[]; adjustment: AdjustmentRow[] };

/** Books credits that were paid for: they cover the debts of the organization, the oldest first, and the rest is granted. */
function bookIn(account: Account, payment: PaymentRow, amount: MicroCredits, written: Written): void {
  if (account.isClosed) {
    payment.withheld += amount;
    return;
  }
  let rest = amount;
  for (const debtor of account.payments.values().sort((one, other) => one.createdAtMs - other.createdAtMs)) {
    if (rest === 0n || openDebt(debtor) === 0n) continue;
    // Each of these changes the row: what cannot be collected is covered.
    written.adjustment.push(...collect(account, debtor));
    debtor.revision += 1;
    written.payment.push(debtor);
    const covered = minimum(openDebt(debtor), rest);
    if (covered === 0n) continue;
    rest -= covered;
    debtor.debtCovered += covered;
    payment.covered += covered;
    payment.covers.push({ grantId: debtor.id, amount: covered });
  }
  if (rest === 0n) return;
  payment.grants += 1;
  payment.granted += rest;
  const { organizationId, id, grants } = payment;
  // A reference grants once, so later grants have none, nor has the first one if an operator has used the reference.
  const reference = account.grants.values().some((grant) => grant.reference === id) ? null : id;
  const terms = { effectiveAtMs: null, expiresAtMs: null, priority: 0, reference };
  addGrant(account, { kind: "grant", organizationId, grantId: paymentGrantId(id, grants), amount: rest, ...terms });
}

/** Deducts credits whose money was refunded or disputed: withheld ones first; the rest is a debt until it is collected. */
function takeBack(payment: PaymentRow, amount: MicroCredits): void {
  const freed = minimum(payment.withheld, amount);
  payment.withheld -= freed;
  payment.debt += amount - freed;
}

/** Restores credits whose refund failed or whose dispute was won: it ends their debt, and books the rest as paid. */
function undo(account: Account, payment: PaymentRow, amount: MicroCredits, written: Written): void {
  const ended = minimum(openDebt(payment), amount);
  payment.debt -= ended;
  if (amount > ended) bookIn(account, payment, amount - ended, written);
}

/** Collects the payment's debt: counts what an operator has revoked of its grants, and revokes what is unspent of them. */
function collect(account: Account, payment: PaymentRow): AdjustmentRow[] {
  const adjustments: AdjustmentRow[] = [];
  const grants = grantsOfPayment(payment).flatMap((named) => account.grants.get(named.id) ?? []);
  const revoked = grants.reduce((sum, grant) => sum + grant.revoked, 0n);
  const end = (amount: MicroCredits) => {
    payment.revoked += amount;
    payment.debt -= amount;
  };
  end(minimum(revoked - payment.revoked, openDebt(payment)));
  for (const grant of grants) {
    const amount = minimum(grant.remaining, openDebt(payment));
    if (amount === 0n) continue;
    const draws = revokeFrom(account, amount, grant);
    end(amount);
    const { organizationId, nowMs: madeAtMs } = account;
    // The revoked amount of a grant only grows, so it makes a unique id.
    const id = `${grant.id}_revoked_${grant.revoked}`;
    const terms = { ...NO_TERMS, grantId: grant.id, note: "The payment was refunded or disputed, in part or in full." };
    const adjustment: AdjustmentRow = { ...terms, organizationId, id, kind: "revoke", amount, draws, madeAtMs };
    account.adjustments.insert(id, adjustment);
    adjustments.push(adjustment);
  }
  return adjustments;
}

/** Returns the rows of payments and grants that a booking has written, for its audit record. */
function writtenRows({ grants }: Account, before: PaymentRow, payment: PaymentRow, written: Written) {
  const debtors = written.payment.map(({ createdAtMs: _, ...row }) => row);
  const grant = payment.grants > before.grants && grants.get(paymentGrantId(payment.id, payment.grants));
  const { createdAtMs, ...row } = payment;
  const own = row.revision === 1 ? { ...row, createdAtMs } : row;
  return { ...written, payment: [own, ...debtors], credit_grant: grant ? [{ ...grant }] : [] };
}

/** Adds an event about a payment that the operator must refund. */
function warnOfWithheld({ organizationId, nowMs, newEvents }: Account, { id, revision, withheld }: PaymentRow): void {
  const of = { organizationId, nowMs, period: [id, revision] };
  newEvents.push(eventOf("payment.withheld", of, { payment_id: id, credits: creditsFromMicro(withheld) }));
}
