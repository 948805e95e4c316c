import type { MicroCredits } from "../../credits/amount.ts";
import type { AdjustmentRow, EventBasis, EventEnd, GrantRow, HoldFacts, RequestRow } from "../../credits/books.ts";
import { type ChargeLines, decodeLines } from "../../credits/charge-lines.ts";
import { idAt, LATE_AFTER_MS } from "../../credits/request-id.ts";
import { invalidCursor } from "../../errors.ts";
import type { Database } from "../database.ts";
import { ADJUSTMENT, GRANT, REQUEST } from "../schema.ts";
import { join, raw, type Sql, sql } from "../sql.ts";
import type { Table } from "../table.ts";

export interface StatementRange {
  /** Position of the last entry seen, from `LedgerEntry.position`. */
  after: string | null;
  /** Entries at this time or later. */
  fromMs?: number;
  limit: number;
}

/** `amount` is added to the balance; negative for an entry that reduces it. In micro-credits. */
export type LedgerEntry = { position: string; atMs: number; amount: MicroCredits } & (
  | { kind: "grant"; grant: GrantRow }
  | { kind: "charge"; event: UsageEvent }
  | { kind: Exclude<AdjustmentRow["kind"], "late_settlement">; adjustment: AdjustmentRow }
);

/** A charge: of an ended request (0), or the signed differences of its late settlement (1). */
export interface UsageEvent extends HoldFacts, ChargeLines {
  sequence: 0 | 1;
  cost: MicroCredits;
  shortfall: MicroCredits;
  basis: EventBasis;
  end: EventEnd;
  /** As the provider reported it; for operators only. */
  providerCost: string | null;
  madeAtMs: number;
  chargedAtMs: number;
}

const FIRST_WINDOW_MS = 31 * 86_400_000;
const WINDOW_GROWTH = 4;
/** The clock of the store may be ahead. */
const AHEAD_MS = 86_400_000;

/** Number of requests between two recorded balances. Adding them up takes a few milliseconds. */
const REQUESTS_BETWEEN = 10_000;
/** Age of recorded times: no booking of an earlier time may follow, even if a clock is set back a little. */
const RECORDED_AFTER_MS = 3_600_000;

/** The order of entries of the same millisecond. */
const SOURCES = ["grant", "adjustment", "charge"] as const;
type Source = (typeof SOURCES)[number];

/** Position of an entry: its time, its source, then its key. */
interface Position {
  atMs: bigint;
  source: Source;
  sequence: 0 | 1;
  id: string;
}

const POSITION = new RegExp(`^(\\d{1,16}):(${SOURCES.join("|")}):([01]):(.*)$`, "s");

type Placed = { place: Position; entry: LedgerEntry };

/** Reads one page of an organization's statement: the entries that follow a position, from a time on. */
export async function statementPage(
  database: Database,
  organizationId: string,
  { after, fromMs = 0, limit }: StatementRange,
): Promise<LedgerEntry[]> {
  const from = after === null ? undefined : parsePosition(after);
  const query = { organizationId, from, fromMs, limit };
  const pages = await Promise.all([
    grantEntries(database, query),
    adjustmentEntries(database, query),
    chargeEntries(database, query),
    lateChargeEntries(database, query),
    lateSettlementEntries(database, query),
  ]);
  const entries = pages.flat().sort((a, b) => compare(a.place, b.place));
  return entries.slice(0, limit).map(({ entry }) => entry);
}

interface Query {
  organizationId: string;
  from: Position | undefined;
  fromMs: number;
  limit: number;
}

function parsePosition(text: string): Position {
  const match = POSITION.exec(text);
  if (match === null) throw invalidCursor();
  const [, atMs = "", source, sequence = "", id = ""] = match;
  return { atMs: BigInt(atMs), source: source as Source, sequence: sequence === "1" ? 1 : 0, id };
}

function compare(a: Position, b: Position): number {
  if (a.atMs !== b.atMs) return a.atMs < b.atMs ? -1 : 1;
  if (a.source !== b.source) return SOURCES.indexOf(a.source) - SOURCES.indexOf(b.source);
  if (a.id !== b.id) return a.id < b.id ? -1 : 1;
  return a.sequence - b.sequence;
}

function positionOf(place: Position): { position: string; atMs: number } {
  const { atMs, source, sequence, id } = place;
  return { position: `${atMs}:${source}:${sequence}:${id}`, atMs: Number(atMs) };
}

/** Returns the earliest time of a source's entries after the position. */
function earliestOf(source: Source, { from, fromMs }: Query): bigint {
  const asked = BigInt(fromMs);
  if (from === undefined) return asked;
  const isBefore = SOURCES.indexOf(source) < SOURCES.indexOf(from.source);
  const following = isBefore ? from.atMs + 1n : from.atMs;
  return following > asked ? following : asked;
}

interface SourceRows<Row extends object> {
  source: Source;
  table: Table<Row>;
  /** The columns of an entry's time and id. */
  key: readonly [time: string, id: string];
  condition: Sql;
  /** True if the row of the position's own key follows it, too. */
  isInclusive?: boolean;
  /** First millisecond, if it is not the earliest one of the source. */
  from?: bigint;
  limit?: number;
}

/** Reads the rows of a source that follow the position of a query, in the order of their keys. */
async function readRows<Row extends object>(database: Database, query: Query, rows: SourceRows<Row>): Promise<Row[]> {
  const { source, table, key, condition, isInclusive = false, from = earliestOf(source, query) } = rows;
  const [time, columns] = [raw(key[0]), raw(key.join(", "))];
  const operator = raw(isInclusive ? ">=" : ">");
  const last = query.from?.source === source ? query.from : undefined;
  const follows = last === undefined ? sql`` : sql`and (${columns}) ${operator} (${last.atMs}, ${last.id})`;
  const found = await database.read(sql`
    select * from ${raw(table.name)}
    where organization_id = ${query.organizationId} and ${condition} and ${time} >= ${from} ${follows}
    order by ${time}, id limit ${rows.limit ?? query.limit}`);
  return found.map(table.fromRecord);
}

async function grantEntries(database: Database, query: Query): Promise<Placed[]> {
  const condition = sql`source = 'grant'`;
  const grants = await readRows(database, query, {
    source: "grant",
    table: GRANT,
    key: ["created_at", "id"],
    condition,
  });
  return grants.map((grant) => {
    const place = { atMs: BigInt(grant.createdAtMs), source: "grant", sequence: 0, id: grant.id } as const;
    return { place, entry: { kind: "grant", ...positionOf(place), amount: grant.amount, grant } };
  });
}

async function adjustmentEntries(database: Database, query: Query): Promise<Placed[]> {
  const condition = sql`kind <> 'late_settlement'`;
  const source = { source: "adjustment", table: ADJUSTMENT, key: ["made_at", "id"] } as const;
  return (await readRows(database, query, { ...source, condition })).map((adjustment) => {
    const { kind, id, madeAtMs } = adjustment;
    if (kind === "late_settlement") throw new Error("A late settlement is a charge.");
    const place = { atMs: BigInt(madeAtMs), source: "adjustment", sequence: 0, id } as const;
    const amount = kind === "credit" ? adjustment.amount : -adjustment.amount;
    return { place, entry: { kind, ...positionOf(place), amount, adjustment } };
  });
}

const CHARGES = { source: "charge", table: REQUEST, key: ["ended_at", "id"] } as const;

/** Searches growing periods, so that a database that partitions requests by month reads few partitions. */
async function chargeEntries(database: Database, query: Query): Promise<Placed[]> {
  let fromMs = Number(earliestOf("charge", query));
  let windowMs = FIRST_WINDOW_MS;
  const endMs = Date.now() + AHEAD_MS;
  const found: RequestRow[] = [];
  for (;;) {
    const toMs = fromMs + windowMs;
    const isLast = toMs > endMs;
    const ids = idsBookedBetween(database, fromMs, isLast ? null : toMs);
    const before = isLast ? sql`` : sql`and ended_at < ${toMs}`;
    const condition = sql`is_late = 0 and ending <> 'released' ${before} and ${ids}`;
    const limit = query.limit - found.length;
    found.push(...(await readRows(database, query, { ...CHARGES, condition, from: BigInt(fromMs), limit })));
    if (isLast || found.length >= query.limit) return found.map((request) => placed(chargeEvent(request)));
    fromMs = toMs;
    windowMs *= WINDOW_GROWTH;
  }
}

/** Reads requests that were booked far from the time in their ids. */
async function lateChargeEntries(database: Database, query: Query): Promise<Placed[]> {
  const condition = sql`is_late = 1 and ending <> 'released'`;
  return (await readRows(database, query, { ...CHARGES, condition })).map((request) => placed(chargeEvent(request)));
}

async function lateSettlementEntries(database: Database, query: Query): Promise<Placed[]> {
  const { organizationId, from } = query;
  const condition = sql`kind = 'late_settlement'`;
  const source = { source: "charge", table: ADJUSTMENT, key: ["made_at", "hold_id"] } as const;
  const adjustments = await readRows(database, query, { ...source, condition, isInclusive: from?.sequence === 0 });
  const ids = adjustments.flatMap(({ holdId }) => holdId ?? []);
  if (ids.length === 0) return [];
  const rows = await database.read(
    sql`select * from request where organization_id = ${organizationId} and id in (${join(ids)})`,
  );
  const byId = new Map(rows.map(REQUEST.fromRecord).map((request) => [request.holdId, request]));
  return adjustments.flatMap((adjustment) => {
    const request = byId.get(adjustment.holdId ?? "");
    return request === undefined ? [] : [placed(lateEvent(request, adjustment))];
  });
}

/** Returns the charge of a request that was not released. */
export function chargeEvent(request: RequestRow): UsageEvent {
  const { end, basis, cost, endedAtMs } = request;
  const ended = { end: end as EventEnd, basis: basis ?? "counted" };
  return { ...factsOf(request), sequence: 0, ...ended, cost, chargedAtMs: endedAtMs };
}

/** Returns the difference between a request's charge and its late settlement. */
export function lateEvent(request: RequestRow, adjustment: AdjustmentRow): UsageEvent {
  const { settlement, amount, madeAtMs } = adjustment;
  if (settlement === null) throw new Error(`The adjustment ${adjustment.id} is not a late settlement.`);
  const { upstream, charge, shortfall, basis, end, trace } = settlement;
  const facts = factsOf({ ...request, upstream, charge, shortfall, trace });
  return { ...facts, sequence: 1, basis, end, cost: amount, chargedAtMs: madeAtMs };
}

function factsOf(request: RequestRow) {
  const { holdId, organizationId, tokenId, requestId, model, upstream, metadata } = request;
  const { idempotencyKey, charge, shortfall, madeAtMs, trace } = request;
  const facts = { holdId, organizationId, tokenId, requestId, model, upstream, metadata, idempotencyKey };
  return { ...facts, ...decodeLines(charge), shortfall, providerCost: trace?.providerCost ?? null, madeAtMs };
}

function placed(event: UsageEvent): Placed {
  const { chargedAtMs, holdId, sequence, cost } = event;
  const place: Position = { atMs: BigInt(chargedAtMs), source: "charge", sequence, id: holdId };
  return { place, entry: { kind: "charge", ...positionOf(place), amount: -cost, event } };
}

/** Restricts requests that are not late to ids whose requests may be booked from a time on, and before another. */
export function idsBookedBetween(database: Database, fromMs: number, toMs: number | null) {
  const to = toMs === null ? null : idAt(toMs + LATE_AFTER_MS + 1);
  return database.idsWithin("id", { from: idAt(fromMs - LATE_AFTER_MS), to });
}

/** The sum of an organization's statement entries before a time. */
interface RecordedBalance {
  beforeAtMs: bigint;
  balance: MicroCredits;
}

/** Start of a statement: the time from which its entries are complete, and the balance at that time. */
export interface StatementStart {
  /** Null: from the first entry on. */
  fromMs: number | null;
  opening: MicroCredits;
  /** Requests before this time are closed, so a statement starts there at the earliest. Null: none is closed. */
  closedBeforeMs: number | null;
}

/** Finds the start of a statement from a time on. */
export async function statementStart(
  database: Database,
  organizationId: string,
  askedMs: number | null,
): Promise<StatementStart> {
  for (;;) {
    const closedBeforeMs = await closedBefore(database, organizationId);
    const fromMs = closedBeforeMs === null ? askedMs : Math.max(askedMs ?? 0, closedBeforeMs);
    const opening = fromMs === null ? 0n : await openingBalance(database, organizationId, fromMs);
    if (closedBeforeMs === (await closedBefore(database, organizationId))) return { fromMs, opening, closedBeforeMs };
  }
}

/** Returns the time before which requests are closed. Reads that take several steps compare it before and after. */
export async function closedBefore(database: Database, organizationId: string): Promise<number | null> {
  const query = sql`select before_at from closing where organization_id = ${organizationId}`;
  const [row] = await database.read<{ before_at: bigint }>(query);
  return row === undefined ? null : Number(row.before_at);
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
 * with fewer records, too. Nothing is recorded once requests were closed meanwhile, because they may have been removed.
 */
export async function recordBalances(database: Database, organizationId: string): Promise<void> {
  const [clock] = await database.read<{ now: bigint }>(sql`select ${database.now()} as now`);
  const until = (clock?.now ?? 0n) - BigInt(RECORDED_AFTER_MS);
  const closedBeforeMs = await closedBefore(database, organizationId);
  const last = await lastRecorded(database, organizationId, until);
  for await (const { beforeAtMs, balance } of balancesAfter(database, organizationId, last, until)) {
    const insertion = sql`
      insert into statement_balance (organization_id, before_at, balance)
      select balance.organization_id, cast(${beforeAtMs} as bigint), cast(${balance} as bigint) from balance
      where balance.organization_id = ${organizationId} and cast(${closedBeforeMs ?? 0} as bigint) =
        coalesce((select before_at from closing where closing.organization_id = ${organizationId}), 0)
      on conflict do nothing`;
    await database.write([insertion]);
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
  const [row] = await database.read<{ before_at: bigint; balance: bigint }>(sql`
    select before_at, balance from statement_balance
    where organization_id = ${organizationId} and before_at <= ${until} order by before_at desc limit 1`);
  return { beforeAtMs: row?.before_at ?? 0n, balance: row?.balance ?? 0n };
}

/** Finds the time after which 10,000 more requests were booked; undefined if fewer were booked before `to`. */
async function timeOfNext(
  database: Database,
  organizationId: string,
  from: bigint,
  to: bigint,
): Promise<bigint | undefined> {
  const [row] = await database.read<{ ended_at: bigint }>(sql`
    select ended_at from request
    where organization_id = ${organizationId} and is_late = 0 and ending <> 'released'
      and ended_at >= ${from} and ended_at < ${to} and ${idsBookedBetween(database, Number(from), Number(to))}
    order by ended_at, id limit 1 offset ${REQUESTS_BETWEEN}`);
  if (row === undefined) return undefined;
  return row.ended_at > from ? row.ended_at : from + 1n;
}

/** Adds up an organization's statement entries from a time on, and before another; of requests those that meet a condition. */
export async function sumBetween(
  database: Database,
  organizationId: string,
  from: bigint,
  to: bigint,
  condition: Sql = sql`1 = 1`,
): Promise<MicroCredits> {
  const costs = (isLate: 0 | 1) => sql`
    select coalesce(sum(cost), 0) from request
    where organization_id = ${organizationId} and is_late = ${raw(isLate)} and ending <> 'released'
      and ended_at >= ${from} and ended_at < ${to} and ${condition}`;
  const [row] = await database.read<{ sum: bigint }>(sql`
    select cast(
      (select coalesce(sum(amount), 0) from credit_grant
        where organization_id = ${organizationId} and source = 'grant' and created_at >= ${from} and created_at < ${to})
      + (select coalesce(sum(case kind when 'credit' then amount else -amount end), 0) from adjustment
        where organization_id = ${organizationId} and made_at >= ${from} and made_at < ${to})
      - (${costs(0)} and ${idsBookedBetween(database, Number(from), Number(to))})
      - (${costs(1)})
    as bigint) as sum`);
  return row?.sum ?? 0n;
}
