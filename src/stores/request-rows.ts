import type { Selectable } from "kysely";
import { read } from "./directory-rows.ts";
import type { RequestRow, RequestRows, RequestSearch } from "./request-store.ts";
import { eventFromTable, holdFromTable } from "./rows.ts";
import type { HoldTable, PortableDatabase, UsageEventTable } from "./tables.ts";

type HoldWithNames = Selectable<HoldTable> & { organization_name: string; token_name: string | null };

const FIRST_WINDOW_MS = 300_000;
/** The clock of another node may be ahead. */
const AHEAD_MS = 300_000;
const WINDOW_GROWTH = 4;
const CHUNK_ROWS_MAX = 1_000;
/** A page goes out with what was found by then. */
const SEARCH_MS = 250;

/**
 * Looking through holds, the same for both stores. Their ids are UUIDv7, so a stretch of time is a range of ids, which the
 * keys find organization by organization: no index on anything that changes. Stretches grow until a page is full.
 */
export function requestRows(database: PortableDatabase): RequestRows {
  return {
    requests: (search) => searchRequests(database, search),
    async request(id) {
      const rows = await read<HoldWithNames>(database, holdQuery(database).where("hold.id", "=", id));
      const [row] = await withEvents(database, rows);
      return row;
    },
  };
}

async function searchRequests(database: PortableDatabase, search: RequestSearch) {
  const startedAtMs = performance.now();
  const found: RequestRow[] = [];
  const floorId = await floorOf(database, search);
  if (floorId === undefined) return { rows: found, next: null };
  let beforeId = search.before ?? idAt(search.toMs ?? Date.now() + AHEAD_MS);
  let windowMs = FIRST_WINDOW_MS;
  let chunk = search.limit;
  for (;;) {
    const openingId = idAt(Math.max(0, timeOf(beforeId) - windowMs));
    const fromId = openingId > floorId ? openingId : floorId;
    const rows = await readWindow(database, search, { fromId, beforeId, limit: chunk });
    found.push(...rows.filter(search.keep));
    const last = rows.length === chunk ? rows.at(-1) : undefined;
    beforeId = last?.hold.holdId ?? fromId;
    if (found.length >= search.limit) {
      const shown = found.slice(0, search.limit);
      return { rows: shown, next: shown.at(-1)?.hold.holdId ?? null };
    }
    if (last === undefined) windowMs *= WINDOW_GROWTH;
    // What is kept is rare: more at once.
    else chunk = Math.min(CHUNK_ROWS_MAX, chunk * 2);
    if (beforeId <= floorId) return { rows: found, next: null };
    if (performance.now() - startedAtMs > SEARCH_MS) return { rows: found, next: beforeId };
  }
}

/** Where the search ends: the first hold there is, or the beginning of the time asked for. */
async function floorOf(database: PortableDatabase, { organizationId, fromMs }: RequestSearch) {
  const first = await firstHoldId(database, organizationId);
  if (first === undefined || fromMs === null) return first;
  const from = idAt(fromMs);
  return from > first ? from : first;
}

/** The first hold of an organization, or (null) of all. */
export async function firstHoldId(database: PortableDatabase, organizationId: string | null) {
  let query = database.kysely
    .selectFrom("organization")
    .select((eb) =>
      eb
        .selectFrom("hold")
        .select("hold.id")
        .whereRef("hold.organization_id", "=", "organization.id")
        .orderBy("hold.id")
        .limit(1)
        .as("first_id"),
    );
  if (organizationId !== null) query = query.where("organization.id", "=", organizationId);
  const rows = await read<{ first_id: string | null }>(database, query);
  const [first] = rows.flatMap(({ first_id }) => first_id ?? []).sort();
  return first;
}

async function readWindow(
  database: PortableDatabase,
  search: RequestSearch,
  { fromId, beforeId, limit }: { fromId: string; beforeId: string; limit: number },
): Promise<RequestRow[]> {
  let query = holdQuery(database)
    .where("hold.id", ">=", fromId)
    .where("hold.id", "<", beforeId)
    .orderBy("hold.id", "desc")
    .limit(limit);
  if (search.organizationId !== null) query = query.where("organization.id", "=", search.organizationId);
  if (search.tokenId !== null) query = query.where("hold.token_id", "=", search.tokenId);
  if (search.model !== null) query = query.where("hold.model", "=", search.model);
  if (search.requestId !== null) query = query.where("hold.request_id", "=", search.requestId);
  if (search.states !== null) query = query.where("hold.state", "in", search.states);
  if (search.hasFailed !== null) query = query.where("hold.failure", search.hasFailed ? "is not" : "is", null);
  return withEvents(database, await read<HoldWithNames>(database, query));
}

function holdQuery({ kysely }: PortableDatabase) {
  return (
    kysely
      .selectFrom("organization")
      // The organizations first, then their holds by the key: a database that has no better way keeps to this order.
      .crossJoin("hold")
      .whereRef("hold.organization_id", "=", "organization.id")
      .leftJoin("token", (join) =>
        join.onRef("token.organization_id", "=", "hold.organization_id").onRef("token.id", "=", "hold.token_id"),
      )
      .selectAll("hold")
      .select(["organization.name as organization_name", "token.name as token_name"])
  );
}

async function withEvents(database: PortableDatabase, rows: HoldWithNames[]): Promise<RequestRow[]> {
  const charged = rows.filter(({ state }) => state === "charged" || state === "expired");
  const events =
    charged.length === 0 ? [] : await read<Selectable<UsageEventTable>>(database, eventQuery(database, charged));
  const ofHold = Map.groupBy(events, ({ hold_id }) => hold_id);
  return rows.map(({ organization_name, token_name, ...row }) => ({
    hold: holdFromTable(row),
    organizationName: organization_name,
    tokenName: token_name,
    events: (ofHold.get(row.id) ?? []).map(eventFromTable),
  }));
}

/** An event is never older than its hold, which tells a database that keeps events by the day where not to look. */
function eventQuery({ kysely }: PortableDatabase, rows: HoldWithNames[]) {
  const oldest = rows.reduce((least, { made_at }) => (made_at < least ? made_at : least), rows[0]?.made_at ?? 0n);
  return kysely
    .selectFrom("usage_event")
    .selectAll()
    .where("organization_id", "in", [...new Set(rows.map(({ organization_id }) => organization_id))])
    .where(
      "hold_id",
      "in",
      rows.map(({ id }) => id),
    )
    .where("charged_at", ">=", oldest)
    .orderBy("hold_id")
    .orderBy("sequence");
}

const ID_TIME = /^([0-9a-f]{8})-([0-9a-f]{4})(?:-|$)/;

/** The beginning of every UUIDv7 of a millisecond: no id of it is smaller (RFC 9562, section 5.7). */
export function idAt(timeMs: number): string {
  const digits = timeMs.toString(16).padStart(12, "0");
  return `${digits.slice(0, 8)}-${digits.slice(8)}`;
}

/** The millisecond of a UUIDv7, or of the beginning of one. Throws RangeError for another text. */
export function timeOf(id: string): number {
  const [, high, low] = ID_TIME.exec(id) ?? [];
  if (high === undefined || low === undefined) throw new RangeError("This is no cursor of this list.");
  return Number.parseInt(high + low, 16);
}
