import { isoTime } from "../../api/time.ts";
import { auditedBooking, type BookedTerms } from "../../credits/adjustments.ts";
import { type AllowanceRow, auditedAllowance, grantOfPeriod, periodAt } from "../../credits/allowance.ts";
import { creditsFromMicro, formatCredits, microCreditsOf } from "../../credits/amount.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { AdjustmentRow, BalanceRow, BudgetRow, BudgetUseRow, GrantRow } from "../../credits/books.ts";
import { counterIdOf } from "../../credits/budget-uses.ts";
import { auditedBudget } from "../../credits/budgets.ts";
import { addAmount, type ChargeSums } from "../../credits/closing.ts";
import type { OrganizationRow, TokenRow } from "./accounts.ts";
import { compare, type ReportViolation } from "./verify-report.ts";

/** Actions whose records are compared with the rows that they changed. */
export const COMPARED_ACTIONS = [
  ...["organization.create", "organization.change"],
  ...["token.create", "token.change", "token.rotate", "token.revoke"],
  ...["credits.grant", "credits.revoke", "credits.credit", "allowance.create", "allowance.end"],
  ...["budget.create", "budget.change", "budget.raise"],
];

/** The rows of an organization that operators change, and the records of their changes, in the order of their ids. */
export interface RecordedRows {
  organization: OrganizationRow | undefined;
  balances: readonly Pick<BalanceRow, "warnAt">[];
  tokens: readonly TokenRow[];
  budgets: readonly BudgetRow[];
  budgetUses: readonly BudgetUseRow[];
  allowances: readonly AllowanceRow[];
  grants: readonly GrantRow[];
  adjustments: readonly AdjustmentRow[];
  records: readonly AuditRow[];
  sums: Pick<ChargeSums, "byToken">;
}

/** Checks that the rows are those which the audit records, written in the same transactions, describe. */
export function checkRecords(rows: RecordedRows, report: ReportViolation): void {
  const records = new Records(rows.records, report);
  checkOrganization(rows, records);
  checkBookings(rows, records);
  checkAllowances(rows, records, report);
  checkTokens(rows, records);
  for (const budget of rows.budgets) checkBudgetRecords(budget, rows.budgetUses, records);
}

/** The columns of an organization that its creation does not record. */
const UNCHANGED = {
  ...{ kind: "standard", status: "active" },
  ...{ keepsConversations: false, keepsResponses: true, pausesAllowances: false, creditWarnings: null },
};

function checkOrganization({ organization, balances: [balance] }: RecordedRows, records: Records): void {
  if (organization === undefined) return;
  const { id, createdAtMs, ...terms } = organization;
  // That of the playground is not recorded.
  const [creation] = records.of("organization.create", id);
  if (creation !== undefined) records.compareTime("creation of the organization", creation, createdAtMs);
  const changes = records.of("organization.change", id);
  const stored = { ...terms, creditWarnings: balance?.warnAt?.map(creditsFromMicro) ?? null };
  records.compare("organization", stored, { creation, changes, initial: UNCHANGED });
}

function checkBookings({ grants, adjustments, allowances }: RecordedRows, records: Records): void {
  const ended = new Set(allowances.filter(({ endedAtMs }) => endedAtMs !== null).map(({ id }) => id));
  for (const grant of grants) {
    const [credit] = records.of("credits.credit", grant.id);
    const what = `grant ${grant.id}`;
    if (credit !== undefined) {
      records.compare(what, { priority: grant.priority }, { creation: credit, initial: { priority: 0 } });
    }
    const isOfService = grant.source === "credit" || allowanceOf(grant) !== undefined || isFirst(grant);
    if (isOfService && records.of("credits.grant", grant.id).length === 0) continue;
    checkBooking("credits.grant", what, grant, grant.createdAtMs, records);
  }
  for (const row of adjustments) {
    const isOfAllowance = row.kind === "revoke" && row.reference !== null && row.id === `${row.reference}_ended`;
    const isEnd = isOfAllowance && ended.has(row.grantId?.slice(0, -"_2000-01-01".length) ?? "");
    if (row.kind === "revoke" && !isEnd) {
      checkBooking("credits.revoke", `revocation ${row.id}`, row, row.madeAtMs, records);
    }
    if (row.kind === "credit") checkBooking("credits.credit", `credit ${row.id}`, row, row.madeAtMs, records);
  }
  const ids = new Set(adjustments.map(({ id }) => id));
  records.expectRows("credits.grant", new Set(grants.map(({ id }) => id)));
  records.expectRows("credits.revoke", ids);
  records.expectRows("credits.credit", ids);
  records.expectRows("allowance.create", new Set(allowances.map(({ id }) => id)));
}

/** Returns the id of the allowance whose grant has this reference and id. An operator may use such a reference, but not such an id. */
function allowanceOf({ id, reference }: GrantRow): string | undefined {
  const [kind, allowanceId] = reference?.split("/") ?? [];
  return kind === "allowance" && id.startsWith(`${allowanceId}_`) ? allowanceId : undefined;
}

/** Credits that the first start grants, without a record. */
function isFirst({ reference, amount, expiresAtMs, effectiveAtMs, createdAtMs, priority }: GrantRow): boolean {
  if (reference !== "first-start" || amount !== 100_000_000n || priority !== 0) return false;
  return expiresAtMs === null && effectiveAtMs === createdAtMs;
}

/** Compares a grant or an adjustment with its record, which has the time of its booking. */
function checkBooking(
  action: string,
  what: string,
  row: BookedTerms & Pick<GrantRow, "id" | "amount">,
  bookedAtMs: number,
  records: Records,
): void {
  const creation = records.required(action, what, row.id, bookedAtMs);
  if (creation === undefined) return;
  const bookedAt = isoTime(creation.madeAtMs);
  // A grant takes effect when it is booked, if nothing else is recorded.
  const unstated = row.isAll === undefined ? { effective_at: bookedAt } : { all: false };
  const stored = { ...auditedBooking(row), amount: creditsFromMicro(row.amount), booked_at: isoTime(bookedAtMs) };
  records.compare(what, stored, { creation, initial: { ...unstated, booked_at: bookedAt } });
}

function checkAllowances({ allowances, grants }: RecordedRows, records: Records, report: ReportViolation): void {
  for (const allowance of allowances) {
    const { id, createdAtMs, endedAtMs, priority } = allowance;
    const what = `allowance ${id}`;
    const creation = records.required("allowance.create", what, id, createdAtMs);
    if (creation !== undefined) {
      records.compare(what, { ...auditedAllowance(allowance), priority }, { creation, initial: { priority: 0 } });
      records.compareTime(what, creation, createdAtMs);
    }
    const [end] = records.of("allowance.end", id);
    if (end !== undefined) records.compareTime(`end of the ${what}`, end, endedAtMs);
    else if (endedAtMs !== null) records.required("allowance.end", `end of the ${what}`, id, endedAtMs);
    checkNextMonth(allowance, grants, report);
  }
  const byId = new Map(allowances.map((allowance) => [allowance.id, allowance]));
  for (const grant of grants) {
    const id = allowanceOf(grant);
    if (id === undefined || records.of("credits.grant", grant.id).length > 0) continue;
    const allowance = byId.get(id);
    if (allowance === undefined) report(10, `The grant ${grant.id} is of an allowance that does not exist.`);
    else checkMonth(grant, allowance, report);
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

function checkMonth(grant: GrantRow, allowance: AllowanceRow, report: ReportViolation): void {
  const period = periodAt(allowance.anchorAtMs, grant.effectiveAtMs);
  const { kind: _, grantId: id, ...terms } = grantOfPeriod(allowance, period);
  compare<GrantRow>(report, 10, `grant ${grant.id}`, grant, { id, ...terms }, `the allowance ${allowance.id} says`);
}

function checkTokens({ tokens, budgets, sums }: RecordedRows, records: Records): void {
  const byId = new Map(tokens.map((token) => [token.id, token]));
  const rotations = tokens.flatMap((token) => records.of("token.rotate", token.id));
  const makers = new Map(rotations.map((record) => [record.after?.successor, record]));
  const replaced = new Set(rotations.map(({ before }) => before?.successor));
  checkCaps(tokens, budgets, records);
  for (const token of tokens) {
    const what = `token ${token.id}`;
    const maker = makers.get(token.id);
    const record = maker ?? records.required("token.create", what, token.id, token.createdAtMs);
    if (record !== undefined) records.compareTime(what, record, token.createdAtMs);
    const creation = maker === undefined ? record : asCreation(token, maker, byId);
    checkTokenTerms(token, creation, maker === undefined, records);
    const [revocation] = records.of("token.revoke", token.id);
    if (revocation !== undefined) records.compareTime(`revocation of the ${what}`, revocation, token.revokedAtMs);
    else if (token.revokedAtMs !== null && !replaced.has(token.id)) {
      records.required("token.revoke", `revocation of the ${what}`, token.id, token.revokedAtMs);
    }
  }
  checkReplaced(tokens, rotations, records);
  for (const action of ["token.create", "token.change"]) records.expectRows(action, new Set(byId.keys()));
  if (!records.areComplete) return;
  for (const id of sums.byToken.keys()) {
    if (id !== "" && !byId.has(id)) records.report(10, `The token ${id}, which is charged, does not exist.`);
  }
}

/** Returns the record of a rotation as that of the creation of the new token, which has the terms of its predecessor. */
function asCreation(token: TokenRow, record: AuditRow, tokens: ReadonlyMap<string, TokenRow>): AuditRow {
  const { before } = record;
  const predecessor = tokens.get(record.subjectId ?? "");
  // It has the lifetime of its predecessor, or of the unused successor that it replaced.
  const unused = tokens.get(String(before?.successor));
  const like = unused ?? (predecessor && { ...predecessor, expiresAtMs: recordedTime(before?.expiresAt) });
  const lifeMs = like === undefined || like.expiresAtMs === null ? null : like.expiresAtMs - like.createdAtMs;
  const expiresAt = isoTime(lifeMs === null ? null : token.createdAtMs + lifeMs);
  return { ...record, after: { ...before, expiresAt, callerId: predecessor?.callerId ?? null, successor: null } };
}

/** Compares a token with its creation, its changes, and the last rotation, which names its successor and ends it. */
function checkTokenTerms(token: TokenRow, creation: AuditRow | undefined, isFirst: boolean, records: Records): void {
  const { id, name, prefix, scopes, models, limits, pinned, callerId, successorId: successor } = token;
  const rotations = records.of("token.rotate", id);
  const last = rotations.find(({ after }) => !rotations.some(({ before }) => before?.successor === after?.successor));
  const changes = [...records.of("token.change", id), ...(last === undefined ? [] : [last])];
  changes.sort((a, b) => a.madeAtMs - b.madeAtMs);
  const stored = { name, scopes, models, limits, pinned, expiresAt: isoTime(token.expiresAtMs), callerId, successor };
  // The prefix of a new token is not in the record of a rotation.
  const own = isFirst ? { ...stored, prefix } : stored;
  records.compare(`token ${id}`, own, { creation, changes, initial: { callerId: id } });
}

/** A successor that was never used, and was replaced, is revoked. */
function checkReplaced(tokens: readonly TokenRow[], rotations: readonly AuditRow[], records: Records): void {
  for (const record of rotations) {
    const unused = tokens.find(({ id }) => id === record.before?.successor);
    if (unused !== undefined && records.of("token.revoke", unused.id).length === 0) {
      records.compareTime(`revocation of the token ${unused.id}`, record, unused.revokedAtMs);
    }
  }
}

/** Checks the cap that the first token of each caller was created with, or that was set later for any of its tokens. */
function checkCaps(tokens: readonly TokenRow[], budgets: readonly BudgetRow[], records: Records): void {
  for (const [callerId, chain] of Map.groupBy(tokens, (token) => token.callerId)) {
    const [creation] = records.of("token.create", callerId);
    const changes = chain.flatMap(({ id }) => records.of("token.change", id)).sort((a, b) => a.madeAtMs - b.madeAtMs);
    const budget = budgets.find(({ capOf }) => capOf === callerId);
    const stored = { cap: budget === undefined ? null : formatCredits(budget.amount) };
    records.compare(`token ${callerId}`, stored, { creation, changes });
  }
}

/** Compares a budget with its audit records. That of a cap has those of its tokens, covers one caller, and is not raised. */
function checkBudgetRecords(budget: BudgetRow, uses: readonly BudgetUseRow[], records: Records): void {
  const { id, createdAtMs, capOf } = budget;
  const what = `budget ${id}`;
  if (capOf !== null) {
    const { amount: _, ...terms } = auditedBudget(budget);
    const selector = { tokens: [capOf], models: null, metadata: null };
    const expected = { name: "Spending cap", selector, each: null, window: "lifetime" };
    const isRaised = uses.some(({ budgetId, raised }) => budgetId === id && raised !== 0n);
    if (isRaised || JSON.stringify(terms) !== JSON.stringify(expected)) {
      records.report(12, `The ${what} is not that of a spending cap.`);
    }
    return;
  }
  const creation = records.required("budget.create", what, id, createdAtMs);
  if (creation === undefined) return;
  records.compareTime(what, creation, createdAtMs);
  records.compare(what, auditedBudget(budget), { creation, changes: records.of("budget.change", id) });
  const raised = new Map<string, bigint>();
  for (const { after } of records.of("budget.raise", id)) {
    const use = { budgetId: id, windowAtMs: recordedTime(after?.window_at) ?? 0, value: String(after?.value ?? "") };
    addAmount(raised, counterIdOf(use), microCreditsOf(Number(after?.amount)) ?? 0n);
  }
  for (const use of uses) {
    const expected = raised.get(counterIdOf(use)) ?? 0n;
    if (use.budgetId !== id || use.raised === expected) continue;
    records.report(12, `The ${what} is raised by ${use.raised}, but its audit records say ${expected}.`);
  }
}

/** A service may read its clock twice for a change and its record, and services' clocks may differ. */
const NEAR_MS = 60_000;
/** Records are removed from the oldest on, by the clock of a service; bookings have the time of the store's clock. */
const REMOVED_WITHIN_MS = 3_600_000;

type Terms = Record<string, unknown>;

/** The records of the creation and of the changes of a row, oldest first, and terms that the first of them lacks. */
interface RecordsOfRow {
  creation: AuditRow | undefined;
  changes?: readonly AuditRow[];
  initial?: Terms;
}

/** The audit records of an organization, to be compared with its rows. */
class Records {
  readonly #records: Map<string, AuditRow[]>;
  readonly #completeFromMs: number;
  readonly report: ReportViolation;

  constructor(records: readonly AuditRow[], report: ReportViolation) {
    const [oldest] = records;
    this.#records = Map.groupBy(records, ({ action, subjectId }) => `${action} ${subjectId}`);
    this.report = report;
    if (oldest === undefined) this.#completeFromMs = Number.POSITIVE_INFINITY;
    else if (oldest.action === "organization.create") this.#completeFromMs = Number.NEGATIVE_INFINITY;
    else this.#completeFromMs = oldest.madeAtMs + REMOVED_WITHIN_MS;
  }

  /** True if the creation of the organization is recorded: no record of it was removed. */
  get areComplete(): boolean {
    return this.#completeFromMs === Number.NEGATIVE_INFINITY;
  }

  /** Returns the records of an action on a row, oldest first. */
  of(action: string, subjectId: string): AuditRow[] {
    return this.#records.get(`${action} ${subjectId}`) ?? [];
  }

  /** Returns the record that a change must have; reports a missing one, unless old records were removed. */
  required(action: string, what: string, subjectId: string, atMs: number): AuditRow | undefined {
    const [record] = this.of(action, subjectId);
    if (record === undefined && atMs >= this.#completeFromMs) {
      this.report(12, `The ${what} has no audit record ${action}.`);
    }
    return record;
  }

  /** Reports records of an action whose row does not exist. */
  expectRows(action: string, ids: ReadonlySet<string>): void {
    for (const [key, [record]] of this.#records) {
      if (record?.action !== action || ids.has(record.subjectId ?? "")) continue;
      this.report(12, `The audit record ${record.id}, ${key}, is of a row that does not exist.`);
    }
  }

  /**
   * Compares each term of a row with the last of the records that changed it; if none did, with that of its creation, or with
   * the value of a term that a creation does not record. Where services with different clocks make changes, the last record
   * need not be that of the last change.
   */
  compare(what: string, stored: Terms, { creation, changes = [], initial = {} }: RecordsOfRow): void {
    for (const [name, value] of Object.entries(stored)) {
      const own = changes.filter(({ after }) => after?.[name] !== undefined);
      const record = own.at(-1) ?? creation;
      if (record === undefined) continue;
      const latest = own.filter(({ madeAtMs }) => madeAtMs >= record.madeAtMs - NEAR_MS);
      const found = JSON.stringify(value ?? null);
      if (latest.some(({ after }) => JSON.stringify(after?.[name] ?? null) === found)) continue;
      const { [name]: recorded = initial[name] } = record.after ?? {};
      compare<Terms>(this.report, 12, what, stored, { [name]: recorded }, `the audit record ${record.id} says`);
    }
  }

  /** Compares a time with that of a record which two clocks, or two reads of one, may tell. */
  compareTime(what: string, record: AuditRow, atMs: number | null): void {
    if (atMs !== null && Math.abs(atMs - record.madeAtMs) <= NEAR_MS) return;
    this.report(12, `The ${what} has the time ${atMs}, but the audit record ${record.id} is of ${record.madeAtMs}.`);
  }
}

/** Time of a recorded text, in milliseconds since 1970; null if there is none. */
function recordedTime(text: unknown): number | null {
  return typeof text === "string" ? Date.parse(text) : null;
}
