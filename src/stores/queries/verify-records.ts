import { DAY_MS } from "../../api/time.ts";
import { type AllowanceRow, grantOfPeriod, periodAt } from "../../credits/allowance.ts";
import type { StoredAuditRow } from "../../credits/audit.ts";
import type {
  AdjustmentRow,
  BudgetRow,
  BudgetUseRow,
  GrantRow,
  VoucherBatchRow,
  VoucherRow,
} from "../../credits/books.ts";
import { counterIdOf } from "../../credits/budget-uses.ts";
import { addAmount, type ChargeSums } from "../../credits/closing.ts";
import { grantsOfPayment, voucherGrantId } from "../../credits/names.ts";
import { PAYMENT, plainJson, TOP_UP, TOP_UP_CHARGE, VOUCHER } from "../admin-schema.ts";
import { ADJUSTMENT, ALLOWANCE, BALANCE, BUDGET, BUDGET_USE, GRANT, ORGANIZATION, TOKEN } from "../schema.ts";
import type { Table } from "../table.ts";
import type { OrganizationRow } from "./accounts.ts";
import { compare, type ReportViolation, type RowsOfTables } from "./verify-report.ts";

/** The rows of an organization that operators change, and the records of their changes, in the order of their ids. */
export interface RecordedRows extends RowsOfTables {
  organization: OrganizationRow | undefined;
  records: readonly StoredAuditRow[];
  sums: Pick<ChargeSums, "byToken">;
  /** The vouchers that it has redeemed. */
  vouchers: readonly VoucherRow[];
}

/** Checks that the rows are those which the audit records, written in the same transactions, contain. */
export function checkRecords(rows: RecordedRows, report: ReportViolation): void {
  const { tokens, budgets, budgetUses, allowances, grants } = rows;
  const records = new Records(rows.records, report);
  const warnings = rows.balances.map(({ organizationId: id, warnAt }) => ({ id, warnAt }));
  records.compare({ name: BALANCE.name, timesAfter: () => [] }, warnings);
  records.compare(ORGANIZATION, rows.organization === undefined ? [] : [rows.organization]);
  records.compare(TOKEN, tokens);
  records.compare(BUDGET, budgets);
  records.compare(ALLOWANCE, allowances);
  records.compare(PAYMENT, rows.payments);
  records.compare(VOUCHER, rows.vouchers);
  records.compare(TOP_UP, rows.topUps);
  records.compare(TOP_UP_CHARGE, rows.topUpCharges);
  records.compare(GRANT, grants, (grant) => allowanceOf(grant) !== undefined);
  records.compare(ADJUSTMENT, rows.adjustments, (row) => isOfService(row, allowances));
  checkRaises(budgets, budgetUses, records);
  for (const allowance of allowances) checkNextMonth(allowance, grants, report);
  checkMonths(rows, records);
  if (!records.areComplete) return;
  const known = new Set(tokens.map(({ id }) => id));
  for (const id of rows.sums.byToken.keys()) {
    if (id !== "" && !known.has(id)) report(10, `The token ${id}, which is charged, does not exist.`);
  }
}

/** Returns the id of the allowance whose grant has this reference and id. An operator may use such a reference, but not such an id. */
function allowanceOf({ id, reference }: GrantRow): string | undefined {
  const [kind, allowanceId] = reference?.split("/") ?? [];
  return kind === "allowance" && id.startsWith(`${allowanceId}_`) ? allowanceId : undefined;
}

/** Lapses and late settlements have no record, and neither have the revocations with which allowances end. */
function isOfService({ kind, id, reference, grantId }: AdjustmentRow, allowances: readonly AllowanceRow[]): boolean {
  if (kind !== "revoke") return kind !== "credit";
  const allowanceId = grantId?.slice(0, -"_2000-01-01".length);
  const isEnd = allowances.some((allowance) => allowance.id === allowanceId && allowance.endedAtMs !== null);
  return isEnd && reference !== null && id === `${reference}_ended`;
}

function checkRaises(budgets: readonly BudgetRow[], uses: readonly BudgetUseRow[], records: Records): void {
  const recorded = new Set(budgets.filter((budget) => records.haveCreation(BUDGET, budget)).map(({ id }) => id));
  for (const use of uses.filter(({ budgetId }) => recorded.has(budgetId))) {
    const id = counterIdOf(use);
    const raises = records.of(BUDGET_USE.name, id).map(({ values }) => BigInt(String(values.raisedBy)));
    const expected = raises.reduce((sum, amount) => sum + amount, 0n);
    if (use.raised === expected) continue;
    records.report(12, `The counter ${id} is raised by ${use.raised}, but its audit records say ${expected}.`);
  }
}

/** The month before the next one has its grant: a month is skipped only together with those before it. */
function checkNextMonth(allowance: AllowanceRow, grants: readonly GrantRow[], report: ReportViolation): void {
  const { id, anchorAtMs, nextAtMs } = allowance;
  if (nextAtMs === anchorAtMs) return;
  const { startMs, endMs } = periodAt(anchorAtMs, nextAtMs - 1);
  const { grantId } = grantOfPeriod(allowance, { startMs, endMs });
  if (endMs === nextAtMs && nextAtMs > anchorAtMs && grants.some((grant) => grant.id === grantId)) return;
  report(10, `The next month of the allowance ${id} begins at ${nextAtMs}, but the month before has no grant.`);
}

function checkMonths({ grants, allowances }: RecordedRows, records: Records): void {
  const byId = new Map(allowances.map((allowance) => [allowance.id, allowance]));
  for (const grant of grants) {
    const id = allowanceOf(grant);
    if (id === undefined || records.haveCreation(GRANT, grant)) continue;
    const allowance = byId.get(id);
    if (allowance === undefined) {
      records.report(10, `The grant ${grant.id} is of an allowance that does not exist.`);
      continue;
    }
    const period = periodAt(allowance.anchorAtMs, grant.effectiveAtMs);
    const { kind: _, grantId, ...terms } = grantOfPeriod(allowance, period);
    const expected = { id: grantId, ...terms };
    compare<GrantRow>(records.report, 10, `grant ${grant.id}`, grant, expected, `the allowance ${id} says`);
  }
}

/** Properties that change without a record, or that none contains, by table. */
const UNRECORDED: Partial<Record<string, readonly string[]>> = {
  token: ["hash", "lastUsedAtMs"],
  allowance: ["nextAtMs"],
  credit_grant: ["remaining", "revoked", "state"],
  top_up: ["nextAtMs", "revision"],
  top_up_charge: ["paymentId"],
};
/** Services' clocks may differ by less than this. */
const NEAR_MS = 60_000;
/** Records are removed from the oldest on, by the clock of a service; bookings have the time of the store's clock. */
const REMOVED_WITHIN_MS = 3_600_000;

/** Part of a row in the record of a change. */
interface RecordedRow {
  record: StoredAuditRow;
  values: Record<string, unknown>;
}

function isCreation({ values }: RecordedRow): boolean {
  return values.createdAtMs !== undefined || values.madeAtMs !== undefined;
}

/** The audit records of an organization, or of the whole service, to be compared with its rows. */
export class Records {
  readonly report: ReportViolation;
  readonly #byRow = new Map<string, RecordedRow[]>();
  readonly #completeFromMs: number;

  constructor(entries: readonly StoredAuditRow[], report: ReportViolation) {
    this.report = report;
    const [oldest] = entries;
    const removedMs = oldest === undefined ? Number.POSITIVE_INFINITY : oldest.madeAtMs + REMOVED_WITHIN_MS;
    this.#completeFromMs = oldest?.action === "organization.create" ? Number.NEGATIVE_INFINITY : removedMs;
    for (const record of entries) {
      for (const [table, rows] of Object.entries(record.rows ?? {})) {
        for (const values of rows) this.of(table, values.id).push({ record, values });
      }
    }
  }

  /** True if the creation of the organization is recorded: no record of it was removed. */
  get areComplete(): boolean {
    return this.#completeFromMs === Number.NEGATIVE_INFINITY;
  }

  /** Returns true if the creation of a row is recorded. */
  haveCreation({ name }: { name: string }, { id }: { id: string }): boolean {
    return this.of(name, id).some(isCreation);
  }

  /** Returns the parts of a row in the records, oldest first. */
  of(table: string, id: unknown): RecordedRow[] {
    const key = `${table} ${id}`;
    const found = this.#byRow.get(key) ?? [];
    this.#byRow.set(key, found);
    return found;
  }

  /** Compares the rows of a table with their records. Rows may have none if they are `unrecorded`. */
  compare<Row extends { id: string }>(
    table: Pick<Table<Row>, "name" | "timesAfter">,
    rows: readonly Row[],
    unrecorded = (_: Row) => false,
  ): void {
    for (const row of rows) {
      const found = this.of(table.name, row.id);
      const what = `row ${row.id} of the table ${table.name}`;
      const isCompared = (name: string) => !UNRECORDED[table.name]?.includes(name);
      // The records of what happened before the oldest one may be removed.
      const times = table.timesAfter(row, this.#completeFromMs).map(String).filter(isCompared);
      const missing = times.find((name) => !found.some(({ values }) => name in values));
      if (missing !== undefined && !(found.length === 0 && unrecorded(row))) {
        this.report(12, `The ${what} has no audit record with ${missing}.`);
      }
      for (const [name, value] of Object.entries(row)) if (isCompared(name)) this.#compare(what, name, value, found);
    }
    const ids = new Set(rows.map(({ id }) => `${table.name} ${id}`));
    for (const [key, found] of this.#byRow) {
      const last = found.at(-1);
      if (last === undefined || !key.startsWith(`${table.name} `) || ids.has(key)) continue;
      // By the clock of another service, a change may be later than the deletion.
      if (found.some(({ values }) => values.isDeleted)) continue;
      this.report(12, `The audit record ${last.record.id} is of the ${key}, which does not exist.`);
    }
  }

  /** Services with different clocks make changes: the last record need not be that of the last one. */
  #compare(what: string, name: string, value: unknown, found: readonly RecordedRow[]): void {
    const own = found.filter(({ values }) => name in values);
    const last = own.findLast((part) => !isCreation(part)) ?? own[0];
    if (last === undefined) return;
    const stored = plainJson(value);
    const near = own.filter((part) => !isCreation(part) && part.record.madeAtMs >= last.record.madeAtMs - NEAR_MS);
    if ([last, ...near].some(({ values }) => plainJson(values[name]) === stored)) return;
    const says = `the audit record ${last.record.id} says ${plainJson(last.values[name])}`;
    this.report(12, `The ${what} has ${name} ${stored}, but ${says}.`);
  }
}

/** Checks payments against their grants, and the debts of some against what others covered of them. */
export function checkPayments(
  { payments, grants, adjustments, topUpCharges }: RowsOfTables,
  report: ReportViolation,
): void {
  const total = (amounts: readonly bigint[]) => amounts.reduce((sum, amount) => sum + amount, 0n);
  const made = new Map(grants.filter(({ id }) => id.startsWith("grant_pi_")).map((grant) => [grant.id, grant]));
  const covered = new Map<string, bigint>();
  for (const { covers } of payments) for (const { grantId: id, amount } of covers) addAmount(covered, id, amount);
  for (const payment of payments) {
    const { id, amount, refunded, disputed, credits, granted, revoked, returned, withheld, debt } = payment;
    const ids = grantsOfPayment(payment).map((grant) => grant.id);
    const own = ids.flatMap((grantId) => made.get(grantId) ?? []);
    const isOwn = (adjustment: string) => ids.some((grantId) => adjustment.startsWith(`${grantId}_revoked_`));
    const least = total(adjustments.flatMap((one) => (isOwn(one.id) ? one.amount : [])));
    const most = total(own.map((grant) => grant.revoked));
    const back = refunded + disputed < amount ? refunded + disputed : amount;
    const sums = {
      ...{ grants: own.length, granted: total(own.map((grant) => grant.amount)) },
      ...{ covered: total(payment.covers.map((cover) => cover.amount)), debtCovered: covered.get(id) ?? 0n },
      returned: amount > 0n ? (credits * back) / amount : 0n,
      debt: granted - revoked + payment.covered + returned + withheld - credits,
    };
    compare(report, 19, `payment ${id}`, payment, sums, "its parts say");
    if (revoked < least || revoked > most)
      report(19, `The payment ${id} revoked ${revoked}, of which its grants have ${least} to ${most}.`);
    if (payment.debtCovered > debt) report(19, `The payment ${id} owes less than is covered.`);
    for (const grantId of ids) made.delete(grantId);
    covered.delete(id);
  }
  for (const id of [...made.keys(), ...covered.keys()]) report(19, `${id} is of a payment that does not exist.`);
  for (const { id, state, paymentId, credits, currency } of topUpCharges) {
    const paid = payments.filter((payment) => payment.id === paymentId);
    if (state === "paid" && !paid.some((one) => one.credits === credits && one.currency === currency))
      report(19, `The top-up ${id} is paid, but no payment has bought its credits.`);
  }
}

interface RedeemedRows extends Pick<RowsOfTables, "grants"> {
  vouchers: readonly VoucherRow[];
  /** The batches of these vouchers. */
  batches: readonly VoucherBatchRow[];
}

/** Checks the vouchers that an organization has redeemed against the grants that they made. */
export function checkVouchers({ vouchers, batches, grants }: RedeemedRows, report: ReportViolation): void {
  const byId = new Map(batches.map((batch) => [batch.id, batch]));
  const made = new Map(
    grants.filter(({ id }) => id.startsWith(voucherGrantId("vou_"))).map((grant) => [grant.id, grant]),
  );
  for (const { id, batchId, redeemedAtMs } of vouchers) {
    const [grant, batch] = [made.get(voucherGrantId(id)), byId.get(batchId)];
    if (grant === undefined || batch === undefined || redeemedAtMs === null) {
      report(20, `The voucher ${id} was redeemed, but has no batch, grant or time.`);
      continue;
    }
    const { amount, priority, creditDays } = batch;
    const expiresAtMs = creditDays === null ? null : redeemedAtMs + creditDays * DAY_MS;
    const terms = {
      amount,
      priority,
      expiresAtMs,
      reference: id,
      createdAtMs: redeemedAtMs,
      effectiveAtMs: redeemedAtMs,
    };
    compare<GrantRow>(report, 20, `grant ${grant.id}`, grant, terms, "its voucher says");
    made.delete(grant.id);
  }
  for (const id of made.keys()) report(20, `The grant ${id} is of a voucher that the organization has not redeemed.`);
}
