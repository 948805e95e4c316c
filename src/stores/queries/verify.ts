import { ChargeSums, type ClosingPartRow, type ClosingRow } from "../../credits/closing.ts";
import { beganBefore } from "../../credits/request-id.ts";
import { sumOfTotals } from "../../credits/statement-totals.ts";
import type { Database } from "../database.ts";
import { ADJUSTMENT, CLOSING, CLOSING_PART, REQUEST, STATEMENT_BALANCE } from "../schema.ts";
import { join, type Sql, sql } from "../sql.ts";
import type { RowOf } from "../table.ts";
import { isClosed } from "./closings.ts";
import { verifyMonthDigests } from "./month-digests.ts";
import { totalsBetween } from "./statement.ts";
import { checkBooks, readBooks } from "./verify-checks.ts";
import { checkEach, soundRows, Violations } from "./verify-report.ts";
import { checkClosing, checkRequestRow, checkRequestTimes, checkRetry, type Repetition } from "./verify-rows.ts";

const CHUNK_ROWS = 2_000;
/** Newer requests are added up together with the balance, in one snapshot, because more may follow. */
const NEWEST_MS = 20_000;
/** Sums that differ are computed again: the clock may have been set back, or a batch took longer. */
const ATTEMPTS = 3;

/**
 * Checks the books of one organization, and the digests of its months. The numbers are those of the invariants in
 * docs/ledger.md. A service ends a hold `endsWithinMs` after its expiry.
 */
export async function verifyOrganization(database: Database, organizationId: string, endsWithinMs: number) {
  for (let attempt = 1; ; ) {
    const check = new Check(database, organizationId, endsWithinMs);
    const verification = await check.run();
    // Requests that were closed meanwhile were added up twice, or not at all.
    if (check.isOutdated) continue;
    if (verification.violations.length === 0 || attempt === ATTEMPTS) {
      const digests = new Violations(organizationId);
      await verifyMonthDigests(database, organizationId, digests.report);
      const violations = [...verification.violations, ...digests.list];
      return { ...verification, violations, more: verification.more + digests.more };
    }
    attempt += 1;
  }
}

/**
 * Checks the requests of an organization in chunks, each in a short snapshot, then everything that may change, with the newest
 * requests, in one more.
 */
class Check {
  readonly #database: Database;
  readonly #organizationId: string;
  readonly #of: Sql;
  readonly #endsWithinMs: number;
  readonly #violations: Violations;
  readonly #sums = new ChargeSums();
  #closing: ClosingRow | undefined;
  #requests = 0;
  #charges = 0;
  /** Time at which a request began or ended last. */
  #bookedMs = 0;
  /** Attempts that a retry repeats. */
  readonly #repeated = new Set<string>();
  /** Requests were closed while they were read. */
  isOutdated = false;

  constructor(database: Database, organizationId: string, endsWithinMs: number) {
    this.#database = database;
    this.#organizationId = organizationId;
    this.#of = sql`where organization_id = ${organizationId}`;
    this.#endsWithinMs = endsWithinMs;
    this.#violations = new Violations(organizationId);
  }

  async run() {
    const [[clock] = [], balances = [], closings = [], parts = []] = await this.#database.snapshot([
      sql`select ${this.#database.now()} as now`,
      sql`select * from statement_balance ${this.#of}
        and before_at >= coalesce((select before_at from closing ${this.#of}), 0) order by before_at`,
      sql`select * from closing ${this.#of}`,
      sql`select * from closing_part ${this.#of}`,
    ]);
    const { report, list: violations } = this.#violations;
    this.#addClosing(checkEach(CLOSING, closings, report)[0], checkEach(CLOSING_PART, parts, report));
    const newestFromMs = Number(clock?.now) - NEWEST_MS;
    for (let after: string | undefined = ""; after !== undefined; ) {
      after = await this.#checkRequests(after, newestFromMs);
    }
    await this.#checkStatement(checkEach(STATEMENT_BALANCE, balances, report));
    const holds = this.#requests + (await this.#checkRest(newestFromMs));
    const { more } = this.#violations;
    return { organizationId: this.#organizationId, holds, events: this.#charges, violations, more };
  }

  #addClosing(closing: ClosingRow | undefined, parts: readonly ClosingPartRow[]): void {
    checkClosing(closing, parts, this.#violations.report);
    this.#closing = closing;
    if (closing === undefined) return;
    this.#requests += closing.requests;
    for (const { dimension, name, amount } of parts) {
      const isToken = dimension === "token";
      const draws = isToken ? [] : [{ grantId: name, amount }];
      this.#sums.add({ tokenId: isToken ? name : "", cost: isToken ? amount : 0n, draws, budgets: null });
    }
  }

  /** Restricts requests to those that are not closed: a closed one counts as absent, removed or not. */
  #isOpen(): Sql {
    return this.#closing === undefined ? sql`1 = 1` : sql`not ${isClosed(this.#closing.beforeAtMs)}`;
  }

  /** Checks the requests after an id; returns the last id of the chunk, undefined at the end. */
  async #checkRequests(after: string, newestFromMs: number): Promise<string | undefined> {
    const chunk = sql`from request ${this.#of} and id > ${after} and ${this.#isOpen()} order by id limit ${CHUNK_ROWS}`;
    const [rows = [], adjustments = [], [clock] = []] = await this.#database.snapshot([
      sql`select * ${chunk}`,
      sql`select * from adjustment ${this.#of} and kind = 'late_settlement' and hold_id in (select id ${chunk})`,
      sql`select ${this.#database.now()} as now`,
    ]);
    const { report } = this.#violations;
    const late = Map.groupBy(soundRows(ADJUSTMENT, adjustments), ({ holdId }) => holdId);
    const retries: Repetition[] = [];
    checkEach(REQUEST, rows, report, Number(clock?.now), (request) => {
      checkRequestRow(request, late.get(request.holdId) ?? [], report);
      checkRequestTimes(request, report);
      this.#requests += 1;
      this.#bookedMs = Math.max(this.#bookedMs, request.endedAtMs);
      if (request.retry !== null) retries.push({ holdId: request.holdId, ...request.retry });
      if (request.end !== "released") this.#charges += 1;
      if (request.endedAtMs < newestFromMs || request.end === "released") this.#sums.add(request);
    });
    if (retries.length > 0) await this.#checkRetries(retries);
    return rows.length < CHUNK_ROWS ? undefined : (rows.at(-1)?.id as string | undefined);
  }

  async #checkRetries(retries: readonly Repetition[]): Promise<void> {
    const ids = join(retries.map(({ of }) => of));
    const [attempts = [], adjustments = []] = await this.#database.snapshot([
      sql`select * from request ${this.#of} and id in (${ids})`,
      sql`select * from adjustment ${this.#of} and kind = 'late_settlement' and hold_id in (${ids})`,
    ]);
    const byId = new Map(soundRows(REQUEST, attempts).map((row) => [row.holdId, row]));
    const late = new Map(soundRows(ADJUSTMENT, adjustments).map(({ holdId, amount }) => [holdId, amount]));
    for (const retry of retries) {
      const { holdId, of } = retry;
      const isKnown = byId.has(of) || !beganBefore(of, this.#closing?.beforeAtMs ?? null);
      if (isKnown) checkRetry(retry, byId.get(of), late.get(of) ?? 0n, this.#violations.report);
      if (this.#repeated.has(of)) this.#violations.report(17, `The request ${of} was repeated before.`, holdId);
      this.#repeated.add(of);
    }
  }

  /** Compares the differences between recorded balances, so that one wrong entry is reported once. */
  async #checkStatement(balances: readonly RowOf<typeof STATEMENT_BALANCE>[]): Promise<void> {
    const { report } = this.#violations;
    const { beforeAtMs: closedMs, cost = 0n } = this.#closing ?? {};
    if (closedMs !== undefined && balances[0]?.beforeAtMs !== closedMs) {
      report(3, `No balance is recorded for ${closedMs}, before which requests are closed.`);
    }
    let [fromMs, previous] = [0, -cost];
    for (const { beforeAtMs, balance } of balances) {
      const period = { from: fromMs, to: beforeAtMs };
      const sums = await totalsBetween(this.#database, this.#organizationId, period, this.#isOpen());
      const expected = previous + sumOfTotals(sums);
      const found = `The statement's balance recorded for ${beforeAtMs} is ${balance}`;
      if (balance !== expected) report(3, `${found}, but its entries add up to ${expected}.`);
      [fromMs, previous] = [beforeAtMs, balance];
    }
  }

  /** Checks everything else; returns the number of open holds. */
  async #checkRest(newestFromMs: number): Promise<number> {
    const { report } = this.#violations;
    const books = await readBooks(this.#database, this.#organizationId, { newestFromMs, report });
    this.isOutdated = books.closedBeforeMs !== (this.#closing?.beforeAtMs ?? 0);
    for (const request of books.newest) this.#sums.add(request);
    const bookedMs = books.holds.reduce((last, { madeAtMs }) => Math.max(last, madeAtMs), this.#bookedMs);
    const limits = { nowMs: books.nowMs, bookedMs, endsWithinMs: this.#endsWithinMs };
    const requests = new Map(books.named.map((row) => [row.holdId, row]));
    checkBooks({ ...books, closing: this.#closing, sums: this.#sums, requests, limits }, report);
    this.#charges += books.adjustments.filter(({ kind }) => kind === "late_settlement").length;
    return books.holds.length;
  }
}
