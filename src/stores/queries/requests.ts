import type { MicroCredits } from "../../credits/amount.ts";
import type { AdjustmentRow, RequestRow } from "../../credits/books.ts";
import { countersIn } from "../../credits/budget-uses.ts";
import { decodeLines } from "../../credits/charge-lines.ts";
import type { Draw, HoldFacts, RequestEnd, Retry, Trace } from "../../credits/facts.ts";
import { mergeDraws } from "../../credits/funds.ts";
import { addTokens, type TokenCounts } from "../../credits/price.ts";
import { idAt, timeOfId } from "../../credits/request-id.ts";
import { invalidCursor } from "../../errors.ts";
import type { Database } from "../database.ts";
import { ADJUSTMENT, HOLD, REQUEST } from "../schema.ts";
import { allOf, equal, join, type Sql, sql } from "../sql.ts";
import { isMatch, type RequestFilter, requestValues } from "./request-filter.ts";
import { chargeEvent, lateEvent, type UsageEvent } from "./statement.ts";

/** A request as it is listed: its late settlement is included in its tokens, draws and amounts. */
export interface ListedRequest {
  /** With the upstream and the prices of its last charge. */
  facts: HoldFacts;
  organizationName: string;
  /** Null for a token that no longer exists. */
  tokenName: string | null;
  amount: MicroCredits;
  tokens: TokenCounts;
  charged: MicroCredits;
  shortfall: MicroCredits;
  /** The sum of the credits that correct it. */
  credited: MicroCredits;
  /** The attempt that it repeats, and the part of its price that was not charged for it. */
  retry: UsageEvent["retry"];
  draws: Draw[];
  madeAtMs: number;
  /** Null while it is running. */
  endedAtMs: number | null;
  trace: Trace | null;
  /** The end of its last charge; null while it is running. */
  end: RequestEnd | null;
  /** At most two, in their order. */
  events: UsageEvent[];
}

export interface RequestSearch extends RequestFilter {
  /** From here on back: `next` of the page before. */
  before: string | null;
  limit: number;
}

/** The clock of another node may be ahead. */
const AHEAD_MS = 300_000;
/** Longer than `AHEAD_MS`, so that a page cut off by the time limit always contains the newest requests. */
const FIRST_WINDOW_MS = 2 * AHEAD_MS;
const WINDOW_GROWTH = 4;
/** Time limit of a search: a page contains the rows found by then. A stretch that may exceed it is left to the next page. */
const SEARCH_MS = 250;
/**
 * A stretch that takes longer, and twice as long as the shortest one, is not followed by a larger one, so that the last one
 * exceeds the time limit by little. With very many organizations all stretches take about as long: they grow while there is time.
 */
const STRETCH_MS = 25;
/** Rows of a page of a period that is read as a whole. */
const PAGE_ROWS = 500;

/**
 * The request log: open holds and ended requests. Ids are UUIDv7, so a stretch of time is a range of ids, which the keys find
 * organization by organization. Stretches grow until a page is full. Open holds are few: they are read at once.
 */
export function requestRows(database: Database) {
  return {
    /** Returns a page, the newest first. One that takes long ends before it is full; the next starts at `next`, null at the end. */
    requests: (search: RequestSearch) => searchRequests(database, search),
    async request(id: string): Promise<ListedRequest | undefined> {
      const [holds = [], requests = []] = await database.snapshot([
        holdQuery(sql`hold.id = ${id}`),
        requestQuery(sql`request.id = ${id}`),
      ]);
      const [open] = holds;
      if (open !== undefined) return listedHold(open as unknown as RowNames);
      const [ended] = await listed(database, requests as unknown as RowNames[]);
      return ended;
    },
    /** Yields the ended requests that began in a period, organization by organization, in pages. */
    async *endedRequests(fromMs: number, toMs: number): AsyncGenerator<ListedRequest[]> {
      const range = { from: idAt(fromMs), to: idAt(toMs) };
      const hasAny = sql`exists (select 1 from request where organization_id = organization.id and ${isWithin(range)})`;
      for await (const id of database.organizationIds(hasAny)) yield* endedRequestsOf(database, id, range);
    },
    /** Returns the id of the newest request for whose answer the provider used this id. */
    async idOfProviderResponse(providerResponseId: string): Promise<string | undefined> {
      const isWanted = database.hasProviderResponse(providerResponseId);
      const [rows] = await database.snapshot([sql`select id from request where ${isWanted} order by id desc limit 1`]);
      return rows?.[0]?.id as string | undefined;
    },
  };
}

async function* endedRequestsOf(database: Database, organizationId: string, { from, to }: IdRange) {
  // The beginning of an id comes before all ids with it.
  for (let last = from; ; ) {
    const wanted = sql`request.organization_id = ${organizationId} and request.id > ${last} and request.id < ${to}`;
    const query = sql`${requestQuery(wanted)} order by request.id limit ${PAGE_ROWS}`;
    const page = await listed(database, await database.read<RowNames>(query));
    yield page;
    if (page.length < PAGE_ROWS) return;
    last = page.at(-1)?.facts.holdId ?? last;
  }
}

export interface RowNames {
  organization_name: string;
  token_name: string | null;
  organization_id: string;
  id: string;
}

/** A range of ids, the end excluded. */
export interface IdRange {
  from: string;
  to: string;
}

/**
 * Visits the ids of a period in stretches, the newest first, until a visit returns true, until the beginning of the period or
 * until the time limit. Stretches grow, but cross no multiple of `stepMs`. Open holds may be older than
 * all ended requests. Returns the id at which the next visit continues; null at the end.
 */
export async function walkBack(
  database: Database,
  filter: RequestFilter,
  { before, stepMs, open = [] }: { before: string | null; stepMs?: number | undefined; open?: ListedRequest[] },
  visit: (range: IdRange) => Promise<boolean | undefined>,
): Promise<string | null> {
  const startedAtMs = performance.now();
  const floorId = await floorOf(database, filter, open);
  let to = before ?? idAt(Math.min(filter.toMs ?? Number.POSITIVE_INFINITY, Date.now() + AHEAD_MS));
  let lengthMs = FIRST_WINDOW_MS;
  let shortestMs = Number.POSITIVE_INFINITY;
  while (floorId !== undefined && to > floorId) {
    const beganAtMs = performance.now();
    const toMs = searchedTime(to);
    const stepStartMs = stepMs === undefined ? 0 : Math.floor((toMs - 1) / stepMs) * stepMs;
    const opening = idAt(Math.max(toMs - lengthMs, stepStartMs));
    const from = opening > floorId ? opening : floorId;
    const isEnough = await visit({ from, to });
    to = from;
    const endedAtMs = performance.now();
    const tookMs = endedAtMs - beganAtMs;
    shortestMs = Math.min(shortestMs, tookMs);
    const leftMs = SEARCH_MS - (endedAtMs - startedAtMs);
    const isFixedCost = tookMs < 1.5 * shortestMs;
    const maxMs = isFixedCost ? leftMs : Math.min(leftMs / WINDOW_GROWTH, Math.max(STRETCH_MS, 2 * shortestMs));
    if (tookMs < maxMs) lengthMs *= WINDOW_GROWTH;
    if (isEnough || (to > floorId && leftMs < tookMs)) return to;
  }
  if (before !== null) searchedTime(before);
  return null;
}

async function searchRequests(database: Database, search: RequestSearch) {
  const { before, limit, status } = search;
  const open = await openHolds(database, search);
  const found: ListedRequest[] = [];
  const next = await walkBack(database, search, { before, open }, async ({ from, to }) => {
    const wanted = allOf(isWithin({ from, to }), isMatch(requestValues(database), search));
    const query = sql`${requestQuery(wanted)} order by request.id desc limit ${limit}`;
    const ended = status === "running" ? [] : await listed(database, await database.read<RowNames>(query));
    const running = open.filter(({ facts: { holdId } }) => holdId >= from && holdId < to);
    found.push(...[...ended, ...running].sort((a, b) => (a.facts.holdId < b.facts.holdId ? 1 : -1)));
    return found.length >= limit;
  });
  const rows = found.slice(0, limit);
  return { rows, next: found.length < limit ? next : (rows.at(-1)?.facts.holdId ?? null) };
}

function searchedTime(id: string): number {
  const timeMs = timeOfId(id);
  if (timeMs === undefined) throw invalidCursor();
  return timeMs;
}

/** Returns the id at which a search ends: the first request, or the beginning of the period. */
async function floorOf(database: Database, filter: RequestFilter, open: readonly ListedRequest[]) {
  const { organizationId, status, fromMs } = filter;
  const ended = status === "running" ? undefined : await firstRequestId(database, organizationId);
  const ids = [ended, ...open.map(({ facts }) => facts.holdId)];
  const first = ids.reduce((least, id) => (least === undefined || (id !== undefined && id < least) ? id : least));
  if (first === undefined || fromMs === null) return first;
  const from = idAt(fromMs);
  return from > first ? from : first;
}

/** Returns the id of the first ended request of an organization, or of all (null). */
export async function firstRequestId(database: Database, organizationId: string | null) {
  const rows = await database.read<{ first_id: string | null }>(sql`
    select (select id from request where organization_id = organization.id order by id limit 1) as first_id
    from organization where ${equal({ "organization.id": organizationId })}`);
  const [first] = rows.flatMap(({ first_id }) => first_id ?? []).sort();
  return first;
}

/** Returns the open holds that match a search. Their details are filtered here, because SQL cannot. */
async function openHolds(database: Database, search: RequestSearch): Promise<ListedRequest[]> {
  const { organizationId, tokenId, model, id, requestId, status, failure, route, metadata, chargedMin } = search;
  const isOfOthers = status !== null && status !== "running";
  if (isOfOthers || failure !== null || (chargedMin ?? 0n) > 0n) return [];
  const records = await database.read<RowNames>(holdQuery(equal({ "organization.id": organizationId })));
  const isWanted = ({ facts }: ListedRequest) =>
    (tokenId === null || facts.tokenId === tokenId) &&
    (model === null || facts.model === model) &&
    (id === null || facts.holdId === id) &&
    (requestId === null || facts.requestId === requestId) &&
    (route === null || facts.upstream === route) &&
    (search.budgetId === null || countersIn(facts.budgets).some(({ budgetId }) => budgetId === search.budgetId)) &&
    (metadata === null || facts.metadata?.[metadata.key] === metadata.value);
  return records.map(listedHold).filter(isWanted);
}

/** Returns the condition that a request is within a range. */
export function isWithin({ from, to }: IdRange): Sql {
  return sql`request.id >= ${from} and request.id < ${to}`;
}

function holdQuery(condition: Sql): Sql {
  return sql`
    select hold.*, organization.name as organization_name, token.name as token_name
    from hold join organization on organization.id = hold.organization_id
    left join token on token.organization_id = hold.organization_id and token.id = hold.token_id where ${condition}`;
}

/** Returns a query of requests with names and `further` columns. It reads organizations first, unless there is a better plan. */
export function requestQuery(condition: Sql, further = sql``): Sql {
  return sql`
    select request.*, organization.name as organization_name, token.name as token_name ${further}
    from organization cross join request
    left join token on token.organization_id = request.organization_id and token.id = request.token_id
    where request.organization_id = organization.id and ${condition}`;
}

function listedHold(row: RowNames): ListedRequest {
  const { details, ...hold } = HOLD.fromRecord(row);
  const { charge, retry, ...names } = details;
  const { tokens, prices } = decodeLines(charge);
  const { amount, draws, madeAtMs } = hold;
  const uncharged = { charged: 0n, shortfall: 0n, credited: 0n, retry: nothingCredited(retry), events: [] };
  const running = { amount, tokens, draws, madeAtMs, endedAtMs: null, end: null, trace: null };
  return { ...namesIn(row), facts: { ...names, ...hold, prices }, ...running, ...uncharged };
}

function nothingCredited(retry: Retry | null): UsageEvent["retry"] {
  return retry && { of: retry.of, credited: 0n };
}

/** Returns the names that a list shows with a row. */
export function namesIn({ organization_name, token_name }: RowNames) {
  return { organizationName: organization_name, tokenName: token_name };
}

/** Converts rows of requests, with their late settlements and credits. */
export async function listed(database: Database, rows: readonly RowNames[]): Promise<ListedRequest[]> {
  const charged = rows.filter((row) => (row as { ending?: string }).ending !== "released");
  const organizationIds = new Set(charged.map(({ organization_id }) => organization_id));
  const condition = sql`organization_id in (${join([...organizationIds])}) and hold_id in (${join(charged.map(({ id }) => id))})`;
  const found =
    charged.length === 0 ? [] : await database.readRows(ADJUSTMENT)`select * from adjustment where ${condition}`;
  const ofRequest = Map.groupBy(found, ({ holdId }) => holdId);
  return rows.map((row) => {
    return { ...namesIn(row), ...listedRequest(REQUEST.fromRecord(row), ofRequest.get(row.id) ?? []) };
  });
}

function listedRequest(request: RequestRow, adjustments: readonly AdjustmentRow[]) {
  const late = adjustments.find(({ settlement }) => settlement !== null);
  const more = late && lateEvent(request, late);
  const credits = adjustments.filter(({ kind }) => kind === "credit");
  const { amount, madeAtMs, endedAtMs, cost, shortfall, draws, end } = request;
  const { tokens, prices } = decodeLines(request.charge);
  const { trace, ...last } = { ...request, ...late?.settlement };
  const events = [...(end === "released" ? [] : [chargeEvent(request)]), ...(more ? [more] : [])];
  return {
    ...{ amount, madeAtMs, endedAtMs, trace, end: last.end, events },
    facts: { ...request, upstream: last.upstream, prices: more?.prices ?? prices },
    tokens: more ? addTokens(tokens, more.tokens) : tokens,
    charged: cost + (more?.cost ?? 0n),
    shortfall: shortfall + (more?.shortfall ?? 0n),
    credited: credits.reduce((sum, credit) => sum + credit.amount, 0n),
    draws: mergeDraws(draws, late?.draws ?? []).filter((draw) => draw.amount !== 0n),
    retry: events.at(-1)?.retry ?? nothingCredited(request.retry),
  };
}
