import type { BudgetRow } from "../../credits/books.ts";
import { windowAt } from "../../credits/budgets.ts";
import type { ClosingPartRow, ClosingRow, ClosingTally } from "../../credits/closing.ts";
import { idAt } from "../../credits/request-id.ts";
import { type Database, listsOf } from "../database.ts";
import { ADJUSTMENT, BUDGET_USE, CLOSING, CLOSING_PART, REQUEST, STATEMENT_BALANCE } from "../schema.ts";
import { equal, join, type Sql, sql } from "../sql.ts";
import { budgetRows } from "./budgets.ts";
import { openingBalance } from "./statement.ts";
import { checkEach } from "./verify-report.ts";
import { checkRequestRow } from "./verify-rows.ts";

/** Requests that are read and added up at once: few milliseconds of the event loop. */
const SUM_ROWS = 500;
/** Requests that are removed in one transaction, for which all others wait on SQLite. */
const REMOVED_ROWS = 500;
const PARTS_A_STATEMENT = 200;

/**
 * Retention of requests. The requests of an organization that began before a time are closed in four steps. `freeze` lets
 * every later transition for them be refused, so they cannot change. `sum` adds up those that no earlier closing includes,
 * and `close` stores the sum in one transaction: from then on their rows count as absent, present or not. `remove` deletes the
 * rows, at any time after. A process may die between any two steps, or parts of them, and several processes may run them at
 * once: a sum is stored only over the sums it was computed from.
 */
export function closingRows(database: Database) {
  return {
    /** Finds organizations with requests that began before a time, in the order of their ids. */
    organizations(beforeMs: number): AsyncGenerator<string> {
      const isOf = sql`request.organization_id = organization.id and request.id < ${idAt(beforeMs)}`;
      return database.organizationIds(sql`exists (select 1 from request where ${isOf})`);
    },
    /** Returns what the closed requests of an organization add up to; undefined if none is closed. */
    find: (organizationId: string): Promise<ClosingRow | undefined> =>
      database.findRow(CLOSING)`select * from closing where organization_id = ${organizationId}`,
    /**
     * Refuses every later transition for requests that began before a time. Returns false while one of them is running, and for
     * a time in the future: with a wrong clock, a process could otherwise let all new requests be refused. The first statement
     * locks the balance, so that the second sees every hold that was made under the lock.
     */
    freeze(organizationId: string, beforeMs: number): Promise<boolean> {
      const freezes = sql`
        update balance set closed_before = ${beforeMs}
        where organization_id = ${organizationId} and coalesce(closed_before, 0) <= ${beforeMs}
          and cast(${beforeMs} as bigint) <= ${database.now()} and not exists (
          select 1 from hold where hold.organization_id = ${organizationId} and hold.id < ${idAt(beforeMs)})`;
      return database.writeIf([lockOf(organizationId), freezes], []);
    },
    /** Adds up a chunk of the requests to close, from the first one after `tally.after` on. Returns true at the end. */
    sum: (tally: ClosingTally, rows = SUM_ROWS) => sumChunk(database, tally, rows),
    close: (tally: ClosingTally) => close(database, tally),
    budgets: (organizationId: string) => budgetRows(database).budgets(organizationId),
    /** Deletes counters of a budget, of windows that ended before the closing, at most `limit`; returns their number. */
    async removeBudgetUses(
      { organizationId, beforeAtMs }: ClosingRow,
      { id, window }: BudgetRow,
      limit = REMOVED_ROWS,
    ) {
      if (window === "lifetime") return 0;
      const ended = sql`window_at < ${windowAt(window, beforeAtMs)}`;
      const condition = sql`${equal({ organization_id: organizationId, budget_id: id })} and ${ended}`;
      return database.remove(BUDGET_USE, condition, limit, { isDurable: false });
    },
    /** Deletes a chunk of closed requests after an id. Returns the last id, undefined at the end. */
    remove: (closing: ClosingRow, after: string, limit = REMOVED_ROWS) => removeChunk(database, closing, after, limit),
    /** Counts the ended requests that a closing before a time includes and whose rows are stored. */
    countRequests: (beforeMs: number) => database.count(sql`request where ${isClosed(beforeMs)}`),
    countAudit: (beforeMs: number) => database.count(sql`audit_entry where id < ${idAt(beforeMs)}`),
    /** Deletes audit records from before a time, at most `limit`; returns their number. */
    async removeAudit(beforeMs: number, limit: number): Promise<number> {
      const oldest = sql`select id from audit_entry where id < ${idAt(beforeMs)} order by id limit ${limit}`;
      const [removed = 0] = await database.write([sql`delete from audit_entry where id in (${oldest})`]);
      return removed;
    },
  };
}

/**
 * Restricts `request` to those that began, and whose bookings were all made, before a time. One that is booked across it stays
 * until a later closing, so that a statement from the time on is complete.
 */
export function isClosed(beforeMs: number): Sql {
  return sql`(request.id < ${idAt(beforeMs)} and ${isBooked(beforeMs)})`;
}

/**
 * The part of `isClosed` for requests that are known to have begun before the time. A chunk must not bound its ids twice: of
 * two upper bounds SQLite uses the first one, and would read all that is left of a month for every chunk.
 */
function isBooked(beforeMs: number): Sql {
  return sql`(request.ended_at < ${beforeMs} and not exists (
    select 1 from adjustment as later where later.organization_id = request.organization_id
      and later.hold_id = request.id and later.made_at >= ${beforeMs}))`;
}

function lockOf(organizationId: string): Sql {
  return sql`update balance set closed_before = closed_before where organization_id = ${organizationId}`;
}

/** Adds up a chunk. If a request violates an invariant, this throws, because its row is the evidence. */
async function sumChunk(database: Database, tally: ClosingTally, rows: number): Promise<boolean> {
  const { organizationId, beforeMs, earlier, after } = tally;
  const end = await lastOfChunk(database, tally, rows);
  const isNew = earlier === undefined ? sql`1 = 1` : sql`not ${isClosed(earlier.beforeAtMs)}`;
  const found = await database.read(sql`
    select request.* from request
    where organization_id = ${organizationId} and id > ${after} and id <= ${end ?? idAt(beforeMs)}
      and ${isBooked(beforeMs)} and ${isNew}
    order by id`);
  await examine(database, tally, found);
  tally.after = end ?? idAt(beforeMs);
  return end === undefined;
}

/** Returns the last id of as many requests that began before a time, closed or not; undefined if there are fewer. */
async function lastOfChunk(
  database: Database,
  { organizationId, beforeMs, after }: Pick<ClosingTally, "organizationId" | "beforeMs" | "after">,
  rows: number,
): Promise<string | undefined> {
  const [last] = await database.read<{ id: string }>(sql`
    select id from request where organization_id = ${organizationId} and id > ${after} and id < ${idAt(beforeMs)}
    order by id limit 1 offset ${rows - 1}`);
  return last?.id;
}

async function examine(database: Database, tally: ClosingTally, records: readonly object[]): Promise<void> {
  const refuse = (_invariant: number, message: string, id: string | null = null) => {
    throw new Error(`the request ${id} violates an invariant: ${message}`);
  };
  const requests = checkEach(REQUEST, records, refuse);
  const [first, last] = [requests[0], requests.at(-1)];
  if (first === undefined || last === undefined) return;
  const late = await database.readRows(ADJUSTMENT)`
    select * from adjustment where organization_id = ${tally.organizationId} and kind = 'late_settlement'
      and hold_id >= ${first.holdId} and hold_id <= ${last.holdId}`;
  const lateOf = Map.groupBy(late, ({ holdId }) => holdId);
  for (const request of requests) {
    checkRequestRow(request, lateOf.get(request.holdId) ?? [], refuse);
    tally.add(request);
  }
}

/** Stores the sums, and the statement's balance at the time. Returns false if another process has closed since they were begun. */
async function close(database: Database, tally: ClosingTally): Promise<boolean> {
  const { organizationId, beforeMs, earlier } = tally;
  const balance = await openingBalance(database, organizationId, beforeMs);
  const total = tally.total();
  const stores = sql`
    ${CLOSING.insert(total)}
    on conflict (organization_id) do update set ${CLOSING.set(total)}
    where closing.before_at = ${earlier?.beforeAtMs ?? 0}`;
  return database.writeIf(
    // As every transaction that changes a counter does.
    [lockOf(organizationId), stores],
    [
      ...partWrites(tally.parts()),
      ...openingWrites(tally),
      sql`delete from statement_balance where organization_id = ${organizationId} and before_at <= ${beforeMs}`,
      STATEMENT_BALANCE.insert({ organizationId, beforeAtMs: beforeMs, balance }),
    ],
  );
}

/** The closed requests count as the opening amounts of the counters that they recorded. */
function openingWrites(tally: ClosingTally): Sql[] {
  return listsOf(tally.budgets(), PARTS_A_STATEMENT).map((chunk) => {
    const spent = chunk.map(
      (part) => sql`select cast(${part.budgetId} as text) as budget_id, cast(${part.windowAtMs} as bigint) as window_at,
        cast(${part.value} as text) as value, cast(${part.spent} as bigint) as spent`,
    );
    return sql`
      update budget_use set opening = opening + closed.spent from (${join(spent, " union all ")}) as closed
      where budget_use.organization_id = ${tally.organizationId} and budget_use.budget_id = closed.budget_id
        and budget_use.window_at = closed.window_at and budget_use.value = closed.value`;
  });
}

function partWrites(parts: readonly ClosingPartRow[]): Sql[] {
  return listsOf(parts, PARTS_A_STATEMENT).map(
    (chunk) => sql`
      ${CLOSING_PART.insert(...chunk)}
      on conflict (organization_id, dimension, name) do update set amount = closing_part.amount + excluded.amount`,
  );
}

/** Deletes nothing unless the closing is stored. A crash may undo it: the rows count as absent. */
async function removeChunk(
  database: Database,
  { organizationId, beforeAtMs }: ClosingRow,
  after: string,
  limit: number,
): Promise<string | undefined> {
  const last = await lastOfChunk(database, { organizationId, beforeMs: beforeAtMs, after }, limit);
  const removal = sql`
    delete from request
    where organization_id = ${organizationId} and id > ${after} and id <= ${last ?? idAt(beforeAtMs)}
      and ${isBooked(beforeAtMs)}
      and exists (select 1 from closing where closing.organization_id = ${organizationId}
        and closing.before_at >= ${beforeAtMs})`;
  await database.write([removal], { isDurable: false });
  return last;
}
