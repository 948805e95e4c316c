import { createHash } from "node:crypto";
import { isoMonth, monthStart } from "../../api/time.ts";
import { StatementTally } from "../../credits/monthly-statement.ts";
import type { Database } from "../database.ts";
import { ADJUSTMENT, GRANT, MONTH_DIGEST, REQUEST } from "../schema.ts";
import { join, raw, type Sql, sql } from "../sql.ts";
import type { RowOf, TableShape } from "../table.ts";
import { type StatementTerms, statementChecks, statementWrites } from "./monthly-statements.ts";
import { closedBefore, idsBookedBetween } from "./statement.ts";
import { checkEach, type ReportViolation, soundRows } from "./verify-report.ts";

/** Time after the end of a month until it is over: a clock that is set back could still book into it. */
const OVER_AFTER_MS = 86_400_000;
/** Rows that are read and hashed at once: few milliseconds of the event loop. */
const PAGE_ROWS = 500;

export type MonthDigestRow = RowOf<typeof MONTH_DIGEST>;

/**
 * The digests of what was booked in each month. The months of an organization follow each other without a gap, from that of
 * its first booking on, and each digest includes the one before. A digest is computed in steps while the service runs; a
 * process may die between any two, and several processes may do it at once: the rows do not change, and the first digest
 * that is stored stays. docs/ledger.md describes the bytes, from which others can compute it. The monthly statement is made of
 * the same rows, and stored in the same transaction.
 */
export function monthDigestRows(database: Database) {
  return {
    /** Finds organizations that may have a month that is over and has no digest, in the order of their ids. */
    organizations: () => organizationsDue(database),
    /** Returns undefined if nothing was booked. */
    next: (organizationId: string) => nextMonth(database, organizationId),
    begin: (organizationId: string, next: NextMonth) => beginHash(organizationId, next),
    /** Adds a page of rows. Returns true at the end. */
    add: (hash: MonthHash, limit = PAGE_ROWS) => addPage(database, hash, limit),
    store: (hash: MonthHash, terms: StatementTerms) => storeDigest(database, hash, terms),
  };
}

export interface NextMonth {
  /** Its first millisecond. */
  month: number;
  /** The digest of the month before; undefined: it has none. */
  previous: string | undefined;
  /** True if nothing more can be booked in it. */
  isOver: boolean;
}

interface Section {
  table: TableShape & { name: "credit_grant" | "adjustment" | "request" };
  /** Column of the time at which a row was booked. */
  time: string;
  /** The columns that never change, and the name of the table, in the order of a line. */
  names: readonly string[];
  condition?: Sql;
  /** True for requests that began within a day of their booking. */
  hasIdsNear?: true;
}

function section(table: TableShape, time: string, rest: Partial<Section> = {}, changing: readonly string[] = []) {
  const names = [...table.columns.filter((name) => !changing.includes(name)), "table"].sort();
  return { table: table as Section["table"], time, names, ...rest };
}

/** The order of the rows of a month; within a section, they are in the order of their times and ids. */
const SECTIONS: readonly Section[] = [
  section(GRANT, "created_at", {}, ["remaining", "is_used_up", "revoked", "state"]),
  section(ADJUSTMENT, "made_at"),
  section(REQUEST, "ended_at", { condition: sql`is_late = 0 and ending <> 'released'`, hasIdsNear: true }),
  section(REQUEST, "ended_at", { condition: sql`is_late = 1 and ending <> 'released'` }),
];

type MonthHash = ReturnType<typeof beginHash>;

function beginHash(organizationId: string, { month, previous }: Pick<NextMonth, "month" | "previous">) {
  const hash = createHash("sha256");
  /** Adds a line of canonical JSON (RFC 8785): the names are sorted, and all values are texts. */
  const add = (values: Record<string, string | undefined>) => void hash.update(`${JSON.stringify(values)}\n`);
  add({ month: isoMonth(month), organization_id: organizationId, previous });
  return {
    ...{ organizationId, month, endMs: monthStart(month, 1), tally: new StatementTally() },
    /** The section that is added, and the time and id of its last row. */
    section: 0,
    after: undefined as [timeMs: bigint, id: string] | undefined,
    addRow({ table, names }: Section, row: Record<string, unknown>): void {
      const values: Record<string, string> = {};
      for (const name of names) {
        const value = name === "table" ? table.name : row[name];
        if (value !== null) values[name] = String(value);
      }
      add(values);
    },
    /** Returns the digest. Nothing can be added afterwards. */
    digest: () => hash.digest("hex"),
  };
}

async function* organizationsDue(database: Database): AsyncGenerator<string> {
  const [clock] = await database.read<{ now: bigint }>(sql`select ${database.now()} as now`);
  const latest = monthStart(Number(clock?.now) - OVER_AFTER_MS, -1);
  const hasLatest = sql`select 1 from month_digest where organization_id = organization.id and month >= ${latest}`;
  yield* database.organizationIds(sql`not exists (${hasLatest})`);
}

async function nextMonth(database: Database, organizationId: string): Promise<NextMonth | undefined> {
  const of = sql`where organization_id = ${organizationId}`;
  const firsts = SECTIONS.map(
    ({ table, time, condition = sql`1 = 1` }) =>
      sql`select min(${raw(time)}) as first from ${raw(table.name)} ${of} and ${condition}`,
  );
  const queries = [
    sql`select ${database.now()} as now, (select before_at from closing ${of}) as closed`,
    sql`select month, digest from month_digest ${of} order by month desc limit 1`,
    ...firsts,
  ];
  const [[state], [last], ...found] = (await database.snapshot(queries)) as [
    [{ now: bigint; closed: bigint | null }],
    [{ month: bigint; digest: string }?],
    ...[{ first: bigint | null }][],
  ];
  const times = found.flatMap(([{ first }]) => (first === null ? [] : [Number(first)]));
  if (last === undefined && times.length === 0) return undefined;
  const follows = last === undefined ? monthStart(Math.min(...times)) : monthStart(Number(last.month), 1);
  // The rows of a month before a closing may be removed.
  const month = state.closed === null ? follows : Math.max(follows, monthStart(Number(state.closed) - 1, 1));
  const isOver = monthStart(month, 1) + OVER_AFTER_MS <= Number(state.now);
  return { month, previous: last?.digest, isOver };
}

async function addPage(database: Database, hash: MonthHash, limit: number): Promise<boolean> {
  const part = SECTIONS[hash.section];
  if (part === undefined) return true;
  const { organizationId, month, endMs, after } = hash;
  const { table, time, condition = sql`1 = 1`, hasIdsNear } = part;
  const fromMs = after === undefined ? month : Number(after[0]);
  const follows = after === undefined ? sql`` : sql`and (${raw(time)}, id) > (${after[0]}, ${after[1]})`;
  const ids = hasIdsNear ? sql`and ${idsBookedBetween(database, fromMs, endMs)}` : sql``;
  const rows = await database.read<Record<string, unknown>>(sql`
    select * from ${raw(table.name)}
    where organization_id = ${organizationId} and ${condition} ${ids}
      and ${raw(time)} >= ${fromMs} and ${raw(time)} < ${endMs} ${follows}
    order by ${raw(time)}, id limit ${limit}`);
  const models = await modelsOf(database, organizationId, rows);
  for (const row of rows) {
    hash.addRow(part, row);
    hash.tally.add(table.name, row, models.get(row.hold_id) ?? "");
  }
  const last = rows.at(-1);
  hash.after = last && [last[time] as bigint, last.id as string];
  if (rows.length === limit) return false;
  hash.section += 1;
  hash.after = undefined;
  return hash.section === SECTIONS.length;
}

/** Returns the models of the requests that late settlements correct, by request. */
async function modelsOf(database: Database, organizationId: string, rows: readonly Record<string, unknown>[]) {
  const late = rows.filter(({ kind }) => kind === "late_settlement").map(({ hold_id: id }) => String(id));
  const requests = sql`select id, model from request where organization_id = ${organizationId} and id in (${join(late)})`;
  const found = late.length === 0 ? [] : await database.read<{ id: unknown; model: string }>(requests);
  return new Map(found.map(({ id, model }) => [id, model]));
}

/** Stores a month's digest and statement, once: not before it is over by the store's clock, nor when its requests were closed. */
async function storeDigest(database: Database, hash: MonthHash, terms: StatementTerms): Promise<void> {
  const { organizationId, month, endMs } = hash;
  const isOver = sql`
    from organization where id = ${organizationId} and cast(${endMs + OVER_AFTER_MS} as bigint) <= ${database.now()}
      and coalesce((select before_at from closing where organization_id = ${organizationId}), 0) <= ${month}`;
  const digest = hash.digest();
  const insertion = MONTH_DIGEST.insertFrom(isOver, { organizationId, month, digest });
  const { required, rest } = await statementWrites(database, { ...hash, digest }, terms);
  await database.writeIf([sql`${insertion} on conflict do nothing`, ...required], rest);
}

/** Reads the digests of the months that lie in a period, in their order. */
export async function monthDigestsOf(
  database: Database,
  organizationId: string,
  { fromMs = 0, toMs = Number.POSITIVE_INFINITY }: { fromMs?: number | undefined; toMs?: number | undefined },
): Promise<MonthDigestRow[]> {
  const rows = soundRows(MONTH_DIGEST, await allOf(database, organizationId));
  return rows.filter(({ month }) => month >= fromMs && monthStart(month, 1) <= toMs);
}

async function allOf(database: Database, organizationId: string): Promise<object[]> {
  return database.read(sql`select * from month_digest where organization_id = ${organizationId} order by month`);
}

/** Compares digests and statements with the months whose rows are there. A changed digest is reported with the month after it. */
export async function verifyMonthDigests(database: Database, organizationId: string, report: ReportViolation) {
  const erased = await database.count(sql`organization where id = ${organizationId} and erased_at is not null`);
  // Erased texts are a part of what was hashed.
  const isRemoved = async (month: number) =>
    erased > 0 || month < ((await closedBefore(database, organizationId)) ?? 0);
  const statements = await statementChecks(database, organizationId, report);
  let previous: string | undefined;
  for (const { month, digest } of checkEach(MONTH_DIGEST, await allOf(database, organizationId), report)) {
    if (month !== monthStart(month)) {
      report(15, `A digest is stored for ${month}, where no month begins.`);
      continue;
    }
    const hash = beginHash(organizationId, { month, previous });
    previous = digest;
    const wasRemoved = await isRemoved(month);
    while (!wasRemoved && !(await addPage(database, hash, PAGE_ROWS)));
    const computed = hash.digest();
    // Rows that were removed while they were read are missing.
    const isPartial = wasRemoved || (await isRemoved(month));
    await statements.check(month, digest, isPartial ? undefined : hash.tally);
    if (computed === digest || isPartial) continue;
    report(15, `The rows booked in ${isoMonth(month)} have the digest ${computed}, but ${digest} is stored.`);
  }
  statements.end();
}
