import { keepPreviousData, queryOptions, useInfiniteQuery, useQueries } from "@tanstack/react-query";
import { useEffect } from "react";
import type { OpenApiDocument } from "../pages/docs/document.ts";
import { useAccess } from "../shell/session.ts";
import { read, withQuery } from "./client.ts";
import { useSteady } from "./steady.ts";
import type {
  Budget,
  Conversation,
  Latencies,
  Margins,
  Model,
  Organization,
  Overview,
  PageOf,
  PaymentTerms,
  Receiver,
  RequestDetail,
  RequestSummary,
  SearchResult,
  ServiceFacts,
  Session,
  Token,
  TopUp,
} from "./types.ts";

/** Refetch intervals. TanStack Query pauses them while the page is hidden. */
const LIVE_MS = 3000;
const FIGURES_MS = 5000;
const MODELS_MS = 15_000;

export const serviceFacts = queryOptions({
  queryKey: ["service"],
  queryFn: ({ signal }) => read<ServiceFacts>("/admin/v1/service", signal),
  staleTime: Number.POSITIVE_INFINITY,
});

/** The OpenAPI document, which needs no sign-in. */
export const openApiDocument = queryOptions({
  queryKey: ["openapi"],
  queryFn: ({ signal }) => read<OpenApiDocument>("/openapi.json", signal),
  staleTime: Number.POSITIVE_INFINITY,
});

export const session = queryOptions({
  queryKey: ["session"],
  queryFn: ({ signal }) => read<Session>("/admin/v1/session", signal),
  staleTime: 60_000,
});

export interface OverviewFilter {
  organization_id?: string | undefined;
  from?: string;
  to?: string;
}

export const overview = (filter: OverviewFilter) =>
  queryOptions({
    queryKey: ["overview", filter],
    queryFn: ({ signal }) => read<Overview>(withQuery("/admin/v1/overview", { ...filter }), signal),
    refetchInterval: FIGURES_MS,
    placeholderData: keepPreviousData,
  });

export interface MarginsFilter extends OverviewFilter {
  by: "model" | "route" | "organization";
}

export const margins = (filter: MarginsFilter) =>
  queryOptions({
    queryKey: ["margins", filter],
    queryFn: ({ signal }) => read<Margins>(withQuery("/admin/v1/margins", { ...filter }), signal),
    placeholderData: keepPreviousData,
  });

export const latencies = (model: string) =>
  queryOptions({
    queryKey: ["latencies", model],
    queryFn: ({ signal }) => read<Latencies>(withQuery("/admin/v1/latencies", { model }), signal),
  });

export const organization = (id: string) =>
  queryOptions({
    queryKey: ["organizations", "one", id],
    queryFn: ({ signal }) => read<Organization>(`/admin/v1/organizations/${encodeURIComponent(id)}`, signal),
    refetchInterval: FIGURES_MS,
  });

export const paymentTerms = (organizationId: string) =>
  queryOptions({
    queryKey: ["organizations", "payment-terms", organizationId],
    queryFn: ({ signal }) =>
      read<PaymentTerms>(`/admin/v1/organizations/${encodeURIComponent(organizationId)}/payment-terms`, signal),
    refetchInterval: FIGURES_MS,
  });

export const topUp = (organizationId: string) =>
  queryOptions({
    queryKey: ["organizations", "top-up", organizationId],
    queryFn: ({ signal }) =>
      read<TopUp>(`/admin/v1/organizations/${encodeURIComponent(organizationId)}/top-up`, signal),
    refetchInterval: FIGURES_MS,
  });

export const token = (id: string) =>
  queryOptions({
    queryKey: ["tokens", "one", id],
    queryFn: ({ signal }) => read<Token>(`/admin/v1/tokens/${encodeURIComponent(id)}`, signal),
    refetchInterval: FIGURES_MS,
  });

/** Organization or token that a picker offers. */
export interface Selectable {
  id: string;
  name: string;
  kind?: Organization["kind"];
  credits?: Organization["credits"];
}

/** First page of the organizations or tokens that match a filter, for a picker. */
export const choices = (what: "organizations" | "tokens", filter: Record<string, string>) =>
  choicesOf<Selectable>(what, filter);

/** First page of the organizations or tokens that match a filter, with all of their fields. */
export const choicesOf = <T>(what: "organizations" | "tokens", filter: Record<string, string>) =>
  queryOptions({
    queryKey: [what, "choices", filter],
    queryFn: ({ signal }) => read<PageOf<T>>(withQuery(`/admin/v1/${what}`, filter), signal),
    staleTime: 30_000,
  });

/** The selected organization or token, for its name. */
export const chosen = (what: "organizations" | "tokens", id: string) =>
  queryOptions({
    queryKey: [what, "chosen", id],
    queryFn: ({ signal }) => read<Selectable>(`/admin/v1/${what}/${encodeURIComponent(id)}`, signal),
    staleTime: 30_000,
  });

/** Returns the names of tokens by their IDs; an ID while its name loads, and for those who may not read tokens. */
export function useTokenNames(ids: readonly string[]): (id: string) => string {
  const enabled = useAccess().may("tokens:read");
  const names = useQueries({ queries: ids.map((id) => ({ ...chosen("tokens", id), enabled })) });
  return (id) => names[ids.indexOf(id)]?.data?.name ?? id;
}

export const request = (id: string) =>
  queryOptions({
    queryKey: ["requests", "one", id],
    queryFn: ({ signal }) => read<RequestDetail>(`/admin/v1/requests/${encodeURIComponent(id)}`, signal),
    refetchInterval: ({ state: { data } }) => {
      if (data?.status === "running") return LIVE_MS;
      return data !== undefined && isAwaited(data) ? AWAITED_MS : false;
    },
  });

/** The newest request of a token, until one has ended. */
export const newestRequest = (tokenId: string) =>
  queryOptions({
    queryKey: ["requests", "newest", tokenId],
    queryFn: ({ signal }) =>
      read<PageOf<RequestSummary>>(withQuery("/admin/v1/requests", { token_id: tokenId, limit: 1 }), signal),
    refetchInterval: ({ state: { data } }) => {
      const first = data?.data[0];
      return first === undefined || first.status === "running" ? AWAITED_MS : false;
    },
  });

/** The service stores prompt and answer shortly after the request ends. */
const AWAITED_MS = 1000;
const WRITTEN_MS = 10_000;

function isAwaited({ ended_at, keeps_conversations, has_conversation }: RequestDetail): boolean {
  if (!keeps_conversations || has_conversation || ended_at === null) return false;
  return Date.now() - Date.parse(ended_at) < WRITTEN_MS;
}

/** Fetched once each time it is opened, because the service logs every view. */
export const conversation = (id: string) =>
  queryOptions({
    queryKey: ["conversations", id],
    queryFn: ({ signal }) => read<Conversation>(`/admin/v1/requests/${encodeURIComponent(id)}/conversation`, signal),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    retry: false,
  });

/** A page of a list, fetched once. */
export const pageOf = <T>(path: string) =>
  queryOptions({
    queryKey: ["page", path],
    queryFn: ({ signal }) => read<PageOf<T>>(path, signal),
    staleTime: MODELS_MS,
  });

/** Requests, organizations, tokens and grants that an id or a name belongs to. */
export const searchResults = (query: string) =>
  queryOptions({
    queryKey: ["search", query],
    queryFn: ({ signal }) => read<PageOf<SearchResult>>(withQuery("/admin/v1/search", { query }), signal),
  });

export const models = queryOptions({
  queryKey: ["models"],
  queryFn: ({ signal }) => read<{ data: Model[] }>("/admin/v1/models", signal),
  staleTime: MODELS_MS,
  refetchInterval: MODELS_MS,
});

/** All budgets of an organization. The service answers them in one page. */
export const budgets = (path: string) =>
  queryOptions({
    queryKey: ["budgets", "all", path],
    queryFn: ({ signal }) => read<PageOf<Budget>>(path, signal),
    refetchInterval: FIGURES_MS,
  });

/** The receivers of an organization, or ("") all that the session may see. The service answers them in one page. */
export const receivers = (organizationId: string) =>
  queryOptions({
    queryKey: ["receivers", organizationId],
    queryFn: ({ signal }) =>
      read<PageOf<Receiver>>(withQuery("/admin/v1/receivers", { organization_id: organizationId }), signal),
    refetchInterval: FIGURES_MS,
  });

/**
 * Fetches all pages of an answer that comes in parts of a period, one after the other. `rows` has the rows of those that have
 * arrived; `isComplete` tells whether there are no others.
 */
export function useParts<T>(
  path: string,
  filter: Record<string, string>,
  { isEnabled = true, refetchMs = false }: { isEnabled?: boolean; refetchMs?: number | false } = {},
) {
  const query = useInfiniteQuery({
    queryKey: ["requests", "parts", path, filter],
    queryFn: ({ pageParam, signal }) => read<PageOf<T>>(withQuery(path, { ...filter, cursor: pageParam }), signal),
    initialPageParam: null as string | null,
    getNextPageParam: ({ next_cursor }) => next_cursor,
    enabled: isEnabled,
    refetchInterval: refetchMs,
  });
  const { hasNextPage, isFetching, isError, fetchNextPage } = query;
  useEffect(() => {
    if (hasNextPage && !isFetching && !isError) void fetchNextPage();
  }, [hasNextPage, isFetching, isError, fetchNextPage]);
  const isComplete = query.data?.pages.at(-1)?.next_cursor === null;
  return { ...useSteady(query), rows: query.data?.pages.flatMap((page) => page.data), isComplete };
}

interface ListOptions<Page> {
  isLive?: boolean;
  isEnabled?: boolean;
  /** Finds the page in an answer that contains more. By default the answer is the page. */
  pageIn?: (answer: unknown) => Page;
}

/** Fetches a paginated list. `rows` contains the rows of all pages fetched so far. */
export function useList<T, Page extends PageOf<T> = PageOf<T>>(
  key: string,
  path: string,
  filter: Record<string, string>,
  { isLive = false, isEnabled = true, pageIn = (answer) => answer as Page }: ListOptions<Page> = {},
) {
  const query = useInfiniteQuery({
    queryKey: [key, "list", path, filter],
    queryFn: async ({ pageParam, signal }) =>
      pageIn(await read<unknown>(withQuery(path, { ...filter, cursor: pageParam, limit: 50 }), signal)),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
    placeholderData: keepPreviousData,
    refetchInterval: isLive ? LIVE_MS : false,
    enabled: isEnabled,
  });
  const steady = useSteady(query);
  return { ...steady, rows: query.data?.pages.flatMap((page) => page.data) };
}
