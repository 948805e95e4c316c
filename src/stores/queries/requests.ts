import type { MicroCredits } from "../../credits/amount.ts";
import {
  type AdjustmentRow,
  type Draw,
  endedStateOf,
  type HoldFacts,
  type HoldRow,
  type HoldState,
  type RequestEnd,
  type RequestRow,
  type Trace,
} from "../../credits/books.ts";
import { decodeLines } from "../../credits/charge-lines.ts";
import { mergeDraws } from "../../credits/funds.ts";
import { addTokens, type TokenCounts } from "../../credits/price.ts";
import { idAt, timeOfId } from "../../credits/request-id.ts";
import { invalidCursor } from "../../errors.ts";
import { type Database, read } from "../database.ts";
import { ADJUSTMENT, HOLD, REQUEST } from "../schema.ts";
import { chargeEvent, lateEvent, type UsageEvent } from "./statement.ts";

/** A request as it is listed: its late settlement is included in its tokens, draws and amounts. */
export interface ListedRequest {
  /** With the upstream and the prices of its last charge. */
  facts: HoldFacts;
  organizationName: string;
  /** Null for a token that no longer exists. */
  tokenName: string | null;
  state: HoldState;
  amount: MicroCredits;
  tokens: TokenCounts;
  charged: MicroCredits;
  shortfall: MicroCredits;
  /** The sum of the credits that correct it. */
  credited: MicroCredits;
  draws: Draw[];
  madeAtMs: number;
  trace: Trace | null;
  /** The end of its last charge; null while it is running. */
  end: RequestEnd | null;
  /** At most two, in their order. */
  events: UsageEvent[];
}

/** Null: any. */
export interface RequestSearch {
  organizationId: string | null;
  tokenId: string | null;
  model: string | null;
  requestId: string | null;
  isRunning: boolean | null;
  /** Endings of the ended requests. */
  endings: readonly RequestEnd[] | null;
  hasFailed: boolean | null;
  fromMs: number | null;
  toMs: number | null;
  /** From here on back: `next` of the page before. */
  before: string | null;
  limit: number;
  /** Returns true if a row belongs to the page, once its events are known. */
  keep(row: ListedRequest): boolean;
}

/** The clock of another node may be ahead. */
const AHEAD_MS = 300_000;
/** Longer than `AHEAD_MS`, so that a page cut off by the time limit always contains the newest requests. */
const FIRST_WINDOW_MS = 2 * AHEAD_MS;
const WINDOW_GROWTH = 4;
const CHUNK_ROWS_MAX = 1_000;
/** Time limit of a search: a page contains the rows found by then. */
const SEARCH_MS = 250;

export type RequestRows = ReturnType<typeof requestRows>;

/**
 * The request log: open holds and ended requests. Ids are UUIDv7, so a stretch of time is a range of ids, which the keys find
 * organization by organization. Stretches grow until a page is full. Open holds are few: they are read at once.
 */
export function requestRows(database: Database) {
  return {
    /**
     * Returns a page, the newest first. A search that takes long ends before its page is full; the next page starts at
     * `next`, which is null at the end.
     */
    requests: (search: RequestSearch) => searchRequests(database, search),
    async request(id: string): Promise<ListedRequest | undefined> {
      const [holds = [], requests = []] = await database.snapshot([
        holdQuery(database).where("hold.id", "=", id).compile(),
        requestQuery(database).where("request.id", "=", id).compile(),
      ]);
      const [open] = await namedHolds(database, holds as unknown as OpenNames[]);
      if (open !== undefined) return open;
      const [ended] = await listed(database, requests as unknown as RequestNames[]);
      return ended;
    },
  };
}

interface OpenNames {
  organization_name: string;
}
interface RequestNames {
  organization_name: string;
  token_name: string | null;
  organization_id: string;
  id: string;
}

async function searchRequests(
  database: Database,
  search: RequestSearch,
): Promise<{ rows: ListedRequest[]; next: string | null }> {
  const startedAtMs = performance.now();
  const found: ListedRequest[] = [];
  const open = await openHolds(database, search);
  const floorId = await floorOf(database, search, open);
  if (floorId === undefined) return { rows: found, next: null };
  let beforeId = search.before ?? idAt(search.toMs ?? Date.now() + AHEAD_MS);
  let windowMs = FIRST_WINDOW_MS;
  let chunk = search.limit;
  for (;;) {
    const openingId = idAt(Math.max(0, searchedTime(beforeId) - windowMs));
    const fromId = openingId > floorId ? openingId : floorId;
    const rows =
      search.isRunning === true ? [] : await readWindow(database, search, { fromId, beforeId, limit: chunk });
    const last = rows.length === chunk ? rows.at(-1)?.facts.holdId : undefined;
    const reachedId = last ?? fromId;
    const running = open.filter(({ facts: { holdId } }) => holdId >= reachedId && holdId < beforeId);
    found.push(...[...rows, ...running].filter(search.keep).sort(newestFirst));
    beforeId = reachedId;
    if (found.length >= search.limit) {
      const shown = found.slice(0, search.limit);
      return { rows: shown, next: shown.at(-1)?.facts.holdId ?? null };
    }
    if (last === undefined) windowMs *= WINDOW_GROWTH;
    // Matching rows are rare: read more at once.
    else chunk = Math.min(CHUNK_ROWS_MAX, chunk * 2);
    if (beforeId <= floorId) return { rows: found, next: null };
    if (performance.now() - startedAtMs > SEARCH_MS) return { rows: found, next: beforeId };
  }
}

function newestFirst(a: ListedRequest, b: ListedRequest): number {
  return a.facts.holdId < b.facts.holdId ? 1 : -1;
}

function searchedTime(id: string): number {
  const timeMs = timeOfId(id);
  if (timeMs === undefined) throw invalidCursor();
  return timeMs;
}

/** Returns the id at which a search ends: the first request, or the beginning of the period. */
async function floorOf(database: Database, search: RequestSearch, open: readonly ListedRequest[]) {
  const { organizationId, fromMs } = search;
  const ended = search.isRunning === true ? undefined : await firstRequestId(database, organizationId);
  const ids = [ended, ...open.map(({ facts }) => facts.holdId)];
  const first = ids.reduce((least, id) => (least === undefined || (id !== undefined && id < least) ? id : least));
  if (first === undefined || fromMs === null) return first;
  const from = idAt(fromMs);
  return from > first ? from : first;
}

/** Returns the id of the first ended request of an organization, or of all (null). */
export async function firstRequestId(database: Database, organizationId: string | null) {
  let query = database.kysely
    .selectFrom("organization")
    .select((eb) =>
      eb
        .selectFrom("request")
        .select("request.id")
        .whereRef("request.organization_id", "=", "organization.id")
        .orderBy("request.id")
        .limit(1)
        .as("first_id"),
    );
  if (organizationId !== null) query = query.where("organization.id", "=", organizationId);
  const rows = await read<{ first_id: string | null }>(database, query);
  const [first] = rows.flatMap(({ first_id }) => first_id ?? []).sort();
  return first;
}

/** Returns the open holds that match a search. Their details are filtered here, because SQL cannot. */
async function openHolds(database: Database, search: RequestSearch): Promise<ListedRequest[]> {
  const { organizationId, tokenId, model, requestId, isRunning, hasFailed } = search;
  if (isRunning === false || hasFailed === true) return [];
  let query = holdQuery(database);
  if (organizationId !== null) query = query.where("organization.id", "=", organizationId);
  const rows = await namedHolds(database, await read<OpenNames>(database, query));
  const isWanted = ({ facts }: ListedRequest) =>
    (tokenId === null || facts.tokenId === tokenId) &&
    (model === null || facts.model === model) &&
    (requestId === null || facts.requestId === requestId);
  return rows.filter(isWanted);
}

async function readWindow(
  database: Database,
  search: RequestSearch,
  { fromId, beforeId, limit }: { fromId: string; beforeId: string; limit: number },
): Promise<ListedRequest[]> {
  let query = requestQuery(database)
    .where("request.id", ">=", fromId)
    .where("request.id", "<", beforeId)
    .orderBy("request.id", "desc")
    .limit(limit);
  if (search.organizationId !== null) query = query.where("organization.id", "=", search.organizationId);
  if (search.tokenId !== null) query = query.where("request.token_id", "=", search.tokenId);
  if (search.model !== null) query = query.where("request.model", "=", search.model);
  if (search.requestId !== null) query = query.where("request.request_id", "=", search.requestId);
  if (search.endings !== null) query = query.where("request.ending", "in", search.endings);
  if (search.hasFailed === false) query = query.where("request.failure", "is", null);
  if (search.hasFailed === true) {
    // The late settlement of a recovered request may contain a failure.
    query = query.where((eb) => eb.or([eb("request.failure", "is not", null), eb("request.ending", "=", "recovered")]));
  }
  return listed(database, await read<RequestNames>(database, query));
}

function holdQuery({ kysely }: Database) {
  return kysely
    .selectFrom("hold")
    .innerJoin("organization", "organization.id", "hold.organization_id")
    .selectAll("hold")
    .select("organization.name as organization_name");
}

function requestQuery({ kysely }: Database) {
  return (
    kysely
      .selectFrom("organization")
      // Organizations first, then their requests by key: a database without a better plan keeps this order.
      .crossJoin("request")
      .whereRef("request.organization_id", "=", "organization.id")
      .leftJoin("token", (join) =>
        join.onRef("token.organization_id", "=", "request.organization_id").onRef("token.id", "=", "request.token_id"),
      )
      .selectAll("request")
      .select(["organization.name as organization_name", "token.name as token_name"])
  );
}

async function namedHolds(database: Database, rows: readonly OpenNames[]): Promise<ListedRequest[]> {
  const holds = rows.map((row) => ({ organizationName: row.organization_name, hold: HOLD.fromRecord(row) }));
  const ids = [...new Set(holds.map(({ hold }) => hold.tokenId))];
  const query = database.kysely.selectFrom("token").select(["id", "name"]).where("id", "in", ids);
  const tokens = ids.length === 0 ? [] : await read<{ id: string; name: string }>(database, query);
  const nameOf = new Map(tokens.map(({ id, name }) => [id, name]));
  return holds.map(({ hold, organizationName }) => {
    const names = { organizationName, tokenName: nameOf.get(hold.tokenId) ?? null };
    return { ...names, ...listedHold(hold) };
  });
}

type Unnamed = Omit<ListedRequest, "organizationName" | "tokenName">;

function listedHold({ organizationId, holdId, tokenId, amount, draws, madeAtMs, details }: HoldRow): Unnamed {
  const { charge, ...names } = details;
  const { tokens, prices } = decodeLines(charge);
  const nothing = { charged: 0n, shortfall: 0n, credited: 0n, trace: null, end: null, events: [] };
  return {
    facts: { ...names, prices, organizationId, holdId, tokenId },
    state: "open",
    amount,
    tokens,
    draws,
    madeAtMs,
    ...nothing,
  };
}

/** Converts rows of requests, with their late settlements and credits. */
async function listed(database: Database, rows: readonly RequestNames[]): Promise<ListedRequest[]> {
  const charged = rows.filter((row) => (row as { ending?: string }).ending !== "released");
  const found = charged.length === 0 ? [] : await read<object>(database, adjustmentQuery(database, charged));
  const ofRequest = Map.groupBy(found.map(ADJUSTMENT.fromRecord), ({ holdId }) => holdId);
  return rows.map((row) => {
    const names = { organizationName: row.organization_name, tokenName: row.token_name };
    return { ...names, ...listedRequest(REQUEST.fromRecord(row), ofRequest.get(row.id) ?? []) };
  });
}

function adjustmentQuery({ kysely }: Database, rows: readonly RequestNames[]) {
  return kysely
    .selectFrom("adjustment")
    .selectAll()
    .where("organization_id", "in", [...new Set(rows.map(({ organization_id }) => organization_id))])
    .where(
      "hold_id",
      "in",
      rows.map(({ id }) => id),
    );
}

function listedRequest(request: RequestRow, adjustments: readonly AdjustmentRow[]): Unnamed {
  const late = adjustments.find(({ kind }) => kind === "late_settlement");
  const credits = adjustments.filter(({ kind }) => kind === "credit");
  const { amount, madeAtMs, cost, shortfall, draws, trace, end } = request;
  const { tokens, prices } = decodeLines(request.charge);
  const common = { amount, madeAtMs, credited: credits.reduce((sum, credit) => sum + credit.amount, 0n) };
  const state = endedStateOf(end);
  const events = end === "released" ? [] : [chargeEvent(request)];
  if (late === undefined || late.settlement === null) {
    return {
      ...common,
      facts: { ...request, prices },
      state,
      tokens,
      charged: cost,
      shortfall,
      draws,
      trace,
      end,
      events,
    };
  }
  const { upstream, charge, shortfall: shortfallMore, trace: lateTrace, end: lateEnd } = late.settlement;
  const more = decodeLines(charge);
  return {
    ...common,
    facts: { ...request, upstream, prices: more.prices },
    state,
    tokens: addTokens(tokens, more.tokens),
    charged: cost + late.amount,
    shortfall: shortfall + shortfallMore,
    draws: mergeDraws(draws, late.draws).filter((draw) => draw.amount !== 0n),
    trace: lateTrace,
    end: lateEnd,
    events: [...events, lateEvent(request, late)],
  };
}
