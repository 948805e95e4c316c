import type { Static } from "typebox";
import type { RequestFilters, RequestSummary } from "../api/admin/request.ts";
import { PRICE_CLASSES, TOKEN_CLASSES } from "../api/price-classes.ts";
import { ApiError } from "../errors.ts";
import { FairTurns } from "../ledger/fair-queue.ts";
import { exportLines, lineFormats } from "../reports/csv.ts";
import type { RequestFilter } from "../stores/queries/request-filter.ts";
import type { RequestGrouping } from "../stores/queries/request-sums.ts";
import { found } from "./core.ts";
import { amountOf, type OperationCall, operation, organizationIn, requireOwn, sendFile, timesOf } from "./operation.ts";

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

function requestFilterOf({ who, query }: Pick<OperationCall<Filters>, "who" | "query">): RequestFilter {
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
    ...timesOf(query),
  };
}

/** Throws invalid_value where a parameter needs ended requests and the query asks for others. */
function requireEnded(param: string, { status }: Filters): void {
  if (status !== "running" && status !== "refused") return;
  const message = `Invalid '${param}': ${status} requests have no charge. Use the status complete, failed, client_disconnected or recovered.`;
  throw new ApiError("invalid_value", message, { param });
}

/** Returns a request as the caller may see it: the costs of providers are for operators and auditors. */
function shownTo<Request extends object>({ may }: Pick<OperationCall, "may">, request: Request): Request {
  return may("upstreams:read") ? request : { ...request, provider_cost: null };
}

export const sumRequests = operation({
  route: "GET /requests/sums",
  permission: "requests:read",
  summary: "Add up ended requests by token, model, organization, route, budget, value of metadata, hour or day",
  query: (s) =>
    s.Strict({
      ...s.RequestFilters,
      cursor: s.PageQuery.cursor,
      by: s.Type.Enum(["organization", "token", "model", "route", "budget", "metadata", "hour", "day"], {
        description: "`metadata`: by the value of `metadata_key`. Hours and days are in UTC.",
      }),
    }),
  answer: {
    status: 200,
    description:
      "The sums of a part of the period, the latest part first. The sums of a group are those of all pages together.",
    schema: (s) => s.PageOf(s.SummedRequests),
  },
  handle({ requests }, call) {
    const { by, metadata_key: key, cursor = null } = call.query;
    requireEnded("status", call.query);
    return requests.sums(requestFilterOf(call), groupingOf(by, key), cursor);
  },
});

function groupingOf(by: RequestGrouping["by"], key: string | undefined): RequestGrouping {
  if (by !== "metadata") return { by };
  if (key !== undefined) return { by, key };
  throw new ApiError("invalid_value", "Invalid 'by': 'metadata' needs 'metadata_key'.", { param: "by" });
}

const EXPORT_PAGE_ROWS = 200;

const TOKEN_COLUMNS = TOKEN_CLASSES.map((name) => PRICE_CLASSES[name].name);
/** Columns of the CSV format: amounts in credits, times in UTC. */
const EXPORT_COLUMNS = [
  ...["id", "request_id", "created_at", "ended_at", "organization_id", "organization_name", "token_id", "token_name"],
  ...[
    "model",
    "route",
    "status",
    "failure",
    "count",
    ...TOKEN_COLUMNS.map((name) => `${name}_tokens`),
    "held",
    "charged",
  ],
  ...["provider_cost", "first_token_ms", "duration_ms", "is_streamed", "user", "metadata"],
];

const EXPORT_FORMATS = lineFormats(EXPORT_COLUMNS, ({ tokens, refusal, metadata, ...values }: RequestSummary) => ({
  ...values,
  ...Object.fromEntries(TOKEN_COLUMNS.map((name) => [`${name}_tokens`, tokens[name]])),
  count: refusal?.count ?? 1,
  metadata: metadata === null ? null : JSON.stringify(metadata),
}));

/** Reads the pages of all exports one at a time. */
const exportTurns = new FairTurns(1);

function requestExport(format: keyof typeof EXPORT_FORMATS, contentType: string, words: string, description: string) {
  return operation({
    route: `GET /requests.${format}`,
    permission: "requests:read",
    summary: `Export the requests that match filters as ${words}, the newest first`,
    query: (s) => s.Strict(s.RequestFilters),
    answer: { status: 200, description, schema: (s) => s.Type.String(), contentType },
    handle(services, call) {
      const filter = requestFilterOf(call);
      const read = async (cursor: string | null) => {
        const listing = { ...filter, order: "newest" as const, cursor, limit: EXPORT_PAGE_ROWS };
        const page = await exportTurns.run(filter.organizationId ?? "", () => services.requests.list(listing));
        return { ...page, data: page.data.map((request) => shownTo(call, request)) };
      };
      return sendFile(services, call, `requests:${filter.organizationId ?? "*"}`, async () => ({
        name: `requests.${format}`,
        text: exportLines(EXPORT_FORMATS[format], read),
      }));
    },
  });
}

export const exportRequests = requestExport("csv", "text/csv", "comma-separated values", "The lines.");
export const exportRequestLines = requestExport(
  "jsonl",
  "application/jsonl",
  "JSON Lines",
  "A request in each line, as in the list.",
);

export const showRequest = operation({
  route: "GET /requests/:id",
  permission: "requests:read",
  summary: "Explain one request: tokens, prices, hold, charge, route, attempts and times",
  answer: { status: 200, description: "The request.", schema: (s) => s.RequestDetail },
  async handle(services, { who, may, params }) {
    const request = await found(services.requests.find(params.id));
    requireOwn(who, request.organization_id);
    if (may("upstreams:read")) return request;
    return { ...request, provider_response_id: null, provider_cost: null };
  },
});

export const showConversation = operation({
  route: "GET /requests/:id/conversation",
  permission: "conversations:read",
  summary: "Show a stored conversation; the audit log records who reads it",
  answer: { status: 200, description: "The conversation.", schema: (s) => s.Conversation },
  async handle(services, { params }) {
    const { organization_id: organizationId, id: subjectId } = await found(services.requests.find(params.id));
    const conversation = await services.conversations.find(organizationId, subjectId);
    if (conversation === undefined) throw new ApiError("not_found", "No conversation is stored for this request.");
    await services.audit.record(services.actor, { action: "conversation.read", organizationId, subjectId });
    return conversation;
  },
});
