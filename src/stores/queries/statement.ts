import { type RawBuilder, type SelectQueryBuilder, sql } from "kysely";
import type { MicroCredits } from "../../credits/amount.ts";
import type { AdjustmentRow, EventBasis, EventEnd, GrantRow, HoldFacts, RequestRow } from "../../credits/books.ts";
import type { TokenCounts } from "../../credits/price.ts";
import { idAt, LATE_AFTER_MS } from "../../credits/request-id.ts";
import { invalidCursor } from "../../errors.ts";
import { type Database, read } from "../database.ts";
import { ADJUSTMENT, GRANT, REQUEST, type Tables } from "../schema.ts";

export interface StatementRange {
  /** Position of the last entry seen, from `LedgerEntry.position`. */
  after: string | null;
  /** Entries at this time or later. */
  fromMs?: number;
  limit: number;
}

/** `amount` is what the entry adds to the balance, negative where it takes from it. */
export type LedgerEntry = { position: string; atMs: number; amount: MicroCredits } & (
  | { kind: "grant"; grant: GrantRow }
  | { kind: "charge"; event: UsageEvent }
  | { kind: Exclude<AdjustmentRow["kind"], "late_settlement">; adjustment: AdjustmentRow }
);

/** A charge: of an ended request (0), or the signed differences of its late settlement (1). */
export interface UsageEvent extends HoldFacts {
  sequence: 0 | 1;
  tokens: TokenCounts;
  cost: MicroCredits;
  shortfall: MicroCredits;
  basis: EventBasis;
  end: EventEnd;
  madeAtMs: number;
  chargedAtMs: number;
}

const FIRST_WINDOW_MS = 31 * 86_400_000;
const WINDOW_GROWTH = 4;
/** The clock of the store may be ahead. */
const AHEAD_MS = 86_400_000;

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

/** Returns the condition that a key follows the position, for rows of its source; `or`: the key may also be equal. */
function follows(source: Source, { from }: Query, key: string, or: "same" | "later" = "later"): RawBuilder<boolean> {
  if (from?.source !== source) return sql<boolean>`1 = 1`;
  const operator = sql.raw(or === "same" ? ">=" : ">");
  return sql<boolean>`(${sql.raw(key)}) ${operator} (${from.atMs}, ${from.id})`;
}

async function grantEntries(database: Database, query: Query): Promise<Placed[]> {
  const found = await read<object>(
    database,
    database.kysely
      .selectFrom("credit_grant")
      .selectAll()
      .where("organization_id", "=", query.organizationId)
      .where("source", "=", "grant")
      .where("created_at", ">=", earliestOf("grant", query))
      .where(follows("grant", query, "created_at, id"))
      .orderBy("created_at")
      .orderBy("id")
      .limit(query.limit),
  );
  return found.map(GRANT.fromRecord).map((grant) => {
    const place: Position = { atMs: BigInt(grant.createdAtMs), source: "grant", sequence: 0, id: grant.id };
    return { place, entry: { kind: "grant", ...positionOf(place), amount: grant.amount, grant } };
  });
}

async function adjustmentEntries(database: Database, query: Query): Promise<Placed[]> {
  const found = await read<object>(
    database,
    database.kysely
      .selectFrom("adjustment")
      .selectAll()
      .where("organization_id", "=", query.organizationId)
      .where("kind", "!=", "late_settlement")
      .where("made_at", ">=", earliestOf("adjustment", query))
      .where(follows("adjustment", query, "made_at, id"))
      .orderBy("made_at")
      .orderBy("id")
      .limit(query.limit),
  );
  return found.map(ADJUSTMENT.fromRecord).map((adjustment) => {
    const { kind, id, madeAtMs } = adjustment;
    if (kind === "late_settlement") throw new Error("A late settlement is a charge.");
    const place: Position = { atMs: BigInt(madeAtMs), source: "adjustment", sequence: 0, id };
    const amount = kind === "credit" ? adjustment.amount : -adjustment.amount;
    return { place, entry: { kind, ...positionOf(place), amount, adjustment } };
  });
}

function chargeQuery({ kysely }: Database, query: Query, isLate: 0 | 1) {
  return kysely
    .selectFrom("request")
    .selectAll()
    .where("organization_id", "=", query.organizationId)
    .where("is_late", "=", sql.lit(BigInt(isLate)))
    .where("ending", "!=", sql.lit("released" as const))
    .where(follows("charge", query, "ended_at, id"))
    .orderBy("ended_at")
    .orderBy("id")
    .limit(query.limit) as unknown as SelectQueryBuilder<Tables, "request", object>;
}

/** Searches growing periods, so that a database that partitions requests by month reads few partitions. */
async function chargeEntries(database: Database, query: Query): Promise<Placed[]> {
  let fromMs = Number(earliestOf("charge", query));
  let windowMs = FIRST_WINDOW_MS;
  const endMs = Date.now() + AHEAD_MS;
  const found: RequestRow[] = [];
  for (;;) {
    const toMs = fromMs + windowMs;
    const isLast = toMs > endMs;
    const limit = query.limit - found.length;
    let window = chargeQuery(database, query, 0).limit(limit).where("ended_at", ">=", BigInt(fromMs));
    if (!isLast) window = window.where("ended_at", "<", BigInt(toMs));
    const ids = { from: idAt(fromMs - LATE_AFTER_MS), to: isLast ? null : idAt(toMs + LATE_AFTER_MS + 1) };
    window = window.where(database.idsWithin("id", ids));
    found.push(...(await read<object>(database, window)).map(REQUEST.fromRecord));
    if (isLast || found.length >= query.limit) return found.map(placedCharge);
    fromMs = toMs;
    windowMs *= WINDOW_GROWTH;
  }
}

/** Reads requests that were booked far from the time in their ids. */
async function lateChargeEntries(database: Database, query: Query): Promise<Placed[]> {
  const charges = chargeQuery(database, query, 1).where("ended_at", ">=", earliestOf("charge", query));
  return (await read<object>(database, charges)).map(REQUEST.fromRecord).map(placedCharge);
}

async function lateSettlementEntries(database: Database, query: Query): Promise<Placed[]> {
  const { kysely } = database;
  const { organizationId, from } = query;
  const found = await read<object>(
    database,
    kysely
      .selectFrom("adjustment")
      .selectAll()
      .where("organization_id", "=", organizationId)
      .where("kind", "=", "late_settlement")
      .where("made_at", ">=", earliestOf("charge", query))
      .where(follows("charge", query, "made_at, hold_id", from?.sequence === 0 ? "same" : "later"))
      .orderBy("made_at")
      .orderBy("id")
      .limit(query.limit),
  );
  const adjustments = found.map(ADJUSTMENT.fromRecord);
  const ids = adjustments.flatMap(({ holdId }) => holdId ?? []);
  const requests = await requestsById(database, [organizationId], ids);
  const byId = new Map(requests.map((request) => [request.holdId, request]));
  return adjustments.flatMap((adjustment) => {
    const request = byId.get(adjustment.holdId ?? "");
    return request === undefined ? [] : [placed(lateEvent(request, adjustment))];
  });
}

/** Returns the requests of some organizations with some ids. */
export async function requestsById(
  database: Database,
  organizationIds: readonly string[],
  ids: readonly string[],
): Promise<RequestRow[]> {
  if (ids.length === 0) return [];
  const query = database.kysely
    .selectFrom("request")
    .selectAll()
    .where("organization_id", "in", organizationIds)
    .where("id", "in", ids);
  return (await read<object>(database, query)).map(REQUEST.fromRecord);
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
  const { upstream, prices, tokens, shortfall, basis, end } = settlement;
  const route = { upstream, prices, tokens, shortfall };
  return { ...factsOf(request), ...route, sequence: 1, basis, end, cost: amount, chargedAtMs: madeAtMs };
}

function factsOf(request: RequestRow) {
  const { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata } = request;
  const { idempotencyKey, tokens, shortfall, madeAtMs } = request;
  const facts = { holdId, organizationId, tokenId, requestId, model, upstream, prices, metadata, idempotencyKey };
  return { ...facts, tokens, shortfall, madeAtMs };
}

function placedCharge(request: RequestRow): Placed {
  return placed(chargeEvent(request));
}

function placed(event: UsageEvent): Placed {
  const { chargedAtMs, holdId, sequence, cost } = event;
  const place: Position = { atMs: BigInt(chargedAtMs), source: "charge", sequence, id: holdId };
  return { place, entry: { kind: "charge", ...positionOf(place), amount: -cost, event } };
}
