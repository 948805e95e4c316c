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
import { checkEach, type ReportViolation, soundRows, Violations } from "./verify-report.ts";
import { checkClosing, checkRequestRow, checkRequestTimes, checkRetry, type Repetition } from "./verify-rows.ts";

const CHUNK_ROWS = 2_000;
/** Newer requests are added up together with the balance, in one snapshot, because more may follow. */
const NEWEST_MS = 20_000;
/** Sums that differ are computed again: the clock may have been set back, or a batch took longer. */
const ATTEMPTS = 3;

/** Checks the books of one organization by the invariants of docs/ledger.md. A service ends holds `endsWithinMs` after expiry. */
export async function verifyOrganization(database: Database, organizationId: string, endsWithinMs: number) {
  for (let attempt = 1; ; ) {
    const found = new Violations(organizationId);
    const counts = await checkOrganization(database, { organizationId, endsWithinMs, report: found.report });
    // Requests that were closed meanwhile were added up twice, or not at all.
    if (counts === undefined) continue;
    if (found.list.length === 0 || attempt === ATTEMPTS) {
      await verifyMonthDigests(database, organizationId, found.report);
      return { organizationId, ...counts, violations: found.list, more: found.more };
    }
    attempt += 1;
  }
}

interface Checked {
  organizationId: string;
  closing: ClosingRow | undefined;
  /** Restricts requests to those that are not closed: a closed one counts as absent, removed or not. */
  isOpen: Sql;
  sums: ChargeSums;
  report: ReportViolation;
}

/**
 * Checks the requests of an organization in chunks, each in a short snapshot, then everything that may change, with the newest
 * requests, in one more. Returns the numbers of holds and charges; undefined if requests were closed while they were read.
 */
async function checkOrganization(
  database: Database,
  { organizationId, endsWithinMs, report }: { organizationId: string; endsWithinMs: number; report: ReportViolation },
) {
  const of = sql`where organization_id = ${organizationId}`;
  const [[clock] = [], balances = [], closings = [], parts = []] = await database.snapshot([
    sql`select ${database.now()} as now`,
    sql`select * from statement_balance ${of}
      and before_at >= coalesce((select before_at from closing ${of}), 0) order by before_at`,
    sql`select * from closing ${of}`,
    sql`select * from closing_part ${of}`,
  ]);
  const [closing] = checkEach(CLOSING, closings, report);
  const isOpen = closing === undefined ? sql`1 = 1` : sql`not ${isClosed(closing.beforeAtMs)}`;
  const checked = { organizationId, closing, isOpen, sums: new ChargeSums(), report };
  addClosing(checked, checkEach(CLOSING_PART, parts, report));
  const newestFromMs = Number(clock?.now) - NEWEST_MS;
  const ended = await checkRequests(database, checked, newestFromMs);
  await checkStatement(database, checked, checkEach(STATEMENT_BALANCE, balances, report));
  const books = await readBooks(database, organizationId, { newestFromMs, report });
  if (books.closedBeforeMs !== (closing?.beforeAtMs ?? 0)) return undefined;
  for (const request of books.newest) checked.sums.add(request);
  const bookedMs = books.holds.reduce((last, { madeAtMs }) => Math.max(last, madeAtMs), ended.bookedMs);
  const limits = { nowMs: books.nowMs, bookedMs, endsWithinMs };
  const requests = new Map(books.named.map((row) => [row.holdId, row]));
  checkBooks({ ...books, closing, sums: checked.sums, requests, limits }, report);
  const late = books.adjustments.filter(({ kind }) => kind === "late_settlement").length;
  const closed = closing?.requests ?? 0;
  return { holds: closed + ended.requests + books.holds.length, events: ended.charges + late };
}

function addClosing({ closing, sums, report }: Checked, parts: readonly ClosingPartRow[]): void {
  checkClosing(closing, parts, report);
  if (closing === undefined) return;
  for (const { dimension, name, amount } of parts) {
    const isToken = dimension === "token";
    const draws = isToken ? [] : [{ grantId: name, amount }];
    sums.add({ tokenId: isToken ? name : "", cost: isToken ? amount : 0n, draws, budgets: null });
  }
}

/** Checks and counts the requests. Returns the time at which one of them ended last, too. */
async function checkRequests(database: Database, checked: Checked, newestFromMs: number) {
  const { organizationId, isOpen, sums, report } = checked;
  const of = sql`where organization_id = ${organizationId}`;
  const counts = { requests: 0, charges: 0, bookedMs: 0 };
  const repeated = new Set<string>();
  for (let after = ""; ; ) {
    const chunk = sql`from request ${of} and id > ${after} and ${isOpen} order by id limit ${CHUNK_ROWS}`;
    const [rows = [], adjustments = [], [clock] = []] = await database.snapshot([
      sql`select * ${chunk}`,
      sql`select * from adjustment ${of} and kind = 'late_settlement' and hold_id in (select id ${chunk})`,
      sql`select ${database.now()} as now`,
    ]);
    const late = Map.groupBy(soundRows(ADJUSTMENT, adjustments), ({ holdId }) => holdId);
    const retries: Repetition[] = [];
    checkEach(REQUEST, rows, report, Number(clock?.now), (request) => {
      checkRequestRow(request, late.get(request.holdId) ?? [], report);
      checkRequestTimes(request, report);
      counts.requests += 1;
      counts.bookedMs = Math.max(counts.bookedMs, request.endedAtMs);
      if (request.retry !== null) retries.push({ holdId: request.holdId, ...request.retry });
      if (request.end !== "released") counts.charges += 1;
      if (request.endedAtMs < newestFromMs || request.end === "released") sums.add(request);
    });
    if (retries.length > 0) await checkRetries(database, checked, retries, repeated);
    if (rows.length < CHUNK_ROWS) return counts;
    after = rows.at(-1)?.id as string;
  }
}

async function checkRetries(
  database: Database,
  { organizationId, closing, report }: Checked,
  retries: readonly Repetition[],
  repeated: Set<string>,
): Promise<void> {
  const named = sql`organization_id = ${organizationId} and`;
  const ids = join(retries.map(({ of }) => of));
  const [attempts = [], adjustments = []] = await database.snapshot([
    sql`select * from request where ${named} id in (${ids})`,
    sql`select * from adjustment where ${named} kind = 'late_settlement' and hold_id in (${ids})`,
  ]);
  const byId = new Map(soundRows(REQUEST, attempts).map((row) => [row.holdId, row]));
  const late = new Map(soundRows(ADJUSTMENT, adjustments).map(({ holdId, amount }) => [holdId, amount]));
  for (const retry of retries) {
    const { holdId, of } = retry;
    const isKnown = byId.has(of) || !beganBefore(of, closing?.beforeAtMs ?? null);
    if (isKnown) checkRetry(retry, byId.get(of), late.get(of) ?? 0n, report);
    if (repeated.has(of)) report(17, `The request ${of} was repeated before.`, holdId);
    repeated.add(of);
  }
}

/** Compares the differences between recorded balances, so that one wrong entry is reported once. */
async function checkStatement(
  database: Database,
  { organizationId, closing, isOpen, report }: Checked,
  balances: readonly RowOf<typeof STATEMENT_BALANCE>[],
): Promise<void> {
  const { beforeAtMs: closedMs, cost = 0n } = closing ?? {};
  if (closedMs !== undefined && balances[0]?.beforeAtMs !== closedMs) {
    report(3, `No balance is recorded for ${closedMs}, before which requests are closed.`);
  }
  let [fromMs, previous] = [0, -cost];
  for (const { beforeAtMs, balance } of balances) {
    const sums = await totalsBetween(database, organizationId, { from: fromMs, to: beforeAtMs }, isOpen);
    const expected = previous + sumOfTotals(sums);
    const found = `The statement's balance recorded for ${beforeAtMs} is ${balance}`;
    if (balance !== expected) report(3, `${found}, but its entries add up to ${expected}.`);
    [fromMs, previous] = [beforeAtMs, balance];
  }
}
