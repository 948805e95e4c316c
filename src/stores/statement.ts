import { type RawBuilder, sql } from "kysely";
import type { MicroCredits } from "../credits/amount.ts";
import { adjustmentFromTable, eventFromTable, grantFromTable } from "./rows.ts";
import type { StatementEntry, StatementPage } from "./store.ts";
import type { PortableDatabase } from "./tables.ts";

/** So many events are added up by one statement: far less than a statement's time. */
const CHUNK_EVENTS = 20_000;
const DAY_MS = 86_400_000n;

/** In the order of entries of the same millisecond. */
const SOURCES = ["grant", "adjustment", "charge", "closing"] as const;
type Source = (typeof SOURCES)[number];

/** Where an entry stands: its time, its source, then its key. */
interface Position {
  atMs: bigint;
  source: Source;
  sequence: bigint;
  id: string;
}

const POSITION = new RegExp(`^(\\d{1,16}):(${SOURCES.join("|")}):([01]):(.*)$`, "s");

/** One page of an organization's statement: what follows a position, from a time on. */
export async function statementPage(
  database: PortableDatabase,
  organizationId: string,
  { after, fromMs = 0, limit }: StatementPage,
): Promise<StatementEntry[]> {
  const from = after === null ? undefined : parsePosition(after);
  const read = { organizationId, from, fromMs, limit };
  const pages = await Promise.all([
    grantEntries(database, read),
    adjustmentEntries(database, read),
    chargeEntries(database, read),
    closingEntries(database, read),
  ]);
  // Each is sorted already, by the store; the sort is stable.
  return pages
    .flat()
    .sort((a, b) => a.atMs - b.atMs)
    .slice(0, limit);
}

/** What an organization's entries before a time add up to. */
export async function statementSum(
  database: PortableDatabase,
  organizationId: string,
  beforeMs: number,
): Promise<MicroCredits> {
  const { kysely } = database;
  const before = BigInt(beforeMs);
  const { rows } = await sql<{ sum: bigint }>`
    select cast(
      (select coalesce(sum(amount), 0) from credit_grant
        where organization_id = ${organizationId} and source = 'grant' and created_at < ${before})
      + (select coalesce(sum(case kind when 'credit' then amount else -amount end), 0) from adjustment
        where organization_id = ${organizationId} and made_at < ${before})
      - (select coalesce(sum(cost_sum), 0) from closing
        where organization_id = ${organizationId} and charged_day < ${before / DAY_MS})
    as bigint) as sum`.execute(kysely);
  return (rows[0]?.sum ?? 0n) - (await eventsBefore(database, organizationId, before)).costs;
}

/** How many events an organization has before a time, and what they cost, added up in chunks. */
export async function eventsBefore(
  database: PortableDatabase,
  organizationId: string,
  before: bigint,
): Promise<{ events: bigint; costs: MicroCredits }> {
  const sum = { events: 0n, costs: 0n };
  let from: EventKey = { charged_at: 0n, hold_id: "", sequence: 0n };
  for (;;) {
    const end = await eventKeyAfter(database, organizationId, from, before);
    const last = { charged_at: before, hold_id: "", sequence: 0n };
    const { events, costs } = await eventsBetween(database, organizationId, from, end ?? last);
    sum.events += events;
    sum.costs += costs;
    if (end === undefined) return sum;
    from = end;
  }
}

interface EventKey {
  charged_at: bigint;
  hold_id: string;
  sequence: bigint;
}

/** The first event of the next chunk; undefined where there is none. */
async function eventKeyAfter(
  { kysely }: PortableDatabase,
  organizationId: string,
  from: EventKey,
  before: bigint,
): Promise<EventKey | undefined> {
  return kysely
    .selectFrom("usage_event")
    .select(["charged_at", "hold_id", "sequence"])
    .where("organization_id", "=", organizationId)
    .where("charged_at", ">=", from.charged_at)
    .where("charged_at", "<", before)
    .where(sql<boolean>`(charged_at, hold_id, sequence) >= (${from.charged_at}, ${from.hold_id}, ${from.sequence})`)
    .orderBy("charged_at")
    .orderBy("hold_id")
    .orderBy("sequence")
    .offset(CHUNK_EVENTS)
    .limit(1)
    .executeTakeFirst();
}

async function eventsBetween(
  { kysely }: PortableDatabase,
  organizationId: string,
  from: EventKey,
  end: EventKey,
): Promise<{ events: bigint; costs: MicroCredits }> {
  const { rows } = await sql<{ events: bigint; costs: bigint }>`
    select count(*) as events, cast(coalesce(sum(cost), 0) as bigint) as costs from usage_event
    where organization_id = ${organizationId} and charged_at >= ${from.charged_at} and charged_at <= ${end.charged_at}
      and (charged_at, hold_id, sequence) >= (${from.charged_at}, ${from.hold_id}, ${from.sequence})
      and (charged_at, hold_id, sequence) < (${end.charged_at}, ${end.hold_id}, ${end.sequence})`.execute(kysely);
  return rows[0] ?? { events: 0n, costs: 0n };
}

interface Read {
  organizationId: string;
  from: Position | undefined;
  fromMs: number;
  limit: number;
}

function parsePosition(text: string): Position {
  const match = POSITION.exec(text);
  if (match === null) throw new RangeError(`"${text}" is not a position in a statement.`);
  const [, atMs = "", source, sequence = "", id = ""] = match;
  return { atMs: BigInt(atMs), source: source as Source, sequence: BigInt(sequence), id };
}

function positionOf(source: Source, atMs: bigint, id: string, sequence = 0n): { position: string; atMs: number } {
  return { position: `${atMs}:${source}:${sequence}:${id}`, atMs: Number(atMs) };
}

/** The earliest time of a source's entries that follow the position. */
function earliestOf(source: Source, { from, fromMs }: Read): bigint {
  const asked = BigInt(fromMs);
  if (from === undefined) return asked;
  const isBefore = SOURCES.indexOf(source) < SOURCES.indexOf(from.source);
  const following = isBefore ? from.atMs + 1n : from.atMs;
  return following > asked ? following : asked;
}

/** Whether a row follows the position, for rows of the position's own source. */
function follows(source: Source, { from }: Read, key: RawBuilder<unknown>): RawBuilder<boolean> | undefined {
  if (from?.source !== source) return undefined;
  return source === "charge"
    ? sql<boolean>`${key} > (${from.atMs}, ${from.id}, ${from.sequence})`
    : sql<boolean>`${key} > (${from.atMs}, ${from.id})`;
}

async function grantEntries({ kysely }: PortableDatabase, read: Read): Promise<StatementEntry[]> {
  let query = kysely
    .selectFrom("credit_grant")
    .selectAll()
    .where("organization_id", "=", read.organizationId)
    .where("source", "=", "grant")
    .where("created_at", ">=", earliestOf("grant", read))
    .orderBy("created_at")
    .orderBy("id")
    .limit(read.limit);
  const following = follows("grant", read, sql`(created_at, id)`);
  if (following !== undefined) query = query.where(following);
  return (await query.execute()).map((row) => ({
    kind: "grant",
    ...positionOf("grant", row.created_at, row.id),
    amount: row.amount,
    grant: grantFromTable(row),
  }));
}

async function adjustmentEntries({ kysely }: PortableDatabase, read: Read): Promise<StatementEntry[]> {
  let query = kysely
    .selectFrom("adjustment")
    .selectAll()
    .where("organization_id", "=", read.organizationId)
    .where("made_at", ">=", earliestOf("adjustment", read))
    .orderBy("made_at")
    .orderBy("id")
    .limit(read.limit);
  const following = follows("adjustment", read, sql`(made_at, id)`);
  if (following !== undefined) query = query.where(following);
  return (await query.execute()).map((row) => ({
    kind: row.kind,
    ...positionOf("adjustment", row.made_at, row.id),
    amount: row.kind === "credit" ? row.amount : -row.amount,
    adjustment: adjustmentFromTable(row),
  }));
}

async function chargeEntries({ kysely }: PortableDatabase, read: Read): Promise<StatementEntry[]> {
  let query = kysely
    .selectFrom("usage_event")
    .selectAll()
    .where("organization_id", "=", read.organizationId)
    .where("charged_at", ">=", earliestOf("charge", read))
    .orderBy("charged_at")
    .orderBy("hold_id")
    .orderBy("sequence")
    .limit(read.limit);
  const following = follows("charge", read, sql`(charged_at, hold_id, sequence)`);
  if (following !== undefined) query = query.where(following);
  return (await query.execute()).map((row) => ({
    kind: "charge",
    ...positionOf("charge", row.charged_at, row.hold_id, row.sequence),
    amount: -row.cost,
    event: eventFromTable(row),
  }));
}

/** A closing stands at the last millisecond of its day. */
async function closingEntries({ kysely }: PortableDatabase, read: Read): Promise<StatementEntry[]> {
  const rows = await kysely
    .selectFrom("closing")
    .selectAll()
    .where("organization_id", "=", read.organizationId)
    .where("charged_day", read.from?.source === "closing" ? ">" : ">=", earliestOf("closing", read) / DAY_MS)
    .orderBy("charged_day")
    .limit(read.limit)
    .execute();
  return rows.map((row) => ({
    kind: "closing",
    ...positionOf("closing", (row.charged_day + 1n) * DAY_MS - 1n, ""),
    amount: -row.cost_sum,
    events: Number(row.event_count),
  }));
}
