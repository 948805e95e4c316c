import type {
  Conversation,
  KeptAnswer,
  RequestDetail,
  RequestStatus,
  RequestSummary,
  SummedRequests,
} from "../api/admin/request.ts";
import type { ChatCompletionRequest } from "../api/chat/request.ts";
import { DAY_MS, isoTime } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import { pricesByClass, tokensByClass, type UnitPrices } from "../credits/price.ts";
import { isAccessId, timeOfId, uuidIn } from "../credits/request-id.ts";
import { invalidCursor } from "../errors.ts";
import type { RefusalEntry } from "../stores/queries/refusals.ts";
import type { RequestFilter } from "../stores/queries/request-filter.ts";
import type { RequestGrouping, RequestGroupSum, RequestOrder } from "../stores/queries/request-sums.ts";
import type { ListedRequest } from "../stores/queries/requests.ts";
import type { UsageEvent } from "../stores/queries/statement.ts";
import type { Store } from "../stores/store.ts";
import { retryJson } from "./statement.ts";

/** A page of the request list. */
export interface RequestListing extends RequestFilter {
  /** Any id of a request: its UUID, that of its answer, its `x-request-id`, or the provider's id. */
  requestId: string | null;
  /** The newest first, or ended requests by a value, the highest first. */
  order: "newest" | RequestOrder;
  /** `next_cursor` of the previous page. */
  cursor: string | null;
  limit: number;
}

export interface RequestSources {
  holds: Store["requests"];
  refusals: Pick<Store["refusals"], "search" | "find">;
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
  const newest = newestOver({ holds, refusals });
  /** Returns the request's own id for its UUID, the id of its answer, or the provider's id; other ids as they are. */
  const ownIdOf = async (anyId: string): Promise<string> => {
    if (isAccessId(anyId)) return anyId;
    const own = uuidIn(anyId);
    // The look-up of a provider's id takes longer.
    if (own !== undefined && (await holds.request(own)) !== undefined) return own;
    return (await holds.idOfProviderResponse(anyId)) ?? own ?? anyId;
  };
  /** Returns a filter whose `requestId` is any id with the id that the store knows; undefined if no request has such an id. */
  const resolved = async <Filter extends RequestFilter>(filter: Filter): Promise<Filter | undefined> =>
    filter.requestId === null ? filter : filteredById(filter, await ownIdOf(filter.requestId));
  /** Lists requests in an order. Throws ApiError (invalid_value) for an invalid cursor. */
  const list = async (listing: RequestListing): Promise<RequestPage> => {
    const filter = await resolved(listing);
    if (filter === undefined) return { object: "list", data: [], next_cursor: null };
    const { order, cursor } = filter;
    if (order === "newest") return newest(filter);
    const { rows, next } = await holds.ranked({ ...filter, order, before: cursor });
    return { object: "list", data: rows.map(toSummary), next_cursor: next };
  };
  /** Returns a request's own id for any of its ids; another text as it is. */
  const ownId = async (anyId: string): Promise<string> => {
    if (!isAccessId(anyId)) return ownIdOf(anyId);
    const { data } = await list({ ...ANY_REQUEST, requestId: anyId, order: "newest", cursor: null, limit: 1 });
    return data[0]?.id ?? anyId;
  };
  return {
    list,
    ownId,
    async find(anyId: string): Promise<RequestDetail | undefined> {
      const id = await ownId(anyId);
      const row = await holds.request(id);
      if (row === undefined) {
        const refusal = await refusals.find(id);
        return refusal && { ...refusalSummary(refusal), ...NOT_HELD };
      }
      const { isEnabled, isStored } = await conversations.status(row.facts.organizationId, id);
      return { ...toDetail(row), keeps_conversations: isEnabled, has_conversation: isStored };
    },
    /** Adds up ended requests by group. Throws ApiError (invalid_value) for an invalid cursor. */
    async sums(filter: RequestFilter, grouping: RequestGrouping, cursor: string | null) {
      const wanted = await resolved(filter);
      const { groups, next } = wanted ? await holds.sums(wanted, grouping, cursor) : { groups: [], next: null };
      const isTime = grouping.by === "hour" || grouping.by === "day";
      return { object: "list" as const, data: groups.map((sum) => toSum(sum, isTime)), next_cursor: next };
    },
  };
}

/** Returns what lists the newest requests, those that held credits and those that were refused together. */
function newestOver({ holds, refusals }: Pick<RequestSources, "holds" | "refusals">) {
  const listHolds = async (listing: RequestListing): Promise<SearchResult> => {
    if (listing.status === "refused") return { data: [], next: null };
    const { rows, next } = await holds.requests({ ...listing, before: listing.cursor });
    return { data: rows.map(toSummary), next };
  };
  const listRefusals = async (listing: RequestListing): Promise<SearchResult> => {
    const { status, route, budgetId, metadata, chargedMin, cursor, limit } = listing;
    const isHeldOnly = route !== null || budgetId !== null || metadata !== null || (chargedMin ?? 0n) > 0n;
    if (isHeldOnly || (status !== null && status !== "refused")) return { data: [], next: null };
    if (cursor !== null) timeOfUuidV7(cursor);
    const rows = await refusals.search({ ...listing, before: cursor });
    return { data: rows.map(refusalSummary), next: rows.length < limit ? null : (rows.at(-1)?.id ?? null) };
  };
  return async (listing: RequestListing): Promise<RequestPage> => {
    const [held, refused] = await Promise.all([listHolds(listing), listRefusals(listing)]);
    // Ids are UUIDv7. Below the lowest id that both searches have reached, requests may still be missing.
    const reached = [held.next, refused.next].reduce((one, other) => ((one ?? "") > (other ?? "") ? one : other));
    const all = [...held.data, ...refused.data].filter(({ id }) => reached === null || id >= reached);
    const data = all.sort((one, other) => (one.id < other.id ? 1 : -1)).slice(0, listing.limit);
    return { object: "list", data, next_cursor: data.length < all.length ? (data.at(-1)?.id ?? null) : reached };
  };
}

/** The filter that matches every request. */
export const ANY_REQUEST: RequestFilter = {
  ...{ organizationId: null, tokenId: null, model: null, id: null, requestId: null, status: null },
  ...{ failure: null, route: null, budgetId: null, metadata: null, chargedMin: null, fromMs: null, toMs: null },
};

function toSum({ key, name, organizationId, isRest, ...sum }: RequestGroupSum, isTime: boolean): SummedRequests {
  return {
    object: "request_sum",
    key: isTime ? isoTime(Number(key)) : key,
    name,
    organization_id: organizationId,
    is_rest: isRest,
    requests: sum.requests,
    failed: sum.failed,
    charged: creditsFromMicro(sum.charged),
    input_tokens: sum.inputTokens,
    output_tokens: sum.outputTokens,
  };
}

/** Clocks of nodes and stores may differ this much. */
const CLOCKS_DIFFER_MS = 240_000;
/** A request has been read, and holds its credits or is refused, this long after it arrived. */
const DECIDED_WITHIN_MS = 120_000;

/** Limits a filter to a request's own id or `x-request-id`, and to the time in it; undefined for a text that cannot be an id. */
function filteredById<Filter extends RequestFilter>(filter: Filter, id: string): Filter | undefined {
  const isAccess = isAccessId(id);
  const timeMs = timeOfId(isAccess ? (uuidIn(id) ?? "") : id);
  if (timeMs === undefined) return undefined;
  // Ten minutes, which one read of the search covers, so that no limit of its time leaves the request out.
  const latestMs = timeMs + DECIDED_WITHIN_MS + CLOCKS_DIFFER_MS;
  const [fromMs, toMs] = isAccess ? [timeMs - CLOCKS_DIFFER_MS, latestMs] : [timeMs, timeMs + 1];
  return {
    ...filter,
    ...(isAccess ? { id: null, requestId: id } : { id, requestId: null }),
    fromMs: Math.max(fromMs, filter.fromMs ?? 0),
    toMs: Math.min(toMs, filter.toMs ?? toMs),
  };
}

/** Requests of one source, and the id down to which it was searched; null if it was searched completely. */
interface SearchResult {
  data: RequestSummary[];
  next: string | null;
}

function statusOf({ trace, end }: ListedRequest): RequestStatus {
  if (end === null) return "running";
  if (trace?.failure) return "failed";
  if (end === "released") return "client_disconnected";
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
    metadata: facts.metadata,
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
    retry: retryJson(row.retry),
    attempts: (trace?.attempts ?? []).map(({ route, outcome, durationMs, reported }) => {
      return { route, outcome, duration_ms: durationMs, ...(reported && { reported: tokensByClass(reported) }) };
    }),
    provider_response_id: trace?.providerResponseId ?? null,
    events: events.map(toEvent),
    draws: row.draws.map(({ grantId, amount }) => ({ grant_id: grantId, amount: creditsFromMicro(amount) })),
    is_idempotent: facts.idempotencyKey !== null,
  };
}

function priceTierOf({ tier }: UnitPrices): RequestDetail["price_tier"] {
  if (tier === undefined) return null;
  const { list = null, from = null, serviceTier = null, abovePromptTokens = null, promptTokensMax = null } = tier;
  const length = { above_prompt_tokens: abovePromptTokens, max_prompt_tokens: promptTokensMax };
  return { price_list: list, from, service_tier: serviceTier, ...length };
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
    ...{ route: null, is_streamed: null },
    status: "refused",
    failure: refusal.code,
    refusal: { status, message, endpoint, count },
    tokens: { input: 0, cached_input: 0, cache_write: 0, output: 0, reasoning: 0 },
    ...{ held: 0, charged: 0, user: null, metadata: null, provider_cost: null, first_token_ms: null },
    created_at: isoTime(endedAtMs - durationMs),
    ended_at: isoTime(endedAtMs),
    duration_ms: durationMs,
  };
}

/** The details of a request that was refused before credits were held. */
const NOT_HELD = {
  ...{ prices: null, price_tier: null, basis: null, ending: null, shortfall: 0, credited: 0, retry: null },
  ...{ attempts: [], events: [], draws: [], provider_response_id: null },
  ...{ keeps_conversations: false, has_conversation: false, is_idempotent: false },
} satisfies Partial<RequestDetail>;

export interface ConversationsOptions {
  rows: Store["conversations"];
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
    removeOne: (organizationId: string, requestId: string) => rows.removeOne({ organizationId, holdId: requestId }),
    /** Removes all conversations that have ended; returns their number. First, `record` gets the number of stored ones. */
    async remove(organizationId: string, record: (stored: number) => Promise<unknown>): Promise<number> {
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
