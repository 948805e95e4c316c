import { ListTree } from "lucide-react";
import { useState } from "react";
import { Link, useLocation, useRoute, useSearch } from "wouter";
import { useList } from "../../api/queries.ts";
import type { RequestSummary } from "../../api/types.ts";
import { formatCount, formatDuration } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
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
        <Listing
          caption="Requests"
          list={list}
          columns={columnsOf(isServiceWide)}
          keyOf={({ id }) => id}
          skeletonRows={12}
          empty={<NoRequests isFiltered={isFiltered(filters)} hasMore={list.hasNextPage} />}
        />
      </Card>
      <OpenRequest />
    </Page>
  );
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
