import type { Static } from "typebox";
import type { RequestFilters } from "../api/admin/request.ts";
import { ApiError } from "../errors.ts";
import type { RequestFilter } from "../stores/queries/request-filter.ts";
import { amountOf, type OperationCall, operation, organizationIn, timeOf } from "./operation.ts";

export const listRequests = operation({
  route: "GET /requests",
  permission: "requests:read",
  summary: "List completion requests, the newest first or the highest first by a value",
  query: (s) =>
    s.Strict({
      ...s.PageQuery,
      ...s.RequestFilters,
      sort: s.Type.Optional(
        s.Type.Enum(["newest", "charged", "duration", "tokens"], {
          default: "newest",
          description: "By a value, each page has the highest of a part of the period, the latest part first.",
        }),
      ),
    }),
  answer: {
    status: 200,
    description: "A page. It may be short if the search took long.",
    schema: (s) => s.PageOf(s.RequestSummary),
  },
  async handle({ requests }, call) {
    const { sort: order = "newest" } = call.query;
    if (order !== "newest") requireEnded("sort", call.query);
    const found = await requests.list({ ...requestFilterOf(call), order, ...call.page });
    return { ...found, data: found.data.map((request) => shownTo(call, request)) };
  },
});

type Filters = { [Name in keyof typeof RequestFilters]?: Static<(typeof RequestFilters)[Name]> };

/** Converts the filters of a query. Throws not_found for another organization, or invalid_value. */
export function requestFilterOf({ who, query }: Pick<OperationCall<Filters>, "who" | "query">): RequestFilter {
  const { metadata_key: key, metadata_value: value, charged_min } = query;
  if (value !== undefined && key === undefined) {
    const message = "Invalid 'metadata_value': it needs 'metadata_key', the name of the value.";
    throw new ApiError("invalid_value", message, { param: "metadata_value" });
  }
  return {
    organizationId: organizationIn(who, query.organization_id),
    tokenId: query.token_id ?? null,
    model: query.model ?? null,
    id: null,
    requestId: query.request_id ?? null,
    status: query.status ?? null,
    failure: query.failure ?? null,
    route: query.route ?? null,
    budgetId: query.budget_id ?? null,
    metadata: key === undefined || value === undefined ? null : { key, value },
    chargedMin: charged_min === undefined ? null : amountOf("charged_min", charged_min),
    fromMs: timeOf("from", query.from),
    toMs: timeOf("to", query.to),
  };
}

/** Throws invalid_value where a parameter needs ended requests and the query asks for others. */
export function requireEnded(param: string, { status }: Filters): void {
  if (status !== "running" && status !== "refused") return;
  const message = `Invalid '${param}': ${status} requests have no charge. Use the status complete, failed, client_disconnected or recovered.`;
  throw new ApiError("invalid_value", message, { param });
}

/** Returns a request as the caller may see it: the costs of providers are for operators and auditors. */
export function shownTo<Request extends object>({ may }: Pick<OperationCall, "may">, request: Request): Request {
  return may("upstreams:read") ? request : { ...request, provider_cost: null };
}
