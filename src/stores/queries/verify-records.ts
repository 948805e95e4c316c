import { isoTime } from "../../api/time.ts";
import { type AllowanceRow, grantOfPeriod, periodAt } from "../../credits/allowance.ts";
import { creditsFromMicro, formatCredits, microCreditsOf } from "../../credits/amount.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { AdjustmentRow, BudgetRow, BudgetUseRow, GrantRow } from "../../credits/books.ts";
import { auditedBudget } from "../../credits/budgets.ts";
import { addAmount, type ChargeSums } from "../../credits/closing.ts";
import { budgetUseId } from "../../credits/names.ts";
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

function checkOrganization({ organization }: RecordedRows, records: Records): void {
  if (organization === undefined) return;
  const { id, createdAtMs } = organization;
  const [creation] = records.of("organization.create", id);
  if (creation !== undefined) {
    records.compareTime("creation of the organization", creation, createdAtMs);
    // That of the playground is not recorded.
    records.compare("organization", creation, organization, { kind: "standard" });
  }
  const { name, limits } = creation?.after ?? {};
  const choices = { status: "active", keepsConversations: false, keepsResponses: true, pausesAllowances: false };
  const changes = records.of("organization.change", id);
  records.compareChanged("organization", changes, organization, creation, { name, limits, ...choices });
}

function checkBookings({ grants, adjustments, allowances }: RecordedRows, records: Records): void {
  const ended = new Set(allowances.filter(({ endedAtMs }) => endedAtMs !== null).map(({ id }) => id));
  for (const grant of grants) {
    const [credit] = records.of("credits.credit", grant.id);
    if (credit !== undefined) records.compare(`grant ${grant.id}`, credit, grant, { priority: 0 });
    const isOfService = grant.source === "credit" || allowanceOf(grant) !== undefined || isFirst(grant);
    if (isOfService && records.of("credits.grant", grant.id).length === 0) continue;
    checkGrantRecord(grant, records);
  }
  for (const row of adjustments) {
    const isOfAllowance = row.kind === "revoke" && row.reference !== null && row.id === `${row.reference}_ended`;
    const isEnd = isOfAllowance && ended.has(row.grantId?.slice(0, -"_2000-01-01".length) ?? "");
    if ((row.kind === "revoke" && !isEnd) || row.kind === "credit") checkAdjustmentRecord(row, records);
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

function checkGrantRecord(grant: GrantRow, records: Records): void {
  const what = `grant ${grant.id}`;
  const record = records.required("credits.grant", what, grant.id, grant.createdAtMs);
  if (record === undefined) return;
  const { amount, effective_at: effectiveAt, expires_at: expiresAt, priority, reference } = record.after ?? {};
  const effectiveAtMs = recordedTime(effectiveAt) ?? record.madeAtMs;
  const times = { effectiveAtMs, expiresAtMs: recordedTime(expiresAt), createdAtMs: record.madeAtMs };
  const stored = { ...grant, amount: creditsFromMicro(grant.amount) };
  records.compare(what, record, stored, { amount, priority, reference, ...times });
}

function checkAdjustmentRecord(row: AdjustmentRow, records: Records): void {
  const what = `${row.kind === "credit" ? "credit" : "revocation"} ${row.id}`;
  const record = records.required(`credits.${row.kind}`, what, row.id, row.madeAtMs);
  if (record === undefined) return;
  const {
    all,
    amount,
    grant_id: grantId,
    request_id: holdId,
    expires_at: expiresAt,
    reference,
    note,
  } = record.after ?? {};
  const terms = { amount, isAll: all === true, grantId, holdId, reference, note };
  const times = { expiresAtMs: recordedTime(expiresAt), madeAtMs: record.madeAtMs };
  records.compare(what, record, { ...row, amount: creditsFromMicro(row.amount) }, { ...terms, ...times });
}

function checkAllowances({ allowances, grants }: RecordedRows, records: Records, report: ReportViolation): void {
  for (const allowance of allowances) {
    const { id, createdAtMs, endedAtMs } = allowance;
    const what = `allowance ${id}`;
    const record = records.required("allowance.create", what, id, createdAtMs);
    if (record !== undefined) {
      const { amount, lapses, reference, begins_at: beginsAt } = record.after ?? {};
      const stored = { ...allowance, amount: creditsFromMicro(allowance.amount) };
      const anchorAtMs = recordedTime(beginsAt);
      records.compare(what, record, stored, { amount, lapses, reference, anchorAtMs, priority: 0 });
      records.compareTime(what, record, createdAtMs);
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
    const predecessor = maker === undefined ? undefined : byId.get(maker.subjectId ?? "");
    if (record !== undefined) {
      checkTokenTerms(token, record, { predecessor, tokens: byId, records });
    }
    checkEnd(token, maker === undefined ? record : undefined, records);
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

/** Checks the expiry and the successor of a token, which rotations set; changes set the expiry as well. */
function checkEnd(token: TokenRow, creation: AuditRow | undefined, records: Records): void {
  const what = `token ${token.id}`;
  const own = records.of("token.rotate", token.id);
  const last = own.find(({ after }) => !own.some(({ before }) => before?.successor === after?.successor));
  const ends = [...records.of("token.change", token.id), ...(last === undefined ? [] : [last])];
  const changes = ends.toSorted((a, b) => a.madeAtMs - b.madeAtMs);
  const { expiresAt } = creation?.after ?? {};
  records.compareChanged(what, changes, { expiresAt: isoTime(token.expiresAtMs) }, creation, { expiresAt });
  const record = last ?? creation;
  if (record !== undefined) records.compare(what, record, token, { successorId: last?.after?.successor ?? null });
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

interface Makers {
  predecessor: TokenRow | undefined;
  tokens: ReadonlyMap<string, TokenRow>;
  records: Records;
}

function checkTokenTerms(token: TokenRow, record: AuditRow, { predecessor, tokens, records }: Makers): void {
  const what = `token ${token.id}`;
  const isMade = record.action === "token.create";
  const terms = (isMade ? record.after : record.before) ?? {};
  const changes = records.of("token.change", token.id);
  const { name, scopes, models, limits } = terms;
  records.compareChanged(what, changes, token, record, { name, scopes, models, limits });
  const callerId = isMade ? token.id : predecessor?.callerId;
  records.compare(what, record, token, { callerId, ...(isMade && { prefix: terms.prefix }) });
  records.compareTime(what, record, token.createdAtMs);
  // A successor has the lifetime of its predecessor, or of the unused successor that it replaced.
  const unused = tokens.get(String(record.before?.successor));
  const like = unused ?? (predecessor && { ...predecessor, expiresAtMs: recordedTime(record.before?.expiresAt) });
  const isChanged = token.successorId !== null || changes.some(({ after }) => after?.expiresAt !== undefined);
  if (isMade || like === undefined || isChanged) return;
  const lifeMs = like.expiresAtMs === null ? null : like.expiresAtMs - like.createdAtMs;
  const expiresAtMs = lifeMs === null ? null : token.createdAtMs + lifeMs;
  records.compare(what, record, token, { expiresAtMs });
}

/** Checks the cap that the first token of each caller was created with, or that was set later for any of its tokens. */
function checkCaps(tokens: readonly TokenRow[], budgets: readonly BudgetRow[], records: Records): void {
  for (const [callerId, chain] of Map.groupBy(tokens, (token) => token.callerId)) {
    const [record] = records.of("token.create", callerId);
    const changes = chain.flatMap(({ id }) => records.of("token.change", id)).sort((a, b) => a.madeAtMs - b.madeAtMs);
    const budget = budgets.find(({ capOf }) => capOf === callerId);
    const stored = { cap: budget === undefined ? null : formatCredits(budget.amount) };
    records.compareChanged(`token ${callerId}`, changes, stored, record, { cap: record?.after?.cap ?? null });
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
  const record = records.required("budget.create", what, id, createdAtMs);
  if (record === undefined) return;
  const stored = auditedBudget(budget);
  const changes = records.of("budget.change", id);
  const { name, amount, ...terms } = record.after ?? {};
  records.compare(what, record, stored, terms);
  records.compareTime(what, record, createdAtMs);
  records.compareChanged(what, changes, stored, record, { name, amount });
  const raised = new Map<string, bigint>();
  for (const { after } of records.of("budget.raise", id)) {
    const use = { budgetId: id, windowAtMs: recordedTime(after?.window_at) ?? 0, value: String(after?.value ?? "") };
    addAmount(raised, budgetUseId(use), microCreditsOf(Number(after?.amount)) ?? 0n);
  }
  for (const use of uses) {
    const expected = raised.get(budgetUseId(use)) ?? 0n;
    if (use.budgetId !== id || use.raised === expected) continue;
    records.report(12, `The ${what} is raised by ${use.raised}, but its audit records say ${expected}.`);
  }
}

/** A service may read its clock twice for a change and its record, and services' clocks may differ. */
const NEAR_MS = 60_000;
/** Records are removed from the oldest on, by the clock of a service; bookings have the time of the store's clock. */
const REMOVED_WITHIN_MS = 3_600_000;

type Terms = Record<string, unknown>;

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

  /** Compares properties of a row with a record. */
  compare(what: string, record: AuditRow, stored: object, recorded: Terms): void {
    compare<Terms>(this.report, 12, what, { ...stored }, recorded, `the audit record ${record.id} says`);
  }

  /**
   * Compares each property with the last of the records that changed it; if none did, with its value in `initial`, that of the
   * record of the creation. Where services with different clocks make changes, the last record need not be that of the last
   * change.
   */
  compareChanged(
    what: string,
    changes: readonly AuditRow[],
    stored: object,
    creation: AuditRow | undefined,
    initial: Terms,
  ): void {
    for (const [name, value] of Object.entries(initial)) {
      const own = changes.filter(({ after }) => after?.[name] !== undefined);
      const last = own.at(-1);
      const record = last ?? creation;
      if (record === undefined) continue;
      const latest = own.filter(({ madeAtMs }) => madeAtMs >= record.madeAtMs - NEAR_MS);
      const found = JSON.stringify((stored as Terms)[name] ?? null);
      if (latest.some(({ after }) => JSON.stringify(after?.[name] ?? null) === found)) continue;
      this.compare(what, record, stored, { [name]: last === undefined ? value : last.after?.[name] });
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
