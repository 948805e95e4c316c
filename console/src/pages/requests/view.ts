import { withQuery } from "../../api/client.ts";
import type { RequestSummary, SummedRequests } from "../../api/types.ts";
import { timesOfPeriod } from "../period.tsx";

/** Filters of the requests in the address, as the API names them; `period` stands for `from` and `to`. */
export const FILTER_NAMES = [
  ...(["organization_id", "token_id", "model", "status", "failure", "route", "budget_id"] as const),
  ...(["metadata_key", "metadata_value", "charged_min", "request_id", "period"] as const),
];
export type FilterName = (typeof FILTER_NAMES)[number];
/** Order and grouping of the requests in the address. */
export const VIEW_NAMES = [...FILTER_NAMES, "sort", "by"] as const;
export type View = Record<(typeof VIEW_NAMES)[number], string>;

/** Returns the address of the requests behind a figure. */
export function requestsPath(view: Partial<View>): string {
  return withQuery("/requests", view);
}

/** Returns the filters of a view as the API takes them. A value without its key is no filter. */
export function wireFilterOf(view: View, nowMs: number): Record<string, string> {
  const { period, metadata_key, metadata_value, ...rest } = view;
  const named = Object.fromEntries(FILTER_NAMES.flatMap((name) => (name in rest ? [[name, view[name]]] : [])));
  const metadata = metadata_key !== "" && metadata_value !== "" ? { metadata_key, metadata_value } : {};
  const filter = { ...named, ...metadata, ...timesOfPeriod(period, nowMs) };
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== ""));
}

export const SORTS = [
  ["charged", "Highest charge"],
  ["duration", "Longest duration"],
  ["tokens", "Most tokens"],
] as const;
type Sort = (typeof SORTS)[number][0];

export const GROUPINGS = [
  ["organization", "By organization"],
  ["token", "By token"],
  ["model", "By model"],
  ["route", "By route"],
  ["budget", "By budget"],
  ["metadata", "By metadata"],
  ["hour", "By hour"],
  ["day", "By day"],
] as const;
export type Grouping = (typeof GROUPINGS)[number][0];

export const sortOf = (text: string) => SORTS.find(([sort]) => sort === text)?.[0];
export const groupingOf = (text: string) => GROUPINGS.find(([by]) => by === text)?.[0];

const MEASURES: Record<Sort, (request: RequestSummary) => number> = {
  charged: ({ charged }) => charged,
  duration: ({ duration_ms }) => duration_ms ?? 0,
  tokens: ({ tokens }) => inputOf(tokens) + outputOf(tokens),
};

export const inputOf = ({ input, cached_input, cache_write }: RequestSummary["tokens"]) =>
  input + cached_input + cache_write;
export const outputOf = ({ output, reasoning }: RequestSummary["tokens"]) => output + reasoning;

/** Sorts the requests of several parts of a period, each of which has its first ones, and returns the first of all. */
export function ranked(requests: readonly RequestSummary[], sort: Sort, count: number): RequestSummary[] {
  const measure = MEASURES[sort];
  const isAfter = (one: RequestSummary, other: RequestSummary) =>
    measure(other) - measure(one) || (one.id < other.id ? 1 : -1);
  return requests.toSorted(isAfter).slice(0, count);
}

/** Adds up the sums of several parts of a period by group, the highest charge first; hours and days by time. */
export function merged(sums: readonly SummedRequests[], by: Grouping): SummedRequests[] {
  const groups = Map.groupBy(sums, ({ key, is_rest, organization_id }) =>
    JSON.stringify([key, is_rest, organization_id]),
  );
  const total = [...groups.values()].map((parts) => parts.reduce(plus));
  const isTime = by === "hour" || by === "day";
  return total.sort((one, other) =>
    isTime
      ? (one.key ?? "") < (other.key ?? "")
        ? 1
        : -1
      : Number(one.is_rest) - Number(other.is_rest) || other.charged - one.charged,
  );
}

function plus(one: SummedRequests, other: SummedRequests): SummedRequests {
  return {
    ...one,
    requests: one.requests + other.requests,
    failed: one.failed + other.failed,
    charged: addCredits(one.charged, other.charged),
    input_tokens: one.input_tokens + other.input_tokens,
    output_tokens: one.output_tokens + other.output_tokens,
  };
}

const MICRO = 1_000_000;

/** Adds amounts exactly, to the micro-credit. */
export function addCredits(one: number, other: number): number {
  return (Math.round(one * MICRO) + Math.round(other * MICRO)) / MICRO;
}

/** Returns what narrows a view down to the requests of a group; null for a group that has no name. */
export function narrowedTo(sum: Pick<SummedRequests, "key" | "organization_id">, by: Grouping): Partial<View> | null {
  const { key, organization_id } = sum;
  if (key === null) return null;
  const owner = organization_id === null ? {} : { organization_id };
  switch (by) {
    case "organization":
      return { by: "", organization_id: key };
    case "token":
      return { by: "", ...owner, token_id: key };
    case "budget":
      return { by: "", ...owner, budget_id: key };
    case "metadata":
      return { by: "", metadata_value: key };
    case "hour":
      return { by: "", period: key.slice(0, "2026-11-05T14".length) };
    case "day":
      return { by: "", period: `${key.slice(0, 10)}..${key.slice(0, 10)}` };
    default:
      return { by: "", [by]: key };
  }
}
