import type { Conversation, KeptAnswer, RequestDetail, RequestStatus, RequestSummary } from "../api/admin/request.ts";
import type { ChatCompletionRequest } from "../api/chat/request.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import type { RequestEnd } from "../credits/facts.ts";
import { pricesByClass, tokensByClass, type UnitPrices } from "../credits/price.ts";
import { isAccessId, timeOfId, uuidIn } from "../credits/request-id.ts";
import { invalidCursor } from "../errors.ts";
import type { ConversationRows } from "../stores/queries/conversations.ts";
import type { RefusalEntry, RefusalRows } from "../stores/queries/refusals.ts";
import type { ListedRequest, RequestRows } from "../stores/queries/requests.ts";
import type { UsageEvent } from "../stores/queries/statement.ts";
import { DAY_MS } from "./usage-days.ts";

/** Filters of the request list; null matches any value. */
export interface RequestFilter {
  organizationId: string | null;
  tokenId: string | null;
  model: string | null;
  /** Any id of a request: its UUID, that of its answer (`chatcmpl-…`, `resp_…`, `msg_…`) or its `x-request-id`. */
  requestId: string | null;
  status: RequestStatus | null;
  fromMs: number | null;
  toMs: number | null;
  /** `next_cursor` of the previous page. */
  cursor: string | null;
  limit: number;
}

interface StatusFilter {
  isRunning: boolean | null;
  endings: RequestEnd[] | null;
  hasFailed: boolean | null;
}

/** Search filters for each status. Late settlements are checked afterwards. */
const STATUS_FILTERS: Record<Exclude<RequestStatus, "refused">, StatusFilter> = {
  running: { isRunning: true, endings: null, hasFailed: null },
  complete: { isRunning: false, endings: ["complete", "upstream_failed", "timed_out", "recovered"], hasFailed: false },
  client_disconnected: {
    isRunning: false,
    endings: ["client_disconnected", "released", "recovered"],
    hasFailed: false,
  },
  failed: { isRunning: false, endings: null, hasFailed: true },
  recovered: { isRunning: false, endings: ["recovered"], hasFailed: null },
};

export interface RequestSources {
  holds: RequestRows;
  refusals: Pick<RefusalRows, "search" | "find">;
  conversations: Pick<Conversations, "status">;
}

interface RequestPage {
  object: "list";
  data: RequestSummary[];
  next_cursor: string | null;
}

export type Requests = ReturnType<typeof requestsOver>;

/** Lists requests for the admin API: running, ended, and refused before credits were held. */
export function requestsOver({ holds, refusals, conversations }: RequestSources) {
  const listHolds = async ({ status, cursor, ...filter }: RequestFilter): Promise<SearchResult> => {
    if (status === "refused") return { data: [], next: null };
    const filters = status === null ? { isRunning: null, endings: null, hasFailed: null } : STATUS_FILTERS[status];
    const keep = (row: ListedRequest) => status === null || statusOf(row) === status;
    const { rows, next } = await holds.requests({ ...filter, ...filters, before: cursor, keep });
    return { data: rows.map(toSummary), next };
  };
  const listRefusals = async ({ status, cursor, ...filter }: RequestFilter): Promise<SearchResult> => {
    if (status !== null && status !== "refused") return { data: [], next: null };
    if (cursor !== null) timeOfUuidV7(cursor);
    const rows = await refusals.search({ ...filter, before: cursor });
    const next = rows.length < filter.limit ? null : (rows.at(-1)?.id ?? null);
    return { data: rows.map(refusalSummary), next };
  };
  /** Lists requests, the newest first. Throws ApiError (invalid_value) for an invalid cursor. */
  const list = async (filter: RequestFilter): Promise<RequestPage> => {
    const narrowed = narrowedById(filter);
    const [held, refused] = await Promise.all([listHolds(narrowed), listRefusals(narrowed)]);
    // Ids are UUIDv7. Below the lowest id that both searches have reached, requests may still be missing.
    const reached = [held.next, refused.next].reduce((one, other) => ((one ?? "") > (other ?? "") ? one : other));
    const { requestId } = filter;
    const isWanted = (row: RequestSummary) =>
      requestId === null || row.request_id === requestId || row.id === uuidIn(requestId);
    const found = [...held.data, ...refused.data].filter(isWanted);
    const all = found.filter(({ id }) => reached === null || id >= reached);
    const data = all.sort((one, other) => (one.id < other.id ? 1 : -1)).slice(0, filter.limit);
    return { object: "list", data, next_cursor: data.length < all.length ? (data.at(-1)?.id ?? null) : reached };
  };
  const idOfAccess = async (requestId: string): Promise<string | undefined> => {
    const filter = { ...ANY_REQUEST, requestId, limit: 1 };
    let page = await list({ ...filter, cursor: null });
    while (page.data.length === 0 && page.next_cursor !== null) {
      page = await list({ ...filter, cursor: page.next_cursor });
    }
    return page.data[0]?.id;
  };
  /** Finds a request by any of its ids. */
  const find = async (anyId: string): Promise<RequestDetail | undefined> => {
    const id = isAccessId(anyId) ? await idOfAccess(anyId) : (uuidIn(anyId) ?? anyId);
    if (id === undefined) return undefined;
    const row = await holds.request(id);
    if (row === undefined) {
      const refusal = await refusals.find(id);
      return refusal && { ...refusalSummary(refusal), ...NOT_HELD };
    }
    const { isEnabled, isStored } = await conversations.status(row.facts.organizationId, id);
    return { ...toDetail(row), keeps_conversations: isEnabled, has_conversation: isStored };
  };
  return { list, find };
}

const ANY_REQUEST = { organizationId: null, tokenId: null, model: null, status: null, fromMs: null, toMs: null };

/** Clocks of nodes and stores may differ this much. */
const CLOCKS_DIFFER_MS = 240_000;
/** A request has been read, and holds its credits or is refused, this long after it arrived. */
const DECIDED_WITHIN_MS = 120_000;

/** Limits a search for an id to the time in the id. An id without a time is searched for everywhere. */
function narrowedById(filter: RequestFilter): RequestFilter {
  const { requestId } = filter;
  const timeMs = requestId === null ? undefined : timeOfId(uuidIn(requestId) ?? requestId);
  if (requestId === null || timeMs === undefined) return filter;
  const isAccess = isAccessId(requestId);
  // Ten minutes, which one read of the search covers, so that no limit of its time leaves the request out.
  const latestMs = timeMs + DECIDED_WITHIN_MS + CLOCKS_DIFFER_MS;
  const [fromMs, toMs] = isAccess ? [timeMs - CLOCKS_DIFFER_MS, latestMs] : [timeMs, timeMs + 1];
  return {
    ...filter,
    requestId: isAccess ? requestId : null,
    fromMs: Math.max(fromMs, filter.fromMs ?? 0),
    toMs: Math.min(toMs, filter.toMs ?? toMs),
  };
}

/** Requests of one source, and the id down to which it was searched; null if it was searched completely. */
interface SearchResult {
  data: RequestSummary[];
  next: string | null;
}

function statusOf({ state, trace, end }: ListedRequest): RequestStatus {
  if (state === "open") return "running";
  if (trace?.failure) return "failed";
  if (state === "released") return "client_disconnected";
  return end === "client_disconnected" || end === "recovered" ? end : "complete";
}

function toSummary(row: ListedRequest): RequestSummary {
  const { facts, trace, endedAtMs } = row;
  return {
    object: "request",
    id: facts.holdId,
    request_id: facts.requestId,
    organization_id: facts.organizationId,
    organization_name: row.organizationName,
    token_id: facts.tokenId,
    token_name: row.tokenName,
    model: facts.model,
    route: facts.upstream,
    status: statusOf(row),
    failure: trace?.failure ?? null,
    refusal: null,
    is_streamed: trace?.isStreamed ?? null,
    tokens: tokensByClass(row.tokens),
    held: creditsFromMicro(row.amount),
    charged: creditsFromMicro(row.charged),
    user: facts.metadata?.user ?? null,
    provider_cost: trace?.providerCost ?? null,
    created_at: isoTime(row.madeAtMs),
    ended_at: isoTime(endedAtMs),
    first_token_ms: trace?.firstTokenMs ?? null,
    duration_ms: endedAtMs === null ? null : endedAtMs - row.madeAtMs,
  };
}

function toDetail(row: ListedRequest): Omit<RequestDetail, "keeps_conversations" | "has_conversation"> {
  const { facts, trace, events } = row;
  const last = events.at(-1);
  return {
    ...toSummary(row),
    prices: pricesByClass(facts.prices),
    price_tier: priceTierOf(facts.prices),
    basis: last?.basis ?? null,
    ending: last?.end ?? null,
    shortfall: creditsFromMicro(row.shortfall),
    credited: creditsFromMicro(row.credited),
    attempts: (trace?.attempts ?? []).map(({ route, outcome, durationMs, reported }) => {
      return { route, outcome, duration_ms: durationMs, ...(reported && { reported: tokensByClass(reported) }) };
    }),
    provider_response_id: trace?.providerResponseId ?? null,
    events: events.map(toEvent),
    draws: row.draws.map(({ grantId, amount }) => ({ grant_id: grantId, amount: creditsFromMicro(amount) })),
    metadata: facts.metadata,
    is_idempotent: facts.idempotencyKey !== null,
  };
}

function priceTierOf({ tier }: UnitPrices): RequestDetail["price_tier"] {
  if (tier === undefined) return null;
  const { from = null, serviceTier = null, abovePromptTokens = null, promptTokensMax = null } = tier;
  const length = { above_prompt_tokens: abovePromptTokens, max_prompt_tokens: promptTokensMax };
  return { from, service_tier: serviceTier, ...length };
}

function toEvent(event: UsageEvent): RequestDetail["events"][number] {
  return {
    sequence: event.sequence,
    charged: creditsFromMicro(event.cost),
    shortfall: creditsFromMicro(event.shortfall),
    tokens: tokensByClass(event.tokens),
    basis: event.basis,
    ending: event.end,
    charged_at: isoTime(event.chargedAtMs),
  };
}

/** Returns the time of a UUIDv7 or of its beginning, in milliseconds since 1970. Throws ApiError (invalid_value) for any other text. */
function timeOfUuidV7(id: string): number {
  const timeMs = timeOfId(id);
  if (timeMs === undefined) throw invalidCursor();
  return timeMs;
}

/** Formats a refused request for the list: nothing was held, used or charged. */
function refusalSummary(refusal: RefusalEntry): RequestSummary {
  const { id, status, message, endpoint, count, durationMs } = refusal;
  const endedAtMs = timeOfUuidV7(id);
  return {
    object: "request",
    id,
    request_id: refusal.requestId,
    organization_id: refusal.organizationId,
    organization_name: refusal.organizationName,
    token_id: refusal.tokenId,
    token_name: refusal.tokenName,
    model: refusal.model,
    route: null,
    status: "refused",
    failure: refusal.code,
    refusal: { status, message, endpoint, count },
    is_streamed: null,
    tokens: { input: 0, cached_input: 0, cache_write: 0, output: 0, reasoning: 0 },
    ...{ held: 0, charged: 0, user: null, provider_cost: null, first_token_ms: null },
    created_at: isoTime(endedAtMs - durationMs),
    ended_at: isoTime(endedAtMs),
    duration_ms: durationMs,
  };
}

/** The details of a request that was refused before credits were held. */
const NOT_HELD = {
  ...{ prices: null, price_tier: null, basis: null, ending: null, shortfall: 0, credited: 0, metadata: null },
  ...{ attempts: [], events: [], draws: [], provider_response_id: null },
  ...{ keeps_conversations: false, has_conversation: false, is_idempotent: false },
} satisfies Partial<RequestDetail>;

export interface ConversationsOptions {
  rows: ConversationRows;
  /** The time for which a conversation is stored is read at each use, because a reload changes it. */
  live: { readonly config: { conversations: { keepDays: number } } };
  /** Milliseconds since 1970. */
  clock: () => number;
}

const REMOVED_ROWS = 50;

export type Conversations = ReturnType<typeof conversationsOver>;

/** Reads and removes the stored conversations for the admin API. */
export function conversationsOver({ rows, live, clock }: ConversationsOptions) {
  const retentionMs = () => live.config.conversations.keepDays * DAY_MS;
  return {
    /** Finds the stored conversation of a request; undefined if there is none. */
    async find(organizationId: string, requestId: string): Promise<Conversation | undefined> {
      const row = await rows.find({ organizationId, holdId: requestId }, retentionMs());
      if (row === undefined) return undefined;
      return {
        object: "conversation",
        id: row.holdId,
        organization_id: row.organizationId,
        request: JSON.parse(row.request) as ChatCompletionRequest,
        answer: row.answer === null ? null : (JSON.parse(row.answer) as KeptAnswer),
        is_truncated: row.isTruncated,
        ended_at: isoTime(row.endedAtMs),
        kept_until: isoTime(row.endedAtMs + retentionMs()),
      };
    },
    /** Tells if storage is enabled for the organization now, and if the conversation of this request is stored. */
    status: (organizationId: string, requestId: string) =>
      rows.status({ organizationId, holdId: requestId }, retentionMs()),
    /** Removes the stored conversation of a request; returns false if there is none. */
    removeOne: (organizationId: string, requestId: string) => rows.removeOne({ organizationId, holdId: requestId }),
    /**
     * Removes all conversations that have ended, a few at a time. Returns their number. Before that, `record` is called with
     * the number of stored conversations, so that no deletion goes unrecorded.
     */
    async remove(organizationId: string, record: (stored: number) => Promise<void>): Promise<number> {
      await record(await rows.count(organizationId));
      const untilMs = clock();
      let removed = 0;
      for (;;) {
        const count = await rows.removeOf(organizationId, untilMs, REMOVED_ROWS);
        removed += count;
        if (count < REMOVED_ROWS) return removed;
      }
    },
  };
}
