import type { AllowanceRow } from "../../credits/allowance.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  BudgetRow,
  BudgetUse,
  BudgetUseRow,
  Draw,
  GrantRow,
  HoldRow,
  IdempotencyKeyRow,
  RequestRow,
} from "../../credits/books.ts";
import type { ClosingRow } from "../../credits/closing.ts";
import { budgetUseId } from "../../credits/names.ts";
import { beganBefore } from "../../credits/request-id.ts";
import type { OrganizationRow, TokenRow } from "./accounts.ts";
import type { RecordedBalances } from "./recorded-balances.ts";
import { addAmount, checkBudgets } from "./verify-budgets.ts";
import { checkRecords } from "./verify-records.ts";
import type { ReportViolation } from "./verify-report.ts";
import {
  checkAdjustment,
  checkBalance,
  checkGrant,
  checkGrantTimes,
  checkKey,
  checkNextChange,
  checkPast,
  type Taken,
} from "./verify-rows.ts";

/** The books of an organization as one snapshot shows them, without those requests that nothing names. */
export interface BooksFound {
  /** The store's time. */
  nowMs: number;
  closing: ClosingRow | undefined;
  sums: Sums;
  recorded: RecordedBalances;
  balance: BalanceRow | undefined;
  budgets: BudgetRow[];
  budgetUses: BudgetUseRow[];
  grants: GrantRow[];
  open: HoldRow[];
  keys: IdempotencyKeyRow[];
  adjustments: AdjustmentRow[];
  /** Requests that keys and adjustments name. */
  requests: Map<string, RequestRow>;
  organization: OrganizationRow | undefined;
  tokens: TokenRow[];
  allowances: AllowanceRow[];
  records: AuditRow[];
  /** Requests of the last day whose key names none of them. */
  keyless: { id: string; idempotency_key: string }[];
}

/** Time for which an idempotency key is kept. */
export const KEY_KEPT_MS = 86_400_000;

type CheckOfBooks = (books: BooksFound, report: ReportViolation) => void;

/** The checks, in an order in which each finds the sums that it needs. */
export const CHECKS: readonly CheckOfBooks[] = [
  ...[checkAdjustments, checkCredits, checkReferences, checkKeys, checkStatement, checkTotals, checkTimes],
  ...[checkClosedBefore, checkBudgets, checkSuccessors, checkRecords],
];

/** Runs checks. One that fails hides no other. */
export function checkAll(checks: readonly CheckOfBooks[], books: BooksFound, report: ReportViolation): void {
  for (const check of checks) {
    try {
      check(books, report);
    } catch (error) {
      report(11, `The rows cannot be compared (${check.name}): ${error instanceof Error ? error.message : error}.`);
    }
  }
}

/** Sums over the rows read so far. */
export class Sums {
  costs = 0n;
  readonly spentOfToken = new Map<string, bigint>();
  readonly taken = new Map<string, Taken>();
  /** By `budgetUseId`. */
  readonly spentOfUse = new Map<string, bigint>();

  charge(tokenId: string, cost: bigint, draws: readonly Draw[], budgets: readonly BudgetUse[]): void {
    this.costs += cost;
    for (const use of budgets) addAmount(this.spentOfUse, budgetUseId(use), cost);
    addAmount(this.spentOfToken, tokenId, cost);
    this.take("drawn", draws);
  }

  take(how: keyof Taken, draws: readonly Draw[]): void {
    for (const { grantId, amount } of draws) {
      const taken = this.taken.get(grantId) ?? {};
      this.taken.set(grantId, { ...taken, [how]: (taken[how] ?? 0n) + amount });
    }
  }
}

function checkAdjustments(
  { adjustments, requests, closing, recorded, sums, nowMs }: BooksFound,
  report: ReportViolation,
) {
  for (const row of adjustments) {
    const request = row.holdId === null ? undefined : requests.get(row.holdId);
    const isRemoved = request === undefined && isClosedRequest(row.holdId, closing);
    checkAdjustment(row, isRemoved ? "removed" : request, report);
    const { kind, amount, draws, tokenId, budgets, madeAtMs } = row;
    checkPast(`The adjustment ${row.id} was made`, madeAtMs, nowMs, report, row.holdId);
    recorded.add(madeAtMs, kind === "credit" ? amount : -amount);
    if (kind === "late_settlement") sums.charge(tokenId ?? "", amount, draws, budgets);
    if (kind === "lapse") sums.take("expired", draws);
    if (kind === "revoke") sums.take("revoked", draws);
    if (kind === "credit") sums.charge(tokenId ?? "", -amount, [], budgets);
  }
}

/** Compares credits with the grants that were made for them, and with what the requests that they correct were charged. */
function checkCredits({ adjustments, grants, requests, closing }: BooksFound, report: ReportViolation): void {
  const credited = new Map<string, bigint>();
  const byId = new Map(grants.map((grant) => [grant.id, grant]));
  for (const row of adjustments) {
    const { id, kind, amount, holdId } = row;
    const sign = { credit: 1n, late_settlement: -1n, revoke: 0n, lapse: 0n }[kind];
    if (holdId !== null && sign !== 0n) credited.set(holdId, (credited.get(holdId) ?? 0n) + sign * amount);
    if (kind === "credit") checkGrantOfCredit(row, byId.get(id), report);
    if (kind === "lapse") checkLapse(row, byId, report);
    if (kind === "revoke" && row.grantId !== null && row.draws.some(({ grantId }) => grantId !== row.grantId)) {
      report(2, `The revocation ${id} of the grant ${row.grantId} takes from another one.`);
    }
  }
  for (const [holdId, amount] of credited) {
    if (!requests.has(holdId) && isClosedRequest(holdId, closing)) continue;
    const cost = requests.get(holdId)?.cost ?? 0n;
    if (amount > cost) report(5, `Credits return ${amount - cost} more than the request was charged.`, holdId);
  }
  const credits = new Set(adjustments.filter(({ kind }) => kind === "credit").map(({ id }) => id));
  for (const { id, source } of grants) {
    if (source === "credit" && !credits.has(id)) report(3, `The grant ${id} was made for no credit.`);
  }
}

function checkGrantOfCredit(row: AdjustmentRow, grant: GrantRow | undefined, report: ReportViolation): void {
  const { id, amount, expiresAtMs, madeAtMs, draws } = row;
  if (grant?.source !== "credit" || grant.amount !== amount) {
    report(1, `The credit ${id} of ${amount} has no grant of this amount.`);
    return;
  }
  if (draws.some(({ grantId }) => grantId !== id)) report(2, `The credit ${id} draws on another grant.`);
  const isSame =
    grant.expiresAtMs === expiresAtMs && grant.createdAtMs === madeAtMs && grant.effectiveAtMs === madeAtMs;
  if (!isSame) report(13, `The grant of the credit ${id} has other times than the credit.`);
  if (grant.reference !== null) report(10, `The grant of the credit ${id} has a reference of its own.`);
}

function checkLapse(row: AdjustmentRow, grants: ReadonlyMap<string, GrantRow>, report: ReportViolation): void {
  const { id, expiresAtMs, madeAtMs, draws } = row;
  const expiries = draws.map(({ grantId }) => grants.get(grantId)?.expiresAtMs);
  const isSame = expiries.every((atMs) => atMs === expiresAtMs);
  if (!isSame)
    report(13, `The lapse ${id} was due at ${expiresAtMs}, but its grant expired at ${expiries.join(", ")}.`);
  if (expiresAtMs === null || expiresAtMs > madeAtMs) report(13, `The lapse ${id} was booked before it was due.`);
}

function isClosedRequest(holdId: string | null, closing: ClosingRow | undefined): boolean {
  return holdId !== null && beganBefore(holdId, closing?.beforeAtMs ?? null);
}

function checkReferences({ grants, adjustments, allowances }: BooksFound, report: ReportViolation): void {
  for (const rows of [grants, allowances, ...Map.groupBy(adjustments, ({ kind }) => kind).values()]) {
    const seen = new Set<string>();
    for (const { reference } of rows) {
      if (reference === null) continue;
      if (seen.has(reference)) report(9, `The reference ${JSON.stringify(reference)} was booked more than once.`);
      seen.add(reference);
    }
  }
}

function checkKeys(
  { keys, open, requests, adjustments, tokens, keyless, nowMs }: BooksFound,
  report: ReportViolation,
): void {
  const holds = new Map(open.map((hold) => [hold.holdId, hold]));
  const late = new Set(adjustments.filter(({ kind }) => kind === "late_settlement").map(({ holdId }) => holdId));
  const callers = new Map(tokens.map(({ id, callerId }) => [id, callerId]));
  for (const row of keys) {
    const { holdId, callerId } = row;
    const [hold, request] = [holds.get(holdId), requests.get(holdId)];
    checkKey(row, { hold, request, isSettledLate: late.has(holdId) }, report);
    const caller = callers.get((request ?? hold)?.tokenId ?? "") ?? callerId;
    if (caller !== callerId) report(9, `The key ${JSON.stringify(row.key)} is of another caller.`, holdId);
  }
  const claimed = new Set(keys.map(({ holdId }) => holdId));
  for (const { holdId, details } of open) {
    const key = details.idempotencyKey?.key;
    if (key === undefined || claimed.has(holdId) || beganBefore(holdId, nowMs - KEY_KEPT_MS)) continue;
    reportMissing(key, holdId, report);
  }
  for (const { id, idempotency_key: key } of keyless) reportMissing(key, id, report);
}

function reportMissing(key: string, holdId: string, report: ReportViolation): void {
  report(9, `The key ${JSON.stringify(key)} of the request is missing: the request can be repeated.`, holdId);
}

function checkStatement({ grants, recorded }: BooksFound, report: ReportViolation): void {
  for (const { source, amount, createdAtMs } of grants) if (source === "grant") recorded.add(createdAtMs, amount);
  recorded.check(report);
}

function checkTotals({ balance, open, grants, sums }: BooksFound, report: ReportViolation): void {
  if (balance === undefined) {
    report(1, "The organization has no balance.");
    return;
  }
  for (const { draws } of open) sums.take("drawn", draws);
  const { taken, costs } = sums;
  const known = new Set(grants.map(({ id }) => id));
  for (const grantId of taken.keys()) {
    if (!known.has(grantId)) report(2, `The grant ${grantId}, which is drawn on, does not exist.`);
  }
  for (const grant of grants) checkGrant(grant, taken.get(grant.id) ?? {}, report);
  const inForce = grants.filter(({ state }) => state !== "pending");
  const totals = {
    granted: total(inForce, ({ source, amount, revoked }) => (source === "credit" ? -revoked : amount - revoked)),
    available: total(inForce, ({ remaining }) => remaining),
    held: total(open, ({ amount }) => amount),
    spent: costs,
    expired: total([...taken.values()], ({ expired = 0n }) => expired),
  };
  checkBalance(balance, totals, report);
  checkNextChange(balance, grants, report);
}

function checkTimes({ grants, tokens, allowances, organization, nowMs }: BooksFound, report: ReportViolation): void {
  for (const grant of grants) checkGrantTimes(grant, nowMs, report);
  for (const { id, createdAtMs, revokedAtMs, lastUsedAtMs } of tokens) {
    checkPast(`The token ${id} was made`, createdAtMs, nowMs, report);
    checkPast(`The token ${id} was revoked`, revokedAtMs, nowMs, report);
    checkPast(`The token ${id} was used`, lastUsedAtMs, nowMs, report);
  }
  for (const { id, createdAtMs, endedAtMs } of allowances) {
    checkPast(`The allowance ${id} was made`, createdAtMs, nowMs, report);
    checkPast(`The allowance ${id} ended`, endedAtMs, nowMs, report);
  }
  if (organization !== undefined) checkPast("The organization was made", organization.createdAtMs, nowMs, report);
}

function checkClosedBefore({ balance, open, closing, nowMs }: BooksFound, report: ReportViolation): void {
  const closedBeforeMs = balance?.closedBeforeMs ?? null;
  const closed = closing?.beforeAtMs;
  if (closed !== undefined && closed > (closedBeforeMs ?? 0)) {
    report(9, `Requests before ${closed} are closed, but can be booked again.`);
  }
  if (closedBeforeMs !== null && closedBeforeMs > nowMs) {
    report(13, `Requests before ${closedBeforeMs} are closed, which is in the future: new ones are refused.`);
  }
  for (const { holdId } of open) {
    if (beganBefore(holdId, closedBeforeMs)) report(7, "The hold belongs to a closed period.", holdId);
  }
}

/** A token and the one that a rotation made of it are the same caller. */
function checkSuccessors({ tokens }: BooksFound, report: ReportViolation): void {
  const byId = new Map(tokens.map((token) => [token.id, token]));
  for (const { id, callerId, successorId } of tokens) {
    if (successorId === null) continue;
    const successor = byId.get(successorId);
    if (successor === undefined) report(10, `The token ${id} has a successor that does not exist.`);
    else if (successor.callerId !== callerId) report(10, `The token ${id} and its successor are different callers.`);
  }
}

function total<Row>(rows: readonly Row[], amountOf: (row: Row) => bigint): bigint {
  return rows.reduce((sum, row) => sum + amountOf(row), 0n);
}
