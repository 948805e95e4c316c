import { ALLOWANCE_REFERENCE } from "../../credits/allowance.ts";
import type { MicroCredits } from "../../credits/amount.ts";
import type { AdjustmentRow, GrantRow, RequestRow } from "../../credits/books.ts";
import { countersIn } from "../../credits/budget-uses.ts";
import { type ChargeLines, decodeLines } from "../../credits/charge-lines.ts";
import type { BudgetUse, EventBasis, EventEnd, HoldFacts } from "../../credits/facts.ts";
import { addTokens, amountDue, priceOf, type TokenCounts } from "../../credits/price.ts";
import { idAt, LATE_AFTER_MS } from "../../credits/request-id.ts";
import { NO_TOTALS, type StatementTotals, sumOfTotals } from "../../credits/statement-totals.ts";
import { invalidCursor } from "../../errors.ts";
import type { Database } from "../database.ts";
import { ADJUSTMENT, GRANT, REQUEST, STATEMENT_BALANCE } from "../schema.ts";
import { allOf, join, raw, type Sql, sql } from "../sql.ts";
import type { Table } from "../table.ts";

export interface StatementRange {
  /** Position of the last entry seen, from `LedgerEntry.position`. */
  after: string | null;
  /** Entries at this time or later. */
  fromMs?: number;
  limit: number;
}

/** `amount` is added to the balance; negative for an entry that reduces it. In micro-credits. */
export type LedgerEntry = {
  position: string;
  atMs: number;
  amount: MicroCredits;
  /** The budgets in which it counts, with their present names; a deleted one has none. */
  budgets: readonly (BudgetUse & { name?: string | undefined })[];
  /** Present name of the token that it is about. */
  tokenName?: string | undefined;
} & (
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
  /** The broken attempt that it repeats, and the part of the request's price that is not charged for it. */
  retry: { of: string; credited: MicroCredits } | null;
  /** As the provider reported it; for operators only. */
  providerCost: string | null;
  chargedAtMs: number;
}

const FIRST_WINDOW_MS = 31 * 86_400_000;
const WINDOW_GROWTH = 4;
const AHEAD_MS = 86_400_000;
/** Age of recorded times: no booking of an earlier time may follow, even if a clock is set back a little. */
const RECORDED_AFTER_MS = 3_600_000;

/** Kinds of rows, in the order of entries of the same millisecond. Those of one kind are in the order of their ids. */
const SOURCES = ["grant", "adjustment", "charge", "late_settlement"] as const;

const POSITION = new RegExp(`^(\\d{15}):([0-${SOURCES.length - 1}]):(.*)$`, "s");

/** Returns the position of an entry. Positions compare as texts as their entries follow each other. */
function positionAt(source: (typeof SOURCES)[number], atMs: number, id: string) {
  return { position: `${String(atMs).padStart(15, "0")}:${SOURCES.indexOf(source)}:${id}`, atMs };
}

/** Reads one page of an organization's statement: the entries that follow a position, from a time on. */
export async function statementPage(
  database: Database,
  organizationId: string,
  { after, fromMs = 0, limit }: StatementRange,
): Promise<LedgerEntry[]> {
  const last = after === null ? undefined : parsePosition(after);
  const query = { organizationId, last, fromMs: Math.max(fromMs, last?.atMs ?? 0), limit };
  const pages = await Promise.all([
    readRows(database, query, GRANTS).then((rows) => rows.map(grantEntry)),
    readRows(database, query, ADJUSTMENTS).then((rows) => rows.map(adjustmentEntry)),
    chargeEntries(database, query),
    // Requests that were booked far from the time in their ids.
    readRows(database, query, LATE_CHARGES).then((rows) => rows.map((request) => chargeEntry(chargeEvent(request)))),
    lateSettlementEntries(database, query),
  ]);
  const entries = pages.flat().sort((a, b) => (a.position < b.position ? -1 : 1));
  return named(database, organizationId, entries.slice(0, limit));
}

async function named(database: Database, organizationId: string, entries: LedgerEntry[]): Promise<LedgerEntry[]> {
  const budgetIds = entries.flatMap((entry) => entry.budgets.map(({ budgetId }) => budgetId));
  const tokenIds = entries.flatMap((entry) => tokenIdOf(entry) ?? []);
  const [budgets, tokens] = await Promise.all([
    presentNames(database, "budget", organizationId, budgetIds),
    presentNames(database, "token", organizationId, tokenIds),
  ]);
  return entries.map((entry) => ({
    ...entry,
    budgets: entry.budgets.map((use) => ({ ...use, name: budgets.get(use.budgetId) })),
    tokenName: tokens.get(tokenIdOf(entry) ?? ""),
  }));
}

/** Returns the present names of budgets or tokens of an organization by their ids. */
export async function presentNames(
  database: Database,
  table: "budget" | "token",
  organizationId: string,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  if (ids.length === 0) return new Map();
  const rows = await database.read<{ id: string; name: string }>(sql`
    select id, name from ${raw(table)} where organization_id = ${organizationId} and id in (${join([...new Set(ids)])})`);
  return new Map(rows.map(({ id, name }) => [id, name]));
}

/** Returns the token that an entry is about; null for a grant and for changes of other credits. */
function tokenIdOf(entry: LedgerEntry): string | null {
  if (entry.kind === "grant") return null;
  return entry.kind === "charge" ? entry.event.tokenId : entry.adjustment.tokenId;
}

interface Query {
  organizationId: string;
  /** The last entry seen. */
  last: { atMs: number; source: number; id: string } | undefined;
  fromMs: number;
  limit: number;
}

function parsePosition(text: string): Query["last"] {
  const [, atMs, source, id] = POSITION.exec(text) ?? [];
  if (id === undefined) throw invalidCursor();
  return { atMs: Number(atMs), source: Number(source), id };
}

interface EntryRows<Row extends object> {
  source: (typeof SOURCES)[number];
  table: Table<Row>;
  /** The columns of an entry's time and id. */
  key: readonly [time: string, id: string];
  condition: Sql;
}

const GRANTS: EntryRows<GrantRow> = {
  source: "grant",
  table: GRANT,
  key: ["created_at", "id"],
  condition: sql`source = 'grant'`,
};
const ADJUSTMENTS: EntryRows<AdjustmentRow> = {
  source: "adjustment",
  table: ADJUSTMENT,
  key: ["made_at", "id"],
  condition: sql`kind <> 'late_settlement'`,
};
const CHARGES: EntryRows<RequestRow> = {
  source: "charge",
  table: REQUEST,
  key: ["ended_at", "id"],
  condition: sql`is_late = 0 and ending <> 'released'`,
};
const LATE_CHARGES = { ...CHARGES, condition: sql`is_late = 1 and ending <> 'released'` };
const LATE_SETTLEMENTS: EntryRows<AdjustmentRow> = {
  source: "late_settlement",
  table: ADJUSTMENT,
  key: ["made_at", "hold_id"],
  condition: sql`kind = 'late_settlement'`,
};

/** Reads the rows that follow the position of a query, in the order of their keys. */
async function readRows<Row extends object>(
  database: Database,
  { organizationId, last, fromMs, limit }: Query,
  { source, table, key, condition }: EntryRows<Row>,
): Promise<Row[]> {
  const [time, id] = [raw(key[0]), raw(key[1])];
  const follows =
    last && sql`(${time}, ${raw(SOURCES.indexOf(source))}, ${id}) > (${last.atMs}, ${raw(last.source)}, ${last.id})`;
  const wanted = allOf(sql`organization_id = ${organizationId}`, condition, sql`${time} >= ${fromMs}`, follows);
  return database.readRows(table)`
    select * from ${raw(table.name)} where ${wanted} order by ${time}, id limit ${limit}`;
}

/** Searches growing periods, so that a database that partitions requests by month reads few partitions. */
async function chargeEntries(database: Database, query: Query): Promise<LedgerEntry[]> {
  let { fromMs } = query;
  let windowMs = FIRST_WINDOW_MS;
  const endMs = Date.now() + AHEAD_MS;
  const found: RequestRow[] = [];
  for (;;) {
    const toMs = fromMs + windowMs;
    const isLast = toMs > endMs;
    const ids = idsBookedBetween(database, fromMs, isLast ? null : toMs);
    const condition = allOf(CHARGES.condition, ids, !isLast && sql`ended_at < ${toMs}`);
    const limit = query.limit - found.length;
    found.push(...(await readRows(database, { ...query, fromMs, limit }, { ...CHARGES, condition })));
    if (isLast || found.length >= query.limit) return found.map((request) => chargeEntry(chargeEvent(request)));
    fromMs = toMs;
    windowMs *= WINDOW_GROWTH;
  }
}

async function lateSettlementEntries(database: Database, query: Query): Promise<LedgerEntry[]> {
  const adjustments = await readRows(database, query, LATE_SETTLEMENTS);
  const ids = adjustments.flatMap(({ holdId }) => holdId ?? []);
  if (ids.length === 0) return [];
  const requests = await database.readRows(REQUEST)`
    select * from request where organization_id = ${query.organizationId} and id in (${join(ids)})`;
  const byId = new Map(requests.map((request) => [request.holdId, request]));
  return adjustments.flatMap((adjustment) => {
    const request = byId.get(adjustment.holdId ?? "");
    return request === undefined ? [] : [chargeEntry(lateEvent(request, adjustment))];
  });
}

function grantEntry(grant: GrantRow): LedgerEntry {
  const { id, amount, createdAtMs } = grant;
  return { kind: "grant", ...positionAt("grant", createdAtMs, id), amount, budgets: [], grant };
}

function adjustmentEntry(adjustment: AdjustmentRow): LedgerEntry {
  const { kind, id, madeAtMs } = adjustment;
  if (kind === "late_settlement") throw new Error("A late settlement is a charge.");
  const amount = kind === "credit" ? adjustment.amount : -adjustment.amount;
  const place = positionAt("adjustment", madeAtMs, id);
  return { kind, ...place, amount, budgets: countersIn(adjustment.budgets), adjustment };
}

function chargeEntry(event: UsageEvent): LedgerEntry {
  const { chargedAtMs, holdId, sequence, cost } = event;
  const place = positionAt(sequence === 0 ? "charge" : "late_settlement", chargedAtMs, holdId);
  return { kind: "charge", ...place, amount: -cost, budgets: countersIn(event.budgets), event };
}

/** Returns the charge of a request that was not released. */
export function chargeEvent(request: RequestRow): UsageEvent {
  const { end, basis, cost, endedAtMs } = request;
  const ended = { end: end as EventEnd, basis: basis ?? "counted" };
  const facts = factsOf(request);
  return { ...facts, sequence: 0, ...ended, cost, retry: creditOf(request, facts.tokens), chargedAtMs: endedAtMs };
}

/** Returns the difference between a request's charge and its late settlement. */
export function lateEvent(request: RequestRow, adjustment: AdjustmentRow): UsageEvent {
  const { settlement, amount, madeAtMs } = adjustment;
  if (settlement === null) throw new Error(`The adjustment ${adjustment.id} is not a late settlement.`);
  const { upstream, charge, shortfall, basis, end, trace } = settlement;
  const facts = factsOf({ ...request, upstream, charge, shortfall, trace });
  const retry = creditOf({ ...request, charge }, addTokens(decodeLines(request.charge).tokens, facts.tokens));
  return { ...facts, sequence: 1, basis, end, cost: amount, retry, chargedAtMs: madeAtMs };
}

/** Returns the attempt that a request repeats, and what its tokens cost less for it. */
function creditOf({ retry, charge }: Pick<RequestRow, "retry" | "charge">, tokens: TokenCounts): UsageEvent["retry"] {
  if (retry === null) return null;
  const price = priceOf(tokens, decodeLines(charge).prices);
  return { of: retry.of, credited: price - amountDue(price, retry) };
}

function factsOf(request: RequestRow) {
  const { holdId, organizationId, tokenId, budgets, requestId, model, upstream, metadata } = request;
  const { idempotencyKey, charge, shortfall, trace } = request;
  const facts = { holdId, organizationId, tokenId, budgets, requestId, model, upstream, metadata, idempotencyKey };
  return { ...facts, ...decodeLines(charge), shortfall, providerCost: trace?.providerCost ?? null };
}

/** Restricts requests that are not late to ids whose requests may be booked from a time on, and before another. */
export function idsBookedBetween(database: Database, fromMs: number, toMs: number | null) {
  const to = toMs === null ? null : idAt(toMs + LATE_AFTER_MS + 1);
  return database.idsWithin("id", { from: idAt(fromMs - LATE_AFTER_MS), to });
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
export async function statementStart(database: Database, organizationId: string, askedMs: number | null) {
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
export async function openingBalance(database: Database, organizationId: string, beforeMs: number) {
  const [last = { beforeAtMs: 0, balance: 0n }] = await database.readRows(STATEMENT_BALANCE)`
    select * from statement_balance
    where organization_id = ${organizationId} and before_at <= ${beforeMs} order by before_at desc limit 1`;
  const period = { from: last.beforeAtMs, to: beforeMs };
  return last.balance + sumOfTotals(await totalsBetween(database, organizationId, period));
}

/**
 * Records a statement's balance before a time, so that later opening balances are read quickly. Records nothing for a time of
 * the last hour, nor if requests, which may have been removed, were closed meanwhile.
 */
export async function recordBalance(database: Database, organizationId: string, beforeAtMs: number): Promise<void> {
  const closedBeforeMs = (await closedBefore(database, organizationId)) ?? 0;
  if (closedBeforeMs > beforeAtMs) return;
  const balance = await openingBalance(database, organizationId, beforeAtMs);
  const isAsRead = sql`
    from organization where id = ${organizationId}
      and cast(${beforeAtMs + RECORDED_AFTER_MS} as bigint) <= ${database.now()}
      and cast(${closedBeforeMs} as bigint) = coalesce((select before_at from closing where organization_id = ${organizationId}), 0)`;
  const insertion = STATEMENT_BALANCE.insertFrom(isAsRead, { organizationId, beforeAtMs, balance });
  await database.write([sql`${insertion} on conflict do nothing`]);
}

const IS_ALLOWANCE = sql`coalesce(reference, '') like ${`${ALLOWANCE_REFERENCE}%`}`;
/** Later than any entry, and early enough for an id. */
const FAR_MS = Date.UTC(9999, 0);

/** Adds up an organization's statement entries of a period by kind; of requests those that meet a condition. */
export async function totalsBetween(
  database: Database,
  organizationId: string,
  { from = 0, to = FAR_MS }: { from?: number | undefined; to?: number | undefined },
  condition: Sql = sql`1 = 1`,
): Promise<StatementTotals> {
  const costs = (isLate: 0 | 1) => sql`
    select coalesce(sum(cost), 0) from request
    where organization_id = ${organizationId} and is_late = ${raw(isLate)} and ending <> 'released'
      and ended_at >= ${from} and ended_at < ${to} and ${condition}`;
  const grants = (isOf: Sql) => sql`
    select coalesce(sum(amount), 0) from credit_grant
    where organization_id = ${organizationId} and source = 'grant' and created_at >= ${from} and created_at < ${to}
      and ${isOf}`;
  const adjustments = (kind: AdjustmentRow["kind"]) => sql`
    select coalesce(sum(amount), 0) from adjustment
    where organization_id = ${organizationId} and made_at >= ${from} and made_at < ${to} and kind = ${kind}`;
  const [row] = await database.read<StatementTotals>(sql`
    select cast((${grants(sql`not ${IS_ALLOWANCE}`)}) as bigint) as "grant",
      cast((${grants(IS_ALLOWANCE)}) as bigint) as allowance,
      cast(-(${costs(0)} and ${idsBookedBetween(database, from, to)}) - (${costs(1)})
        - (${adjustments("late_settlement")}) as bigint) as charge,
      cast(-(${adjustments("revoke")}) as bigint) as revoke, cast((${adjustments("credit")}) as bigint) as credit,
      cast(-(${adjustments("lapse")}) as bigint) as lapse`);
  return row ?? NO_TOTALS;
}
