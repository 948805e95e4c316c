import { type RawBuilder, sql } from "kysely";
import type { RequestRow } from "../../credits/books.ts";
import type { ClosingPartRow, ClosingRow, ClosingTally } from "../../credits/closing.ts";
import { idAt, LATE_AFTER_MS } from "../../credits/request-id.ts";
import { type Database, read } from "../database.ts";
import type { StoreDriver } from "../driver.ts";
import { amount, draws, number, text, tokens } from "../fields.ts";
import { ADJUSTMENT, CLOSING, CLOSING_PART, REQUEST } from "../schema.ts";
import { table } from "../table.ts";
import { openingBalance } from "./statement.ts";
import { checkRequest } from "./verify-rows.ts";

/** Requests that the database adds up in one read, beside which no thread of the service works. */
const SUM_ROWS = 10_000;
/** Requests that this process adds up at once: few milliseconds of the event loop. */
const EXAMINED_ROWS = 500;
/** Requests that are removed in one transaction, for which all others wait on SQLite. */
const REMOVED_ROWS = 500;
const PARTS_A_STATEMENT = 200;
/** Counts and prices up to it cannot exceed a 64-bit integer when they are multiplied and added. */
const FACTOR_MAX = 1_000_000_000;

export type Closings = ReturnType<typeof closingRows>;

/**
 * Retention of requests. The requests of an organization that began before a time are closed in four steps. `freeze` lets
 * every later transition for them be refused, so they cannot change. `sum` adds up those that no earlier closing includes,
 * and `close` stores the sum in one transaction: from then on their rows count as absent, present or not. `removeMonth` and
 * `remove` remove the rows, at any time after. A process may die between any two steps, or parts of them, and several
 * processes may run them at once: a sum is stored only over the sums it was computed from.
 */
export function closingRows(database: Database, driver: Pick<StoreDriver, "removeClosedMonth">) {
  return {
    /** Finds organizations with requests that began before a time, in the order of their ids. */
    organizations: (beforeMs: number, after: string | null, limit: number) =>
      organizationsBefore(database, beforeMs, after, limit),
    /** Returns what the closed requests of an organization add up to; undefined if none is closed. */
    find: (organizationId: string) => closingOf(database, organizationId),
    freeze: (organizationId: string, beforeMs: number) => freeze(database, organizationId, beforeMs),
    /** Adds up a chunk of the requests to close, from the first one after `tally.after` on. Returns true at the end. */
    sum: (tally: ClosingTally, limits?: Partial<SumLimits>) => sumChunk(database, tally, { ...SUM_LIMITS, ...limits }),
    close: (tally: ClosingTally) => close(database, tally),
    /** See `StoreDriver.removeClosedMonth`. */
    removeMonth: (beforeMs: number) => driver.removeClosedMonth(beforeMs),
    /** Deletes a chunk of closed requests after an id. Returns the last id, undefined at the end. */
    remove: (closing: ClosingRow, after: string, limit = REMOVED_ROWS) => removeChunk(database, closing, after, limit),
    /** Counts the ended requests that a closing before a time includes and whose rows are stored. */
    countRequests: (beforeMs: number) => countOf(database, sql`request where ${isClosed(beforeMs)}`),
    /** Counts the audit records of before a time. */
    countAudit: (beforeMs: number) => countOf(database, sql`audit_entry where id < ${idAt(beforeMs)}`),
    /** Deletes audit records of before a time, at most `limit`; returns their number. */
    async removeAudit(beforeMs: number, limit: number): Promise<number> {
      const old = sql`select id from audit_entry where id < ${idAt(beforeMs)} order by id limit ${sql.lit(limit)}`;
      const removal = sql`delete from audit_entry where id in (${old})`.compile(database.kysely);
      const [removed = 0] = await database.write([removal]);
      return removed;
    },
  };
}

async function countOf(database: Database, rows: RawBuilder<unknown>): Promise<number> {
  const [found] = await read<{ count: bigint }>(database, sql`select count(*) as count from ${rows}`);
  return Number(found?.count ?? 0);
}

interface SumLimits {
  rows: number;
  examined: number;
}

const SUM_LIMITS: SumLimits = { rows: SUM_ROWS, examined: EXAMINED_ROWS };

/**
 * Restricts `request` to those that a closing before a time includes: they began, and all that was booked for them was booked,
 * before it. A request that is booked across the time stays until a later closing, so that a statement from the time on is
 * complete.
 */
export function isClosed(beforeMs: number): RawBuilder<boolean> {
  return sql`(request.id < ${idAt(beforeMs)} and ${isBooked(beforeMs)})`;
}

/**
 * The part of `isClosed` for requests that are known to have begun before the time. A chunk must not bound its ids twice: of
 * two upper bounds SQLite uses the first one, and would read all that is left of a month for every chunk.
 */
function isBooked(beforeMs: number): RawBuilder<boolean> {
  const before = BigInt(beforeMs);
  return sql`(request.ended_at < ${before} and not exists (
    select 1 from adjustment as later where later.organization_id = request.organization_id
      and later.hold_id = request.id and later.made_at >= ${before}))`;
}

async function organizationsBefore(database: Database, beforeMs: number, after: string | null, limit: number) {
  const rows = await read<{ id: string }>(
    database,
    sql`
    select id from organization
    where id > ${after ?? ""} and exists (
      select 1 from request where request.organization_id = organization.id and request.id < ${idAt(beforeMs)})
    order by id limit ${sql.lit(limit)}`,
  );
  return rows.map(({ id }) => id);
}

async function closingOf(database: Database, organizationId: string): Promise<ClosingRow | undefined> {
  const query = database.kysely.selectFrom("closing").selectAll().where("organization_id", "=", organizationId);
  const [row] = await read<object>(database, query);
  return row && CLOSING.fromRecord(row);
}

/**
 * Refuses every later transition for requests that began before a time. Returns false while one of them is running, and for
 * a time in the future: with a wrong clock, a process could otherwise let all new requests be refused. The first statement
 * locks the balance, so that the second sees every hold that was made under the lock.
 */
async function freeze(database: Database, organizationId: string, beforeMs: number): Promise<boolean> {
  const before = BigInt(beforeMs);
  const locks = sql`update balance set closed_before = closed_before where organization_id = ${organizationId}`;
  const freezes = sql`
    update balance set closed_before = ${before}
    where organization_id = ${organizationId} and coalesce(closed_before, 0) <= ${before}
      and ${before} <= ${database.now()} and not exists (
      select 1 from hold where hold.organization_id = ${organizationId} and hold.id < ${idAt(beforeMs)})`;
  return database.writeIf(
    [locks, freezes].map((query) => query.compile(database.kysely)),
    [],
  );
}

/** A row of requests of one token that were drawn from the same grant, and the draws of one of them. */
const GROUP = table("closing_group", ["tokenId"], {
  tokenId: text("token_id"),
  draws: draws("draws"),
  requests: number("requests"),
  cost: amount("cost"),
  shortfall: amount("shortfall"),
  price: amount("price"),
  tokens: tokens(),
});

/**
 * The database adds up plain requests. All others, which are few, are read and checked here: if one of them violates an
 * invariant, this throws, because its row is the evidence.
 */
async function sumChunk(database: Database, tally: ClosingTally, limits: SumLimits): Promise<boolean> {
  const { organizationId, beforeMs, earlier, after } = tally;
  const end = await lastOfChunk(database, tally, limits.rows);
  const to = end ?? idAt(beforeMs);
  const within = (last: string) => sql`organization_id = ${organizationId} and id > ${after} and id <= ${last}`;
  const isNew = earlier === undefined ? sql`1 = 1` : sql`not ${isClosed(earlier.beforeAtMs)}`;
  const plain = isPlain(database, organizationId, after, to);
  const found = await read<object>(
    database,
    sql`
    select request.* from request
    where ${within(to)} and not ${plain} and ${isBooked(beforeMs)} and ${isNew}
    order by id limit ${sql.lit(limits.examined)}`,
  );
  const requests = found.map(REQUEST.fromRecord);
  const isAll = requests.length < limits.examined;
  const last = isAll ? to : (requests.at(-1)?.holdId ?? to);
  await examine(database, tally, requests);
  const groups = await read<object>(
    database,
    sql`
    select token_id, min(draws) as draws, ${sums(["cost", "shortfall", ...COUNTS])},
      cast(count(*) as bigint) as requests, cast(sum(${PRICE}) as bigint) as price, null as further_tokens
    from request
    where ${within(last)} and ${plain} and ended_at < ${BigInt(beforeMs)} and ${isNew}
    group by token_id, ${DRAWN_FROM}`,
  );
  for (const {
    draws: [draw],
    ...group
  } of groups.map(GROUP.fromRecord)) {
    tally.addGroup({ ...group, grantId: draw?.grantId ?? null });
  }
  tally.after = last;
  return isAll && end === undefined;
}

/** Returns the last id of as many requests that began before a time, closed or not; undefined if there are fewer. */
async function lastOfChunk(
  database: Database,
  { organizationId, beforeMs, after }: Pick<ClosingTally, "organizationId" | "beforeMs" | "after">,
  rows: number,
): Promise<string | undefined> {
  const [last] = await read<{ id: string }>(
    database,
    sql`
    select id from request where organization_id = ${organizationId} and id > ${after} and id < ${idAt(beforeMs)}
    order by id limit 1 offset ${sql.lit(rows - 1)}`,
  );
  return last?.id;
}

async function examine(database: Database, tally: ClosingTally, requests: readonly RequestRow[]): Promise<void> {
  const [first, last] = [requests[0], requests.at(-1)];
  if (first === undefined || last === undefined) return;
  const late = await read<object>(
    database,
    sql`
    select * from adjustment where organization_id = ${tally.organizationId} and kind = 'late_settlement'
      and hold_id >= ${first.holdId} and hold_id <= ${last.holdId}`,
  );
  const lateOf = Map.groupBy(late.map(ADJUSTMENT.fromRecord), ({ holdId }) => holdId);
  for (const request of requests) {
    checkRequest(request, lateOf.get(request.holdId) ?? [], (_invariant, message) => {
      throw new Error(`the request ${request.holdId} violates an invariant: ${message}`);
    });
    tally.add(request);
  }
}

const COUNTS = ["input_tokens", "cached_input_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"];
const PRICES = ["input_price", "cached_input_price", "cache_write_price", "output_price", "reasoning_price"];
/** As `priceOf`, for requests without parts. */
const PRICE = sql`(${sql.join(
  COUNTS.map((count, index) => sql`${sql.ref(count)} * ${sql.ref(PRICES[index] ?? "")}`),
  sql` + `,
)} + 999999) / 1000000`;
/** A list with one draw of the whole cost ends with it; before it is the grant. SQL compares the text only. */
const DRAW_END = sql`'","' || cost || '"]]'`;
const DRAWN_FROM = sql`case when cost = 0 then '' else substr(draws, 1, length(draws) - length(${DRAW_END})) end`;

function sums(columns: readonly string[]): RawBuilder<unknown> {
  return sql.join(columns.map((column) => sql`cast(sum(${sql.ref(column)}) as bigint) as ${sql.ref(column)}`));
}

/**
 * Tells which requests `checkRequest` finds without a fault, from their own columns: those without parts and adjustments,
 * with one draw at most, and with numbers that SQL computes exactly. It is never null. CASE tests the numbers first.
 */
function isPlain({ idAt: idOf }: Database, organizationId: string, after: string, to: string): RawBuilder<boolean> {
  const factors = [...COUNTS, ...PRICES].map((name) => sql`${sql.ref(name)} between 0 and ${sql.lit(FACTOR_MAX)}`);
  const [earliest, latest] = [sql`ended_at - ${sql.lit(LATE_AFTER_MS)}`, sql`ended_at + ${sql.lit(LATE_AFTER_MS + 1)}`];
  const time = sql`replace(substr(id, 1, 14), '-', '')`;
  return sql`(case
    when further_tokens is not null or not (${sql.join(factors, sql` and `)}) then 1 = 0
    when cost + shortfall <> ${PRICE} or cost < 0 or shortfall < 0 or amount < 0 then 1 = 0
    when basis = 'bounded' then 1 = 0
    when (ending = 'released') <> (basis is null) or (ending = 'released' and cost + shortfall <> 0) then 1 = 0
    when is_late <> 0 or id < ${idOf(earliest as RawBuilder<bigint>)} or id >= ${idOf(latest as RawBuilder<bigint>)} then 1 = 0
    when id not like '________-____-%' or length(${time}) <> 12 or ltrim(${time}, '0123456789abcdef') <> '' then 1 = 0
    when cost = 0 then draws = '[]'
    else substr(draws, 1, 3) = '[["' and length(replace(draws, '"', '')) = length(draws) - 4
      and substr(draws, length(draws) - length(${DRAW_END}) + 1) = ${DRAW_END}
  end and id not in (
    select hold_id from adjustment where organization_id = ${organizationId} and hold_id > ${after} and hold_id <= ${to}))`;
}

/**
 * Stores the sums, and the balance of the statement at the time. Returns false if another process has closed since the sums
 * were begun.
 */
async function close(database: Database, tally: ClosingTally): Promise<boolean> {
  const { kysely } = database;
  const { organizationId, beforeMs, earlier } = tally;
  const balance = await openingBalance(database, organizationId, beforeMs);
  const row = CLOSING.toRecord(tally.total());
  const stores = kysely
    .insertInto("closing")
    .values(row)
    .onConflict((conflict) =>
      conflict
        .column("organization_id")
        .doUpdateSet(row)
        .where("closing.before_at", "=", BigInt(earlier?.beforeAtMs ?? 0)),
    );
  const [of, before] = [sql`organization_id = ${organizationId}`, BigInt(beforeMs)];
  const recorded = { organization_id: organizationId, before_at: before, balance };
  return database.writeIf(
    [stores.compile()],
    [
      ...partWrites(kysely, tally.parts()),
      sql`delete from statement_balance where ${of} and before_at <= ${before}`.compile(kysely),
      kysely.insertInto("statement_balance").values(recorded).compile(),
    ],
  );
}

function partWrites(kysely: Database["kysely"], parts: readonly ClosingPartRow[]) {
  const chunks = Array.from({ length: Math.ceil(parts.length / PARTS_A_STATEMENT) }, (_, index) =>
    parts.slice(index * PARTS_A_STATEMENT, (index + 1) * PARTS_A_STATEMENT),
  );
  return chunks.map((chunk) =>
    kysely
      .insertInto("closing_part")
      .values(chunk.map((part) => CLOSING_PART.toRecord(part)))
      .onConflict((conflict) =>
        conflict
          .columns(["organization_id", "dimension", "name"])
          .doUpdateSet({ amount: sql<bigint>`closing_part.amount + excluded.amount` }),
      )
      .compile(),
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
        and closing.before_at >= ${BigInt(beforeAtMs)})`;
  await database.write([removal.compile(database.kysely)], { isDurable: false });
  return last;
}
