import { requestLines } from "../reports/request-lines.ts";
import { requestFilterOf, shownTo } from "./list-requests.ts";
import { type OperationCall, type OperationServices, operation } from "./operation.ts";

/** Number of exports of an organization's requests, or of those of all, that may run at once in this process. */
const EXPORTS_AT_ONCE_MAX = 2;

export const exportRequests = operation({
  route: "GET /requests.csv",
  permission: "requests:read",
  summary: "Export the requests that match filters as comma-separated values, the newest first",
  query: (s) => s.Strict(s.RequestFilters),
  answer: { status: 200, description: "The lines.", schema: (s) => s.Type.String(), contentType: "text/csv" },
  handle: (services, call) => exported(services, call, "csv"),
});

export const exportRequestLines = operation({
  route: "GET /requests.jsonl",
  permission: "requests:read",
  summary: "Export the requests that match filters as JSON Lines, the newest first",
  query: (s) => s.Strict(s.RequestFilters),
  answer: {
    status: 200,
    description: "A request in each line, as in the list.",
    schema: (s) => s.Type.String(),
    contentType: "application/jsonl",
  },
  handle: (services, call) => exported(services, call, "jsonl"),
});

type ExportCall = OperationCall<Parameters<typeof requestFilterOf>[0]["query"]>;

async function exported(services: OperationServices, call: ExportCall, format: "csv" | "jsonl"): Promise<unknown> {
  const filter = requestFilterOf(call);
  const key = `requests:${filter.organizationId ?? "*"}`;
  const leave = services.gateway.limits.enterExport({ key, limit: EXPORTS_AT_ONCE_MAX });
  try {
    const headers = {
      "content-type": `${format === "csv" ? "text/csv" : "application/jsonl"}; charset=utf-8`,
      "content-disposition": `attachment; filename="requests.${format}"`,
    };
    const text = requestLines(services.requests, filter, { format, shown: (request) => shownTo(call, request) });
    return await call.connection.stream(headers, text);
  } finally {
    leave();
  }
}
