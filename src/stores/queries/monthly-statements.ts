import { isoMonth, monthStart } from "../../api/time.ts";
import type { MicroCredits } from "../../credits/amount.ts";
import {
  closingOf,
  type MonthlyStatementRow,
  type StatementTally,
  statementId,
} from "../../credits/monthly-statement.ts";
import { eventOf } from "../../credits/warnings.ts";
import { EVENT, MONTHLY_STATEMENT, STATEMENT_SERIES } from "../admin-schema.ts";
import type { Database } from "../database.ts";
import { ORGANIZATION } from "../schema.ts";
import { allOf, equal, type Sql, sql } from "../sql.ts";
import { openingBalance, presentNames, totalsBetween } from "./statement.ts";
import { checkEach, compare, type ReportViolation, type Violations } from "./verify-report.ts";

export interface StatementListing {
  /** Null: any. */
  organizationId: string | null;
  /** Its first millisecond; null: any. */
  month: number | null;
  /** Number of the last statement seen. */
  before: number | null;
  limit: number;
}

/** Monthly statements, which are made together with the digests: see `month-digests.ts`. */
export function monthlyStatementRows({ readRows, findRow }: Database) {
  return {
    /** Lists statements, the highest number first. */
    list: ({ organizationId, month, before, limit }: StatementListing): Promise<MonthlyStatementRow[]> =>
      readRows(MONTHLY_STATEMENT)`
        select * from monthly_statement
        where ${allOf(equal({ organization_id: organizationId, month }), before !== null && sql`number < ${before}`)}
        order by number desc limit ${limit}`,
    find: (number: number): Promise<MonthlyStatementRow | undefined> =>
      findRow(MONTHLY_STATEMENT)`select * from monthly_statement where number = ${number}`,
    ofMonth: (organizationId: string, month: number): Promise<MonthlyStatementRow | undefined> =>
      findRow(MONTHLY_STATEMENT)`
        select * from monthly_statement where organization_id = ${organizationId} and month = ${month}`,
  };
}

/** Settings of new statements. */
export interface StatementTerms {
  numberPrefix: string;
  letterhead: { name?: string; address?: string[]; taxId?: string; footer?: string };
}

interface StatedMonth {
  organizationId: string;
  month: number;
  endMs: number;
  digest: string;
  tally: StatementTally;
}

/**
 * Returns the writes that store and announce a monthly statement: none if nothing was booked, or it exists. The first one
 * locks the series, so that each number is used once; a rollback releases it.
 */
export async function statementWrites(
  database: Database,
  { organizationId, month, endMs, digest, tally }: StatedMonth,
  { numberPrefix, letterhead }: StatementTerms,
): Promise<{ required: Sql[]; rest: Sql[] }> {
  const none = { required: [], rest: [] };
  const opening = await openingBalance(database, organizationId, month);
  const [organizations = [], [clock] = [], made = []] = await database.snapshot([
    sql`select * from organization where id = ${organizationId}`,
    sql`select ${database.now()} as now`,
    sql`select 1 from monthly_statement where organization_id = ${organizationId} and month = ${month}`,
  ]);
  const [organization] = organizations.map(ORGANIZATION.fromRecord);
  if (organization?.kind !== "standard" || made.length > 0 || (!tally.hasRows && opening === 0n)) return none;
  const { name, externalId, contacts } = organization;
  const { name: issuer = null, address = [], taxId = null, footer = null } = letterhead;
  const { tokens, ...lines } = tally.lines();
  const { totals } = tally;
  const tokenIds = tokens.flatMap(({ token_id }) => token_id ?? []);
  const names = await presentNames(database, "token", organizationId, tokenIds);
  const row = {
    ...{ organizationId, month, number: 0, numberPrefix, madeAtMs: Number(clock?.now), opening, totals, digest },
    isFinal:
      organization.status === "closed" &&
      closingOf({ opening, totals }) === 0n &&
      Object.values(await totalsBetween(database, organizationId, { from: endMs })).every((total) => total === 0n),
    details: {
      letterhead: { name: issuer, address, tax_id: taxId, footer },
      customer: { name, external_id: externalId, contacts: contacts ?? [] },
      ...lines,
      tokens: tokens.map((line) => ({ ...line, token_name: names.get(line.token_id ?? "") ?? null })),
    },
  };
  const event = eventOf(
    "statement.ready",
    { organizationId, nowMs: row.madeAtMs, period: [month] },
    { month: isoMonth(month) },
  );
  return {
    required: [
      sql`update statement_series set last_number = last_number + 1 where id = 1`,
      MONTHLY_STATEMENT.insertFrom(sql`from statement_series where id = 1`, row, { number: sql`last_number` }),
    ],
    rest: [sql`${EVENT.insert(event)} on conflict do nothing`],
  };
}

/** Checks the statements of an organization, month by month. */
export async function statementChecks(database: Database, organizationId: string, report: ReportViolation) {
  const of = sql`where organization_id = ${organizationId}`;
  const [rows = [], standard = [], [clock] = []] = await database.snapshot([
    sql`select * from monthly_statement ${of}`,
    sql`select 1 from organization where id = ${organizationId} and kind = 'standard'`,
    sql`select ${database.now()} as now`,
  ]);
  const sound = checkEach(MONTHLY_STATEMENT, rows, report, Number(clock?.now));
  const statements = new Map(sound.map((row) => [row.month, row]));
  /** The month after the last one that was checked, and its opening balance. */
  let next: { month: number; opening: MicroCredits } | undefined;
  return {
    /** Checks the next month with a digest; `tally`: the sums of its rows, undefined if they are removed. */
    async check(month: number, digest: string, tally: StatementTally | undefined): Promise<void> {
      const statement = statements.get(month);
      statements.delete(month);
      // The closing balance of the month before, so that one wrong month is reported once.
      let opening = next?.month === month ? next.opening : undefined;
      if (opening === undefined && tally !== undefined) {
        opening = await openingBalance(database, organizationId, month);
      }
      next = { month: monthStart(month, 1), opening: statement === undefined ? 0n : closingOf(statement) };
      if (statement === undefined) {
        const isDue = standard.length > 0 && (tally?.hasRows === true || (opening ?? 0n) !== 0n);
        if (isDue) report(18, `The month ${isoMonth(month)} has no statement.`);
        return;
      }
      const what = `statement ${statementId(statement)}`;
      compare(report, 18, what, statement, { digest, ...(opening !== undefined && { opening }) }, "the books say");
      if (tally === undefined) return;
      const { bookings, models, tokens } = statement.details;
      const lines = { bookings, models, tokens: tokens.map((line) => ({ ...line, token_name: null })) };
      const stated = { ...statement.totals, ...lines };
      compare(report, 18, what, stated, { ...tally.totals, ...tally.lines() }, "the books say");
    },
    end(): void {
      for (const row of statements.values())
        report(18, `The month of the statement ${statementId(row)} has no digest.`);
    },
  };
}

/** Checks that the numbers of all statements have no gaps. */
export async function checkNumbers(database: Database, { report }: Violations): Promise<void> {
  const [counts = [], series = []] = await database.snapshot([
    sql`select count(*) as count, coalesce(max(number), 0) as highest from monthly_statement`,
    sql`select * from statement_series`,
  ]);
  const [{ count, highest } = {}] = counts;
  const row = checkEach(STATEMENT_SERIES, series, report).find(({ id }) => id === 1);
  if (count === highest && row?.lastNumber === Number(highest)) return;
  report(
    18,
    `There are ${count} statements, the highest number is ${highest}, and the last number of the series is ${row?.lastNumber}.`,
  );
}
