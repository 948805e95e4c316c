import { type MicroCredits, minimum } from "./amount.ts";
import type { Account } from "./batch.ts";
import type { AdjustmentRow, CreditTransition, GrantRow, GrantTransition } from "./books.ts";
import type { Draw } from "./facts.ts";
import { armCredits } from "./warnings.ts";

/** Activates or expires every grant that is due. */
export function applyDue(account: Account): void {
  const { balance, grants, nowMs } = account;
  if (!isPast(balance.nextChangeAtMs, nowMs)) return;
  balance.nextChangeAtMs = null;
  for (const grant of grants.values()) {
    if (grant.state === "pending" && grant.effectiveAtMs <= nowMs) activate(account, grant);
    if (grant.state === "pending") scheduleChange(account, grant.effectiveAtMs);
    // A grant with nothing remaining may be missing among the rows, so it is not changed.
    else if (grant.remaining > 0n) expireOrSchedule(account, grant);
  }
}

/** Draws `amount`, at most the available amount, from the grants in their order. The caller books it as held or spent. */
export function take(account: Account, amount: MicroCredits): Draw[] {
  return amount > 0n ? drawFrom(account, inDrawOrder(account), amount) : [];
}

function drawFrom({ balance }: Account, grants: readonly GrantRow[], amount: MicroCredits): Draw[] {
  const draws: Draw[] = [];
  let missing = amount;
  for (const grant of grants) {
    const drawn = minimum(grant.remaining, missing);
    if (drawn === 0n) continue;
    grant.remaining -= drawn;
    missing -= drawn;
    draws.push({ grantId: grant.id, amount: drawn });
    if (missing === 0n) break;
  }
  if (missing !== 0n) throw new Error("the grants have less than the balance has available");
  balance.available -= amount;
  return draws;
}

/**
 * Returns drawn amounts to their grants; the amount of a grant that has expired since is booked as expired. The caller
 * subtracts the amounts from those held or spent.
 */
export function returnDraws(account: Account, draws: readonly Draw[]): void {
  const { balance, grants, nowMs } = account;
  for (const { grantId, amount } of draws) {
    const grant = grants.get(grantId);
    if (grant === undefined) throw new Error(`the grant ${grantId} of a hold is missing in the rows`);
    if (grant.state === "expired" || isPast(grant.expiresAtMs, nowMs)) {
      bookExpiry(account, grant, amount);
      continue;
    }
    grant.remaining += amount;
    balance.available += amount;
    scheduleChange(account, grant.expiresAtMs);
  }
}

type GrantTerms = Pick<GrantRow, "id" | "source" | "amount" | "expiresAtMs" | "priority" | "reference"> & {
  effectiveAtMs: number | null;
};

/** Adds a pending grant; one without a time takes effect now. */
function newGrant(account: Account, terms: GrantTerms): GrantRow {
  const { organizationId, nowMs, grants } = account;
  const nothing = { revoked: 0n, remaining: 0n, state: "pending" } as const;
  const effectiveAtMs = terms.effectiveAtMs ?? nowMs;
  const grant: GrantRow = { organizationId, ...terms, ...nothing, effectiveAtMs, createdAtMs: nowMs };
  grants.insert(grant.id, grant);
  return grant;
}

/**
 * Adds a grant: active at once if it has taken effect, expired at once if its expiry has passed. Returns the earlier
 * grant instead if the organization has one with the same id or reference.
 */
export function addGrant(account: Account, transition: GrantTransition): { grant: GrantRow; first: boolean } {
  const earlier = findGrant(account, transition);
  if (earlier !== undefined) return { grant: earlier, first: false };
  const { grantId: id, amount, effectiveAtMs, expiresAtMs, priority, reference } = transition;
  const grant = newGrant(account, { id, source: "grant", amount, effectiveAtMs, expiresAtMs, priority, reference });
  if (grant.effectiveAtMs > account.nowMs) scheduleChange(account, grant.effectiveAtMs);
  else {
    activate(account, grant);
    expireOrSchedule(account, grant);
  }
  return { grant, first: true };
}

/** Returns the largest amount that can be revoked: of a grant, or of all active grants. */
export function revocableIn({ balance }: Account, named: GrantRow | null): MicroCredits {
  if (named === null) return balance.available;
  return named.state === "pending" ? named.amount - named.revoked : named.remaining;
}

/**
 * Revokes `amount`, at most that of `revocableIn`: from the named grant, or from the active grants in the order of drawing.
 * A pending grant is reduced before it takes effect.
 */
export function revokeFrom(account: Account, amount: MicroCredits, named: GrantRow | null): Draw[] {
  const { balance, grants } = account;
  if (named !== null && named.state === "pending") {
    named.revoked += amount;
    return amount === 0n ? [] : [{ grantId: named.id, amount }];
  }
  const draws = drawFrom(account, named === null ? inDrawOrder(account) : [named], amount);
  balance.granted -= amount;
  for (const draw of draws) {
    const grant = grants.get(draw.grantId);
    if (grant !== undefined) grant.revoked += draw.amount;
  }
  return draws;
}

/** Refunds spent credits as a grant of their own that is active at once. The caller subtracts them from those spent. */
export function addCredit(account: Account, transition: CreditTransition): Draw {
  const { adjustmentId: id, amount, expiresAtMs, priority } = transition;
  const terms = { source: "credit", effectiveAtMs: null, expiresAtMs, priority, reference: null } as const;
  const grant = newGrant(account, { id, amount, ...terms });
  grant.state = "active";
  grant.remaining = amount;
  account.balance.available += amount;
  account.drawOrder = null;
  expireOrSchedule(account, grant);
  return { grantId: id, amount };
}

function activate(account: Account, grant: GrantRow): void {
  const { balance } = account;
  grant.state = "active";
  grant.remaining = grant.amount - grant.revoked;
  balance.granted += grant.remaining;
  balance.available += grant.remaining;
  if (grant.remaining > 0n) armCredits(balance, grant.remaining);
  account.drawOrder = null;
}

/** Expires an active grant that is due, or notes when it will be. */
function expireOrSchedule(account: Account, grant: GrantRow): void {
  if (!isPast(grant.expiresAtMs, account.nowMs)) {
    if (grant.remaining > 0n) scheduleChange(account, grant.expiresAtMs);
    return;
  }
  account.balance.available -= grant.remaining;
  bookExpiry(account, grant, grant.remaining);
  grant.state = "expired";
  grant.remaining = 0n;
}

/** The terms of an adjustment that has none. */
export const NO_TERMS = {
  isAll: false,
  grantId: null,
  expiresAtMs: null,
  holdId: null,
  tokenId: null,
  budgets: null,
  reference: null,
  note: null,
  settlement: null,
} satisfies Partial<AdjustmentRow>;

/** Books an expired amount. The expired amount of an organization only grows, so it makes a unique id. */
function bookExpiry(
  { organizationId, balance, adjustments, nowMs }: Account,
  grant: GrantRow,
  amount: MicroCredits,
): void {
  if (amount === 0n) return;
  balance.expired += amount;
  const id = `lapse_${balance.expired}`;
  const draws = [{ grantId: grant.id, amount }];
  const { expiresAtMs } = grant;
  const terms = { ...NO_TERMS, amount, draws, expiresAtMs, madeAtMs: nowMs };
  adjustments.insert(id, { organizationId, id, kind: "lapse", ...terms });
}

function findGrant({ grants }: Account, { grantId, reference }: GrantTransition): GrantRow | undefined {
  const sameId = grants.get(grantId);
  if (sameId !== undefined || reference === null) return sameId;
  return grants.values().find((grant) => grant.reference === reference);
}

function inDrawOrder(account: Account): GrantRow[] {
  const { grants } = account;
  account.drawOrder ??= grants
    .values()
    .filter((grant) => grant.state === "active")
    .sort(compareForDraw);
  return account.drawOrder;
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

function scheduleChange({ balance }: Account, atMs: number | null): void {
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
