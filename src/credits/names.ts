import type { AdjustmentRow, HoldRow, PaymentRow, RequestRow, Transition } from "./books.ts";
import type { Counter } from "./budget-uses.ts";
import type { CallerKey, Intent } from "./facts.ts";

/** A row of an organization, by its id or its reference. */
export interface RowName {
  organizationId: string;
  id: string;
}

/** An idempotency key of an organization; its id is that of `keyIdOf`. */
export type KeyName = RowName & CallerKey;

export type BudgetUseName = RowName & Counter;

/** The rows that a batch names. A store reads them in addition to the balances and their active grants. */
class Names {
  /** Each once, in their order. */
  organizationIds: string[] = [];
  /** Holds that the batch makes: they rarely exist already. */
  readonly newHolds: RowName[] = [];
  /** Other holds, or the ended requests of the same ids. */
  readonly holds: RowName[] = [];
  readonly keys: KeyName[] = [];
  /** Intents of new holds. */
  readonly brokenAttempts: ({ organizationId: string } & Intent)[] = [];
  readonly grants: RowName[] = [];
  readonly referredGrants: RowName[] = [];
  readonly adjustments: RowName[] = [];
  readonly referredAdjustments: (RowName & { kind: AdjustmentRow["kind"] })[] = [];
  readonly payments: RowName[] = [];
  /** Vouchers, each with the organization that redeems it. */
  readonly vouchers: RowName[] = [];
}

/** Returns the organization whose balance a transition locks. */
export function organizationIdOf(transition: Transition): string {
  return "facts" in transition ? transition.facts.organizationId : transition.organizationId;
}

/** Returns the hold of a transition, null if it has none. */
export function holdIdOf(transition: Transition): string | null {
  if ("facts" in transition) return transition.facts.holdId;
  return "holdId" in transition ? transition.holdId : null;
}

/** Returns the rows that transitions name. */
export function namesOf(transitions: readonly Transition[]): Names {
  const names = new Names();
  names.organizationIds = [...new Set(transitions.map(organizationIdOf))].sort();
  const add = (to: RowName[], organizationId: string, id: string | null) => {
    if (id !== null) to.push({ organizationId, id });
  };
  for (const transition of transitions) {
    const organizationId = organizationIdOf(transition);
    add(transition.kind === "hold" ? names.newHolds : names.holds, organizationId, holdIdOf(transition));
    if ("facts" in transition) addKey(names.keys, organizationId, transition.facts.idempotencyKey);
    if (transition.kind === "hold") {
      const { idempotency, facts } = transition;
      addKey(names.keys, organizationId, idempotency);
      if (facts.intent) names.brokenAttempts.push({ organizationId, ...facts.intent });
    }
    if (transition.kind === "grant") {
      add(names.grants, organizationId, transition.grantId);
      add(names.referredGrants, organizationId, transition.reference);
    }
    if (transition.kind === "payment") {
      add(names.payments, organizationId, transition.id);
      add(names.referredGrants, organizationId, transition.id);
    }
    if (transition.kind === "redeem") {
      add(names.vouchers, organizationId, transition.voucherId);
      add(names.grants, organizationId, voucherGrantId(transition.voucherId));
      add(names.referredGrants, organizationId, transition.voucherId);
    }
    if (transition.kind === "revoke" || transition.kind === "credit") {
      const { kind, adjustmentId, reference } = transition;
      add(names.adjustments, organizationId, adjustmentId);
      if (reference !== null) names.referredAdjustments.push({ organizationId, kind, id: reference });
      if (kind === "revoke") add(names.grants, organizationId, transition.grantId);
    }
  }
  return names;
}

/** Returns the callers of new holds, each once: a batch may have a thousand holds of one caller. */
export function callersOf(transitions: readonly Transition[]): RowName[] {
  const callers = transitions.flatMap((one) =>
    one.kind === "hold" ? { organizationId: one.facts.organizationId, id: one.callerId } : [],
  );
  return without(callers, []);
}

/** Returns the grants that holds or requests draw on. */
export function grantsOf(rows: readonly (HoldRow | RequestRow)[]): RowName[] {
  return rows.flatMap(({ organizationId, draws }) => draws.map(({ grantId: id }) => ({ organizationId, id })));
}

/** Returns the grants that were made for a payment. */
export function grantsOfPayment({ organizationId, id, grants }: PaymentRow): RowName[] {
  return Array.from({ length: grants }, (_, index) => ({ organizationId, id: paymentGrantId(id, index + 1) }));
}

/** Returns the id of a grant for a payment: the first, or a later one. */
export function paymentGrantId(paymentId: string, number: number): string {
  return `grant_${paymentId}_${number}`;
}

/** Returns the id of the grant that a voucher makes. */
export function voucherGrantId(voucherId: string): string {
  return `grant_${voucherId}`;
}

/** Returns the keys of holds and requests that have one. */
export function keysOf(holds: readonly HoldRow[], requests: readonly RequestRow[]): KeyName[] {
  const keys: KeyName[] = [];
  for (const { organizationId, details } of holds) addKey(keys, organizationId, details.idempotencyKey);
  for (const { organizationId, idempotencyKey } of requests) addKey(keys, organizationId, idempotencyKey);
  return keys;
}

/** Returns a text that identifies a key within its organization. No key contains a line feed. */
export function keyIdOf({ callerId, key }: CallerKey): string {
  return `${callerId}\n${key}`;
}

function addKey(keys: KeyName[], organizationId: string, stated: CallerKey | null | undefined): void {
  if (stated === null || stated === undefined) return;
  const { callerId, key } = stated;
  keys.push({ organizationId, id: keyIdOf(stated), callerId, key });
}

/** Returns the names of holds or requests: of themselves, or of those that keys belong to. */
export function holdNamesOf(rows: readonly { organizationId: string; holdId: string }[]): RowName[] {
  return rows.map(({ organizationId, holdId }) => ({ organizationId, id: holdId }));
}

/** Returns each name or row once, except those that `read` names. */
export function without<Named extends RowName>(names: readonly Named[], read: readonly RowName[]): Named[] {
  if (names.length === 0) return [];
  const seen = new Set(read.map(textOf));
  return names.filter((name) => {
    const text = textOf(name);
    const isNew = !seen.has(text);
    seen.add(text);
    return isNew;
  });
}

/** Ids of organizations have no spaces. */
function textOf({ organizationId, id }: RowName): string {
  return `${organizationId} ${id}`;
}
