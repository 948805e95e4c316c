import { ArrowUp, ListTree } from "lucide-react";
import { useState } from "react";
import { Link, useLocation, useRoute, useSearch } from "wouter";
import { useList } from "../../api/queries.ts";
import type { RequestSummary } from "../../api/types.ts";
import { formatCount, formatDuration } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Segments } from "../../ui/field.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { Empty } from "../../ui/states.tsx";
import type { Column } from "../../ui/table.tsx";
import { Ago, Credits, useNow } from "../../ui/values.tsx";
import { useFilters } from "../filters.tsx";
import { Filters, fromOf, isFiltered, NAMES } from "./filters.tsx";
import { RequestPanel } from "./panel.tsx";
import { StatusBadge } from "./status.tsx";

type Pace = "live" | "paused";

/** Requests, including refused ones, newest first. */
export default function Requests() {
  const { isServiceWide } = useAccess();
  const [filters, setFilters] = useFilters(NAMES);
  const [pace, setPace] = useState<Pace>("live");
  const { since, ...wire } = filters;
  const from = fromOf(since, useNow());
  const list = useList<RequestSummary>(
    "requests",
    "/admin/v1/requests",
    { ...wire, ...(from !== undefined && { from }) },
    { isLive: pace === "live" },
  );
  const { rows, fresh, showFresh } = useHeldBack(list, JSON.stringify(filters));
  return (
    <Page
      title="Requests"
      about="Requests with their status, cost and duration. Refused requests are sampled and kept for seven days. Prompts and answers are stored only if the operator enables it. Answers to requests with an Idempotency-Key are stored for 24 hours."
      actions={
        <Segments
          label="Auto-refresh every three seconds"
          value={pace}
          options={[
            ["live", "Live"],
            ["paused", "Paused"],
          ]}
          onValue={setPace}
        />
      }
    >
      <Filters values={filters} onValues={setFilters} />
      <Card flush>
        <div className="list">
          {fresh > 0 && (
            <span className="new-rows">
              <Button look="main" icon={ArrowUp} onClick={showFresh}>
                {`${formatCount(fresh)} new`}
              </Button>
            </span>
          )}
          <Listing
            caption="Requests"
            list={{ ...list, rows }}
            columns={columnsOf(isServiceWide)}
            keyOf={({ id }) => id}
            skeletonRows={12}
            empty={<NoRequests isFiltered={isFiltered(filters)} hasMore={list.hasNextPage} />}
          />
        </div>
      </Card>
      <OpenRequest />
    </Page>
  );
}

/**
 * Holds requests back that are newer than those shown, so that no row moves under the pointer. The first requests of an
 * empty list are shown at once. `view` identifies the filters: another view starts with all of its rows.
 */
function useHeldBack(
  { rows, isPlaceholderData }: { rows: RequestSummary[] | undefined; isPlaceholderData: boolean },
  view: string,
) {
  const [shown, setShown] = useState({ view: "", newestId: "" });
  const newestId = rows?.[0]?.id ?? "";
  // Until the rows of another view arrive, those of the view before are shown.
  const isOther = shown.view !== view && !isPlaceholderData;
  if (rows !== undefined && !isPlaceholderData && (isOther || (shown.newestId === "" && newestId !== "")))
    setShown({ view, newestId });
  // IDs are UUIDv7: later requests have higher ones.
  const isFresh = ({ id }: RequestSummary) => !isOther && shown.newestId !== "" && id > shown.newestId;
  return {
    rows: rows?.filter((row) => !isFresh(row)),
    fresh: rows?.filter(isFresh).length ?? 0,
    showFresh: () => setShown({ view, newestId }),
  };
}

function OpenRequest() {
  const [isOpen, params] = useRoute("/requests/:id");
  const [, go] = useLocation();
  const search = useSearch();
  if (!isOpen) return null;
  return <RequestPanel id={params.id} onClose={() => go(search === "" ? "/requests" : `/requests?${search}`)} />;
}

function NoRequests({ isFiltered: isNarrowed, hasMore }: { isFiltered: boolean; hasMore: boolean }) {
  if (hasMore) {
    return (
      <Empty icon={ListTree} title="No matching requests yet">
        Older requests have not been searched yet. Show more to continue.
      </Empty>
    );
  }
  if (isNarrowed) {
    return (
      <Empty icon={ListTree} title="No matching requests">
        Clear filters, or select a longer period.
      </Empty>
    );
  }
  return (
    <Empty icon={ListTree} title="No requests yet">
      Send one with a <Link href="/tokens">token</Link> or from the <Link href="/playground">playground</Link>. It
      appears here while it runs.
    </Empty>
  );
}

function columnsOf(isServiceWide: boolean): Column<RequestSummary>[] {
  const whose: Column<RequestSummary> = {
    head: isServiceWide ? "Organization and token" : "Token",
    cell: ({ organization_name, organization_id, token_name, token_id }) => (
      <span className="cell-two">
        {isServiceWide && <span className="wrap-anywhere">{organization_name ?? organization_id}</span>}
        <span className={isServiceWide ? "small faint wrap-anywhere" : "wrap-anywhere"}>{token_name ?? token_id}</span>
      </span>
    ),
  };
  const cost: Column<RequestSummary> = {
    head: "Provider cost",
    right: true,
    cell: ({ provider_cost }) => <span className="figures">{provider_cost ?? "–"}</span>,
  };
  return [
    { head: "Request", cell: (row) => <RequestLink request={row} /> },
    { head: "Status", cell: (row) => <Outcome request={row} /> },
    whose,
    { head: "Input", right: true, cell: ({ tokens }) => formatCount(inputOf(tokens)) },
    {
      head: "Output",
      right: true,
      cell: ({ tokens }) => formatCount(tokens.output + tokens.reasoning),
    },
    { head: "First token", right: true, cell: ({ first_token_ms }) => durationOf(first_token_ms) },
    { head: "Duration", right: true, cell: ({ duration_ms }) => durationOf(duration_ms) },
    { head: "Charged", right: true, cell: ({ charged }) => <Credits value={charged} /> },
    ...(isServiceWide ? [cost] : []),
  ];
}

const inputOf = ({ input, cached_input, cache_write }: RequestSummary["tokens"]) => input + cached_input + cache_write;
const durationOf = (durationMs: number | null) => (durationMs === null ? "–" : formatDuration(durationMs));

/** Status of a request, with its error code and the number of requests that the row represents. */
function Outcome({ request: { status, failure, refusal } }: { request: RequestSummary }) {
  const repeated = refusal === null || refusal.count === 1 ? "" : ` × ${formatCount(refusal.count)}`;
  return (
    <span className="cell-two" title={refusal?.message}>
      <StatusBadge status={status} />
      {failure !== null && <span className="small faint wrap-anywhere">{`${failure}${repeated}`}</span>}
    </span>
  );
}

function RequestLink({ request: { id, model, refusal, created_at } }: { request: RequestSummary }) {
  const search = useSearch();
  const path = `/requests/${encodeURIComponent(id)}`;
  return (
    <span className="cell-two">
      <Link className="row-link wrap-anywhere" href={search === "" ? path : `${path}?${search}`}>
        {model ?? refusal?.endpoint}
      </Link>
      <span className="small faint">
        <Ago at={created_at} />
      </span>
    </span>
  );
}
