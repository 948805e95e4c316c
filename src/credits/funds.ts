import { type MicroCredits, minimum } from "./amount.ts";
import type { BalanceRow, CreditTransition, GrantRow, GrantTransition } from "./books.ts";
import type { Draw } from "./facts.ts";
import { armCredits } from "./warnings.ts";

/**
 * The balance and the grants of one organization while a batch is decided, changed in place. Every function preserves
 * granted = available + held + spent + expired, unless its comment names a part that the caller must book, and
 * keeps available equal to the remaining amounts of the active grants.
 */
export interface Funds {
  balance: BalanceRow;
  grants: Map<string, GrantRow>;
  /** Active grants in the order in which they are drawn down; null if the order must be computed again. */
  drawOrder: GrantRow[] | null;
  expiries: Expiry[];
}

/** Expired part of a grant, with the organization's expired amount afterwards. */
interface Expiry extends Draw {
  expired: MicroCredits;
  /** When the grant expired. */
  dueAtMs: number | null;
}

/** Copies an organization's rows, and activates or expires every grant that is due by `nowMs`. */
export function openFunds(balance: BalanceRow, grants: readonly GrantRow[], nowMs: number): Funds {
  const funds: Funds = {
    balance: { ...balance },
    grants: new Map(grants.map((grant) => [grant.id, { ...grant }])),
    drawOrder: null,
    expiries: [],
  };
  if (balance.nextChangeAtMs !== null && balance.nextChangeAtMs <= nowMs) applyDue(funds, nowMs);
  return funds;
}

/** Draws `amount`, at most the available amount, from the grants in their order. The caller books it as held or spent. */
export function take(funds: Funds, amount: MicroCredits): Draw[] {
  const draws: Draw[] = [];
  let missing = amount;
  for (const grant of missing > 0n ? inDrawOrder(funds) : []) {
    const drawn = minimum(grant.remaining, missing);
    if (drawn === 0n) continue;
    grant.remaining -= drawn;
    missing -= drawn;
    draws.push({ grantId: grant.id, amount: drawn });
    if (missing === 0n) break;
  }
  if (missing !== 0n) throw new Error("the grants have less than the balance has available");
  funds.balance.available -= amount;
  return draws;
}

/**
 * Returns drawn amounts to their grants; the amount of a grant that has expired since is booked as expired. The caller
 * subtracts the amounts from those held or spent.
 */
export function returnDraws(funds: Funds, draws: readonly Draw[], nowMs: number): void {
  for (const { grantId, amount } of draws) {
    const grant = funds.grants.get(grantId);
    if (grant === undefined) throw new Error(`the grant ${grantId} of a hold is missing in the rows`);
    if (grant.state === "expired" || isPast(grant.expiresAtMs, nowMs)) {
      bookExpiry(funds, grant, amount);
      continue;
    }
    grant.remaining += amount;
    funds.balance.available += amount;
    scheduleChange(funds, grant.expiresAtMs);
  }
}

/**
 * Adds a grant: active at once if it has taken effect, expired at once if its expiry has passed. Returns the earlier
 * grant instead if the organization has one with the same id or reference.
 */
export function addGrant(
  funds: Funds,
  transition: GrantTransition,
  nowMs: number,
): { grant: GrantRow; first: boolean } {
  const earlier = findGrant(funds, transition);
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
  funds.grants.set(grant.id, grant);
  if (grant.effectiveAtMs > nowMs) scheduleChange(funds, grant.effectiveAtMs);
  else {
    activate(funds, grant);
    if (isPast(grant.expiresAtMs, nowMs)) expireGrant(funds, grant);
    else if (grant.remaining > 0n) scheduleChange(funds, grant.expiresAtMs);
  }
  return { grant, first: true };
}

/** Returns the largest amount that can be revoked: of a grant, or of all active grants. */
export function revocableIn({ balance }: Funds, named: GrantRow | null): MicroCredits {
  if (named === null) return balance.available;
  return named.state === "pending" ? named.amount - named.revoked : named.remaining;
}

/**
 * Revokes `amount`, at most that of `revocableIn`: from the named grant, or from the active grants in the order of drawing.
 * A pending grant is reduced before it takes effect.
 */
export function revokeFrom(funds: Funds, amount: MicroCredits, named: GrantRow | null): Draw[] {
  const { balance } = funds;
  if (named !== null && named.state === "pending") {
    named.revoked += amount;
    return amount === 0n ? [] : [{ grantId: named.id, amount }];
  }
  const draws: Draw[] = [];
  let left = amount;
  for (const grant of named === null ? inDrawOrder(funds) : [named]) {
    const revoked = minimum(left, grant.remaining);
    if (revoked === 0n) continue;
    left -= revoked;
    grant.remaining -= revoked;
    grant.revoked += revoked;
    balance.available -= revoked;
    balance.granted -= revoked;
    draws.push({ grantId: grant.id, amount: revoked });
  }
  if (left !== 0n) throw new Error("the grants have less than the balance has available");
  return draws;
}

/** Refunds spent credits as a grant of their own that is active at once. The caller subtracts them from those spent. */
export function addCredit(funds: Funds, transition: CreditTransition, nowMs: number): Draw {
  const { organizationId, adjustmentId: id, amount, expiresAtMs, priority } = transition;
  if (funds.grants.has(id)) throw new Error(`the grant ${id} exists already`);
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
  funds.grants.set(id, grant);
  funds.balance.available += amount;
  funds.drawOrder = null;
  if (isPast(expiresAtMs, nowMs)) expireGrant(funds, grant);
  else if (amount > 0n) scheduleChange(funds, expiresAtMs);
  return { grantId: id, amount };
}

function applyDue(funds: Funds, nowMs: number): void {
  for (const grant of funds.grants.values()) {
    if (grant.state === "pending" && grant.effectiveAtMs <= nowMs) activate(funds, grant);
    // A grant with nothing remaining may be missing among the rows, so it is not changed.
    if (grant.remaining > 0n && isPast(grant.expiresAtMs, nowMs)) expireGrant(funds, grant);
  }
  funds.balance.nextChangeAtMs = null;
  for (const grant of funds.grants.values()) {
    if (grant.state === "pending") scheduleChange(funds, grant.effectiveAtMs);
    else if (grant.remaining > 0n) scheduleChange(funds, grant.expiresAtMs);
  }
}

function activate(funds: Funds, grant: GrantRow): void {
  grant.state = "active";
  grant.remaining = grant.amount - grant.revoked;
  funds.balance.granted += grant.remaining;
  funds.balance.available += grant.remaining;
  if (grant.remaining > 0n) armCredits(funds.balance, grant.remaining);
  funds.drawOrder = null;
}

function expireGrant(funds: Funds, grant: GrantRow): void {
  funds.balance.available -= grant.remaining;
  bookExpiry(funds, grant, grant.remaining);
  grant.state = "expired";
  grant.remaining = 0n;
}

function bookExpiry({ balance, expiries }: Funds, grant: GrantRow, amount: MicroCredits): void {
  if (amount === 0n) return;
  balance.expired += amount;
  expiries.push({ grantId: grant.id, amount, expired: balance.expired, dueAtMs: grant.expiresAtMs });
}

function findGrant(funds: Funds, { grantId, reference }: GrantTransition): GrantRow | undefined {
  const sameId = funds.grants.get(grantId);
  if (sameId !== undefined || reference === null) return sameId;
  for (const grant of funds.grants.values()) if (grant.reference === reference) return grant;
  return undefined;
}

function inDrawOrder(funds: Funds): GrantRow[] {
  funds.drawOrder ??= [...funds.grants.values()].filter((grant) => grant.state === "active").sort(compareForDraw);
  return funds.drawOrder;
}

/** Orders grants by priority, then by the soonest expiry, then by id. */
function compareForDraw(a: GrantRow, b: GrantRow): number {
  if (a.priority !== b.priority) return a.priority - b.priority;
  const expiryA = a.expiresAtMs ?? Number.POSITIVE_INFINITY;
  const expiryB = b.expiresAtMs ?? Number.POSITIVE_INFINITY;
  if (expiryA !== expiryB) return expiryA < expiryB ? -1 : 1;
  if (a.id === b.id) return 0;
  return a.id < b.id ? -1 : 1;
}

function scheduleChange(funds: Funds, atMs: number | null): void {
  const { balance } = funds;
  if (atMs === null) return;
  if (balance.nextChangeAtMs === null || atMs < balance.nextChangeAtMs) balance.nextChangeAtMs = atMs;
}

function isPast(atMs: number | null, nowMs: number): boolean {
  return atMs !== null && atMs <= nowMs;
}

/** Splits draws into the first `amount` of them and the rest. */
export function splitDraws(draws: readonly Draw[], amount: MicroCredits): { front: Draw[]; rest: Draw[] } {
  const front: Draw[] = [];
  const rest: Draw[] = [];
  let left = amount;
  for (const draw of draws) {
    const kept = minimum(draw.amount, left);
    left -= kept;
    if (kept > 0n) front.push({ grantId: draw.grantId, amount: kept });
    if (kept < draw.amount) rest.push({ grantId: draw.grantId, amount: draw.amount - kept });
  }
  return { front, rest };
}

/** Joins draws; each grant appears once, in the order of its first draw. */
export function mergeDraws(draws: readonly Draw[], more: readonly Draw[]): Draw[] {
  if (more.length === 0) return [...draws];
  const amounts = new Map<string, MicroCredits>();
  for (const { grantId, amount } of [...draws, ...more]) amounts.set(grantId, (amounts.get(grantId) ?? 0n) + amount);
  return [...amounts].map(([grantId, amount]) => ({ grantId, amount }));
}

/** Returns the sum of draws, in micro-credits. */
export function sumOfDraws(draws: readonly Draw[]): MicroCredits {
  return draws.reduce((sum, draw) => sum + draw.amount, 0n);
}
