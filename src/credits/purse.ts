import { type MicroCredits, minimum } from "./amount.ts";
import type { BalanceRow, CreditTransition, Draw, GrantRow, GrantTransition } from "./books.ts";

/**
 * The balance and the grants of one organization while a batch is decided, changed in place. Every function here keeps
 * granted = available + held + spent + expired, except where it says what its caller has to add, and keeps available
 * equal to what remains of the active grants.
 */
export interface Purse {
  balance: BalanceRow;
  grants: Map<string, GrantRow>;
  /** Active grants in the order in which they are drawn down; null when it has to be made anew. */
  drawOrder: GrantRow[] | null;
  lapses: Lapse[];
}

/** Expired part of a grant, and the expired amount of the organization afterwards. */
export interface Lapse extends Draw {
  expired: MicroCredits;
  /** When the grant expired. */
  dueAtMs: number | null;
}

/** Takes copies of an organization's rows, with every grant that is due by `nowMs` applied. */
export function openPurse(balance: BalanceRow, grants: readonly GrantRow[], nowMs: number): Purse {
  const purse: Purse = {
    balance: { ...balance },
    grants: new Map(grants.map((grant) => [grant.id, { ...grant }])),
    drawOrder: null,
    lapses: [],
  };
  if (balance.nextChangeAtMs !== null && balance.nextChangeAtMs <= nowMs) applyDue(purse, nowMs);
  return purse;
}

/**
 * Takes `amount`, at most what is available, from the grants in their order. The caller books it as held or spent.
 */
export function take(purse: Purse, amount: MicroCredits): Draw[] {
  const draws: Draw[] = [];
  let missing = amount;
  for (const grant of missing > 0n ? inDrawOrder(purse) : []) {
    const drawn = minimum(grant.remaining, missing);
    if (drawn === 0n) continue;
    grant.remaining -= drawn;
    missing -= drawn;
    draws.push({ grantId: grant.id, amount: drawn });
    if (missing === 0n) break;
  }
  if (missing !== 0n) throw new Error("grants hold less than the balance says is available");
  purse.balance.available -= amount;
  return draws;
}

/**
 * Gives what was drawn back to its grants; what belongs to a grant that has lapsed since is expired. The caller takes
 * it off what is held or spent.
 */
export function putBack(purse: Purse, draws: readonly Draw[], nowMs: number): void {
  for (const { grantId, amount } of draws) {
    const grant = purse.grants.get(grantId);
    if (grant === undefined) throw new Error(`the rows lack grant ${grantId}, which a hold draws on`);
    if (grant.state === "lapsed" || isPast(grant.expiresAtMs, nowMs)) {
      expire(purse, grant, amount);
      continue;
    }
    grant.remaining += amount;
    purse.balance.available += amount;
    changeNoLaterThan(purse, grant.expiresAtMs);
  }
}

/**
 * Adds a grant, in force at once where its date has come and lapsed at once where its expiry has. One whose id or
 * reference the organization has had before is not added: the first is given back.
 */
export function addGrant(
  purse: Purse,
  transition: GrantTransition,
  nowMs: number,
): { grant: GrantRow; first: boolean } {
  const earlier = findGrant(purse, transition);
  if (earlier !== undefined) return { grant: earlier, first: false };
  const grant: GrantRow = {
    organizationId: transition.organizationId,
    id: transition.grantId,
    source: "grant",
    amount: transition.amount,
    revoked: 0n,
    remaining: 0n,
    state: "pending",
    effectiveAtMs: transition.effectiveAtMs ?? nowMs,
    expiresAtMs: transition.expiresAtMs,
    priority: transition.priority,
    reference: transition.reference,
    createdAtMs: nowMs,
  };
  purse.grants.set(grant.id, grant);
  if (grant.effectiveAtMs > nowMs) changeNoLaterThan(purse, grant.effectiveAtMs);
  else {
    activate(purse, grant);
    if (isPast(grant.expiresAtMs, nowMs)) lapse(purse, grant);
    else if (grant.remaining > 0n) changeNoLaterThan(purse, grant.expiresAtMs);
  }
  return { grant, first: true };
}

/** The largest amount that can be revoked: of a grant, or of all grants in force. */
export function revocableIn({ balance }: Purse, named: GrantRow | null): MicroCredits {
  if (named === null) return balance.available;
  return named.state === "pending" ? named.amount - named.revoked : named.remaining;
}

/**
 * Takes back `amount`, which is at most what `revocableIn` allows: from the named grant, or from the grants in force in the
 * order of drawing. A pending grant is reduced before it takes effect.
 */
export function revoke(purse: Purse, amount: MicroCredits, named: GrantRow | null): Draw[] {
  const { balance } = purse;
  if (named !== null && named.state === "pending") {
    named.revoked += amount;
    return amount === 0n ? [] : [{ grantId: named.id, amount }];
  }
  const draws: Draw[] = [];
  let left = amount;
  for (const grant of named === null ? inDrawOrder(purse) : [named]) {
    const revoked = minimum(left, grant.remaining);
    if (revoked === 0n) continue;
    left -= revoked;
    grant.remaining -= revoked;
    grant.revoked += revoked;
    balance.available -= revoked;
    balance.granted -= revoked;
    draws.push({ grantId: grant.id, amount: revoked });
  }
  if (left !== 0n) throw new Error("grants hold less than the balance says is available");
  return draws;
}

/** Gives back what was spent, as a grant of its own that is in force at once. The caller takes it off what is spent. */
export function giveCredit(purse: Purse, transition: CreditTransition, nowMs: number): Draw {
  const { organizationId, adjustmentId: id, amount, expiresAtMs, priority } = transition;
  if (purse.grants.has(id)) throw new Error(`there is a grant ${id} already`);
  const lasting = { effectiveAtMs: nowMs, expiresAtMs, priority, reference: null, createdAtMs: nowMs };
  const grant: GrantRow = {
    organizationId,
    id,
    source: "credit",
    amount,
    revoked: 0n,
    remaining: amount,
    state: "active",
    ...lasting,
  };
  purse.grants.set(id, grant);
  purse.balance.available += amount;
  purse.drawOrder = null;
  if (isPast(expiresAtMs, nowMs)) lapse(purse, grant);
  else if (amount > 0n) changeNoLaterThan(purse, expiresAtMs);
  return { grantId: id, amount };
}

function applyDue(purse: Purse, nowMs: number): void {
  for (const grant of purse.grants.values()) {
    if (grant.state === "pending" && grant.effectiveAtMs <= nowMs) activate(purse, grant);
    // A grant with nothing left may or may not be among the rows: left as it is, the outcome is the same.
    if (grant.remaining > 0n && isPast(grant.expiresAtMs, nowMs)) lapse(purse, grant);
  }
  purse.balance.nextChangeAtMs = null;
  for (const grant of purse.grants.values()) {
    if (grant.state === "pending") changeNoLaterThan(purse, grant.effectiveAtMs);
    else if (grant.remaining > 0n) changeNoLaterThan(purse, grant.expiresAtMs);
  }
}

function activate(purse: Purse, grant: GrantRow): void {
  grant.state = "active";
  grant.remaining = grant.amount - grant.revoked;
  purse.balance.granted += grant.remaining;
  purse.balance.available += grant.remaining;
  purse.drawOrder = null;
}

function lapse(purse: Purse, grant: GrantRow): void {
  purse.balance.available -= grant.remaining;
  expire(purse, grant, grant.remaining);
  grant.state = "lapsed";
  grant.remaining = 0n;
}

function expire({ balance, lapses }: Purse, grant: GrantRow, amount: MicroCredits): void {
  if (amount === 0n) return;
  balance.expired += amount;
  lapses.push({ grantId: grant.id, amount, expired: balance.expired, dueAtMs: grant.expiresAtMs });
}

function findGrant(purse: Purse, { grantId, reference }: GrantTransition): GrantRow | undefined {
  const sameId = purse.grants.get(grantId);
  if (sameId !== undefined || reference === null) return sameId;
  for (const grant of purse.grants.values()) if (grant.reference === reference) return grant;
  return undefined;
}

function inDrawOrder(purse: Purse): GrantRow[] {
  purse.drawOrder ??= [...purse.grants.values()].filter((grant) => grant.state === "active").sort(compareForDraw);
  return purse.drawOrder;
}

/** Priority, then the soonest expiry, then id. */
function compareForDraw(a: GrantRow, b: GrantRow): number {
  if (a.priority !== b.priority) return a.priority - b.priority;
  const expiryA = a.expiresAtMs ?? Number.POSITIVE_INFINITY;
  const expiryB = b.expiresAtMs ?? Number.POSITIVE_INFINITY;
  if (expiryA !== expiryB) return expiryA < expiryB ? -1 : 1;
  if (a.id === b.id) return 0;
  return a.id < b.id ? -1 : 1;
}

function changeNoLaterThan(purse: Purse, atMs: number | null): void {
  const { balance } = purse;
  if (atMs === null) return;
  if (balance.nextChangeAtMs === null || atMs < balance.nextChangeAtMs) balance.nextChangeAtMs = atMs;
}

function isPast(atMs: number | null, nowMs: number): boolean {
  return atMs !== null && atMs <= nowMs;
}
