import { ArrowUp, ListTree } from "lucide-react";
import { useState } from "react";
import { Link, useLocation, useRoute, useSearch } from "wouter";
import { useList, useParts } from "../../api/queries.ts";
import type { RequestSummary } from "../../api/types.ts";
import { countOf, formatCount } from "../../format/numbers.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { Segments } from "../../ui/field.tsx";
import { Listing } from "../../ui/listing.tsx";
import { Card, Page } from "../../ui/page.tsx";
import { Empty, QueryFailure } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { useNow } from "../../ui/values.tsx";
import { Choice, ExportLinks, useFilters } from "../filters.tsx";
import { ColumnChoice, useColumns } from "./columns.tsx";
import { ClearFilters, Filters, isFiltered } from "./filters.tsx";
import { Groups } from "./groups.tsx";
import { RequestPanel } from "./panel.tsx";
import { GROUPINGS, groupingOf, ranked, SORTS, sortOf, VIEW_NAMES, type View, wireFilterOf } from "./view.ts";

type Pace = "live" | "paused";

/** Requests, including refused ones: the newest, the highest by a value, or added up by group. */
export default function Requests() {
  const [view, setView] = useFilters(VIEW_NAMES);
  const [pace, setPace] = useState<Pace>("live");
  const columns = useColumns();
  const filter = wireFilterOf(view, useNow());
  const [by, sort] = [groupingOf(view.by), sortOf(view.sort)];
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
      <Filters view={view} onView={setView} />
      <div className="toolbar">
        <Order view={view} onView={setView} />
        {by === undefined && <ColumnChoice {...columns} />}
        <ExportLinks path="/admin/v1/requests" filter={filter} />
        <ClearFilters view={view} onView={setView} />
      </div>
      {by !== undefined && <Groups view={view} by={by} filter={filter} />}
      {by === undefined && sort !== undefined && <Ranked sort={sort} filter={filter} columns={columns.columns} />}
      {by === undefined && sort === undefined && (
        <Newest view={view} filter={filter} columns={columns.columns} isLive={pace === "live"} />
      )}
      <OpenRequest />
    </Page>
  );
}

/** Choices of grouping and order. */
function Order({ view, onView }: { view: View; onView: (changes: Partial<View>) => void }) {
  const { isServiceWide } = useAccess();
  const groupings = GROUPINGS.filter(([by]) => isServiceWide || by !== "organization");
  return (
    <>
      <Choice label="Group" all="No groups" value={view.by} options={groupings} onValue={(by) => onView({ by })} />
      {groupingOf(view.by) === undefined && (
        <Choice
          label="Sort"
          all="Newest first"
          value={view.sort}
          options={SORTS}
          onValue={(sort) => onView({ sort })}
        />
      )}
    </>
  );
}

interface ListProps {
  filter: Record<string, string>;
  columns: readonly Column<RequestSummary>[];
}

function Newest({ view, filter, columns, isLive }: ListProps & { view: View; isLive: boolean }) {
  const list = useList<RequestSummary>("requests", "/admin/v1/requests", filter, { isLive });
  const { rows, fresh, showFresh } = useHeldBack(list, JSON.stringify(view));
  return (
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
          columns={columns}
          keyOf={({ id }) => id}
          skeletonRows={12}
          empty={<NoRequests isFiltered={isFiltered(view)} hasMore={list.hasNextPage} />}
        />
      </div>
    </Card>
  );
}

const RANKED_MAX = 200;

/** The ended requests of the period with the highest values. */
function Ranked({ sort, filter, columns }: ListProps & { sort: NonNullable<ReturnType<typeof sortOf>> }) {
  const wire = { ...filter, sort, limit: String(RANKED_MAX) };
  const parts = useParts<RequestSummary>("/admin/v1/requests", wire);
  const rows = parts.rows && ranked(parts.rows, sort, RANKED_MAX);
  return (
    <Card flush>
      <QueryFailure query={parts} />
      {(rows !== undefined || !parts.isError) && (
        <Table
          caption="Requests"
          columns={columns}
          rows={rows}
          keyOf={({ id }) => id}
          skeletonRows={12}
          empty={parts.isComplete ? <NoRequests isFiltered hasMore={false} /> : null}
        />
      )}
      <p className="more small faint" role="status">
        {parts.isComplete ? rankedLabel(rows?.length ?? 0) : "Searching …"}
      </p>
    </Card>
  );
}

function rankedLabel(count: number): string {
  return count === RANKED_MAX ? `Top ${RANKED_MAX} ended requests` : countOf(count, "ended request");
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
