import { isoTime } from "../../api/time.ts";
import { type AllowanceRow, grantOfPeriod, periodAt } from "../../credits/allowance.ts";
import { creditsFromMicro, formatCredits } from "../../credits/amount.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { AdjustmentRow, GrantRow, TokenBalanceRow } from "../../credits/books.ts";
import type { OrganizationRow, TokenRow } from "./accounts.ts";
import type { ReportViolation } from "./verify-report.ts";

/** Actions whose records are compared with the rows that they changed. */
export const COMPARED_ACTIONS = [
  ...["organization.create", "organization.change"],
  ...["token.create", "token.change", "token.rotate", "token.revoke"],
  ...["credits.grant", "credits.revoke", "credits.credit", "allowance.create", "allowance.end"],
];

/** A service may read its clock twice for a change and its record, and services' clocks may differ. */
const NEAR_MS = 60_000;
/** Records are removed from the oldest on, by the clock of a service; bookings have the time of the store's clock. */
const REMOVED_WITHIN_MS = 3_600_000;

/** The rows of an organization that operators change, and the records of their changes, in the order of their ids. */
export interface RecordedRows {
  organization: OrganizationRow | undefined;
  tokens: readonly TokenRow[];
  caps: readonly TokenBalanceRow[];
  allowances: readonly AllowanceRow[];
  grants: readonly GrantRow[];
  adjustments: readonly AdjustmentRow[];
  records: readonly AuditRow[];
  /** Charges to each token. */
  sums: { spentOfToken: ReadonlyMap<string, bigint> };
}

/** Checks that the rows are those which the audit records, written in the same transactions, describe. */
export function checkRecords(rows: RecordedRows, report: ReportViolation): void {
  const records = new Records(rows.records, report);
  checkOrganization(rows, records);
  checkBookings(rows, records);
  checkAllowances(rows, records, report);
  checkTokens(rows, records);
}

type Terms = Record<string, unknown>;
/** The value of a column that no record changes, and the record that says so; undefined if that was removed. */
interface Earlier {
  record: AuditRow | undefined;
  value: unknown;
}

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

  /** Compares the columns of a row with a record. */
  compare(what: string, record: AuditRow, stored: Terms, recorded: Terms): void {
    for (const [name, value] of Object.entries(recorded)) {
      const [found, expected] = [JSON.stringify(stored[name] ?? null), JSON.stringify(value ?? null)];
      if (found === expected) continue;
      this.report(12, `The ${what} has ${name} ${found}, but the audit record ${record.id} says ${expected}.`);
    }
  }

  /**
   * Compares a column with the last of the records that changed it, or with its earlier value if none did. Where services
   * with different clocks make changes, the last record need not be that of the last change.
   */
  compareChanged(what: string, changes: readonly AuditRow[], stored: Terms, name: string, earlier: Earlier): void {
    const own = changes.filter(({ after }) => after?.[name] !== undefined);
    const last = own.at(-1);
    if (last === undefined) {
      if (earlier.record !== undefined) this.compare(what, earlier.record, stored, { [name]: earlier.value });
      return;
    }
    const latest = own.filter(({ madeAtMs }) => madeAtMs >= last.madeAtMs - NEAR_MS);
    const found = JSON.stringify(stored[name] ?? null);
    if (latest.some(({ after }) => JSON.stringify(after?.[name] ?? null) === found)) return;
    this.compare(what, last, stored, { [name]: last.after?.[name] });
  }

  /** Compares a time with that of a record which two clocks, or two reads of one, may tell. */
  compareTime(what: string, record: AuditRow, atMs: number | null): void {
    if (atMs !== null && Math.abs(atMs - record.madeAtMs) <= NEAR_MS) return;
    this.report(12, `The ${what} has the time ${atMs}, but the audit record ${record.id} is of ${record.madeAtMs}.`);
  }
}

/** Time of a recorded text, in milliseconds since 1970; null if there is none. */
function timeOf(text: unknown): number | null {
  return typeof text === "string" ? Date.parse(text) : null;
}

function checkOrganization({ organization }: RecordedRows, records: Records): void {
  if (organization === undefined) return;
  const { id, createdAtMs } = organization;
  const [creation] = records.of("organization.create", id);
  if (creation !== undefined) {
    records.compareTime("creation of the organization", creation, createdAtMs);
    // That of the playground is not recorded.
    records.compare("organization", creation, { ...organization }, { kind: "standard" });
  }
  const choices = { keepsConversations: false, keepsResponses: true, pausesAllowances: false };
  const initial: Terms = { status: "active", ...choices, ...creation?.after };
  const changes = records.of("organization.change", id);
  for (const name of ["name", "status", "limits", "keepsConversations", "keepsResponses", "pausesAllowances"]) {
    const earlier = { record: creation, value: initial[name] };
    records.compareChanged("organization", changes, { ...organization }, name, earlier);
  }
}

function checkBookings({ grants, adjustments, allowances }: RecordedRows, records: Records): void {
  const ended = new Set(allowances.filter(({ endedAtMs }) => endedAtMs !== null).map(({ id }) => id));
  for (const grant of grants) {
    const [credit] = records.of("credits.credit", grant.id);
    if (credit !== undefined) records.compare(`grant ${grant.id}`, credit, { ...grant }, { priority: 0 });
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
  records.compare(
    what,
    record,
    { ...grant, amount: creditsFromMicro(grant.amount) },
    {
      amount,
      effectiveAtMs: timeOf(effectiveAt) ?? record.madeAtMs,
      expiresAtMs: timeOf(expiresAt),
      priority,
      reference,
      createdAtMs: record.madeAtMs,
    },
  );
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
  const times = { expiresAtMs: timeOf(expiresAt), madeAtMs: record.madeAtMs };
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
      records.compare(what, record, stored, { amount, lapses, reference, anchorAtMs: timeOf(beginsAt), priority: 0 });
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
  const { grantId, amount, effectiveAtMs, expiresAtMs, priority, reference } = grantOfPeriod(allowance, period);
  const isSame =
    grant.id === grantId &&
    grant.amount === amount &&
    grant.effectiveAtMs === effectiveAtMs &&
    grant.expiresAtMs === expiresAtMs &&
    grant.priority === priority &&
    grant.reference === reference;
  if (!isSame) report(10, `The grant ${grant.id} is not one of a month of the allowance ${allowance.id}.`);
}

function checkTokens({ tokens, caps, sums }: RecordedRows, records: Records): void {
  const byId = new Map(tokens.map((token) => [token.id, token]));
  const capOf = new Map(caps.map((row) => [row.tokenId, row]));
  const rotations = tokens.flatMap((token) => records.of("token.rotate", token.id));
  const makers = new Map(rotations.map((record) => [record.after?.successor, record]));
  const replaced = new Set(rotations.map(({ before }) => before?.successor));
  const recapped = checkChangedCaps(tokens, capOf, records);
  for (const token of tokens) {
    const what = `token ${token.id}`;
    const maker = makers.get(token.id);
    const record = maker ?? records.required("token.create", what, token.id, token.createdAtMs);
    const predecessor = maker === undefined ? undefined : byId.get(maker.subjectId ?? "");
    if (record !== undefined) {
      checkTokenTerms(token, record, { predecessor, tokens: byId, records });
      if (!recapped.has(token.callerId)) checkFirstCap(token, record, predecessor, { records, capOf });
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
  for (const id of sums.spentOfToken.keys()) {
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
  const earlier = { record: creation, value: creation?.after?.expiresAt };
  records.compareChanged(what, changes, { expiresAt: isoTime(token.expiresAtMs) }, "expiresAt", earlier);
  const record = last ?? creation;
  if (record !== undefined)
    records.compare(what, record, { ...token }, { successorId: last?.after?.successor ?? null });
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
  for (const name of ["name", "scopes", "models", "limits"]) {
    records.compareChanged(what, changes, { ...token }, name, { record, value: terms[name] });
  }
  const callerId = isMade ? token.id : predecessor?.callerId;
  records.compare(what, record, { ...token }, { callerId, ...(isMade && { prefix: terms.prefix }) });
  records.compareTime(what, record, token.createdAtMs);
  // A successor has the lifetime of its predecessor, or of the unused successor that it replaced.
  const unused = tokens.get(String(record.before?.successor));
  const like = unused ?? (predecessor && { ...predecessor, expiresAtMs: timeOf(record.before?.expiresAt) });
  const isChanged = token.successorId !== null || changes.some(({ after }) => after?.expiresAt !== undefined);
  if (isMade || like === undefined || isChanged) return;
  const lifeMs = like.expiresAtMs === null ? null : like.expiresAtMs - like.createdAtMs;
  const expiresAtMs = lifeMs === null ? null : token.createdAtMs + lifeMs;
  records.compare(what, record, { ...token }, { expiresAtMs });
}

type Caps = ReadonlyMap<string, TokenBalanceRow>;

/** Checks the cap that a token was created with, or shares with its predecessor. */
function checkFirstCap(
  token: TokenRow,
  record: AuditRow,
  predecessor: TokenRow | undefined,
  { records, capOf }: { records: Records; capOf: Caps },
): void {
  const isMade = record.action === "token.create";
  const row = capOf.get(token.id);
  const budget = predecessor === undefined ? undefined : capOf.get(predecessor.id);
  const shared = isMade || budget === undefined ? null : (budget.budgetId ?? budget.tokenId);
  const stored = { cap: row && row.budgetId === null ? formatCredits(row.cap) : null, budgetId: row?.budgetId };
  records.compare(`token ${token.id}`, record, stored, { cap: isMade ? record.after?.cap : null, budgetId: shared });
}

/**
 * Checks the caps that were changed: one row has the cap of all tokens of a caller, and those of the others name it. Returns
 * the callers.
 */
function checkChangedCaps(tokens: readonly TokenRow[], capOf: Caps, records: Records): ReadonlySet<string> {
  const callers = new Set<string>();
  for (const [callerId, chain] of Map.groupBy(tokens, (token) => token.callerId)) {
    const changes = chain.flatMap(({ id }) => records.of("token.change", id));
    const changed = changes.filter(({ after }) => after?.cap !== undefined).sort((a, b) => a.madeAtMs - b.madeAtMs);
    if (changed.length === 0) continue;
    callers.add(callerId);
    const rows = chain.map(({ id }) => capOf.get(id)).filter((row) => row !== undefined);
    const [holder, ...more] = rows.filter(({ budgetId }) => budgetId === null);
    const what = `token ${holder?.tokenId ?? callerId}`;
    const stored = { cap: holder === undefined ? null : formatCredits(holder.cap) };
    records.compareChanged(what, changed, stored, "cap", { record: undefined, value: null });
    const isShared = rows.every(({ tokenId, budgetId }) => tokenId === holder?.tokenId || budgetId === holder?.tokenId);
    if (more.length === 0 && isShared && (rows.length === 0 || rows.length === chain.length)) continue;
    records.report(10, `The tokens of the caller ${callerId} do not share one cap.`);
  }
  return callers;
}
