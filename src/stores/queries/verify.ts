import { decodeLines } from "../../credits/charge-lines.ts";
import type { ClosingPartRow, ClosingRow } from "../../credits/closing.ts";
import type { Database } from "../database.ts";
import {
  ADJUSTMENT,
  ALLOWANCE,
  AUDIT_ENTRY,
  BALANCE,
  BUDGET,
  BUDGET_USE,
  CLOSING,
  CLOSING_PART,
  GRANT,
  HOLD,
  KEY,
  ORGANIZATION,
  REQUEST,
  STATEMENT_BALANCE,
  TOKEN,
} from "../schema.ts";
import { join, raw, sql } from "../sql.ts";
import { isClosed } from "./closings.ts";
import { verifyMonthDigests } from "./month-digests.ts";
import { type RecordedBalance, RecordedBalances } from "./recorded-balances.ts";
import { type BooksFound, CHECKS, checkAll, KEY_KEPT_MS, Sums } from "./verify-checks.ts";
import { DaySums } from "./verify-days.ts";
import { COMPARED_ACTIONS } from "./verify-records.ts";
import { checkEach, soundRows, type Violation, Violations } from "./verify-report.ts";
import { checkClosing, checkHold, checkRequestRow, checkRequestTimes } from "./verify-rows.ts";

export interface OrganizationVerification {
  organizationId: string;
  holds: number;
  events: number;
  violations: Violation[];
  /** Number of violations that are not among these. */
  more: number;
}

/** Number of requests that are checked in one snapshot. */
const CHUNK_ROWS = 2_000;
/** Newer requests are added up together with the balance, in one snapshot, because more may follow. */
const NEWEST_MS = 20_000;
/** Sums that differ are computed again: the clock may have been set back, or a batch took longer. */
const ATTEMPTS = 3;

/**
 * Checks the books of one organization, and the digests of its months. The numbers are those of the invariants in
 * docs/ledger.md. A service ends a hold `endsWithinMs` after its expiry.
 */
export async function verifyOrganization(
  database: Database,
  organizationId: string,
  endsWithinMs: number,
): Promise<OrganizationVerification> {
  const { violations, more, ...verification } = await verifyRows(database, organizationId, endsWithinMs);
  const digests = new Violations(organizationId);
  await verifyMonthDigests(database, organizationId, digests.report);
  return { ...verification, violations: [...violations, ...digests.list], more: more + digests.more };
}

/**
 * Checks the requests of an organization in chunks, each in a short snapshot, then everything that may change, with the newest
 * requests, in one more.
 */
async function verifyRows(
  database: Database,
  organizationId: string,
  endsWithinMs: number,
): Promise<OrganizationVerification> {
  for (let attempt = 1; ; ) {
    const check = new Check(database, organizationId, endsWithinMs);
    const verification = await check.run();
    // Requests that were closed meanwhile were added up twice, or not at all.
    if (check.isOutdated) continue;
    if (verification.violations.length === 0 || attempt === ATTEMPTS) return verification;
    attempt += 1;
  }
}

class Check {
  readonly #database: Database;
  readonly #organizationId: string;
  readonly #endsWithinMs: number;
  readonly #violations: Violations;
  readonly #sums = new Sums();
  readonly #days: DaySums;
  #recorded = new RecordedBalances([]);
  #closing: ClosingRow | undefined;
  #requests = 0;
  #charges = 0;
  /** Time at which a request began or ended last. */
  #bookedMs = 0;
  /** Requests were closed while they were read. */
  isOutdated = false;

  constructor(database: Database, organizationId: string, endsWithinMs: number) {
    this.#database = database;
    this.#organizationId = organizationId;
    this.#endsWithinMs = endsWithinMs;
    this.#violations = new Violations(organizationId);
    this.#days = new DaySums(organizationId);
  }

  async run(): Promise<OrganizationVerification> {
    const of = sql`where organization_id = ${this.#organizationId}`;
    const [[clock] = [], recorded = [], closings = [], parts = []] = await this.#database.snapshot([
      sql`select ${this.#database.now()} as now`,
      sql`select * from statement_balance
        ${of} and before_at >= coalesce((select before_at from closing ${of}), 0) order by before_at`,
      sql`select * from closing ${of}`,
      sql`select * from closing_part ${of}`,
    ]);
    const { report } = this.#violations;
    const balances = checkEach(STATEMENT_BALANCE, recorded, report);
    this.#recorded = new RecordedBalances(balances);
    this.#addClosing(checkEach(CLOSING, closings, report)[0], checkEach(CLOSING_PART, parts, report), balances);
    const newestFromMs = Number(clock?.now) - NEWEST_MS;
    for (let after = ""; ; ) {
      const last = await this.#checkRequests(after, newestFromMs);
      if (last === undefined) break;
      after = last;
    }
    await this.#checkDays();
    const holds = await this.#checkRest(newestFromMs);
    const { list: violations, more } = this.#violations;
    const organizationId = this.#organizationId;
    return { organizationId, holds: this.#requests + holds, events: this.#charges, violations, more };
  }

  /** Adds what the closed requests add up to. */
  #addClosing(closing: ClosingRow | undefined, parts: ClosingPartRow[], recorded: readonly RecordedBalance[]): void {
    const { report } = this.#violations;
    this.#closing = closing;
    checkClosing(closing, parts, report);
    if (closing === undefined) return;
    const { beforeAtMs, cost, requests } = closing;
    this.#days.fromMs = beforeAtMs;
    if (recorded[0]?.beforeAtMs !== beforeAtMs) {
      report(3, `No balance is recorded for ${beforeAtMs}, before which requests are closed.`);
    }
    this.#requests += requests;
    this.#recorded.add(beforeAtMs - 1, -cost);
    for (const { dimension, name, amount } of parts) {
      if (dimension === "token") this.#sums.charge(name, amount, [], []);
      else this.#sums.take("drawn", [{ grantId: name, amount }]);
    }
  }

  /** Checks the requests after an id; returns the last id of the chunk, undefined at the end. */
  async #checkRequests(after: string, newestFromMs: number): Promise<string | undefined> {
    const id = this.#organizationId;
    // Rows that are closed count as absent, removed or not.
    const isOpen = this.#closing === undefined ? sql`1 = 1` : sql`not ${isClosed(this.#closing.beforeAtMs)}`;
    const chunk = sql`
      from request where organization_id = ${id} and id > ${after} and ${isOpen} order by id limit ${CHUNK_ROWS}`;
    const [rows = [], adjustments = [], [clock] = []] = await this.#database.snapshot([
      sql`select * ${chunk}`,
      sql`
        select adjustment.* from adjustment
        where organization_id = ${id} and kind = 'late_settlement' and hold_id in (select id ${chunk})`,
      sql`select ${this.#database.now()} as now`,
    ]);
    const { report } = this.#violations;
    const late = Map.groupBy(soundRows(ADJUSTMENT, adjustments), ({ holdId }) => holdId);
    checkEach(REQUEST, rows, report, (request) => {
      const ofRequest = late.get(request.holdId) ?? [];
      checkRequestRow(request, ofRequest, report);
      checkRequestTimes(request, Number(clock?.now), report);
      this.#requests += 1;
      this.#bookedMs = Math.max(this.#bookedMs, request.endedAtMs);
      if (request.end !== "released") this.#charges += 1;
      this.#recorded.add(request.endedAtMs, -request.cost);
      const isAdded = request.endedAtMs < newestFromMs || request.end === "released";
      if (isAdded) this.#sums.charge(request.tokenId, request.cost, request.draws, request.budgets);
      this.#days.add(request, ofRequest);
    });
    await this.#days.compare(this.#database, false, report);
    return rows.length < CHUNK_ROWS ? undefined : (rows.at(-1)?.id as string | undefined);
  }

  /** Compares the sums of the last day, and finds those of days without requests. */
  async #checkDays(): Promise<void> {
    const { report } = this.#violations;
    await this.#days.compare(this.#database, true, report);
    const fromMs = this.#closing?.beforeAtMs ?? 0;
    const days = await this.#database.read<{ day: bigint }>(
      sql`select distinct day from usage_day where organization_id = ${this.#organizationId} and day >= ${fromMs}`,
    );
    this.#days.checkOthers(
      days.map(({ day }) => Number(day)),
      report,
    );
  }

  /** Checks everything else; returns the number of open holds. */
  async #checkRest(newestFromMs: number): Promise<number> {
    const { report } = this.#violations;
    const found = await this.#readRest(newestFromMs);
    this.isOutdated = (found.closing[0]?.before_at ?? 0n) !== BigInt(this.#closing?.beforeAtMs ?? 0);
    for (const { tokenId, cost, draws, budgets } of soundRows(REQUEST, found.newest)) {
      this.#sums.charge(tokenId, cost, draws, budgets);
    }
    const bookedMs = soundRows(HOLD, found.hold).reduce(
      (last, { madeAtMs }) => Math.max(last, madeAtMs),
      this.#bookedMs,
    );
    const nowMs = Number(found.clock[0]?.now);
    const limits = { nowMs, bookedMs, endsWithinMs: this.#endsWithinMs };
    const books: BooksFound = {
      nowMs,
      closing: this.#closing,
      sums: this.#sums,
      recorded: this.#recorded,
      balance: checkEach(BALANCE, found.balance, report)[0],
      budgets: checkEach(BUDGET, found.budget, report),
      budgetUses: checkEach(BUDGET_USE, found.budget_use, report),
      grants: checkEach(GRANT, found.credit_grant, report),
      open: checkEach(HOLD, found.hold, report, (hold) => checkHold(hold, limits, report)),
      keys: checkEach(KEY, found.idempotency_key, report),
      adjustments: checkEach(ADJUSTMENT, found.adjustment, report, ({ settlement }) => {
        if (settlement !== null) decodeLines(settlement.charge);
      }),
      // Requests are reported where all of them are read, the next two by `verifyStore`.
      requests: new Map(soundRows(REQUEST, found.named).map((row) => [row.holdId, row])),
      organization: soundRows(ORGANIZATION, found.organization)[0],
      records: soundRows(AUDIT_ENTRY, found.records),
      tokens: checkEach(TOKEN, found.token, report),
      allowances: checkEach(ALLOWANCE, found.allowance, report),
      keyless: found.keyless as { id: string; idempotency_key: string }[],
    };
    for (const { id } of found.both as { id: string }[]) report(7, "The request is both open and ended.", id);
    checkAll(CHECKS, books, report);
    this.#charges += books.adjustments.filter(({ kind }) => kind === "late_settlement").length;
    return books.open.length;
  }

  async #readRest(newestFromMs: number) {
    const id = this.#organizationId;
    const of = sql`where organization_id = ${id}`;
    const all = (table: string) => sql`select * from ${raw(table)} ${of}`;
    const named = sql`select hold_id from adjustment ${of} union select hold_id from idempotency_key ${of}`;
    const dayAgo = sql`${this.#database.now()} - ${raw(KEY_KEPT_MS)}`;
    const queries = {
      clock: sql`select ${this.#database.now()} as now`,
      balance: all("balance"),
      budget: all("budget"),
      budget_use: all("budget_use"),
      credit_grant: all("credit_grant"),
      hold: all("hold"),
      // Without the answers, which may be long.
      idempotency_key: sql`
        select organization_id, caller_id, key, fingerprint, hold_id, created_at, expires_at,
          case when answer is null then null else '' end as answer
        from idempotency_key ${of}`,
      adjustment: all("adjustment"),
      token: all("token"),
      allowance: all("allowance"),
      organization: sql`select * from organization where id = ${id}`,
      records: sql`select * from audit_entry ${of} and action in (${join(COMPARED_ACTIONS)}) order by id`,
      newest: sql`select * from request ${of} and ended_at >= ${newestFromMs} and ending <> 'released'`,
      named: sql`select * from request ${of} and id in (${named})`,
      both: sql`
        select hold.id from hold
        join request on request.organization_id = hold.organization_id and request.id = hold.id
        where hold.organization_id = ${id}`,
      closing: sql`select before_at from closing ${of}`,
      // Keys are kept for a day. One that was claimed again names a later request, but only after that.
      keyless: sql`
        select id, idempotency_key from request ${of} and id >= ${this.#database.idAtTime(dayAgo)}
          and made_at > ${dayAgo} and idempotency_key is not null and ending <> 'released' and not exists (
          select 1 from idempotency_key as claimed
          where claimed.organization_id = request.organization_id and claimed.key = request.idempotency_key
            and claimed.caller_id = request.idempotency_caller_id and claimed.hold_id = request.id)`,
    };
    const results = await this.#database.snapshot(Object.values(queries));
    const entries = Object.keys(queries).map((name, index) => [name, results[index] ?? []]);
    return Object.fromEntries(entries) as Record<keyof typeof queries, Record<string, unknown>[]>;
  }
}
