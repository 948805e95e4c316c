import type { RequestSummary } from "../api/admin/request.ts";
import { PRICE_CLASSES, TOKEN_CLASSES } from "../api/price-classes.ts";
import { FairTurns } from "../ledger/fair-queue.ts";
import type { RequestFilter } from "../stores/queries/request-filter.ts";
import { csvRow } from "./csv.ts";
import type { RequestListing, Requests } from "./requests.ts";

/** Requests that are read at once. */
const PAGE_ROWS = 200;

const CLASSES = TOKEN_CLASSES.map((name) => PRICE_CLASSES[name].name);
/** Columns of the CSV format: amounts in credits, times in UTC. */
const COLUMNS = [
  ...["id", "request_id", "created_at", "ended_at", "organization_id", "organization_name", "token_id", "token_name"],
  ...["model", "route", "status", "failure", "count", ...CLASSES.map((name) => `${name}_tokens`), "held", "charged"],
  ...["provider_cost", "first_token_ms", "duration_ms", "is_streamed", "user", "metadata"],
];

/** Formats of an export: what precedes the lines, and a line with its end. */
export const LINE_FORMATS = {
  csv: { head: `${csvRow(COLUMNS)}\n`, line: (request: RequestSummary) => `${csvRow(cellsOf(request))}\n` },
  jsonl: { head: "", line: (request: RequestSummary) => `${JSON.stringify(request)}\n` },
};

function cellsOf(request: RequestSummary): string[] {
  const { tokens, refusal, metadata, ...values } = request;
  const cells: Record<string, unknown> = {
    ...values,
    ...Object.fromEntries(CLASSES.map((name) => [`${name}_tokens`, tokens[name]])),
    count: refusal?.count ?? 1,
    metadata: metadata === null ? null : JSON.stringify(metadata),
  };
  return COLUMNS.map((name) => String(cells[name] ?? ""));
}

/** Reads and formats the pages of all exports one at a time. */
const turns = new FairTurns(1);

/** Yields the requests that match a filter as lines, the newest first. Reads each page when the consumer asks for it. */
export async function* requestLines(
  { list }: Pick<Requests, "list">,
  filter: RequestFilter,
  { format, shown }: { format: keyof typeof LINE_FORMATS; shown: (request: RequestSummary) => RequestSummary },
): AsyncGenerator<string> {
  const { head, line } = LINE_FORMATS[format];
  let cursor: string | null = null;
  let text = head;
  do {
    const listing: RequestListing = { ...filter, order: "newest", cursor, limit: PAGE_ROWS };
    const page: Awaited<ReturnType<typeof list>> = await turns.run(filter.organizationId ?? "", () => list(listing));
    cursor = page.next_cursor;
    text += page.data.map((request) => line(shown(request))).join("");
    yield text;
    text = "";
  } while (cursor !== null);
}
