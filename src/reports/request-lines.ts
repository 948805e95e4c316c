import type { RequestSummary } from "../api/admin/request.ts";
import { PRICE_CLASSES, TOKEN_CLASSES } from "../api/price-classes.ts";
import { FairTurns } from "../ledger/fair-queue.ts";
import type { RequestFilter } from "../stores/queries/request-filter.ts";
import { exportLines, lineFormats } from "./csv.ts";
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

const FORMATS = lineFormats(COLUMNS, ({ tokens, refusal, metadata, ...values }: RequestSummary) => ({
  ...values,
  ...Object.fromEntries(CLASSES.map((name) => [`${name}_tokens`, tokens[name]])),
  count: refusal?.count ?? 1,
  metadata: metadata === null ? null : JSON.stringify(metadata),
}));

/** Reads the pages of all exports one at a time. */
const turns = new FairTurns(1);

/** Yields the requests that match a filter as lines, the newest first. */
export function requestLines(
  { list }: Pick<Requests, "list">,
  filter: RequestFilter,
  { format, shown }: { format: keyof typeof FORMATS; shown: (request: RequestSummary) => RequestSummary },
): AsyncGenerator<string> {
  return exportLines(FORMATS[format], async (cursor) => {
    const listing: RequestListing = { ...filter, order: "newest", cursor, limit: PAGE_ROWS };
    const page = await turns.run(filter.organizationId ?? "", () => list(listing));
    return { ...page, data: page.data.map(shown) };
  });
}
