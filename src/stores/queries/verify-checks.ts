import type { AdjustmentRow, BudgetRow, BudgetUseRow, GrantRow, RequestRow } from "../../credits/books.ts";
import { type Counter, counterIdOf, countersIn } from "../../credits/budget-uses.ts";
import { windowAt, windowEnd } from "../../credits/budgets.ts";
import { addAmount, type ChargeSums, type ClosingRow } from "../../credits/closing.ts";
import type { BudgetUse, Draw } from "../../credits/facts.ts";
import { beganBefore, idAt } from "../../credits/request-id.ts";
import { AUDIT_ENTRY, VOUCHER, VOUCHER_BATCH } from "../admin-schema.ts";
import type { Database } from "../database.ts";
import { ORGANIZATION, REQUEST } from "../schema.ts";
import { raw, type Sql, sql } from "../sql.ts";
import { checkPayments, checkRecords, checkVouchers } from "./verify-records.ts";
import {
  AHEAD_MS,
  checkEach,
  compare,
  type ReportViolation,
  type RowsOfTables,
  soundRows,
  TABLES,
} from "./verify-report.ts";
import { checkAdjustment, checkGrant, checkHold, checkKey, checkNextChange, type HoldLimits } from "./verify-rows.ts";

const KEY_KEPT_MS = 86_400_000;

type ReadBooks = Awaited<ReturnType<typeof readBooks>>;

/** Reads the rows of an organization that may change, and the requests that were booked last, in one snapshot. */
export async function readBooks(
  database: Database,
  organizationId: string,
  { newestFromMs, report }: { newestFromMs: number; report: ReportViolation },
) {
  const queries = queriesOf(database, organizationId, newestFromMs);
  const results = await database.snapshot(Object.values(queries));
  const entries = Object.keys(queries).map((name, index) => [name, results[index] ?? []]);
  const found: Record<keyof typeof queries, Record<string, unknown>[]> = Object.fromEntries(entries);
  const nowMs = Number(found.state[0]?.now);
  const rows = Object.entries(TABLES).map(([name, table]) => {
    return [name, checkEach<object>(table as never, found[name as keyof typeof TABLES], report, nowMs)];
  });
  return {
    ...(Object.fromEntries(rows) as RowsOfTables),
    nowMs,
    closedBeforeMs: Number(found.state[0]?.closed_before),
    // Requests are reported where all of them are read, the next four by `verifyStore`.
    newest: soundRows(REQUEST, found.newest),
    named: soundRows(REQUEST, found.named),
    organization: soundRows(ORGANIZATION, found.organization)[0],
    records: soundRows(AUDIT_ENTRY, found.records),
    vouchers: soundRows(VOUCHER, found.vouchers),
    batches: soundRows(VOUCHER_BATCH, found.batches),
    ended: found.ended as { id: string }[],
    keyless: found.keyless as { id: string; key: string }[],
  };
}

function queriesOf(database: Database, organizationId: string, newestFromMs: number) {
  const of = sql`where organization_id = ${organizationId}`;
  const whole = Object.entries(TABLES).map(([name, table]) => {
    // The answers of keys may be long.
    const columns = table.columns.map((column) => (column === "answer" ? "substr(answer, 1, 0) as answer" : column));
    return [name, sql`select ${raw(columns.join(", "))} from ${raw(table.name)} ${of}`];
  });
  const named = sql`select hold_id from adjustment ${of} union select hold_id from idempotency_key ${of}`;
  const dayAgo = sql`${database.now()} - ${raw(KEY_KEPT_MS)}`;
  return {
    ...(Object.fromEntries(whole) as Record<keyof typeof TABLES, Sql>),
    state: sql`select ${database.now()} as now, coalesce((select before_at from closing ${of}), 0) as closed_before`,
    organization: sql`select * from organization where id = ${organizationId}`,
    records: sql`select * from audit_entry ${of} and written_rows is not null order by id`,
    vouchers: sql`select * from voucher ${of}`,
    batches: sql`select * from voucher_batch where id in (select batch_id from voucher ${of})`,
    newest: sql`select * from request ${of} and ended_at >= ${newestFromMs} and ending <> 'released'`,
    named: sql`select * from request ${of} and id in (${named})`,
    ended: sql`
      select id from hold ${of} and exists (
        select 1 from request where request.organization_id = hold.organization_id and request.id = hold.id)`,
    // Keys are kept for a day. One that was claimed again names a later request, but only after that.
    keyless: sql`
      select id, idempotency_key as key from request ${of} and id >= ${idAt(newestFromMs - KEY_KEPT_MS)}
        and made_at > ${dayAgo} and idempotency_key is not null and ending <> 'released' and not exists (
        select 1 from idempotency_key as claimed
        where claimed.organization_id = request.organization_id and claimed.key = request.idempotency_key
          and claimed.caller_id = request.idempotency_caller_id and claimed.hold_id = request.id)`,
  };
}

/** The books of an organization as one snapshot shows them, without those requests that nothing names. */
export interface BooksFound extends ReadBooks {
  closing: ClosingRow | undefined;
  sums: ChargeSums;
  /** Requests that keys and adjustments name, by id. */
  requests: ReadonlyMap<string, RequestRow>;
  limits: HoldLimits;
}

type CheckOfBooks = (books: BooksFound, report: ReportViolation) => void;

/** The checks, in an order in which each finds the sums that it needs. */
const CHECKS: readonly CheckOfBooks[] = [
  ...[checkHolds, checkAdjustments, checkCredits, checkReferences, checkKeys, checkTotals],
  ...[checkTimes, checkClosedBefore, checkBudgets, checkSuccessors, checkPayments, checkVouchers, checkRecords],
];

/** Runs the checks. One that fails hides no other. */
export function checkBooks(books: BooksFound, report: ReportViolation): void {
  for (const check of CHECKS) {
    try {
      check(books, report);
    } catch (error) {
      report(11, `The rows cannot be compared (${check.name}): ${error instanceof Error ? error.message : error}.`);
    }
  }
}

function checkHolds({ holds, limits, ended }: BooksFound, report: ReportViolation): void {
  for (const hold of holds) checkHold(hold, limits, report);
  for (const { id } of ended) report(7, "The request is both open and ended.", id);
}

function checkAdjustments({ adjustments, requests, closing, sums }: BooksFound, report: ReportViolation): void {
  for (const row of adjustments) {
    const { kind, amount, draws, tokenId, budgets, holdId } = row;
    const request = holdId === null ? undefined : requests.get(holdId);
    const isRemoved = request === undefined && isClosedRequest(holdId, closing);
    checkAdjustment(row, isRemoved ? "removed" : request, report);
    const charged = { tokenId: tokenId ?? "", budgets };
    if (kind === "late_settlement") sums.add({ ...charged, cost: amount, draws });
    if (kind === "credit") sums.add({ ...charged, cost: -amount, draws: [] });
  }
}

/** Compares credits with the grants that were made for them, and with what the requests that they correct were charged. */
function checkCredits({ adjustments, grants, requests, closing }: BooksFound, report: ReportViolation): void {
  const credited = new Map<string, bigint>();
  const byId = new Map(grants.map((grant) => [grant.id, grant]));
  for (const row of adjustments) {
    const { id, kind, amount, holdId } = row;
    const sign = { credit: 1n, late_settlement: -1n, revoke: 0n, lapse: 0n }[kind];
    if (holdId !== null && sign !== 0n) addAmount(credited, holdId, sign * amount);
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
  const [what, source] = [`grant of the credit ${id}`, "the credit says"];
  compare(report, 13, what, grant, { expiresAtMs, createdAtMs: madeAtMs, effectiveAtMs: madeAtMs }, source);
  compare(report, 10, what, grant, { reference: null }, source);
}

function checkLapse(row: AdjustmentRow, grants: ReadonlyMap<string, GrantRow>, report: ReportViolation): void {
  const { id, expiresAtMs, madeAtMs, draws } = row;
  for (const { grantId } of draws) {
    const { expiresAtMs: expiry } = grants.get(grantId) ?? {};
    if (expiry !== expiresAtMs)
      report(13, `The lapse ${id} was due at ${expiresAtMs}, but its grant expired at ${expiry}.`);
  }
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

function checkKeys(books: BooksFound, report: ReportViolation): void {
  const { keys, holds, requests, adjustments, tokens, keyless, limits } = books;
  const open = new Map(holds.map((hold) => [hold.holdId, hold]));
  const late = new Set(adjustments.filter(({ kind }) => kind === "late_settlement").map(({ holdId }) => holdId));
  const callers = new Map(tokens.map(({ id, callerId }) => [id, callerId]));
  for (const row of keys) {
    const { holdId, callerId } = row;
    const [hold, request] = [open.get(holdId), requests.get(holdId)];
    checkKey(row, { hold, request, isSettledLate: late.has(holdId) }, report);
    const caller = callers.get((request ?? hold)?.tokenId ?? "") ?? callerId;
    if (caller !== callerId) report(9, `The key ${JSON.stringify(row.key)} is of another caller.`, holdId);
  }
  const claimed = new Set(keys.map(({ holdId }) => holdId));
  const unclaimed = holds.flatMap(({ holdId: id, details }) => {
    const isKept = !beganBefore(id, limits.nowMs - KEY_KEPT_MS);
    return details.idempotencyKey !== null && isKept && !claimed.has(id)
      ? [{ id, key: details.idempotencyKey.key }]
      : [];
  });
  for (const { id, key } of [...unclaimed, ...keyless]) {
    report(9, `The key ${JSON.stringify(key)} of the request is missing: the request can be repeated.`, id);
  }
}

function checkTotals({ balances: [balance], holds, grants, adjustments, sums }: BooksFound, report: ReportViolation) {
  if (balance === undefined) {
    report(1, "The organization has no balance.");
    return;
  }
  const drawn = drawsOn([{ draws: [...sums.byGrant].map(([grantId, amount]) => ({ grantId, amount })) }, ...holds]);
  const expired = drawsOn(adjustments.filter(({ kind }) => kind === "lapse"));
  const revoked = drawsOn(adjustments.filter(({ kind }) => kind === "revoke"));
  const known = new Set(grants.map(({ id }) => id));
  for (const grantId of new Set([drawn, expired, revoked].flatMap((draws) => [...draws.keys()]))) {
    if (!known.has(grantId)) report(2, `The grant ${grantId}, which is drawn on, does not exist.`);
  }
  for (const grant of grants) {
    const { id } = grant;
    checkGrant(grant, { drawn: drawn.get(id), expired: expired.get(id), revoked: revoked.get(id) }, report);
  }
  const inForce = grants.filter(({ state }) => state !== "pending");
  const ofGrants = {
    granted: total(inForce, ({ source, amount, revoked }) => (source === "credit" ? -revoked : amount - revoked)),
    available: total(inForce, ({ remaining }) => remaining),
    expired: total([...expired.values()], (amount) => amount),
  };
  const parts = { granted: balance.available + balance.held + balance.spent + balance.expired };
  compare(report, 1, "balance", balance, parts, "its parts add up to");
  compare(report, 1, "balance", balance, ofGrants, "the grants and lapses add up to");
  compare(report, 2, "balance", balance, { held: total(holds, ({ amount }) => amount) }, "the open holds add up to");
  compare(report, 3, "balance", balance, { spent: sums.cost }, "charges less credits add up to");
  checkNextChange(balance, grants, report);
}

function drawsOn(rows: readonly { draws: readonly Draw[] }[]): Map<string, bigint> {
  const sums = new Map<string, bigint>();
  for (const { draws } of rows) for (const { grantId, amount } of draws) addAmount(sums, grantId, amount);
  return sums;
}

function checkTimes({ grants, limits }: BooksFound, report: ReportViolation): void {
  const soonMs = limits.nowMs + AHEAD_MS;
  for (const { id, state, effectiveAtMs, expiresAtMs } of grants) {
    if (state === "active" && effectiveAtMs > soonMs) {
      report(13, `The grant ${id} took effect at ${effectiveAtMs}, in the future.`);
    }
    if (state === "expired" && (expiresAtMs ?? Number.POSITIVE_INFINITY) > soonMs) {
      report(13, `The grant ${id} has expired, but its expiry is ${expiresAtMs}.`);
    }
  }
}

function checkClosedBefore(books: BooksFound, report: ReportViolation): void {
  const { balances, holds, closing, limits } = books;
  const closedBeforeMs = balances[0]?.closedBeforeMs ?? null;
  const closed = closing?.beforeAtMs;
  if (closed !== undefined && closed > (closedBeforeMs ?? 0)) {
    report(9, `Requests before ${closed} are closed, but can be booked again.`);
  }
  if (closedBeforeMs !== null && closedBeforeMs > limits.nowMs) {
    report(13, `Requests before ${closedBeforeMs} are closed, which is in the future: new ones are refused.`);
  }
  for (const { holdId } of holds) {
    if (beganBefore(holdId, closedBeforeMs)) report(7, "The hold belongs to a closed period.", holdId);
  }
}

/** Checks the counters of budgets against the holds and charges that recorded them. */
function checkBudgets(books: BooksFound, report: ReportViolation): void {
  const { budgets, budgetUses, balances, holds, sums, closing, tokens } = books;
  const callerOf = new Map(tokens.map(({ id, callerId }) => [id, callerId]));
  const callers = new Set(callerOf.values());
  for (const { id, callerIds, capOf } of budgets) {
    for (const callerId of new Set([...(callerIds ?? []), ...(capOf === null ? [] : [capOf])])) {
      if (!callers.has(callerId)) report(10, `The budget ${id} names the caller ${callerId}, who does not exist.`);
    }
  }
  if (budgets.length > 0 && balances[0]?.budgetVersion === 0) report(16, "The budgets are not in force.");
  const held = new Map<string, bigint>();
  for (const hold of holds) for (const { id } of countersIn(hold.budgets)) addAmount(held, id, hold.amount);
  const byId = new Map(budgets.map((budget) => [budget.id, budget]));
  const counted = new Set<string>();
  for (const use of budgetUses) {
    const id = counterIdOf(use);
    counted.add(id);
    const budget = byId.get(use.budgetId);
    if (budget === undefined) report(10, `The counter ${id} is of a budget that does not exist.`);
    // The requests of such a window are closed, and retention removes the counter.
    else if ((windowEnd(budget.window, use.windowAtMs) ?? Number.POSITIVE_INFINITY) > (closing?.beforeAtMs ?? 0)) {
      checkUse(budget, use, { held: held.get(id) ?? 0n, spent: sums.byUse.get(id)?.spent ?? 0n }, report);
    }
  }
  for (const { budgets: recorded, amount, holdId, tokenId } of holds) {
    const uses = countersIn(recorded);
    const isMissing = ({ id, budgetId }: Counter) => byId.has(budgetId) && !counted.has(id);
    if (amount > 0n && uses.some(isMissing)) report(16, "The hold recorded a counter that is missing.", holdId);
    const isOfOthers = (use: BudgetUse) =>
      byId.get(use.budgetId)?.callerIds?.includes(callerOf.get(tokenId) ?? "") === false;
    if (uses.some(isOfOthers)) report(16, "The hold counts in a budget of another caller.", holdId);
  }
}

function checkUse(
  budget: BudgetRow,
  use: BudgetUseRow,
  sums: { held: bigint; spent: bigint },
  report: ReportViolation,
): void {
  const id = counterIdOf(use);
  const { windowAtMs, value, opening } = use;
  const isOfBudget = windowAt(budget.window, windowAtMs) === windowAtMs && (budget.each === null) === (value === "");
  if (!isOfBudget) report(10, `The counter ${id} is not one of its budget.`);
  compare(report, 16, `counter ${id}`, use, { held: sums.held }, "its open holds add up to");
  const charges = "its opening amount and its charges less credits add up to";
  compare(report, 16, `counter ${id}`, use, { spent: opening + sums.spent }, charges);
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
