import { sql } from "kysely";
import type { MicroCredits } from "../../credits/amount.ts";
import { idAt, LATE_AFTER_MS } from "../../credits/request-id.ts";
import { type Database, read } from "../database.ts";

/** Number of requests between two recorded balances. Adding them up takes a few milliseconds. */
const REQUESTS_BETWEEN = 10_000;
/** Age of recorded times: no booking of an earlier time may follow, even if a clock is set back a little. */
const RECORDED_AFTER_MS = 3_600_000;

/** The sum of an organization's statement entries before a time. */
interface RecordedBalance {
  beforeAtMs: bigint;
  balance: MicroCredits;
}

/** Adds up an organization's statement entries before a time, from the last recorded balance on. */
export async function openingBalance(
  database: Database,
  organizationId: string,
  beforeMs: number,
): Promise<MicroCredits> {
  const before = BigInt(beforeMs);
  let last = await lastRecorded(database, organizationId, before);
  for await (const next of balancesAfter(database, organizationId, last, before)) last = next;
  return last.balance + (await sumBetween(database, organizationId, last.beforeAtMs, before));
}

/**
 * Records the balance of an organization's statement after every 10,000 requests, up to an hour ago, so that an opening
 * balance is read quickly. Several processes may do it at once, and it may stop at any point: an opening balance is exact
 * with fewer records, too.
 */
export async function recordBalances(database: Database, organizationId: string): Promise<void> {
  const [clock] = await read<{ now: bigint }>(database, sql`select ${database.now()} as now`);
  const until = (clock?.now ?? 0n) - BigInt(RECORDED_AFTER_MS);
  const last = await lastRecorded(database, organizationId, until);
  for await (const { beforeAtMs, balance } of balancesAfter(database, organizationId, last, until)) {
    const row = { organization_id: organizationId, before_at: beforeAtMs, balance };
    const insertion = database.kysely.insertInto("statement_balance").values(row);
    await database.write([insertion.onConflict((conflict) => conflict.doNothing()).compile()]);
  }
}

/** Adds up a statement between two times. Yields its balance after every 10,000 requests. */
async function* balancesAfter(
  database: Database,
  organizationId: string,
  { beforeAtMs, balance }: RecordedBalance,
  until: bigint,
): AsyncGenerator<RecordedBalance> {
  let from = beforeAtMs;
  let sum = balance;
  for (;;) {
    const next = await timeOfNext(database, organizationId, from, until);
    if (next === undefined) return;
    sum += await sumBetween(database, organizationId, from, next);
    from = next;
    yield { beforeAtMs: from, balance: sum };
  }
}

/** Reads the latest balance recorded for a time, or for one before it. */
async function lastRecorded(database: Database, organizationId: string, until: bigint): Promise<RecordedBalance> {
  const query = database.kysely
    .selectFrom("statement_balance")
    .select(["before_at", "balance"])
    .where("organization_id", "=", organizationId)
    .where("before_at", "<=", until)
    .orderBy("before_at", "desc")
    .limit(1);
  const [row] = await read<{ before_at: bigint; balance: bigint }>(database, query);
  return { beforeAtMs: row?.before_at ?? 0n, balance: row?.balance ?? 0n };
}

/** Finds the time after which 10,000 more requests were booked; undefined if fewer were booked before `to`. */
async function timeOfNext(
  database: Database,
  organizationId: string,
  from: bigint,
  to: bigint,
): Promise<bigint | undefined> {
  const [row] = await read<{ ended_at: bigint }>(
    database,
    sql`
    select ended_at from request
    where organization_id = ${organizationId} and is_late = 0 and ending <> 'released'
      and ended_at >= ${from} and ended_at < ${to} and ${idsBookedBetween(database, from, to)}
    order by ended_at, id limit 1 offset ${sql.lit(REQUESTS_BETWEEN)}`,
  );
  if (row === undefined) return undefined;
  return row.ended_at > from ? row.ended_at : from + 1n;
}

/** Adds up an organization's statement entries from a time on, and before another. */
async function sumBetween(database: Database, organizationId: string, from: bigint, to: bigint): Promise<MicroCredits> {
  const costs = (isLate: 0 | 1) => sql`
    select coalesce(sum(cost), 0) from request
    where organization_id = ${organizationId} and is_late = ${sql.lit(isLate)} and ending <> 'released'
      and ended_at >= ${from} and ended_at < ${to}`;
  const [row] = await read<{ sum: bigint }>(
    database,
    sql`
    select cast(
      (select coalesce(sum(amount), 0) from credit_grant
        where organization_id = ${organizationId} and source = 'grant' and created_at >= ${from} and created_at < ${to})
      + (select coalesce(sum(case kind when 'credit' then amount else -amount end), 0) from adjustment
        where organization_id = ${organizationId} and made_at >= ${from} and made_at < ${to})
      - (${costs(0)} and ${idsBookedBetween(database, from, to)})
      - (${costs(1)})
    as bigint) as sum`,
  );
  return row?.sum ?? 0n;
}

/** Restricts requests that are not late to ids whose time may be booked between two others. */
function idsBookedBetween(database: Database, from: bigint, to: bigint) {
  const ids = { from: idAt(Number(from) - LATE_AFTER_MS), to: idAt(Number(to) + LATE_AFTER_MS + 1) };
  return database.idsWithin("id", ids);
}
