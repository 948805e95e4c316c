import { Sigma } from "lucide-react";
import { Link } from "wouter";
import { useParts } from "../../api/queries.ts";
import type { SummedRequests } from "../../api/types.ts";
import { countOf, formatAmount, formatCount } from "../../format/numbers.ts";
import { formatDay, formatHour } from "../../format/times.ts";
import { Card } from "../../ui/page.tsx";
import { Empty, QueryFailure } from "../../ui/states.tsx";
import { type Column, Table } from "../../ui/table.tsx";
import { Credits } from "../../ui/values.tsx";
import { TimeChart } from "./time-chart.tsx";
import { addCredits, GROUPINGS, type Grouping, merged, narrowedTo, requestsPath, type View } from "./view.ts";

interface GroupsProps {
  view: View;
  by: Grouping;
  /** Filters as the API takes them. */
  filter: Record<string, string>;
}

/** Sums of the requests by group. Each group leads to its requests. */
export function Groups({ view, by, filter }: GroupsProps) {
  const wire = { ...filter, by, ...(by === "metadata" && { metadata_key: view.metadata_key }) };
  const isReady = by !== "metadata" || view.metadata_key !== "";
  const parts = useParts<SummedRequests>("/admin/v1/requests/sums", wire, { isEnabled: isReady });
  if (!isReady) {
    return (
      <Card>
        <Empty icon={Sigma} title="No metadata key">
          Enter a metadata key under "More filters", such as "team".
        </Empty>
      </Card>
    );
  }
  const groups = parts.rows && merged(parts.rows, by);
  const isTime = by === "hour" || by === "day";
  const label = GROUPINGS.find(([name]) => name === by)?.[1] ?? "";
  return (
    <Card
      title={`Ended requests ${label.toLowerCase()}`}
      about={<Total groups={groups} by={by} isComplete={parts.isComplete} />}
      flush
    >
      <QueryFailure query={parts} />
      {isTime && groups !== undefined && groups.length > 0 && (
        <div className="card-body">
          <TimeChart groups={groups} by={by} view={view} />
        </div>
      )}
      {(groups !== undefined || !parts.isError) && (
        <Table
          caption={`Requests ${label.toLowerCase()}`}
          columns={columnsOf(groups, by, view)}
          rows={groups}
          keyOf={({ key, is_rest, organization_id }) => JSON.stringify([key, is_rest, organization_id])}
          empty={
            parts.isComplete ? (
              <Empty icon={Sigma} title="No ended requests match">
                Clear filters, or select a longer period.
              </Empty>
            ) : null
          }
        />
      )}
    </Card>
  );
}

/** Sum over all groups. A request counts in each of its budgets, so budgets have none. */
function Total({
  groups,
  by,
  isComplete,
}: {
  groups: SummedRequests[] | undefined;
  by: Grouping;
  isComplete: boolean;
}) {
  if (groups === undefined || !isComplete) return <span role="status">Adding up …</span>;
  if (by === "budget") return <span role="status">A request counts in each budget that covers it.</span>;
  const requests = groups.reduce((sum, group) => sum + group.requests, 0);
  const charged = groups.reduce((sum, group) => addCredits(sum, group.charged), 0);
  return (
    <span role="status" className="figures">
      {`${countOf(requests, "request")}, ${formatAmount(charged)} credits in total`}
    </span>
  );
}

function labelOf({ key, name, is_rest }: SummedRequests, by: Grouping): string {
  if (is_rest) return "All others";
  if (key === null) return "Without a value";
  if (by === "hour") return formatHour(key);
  return by === "day" ? formatDay(key) : (name ?? key);
}

function columnsOf(groups: readonly SummedRequests[] | undefined, by: Grouping, view: View): Column<SummedRequests>[] {
  const most = Math.max(0, ...(groups ?? []).map(({ charged }) => charged));
  return [
    {
      head: "Group",
      cell: (sum) => {
        const narrowed = narrowedTo(sum, by);
        const text = labelOf(sum, by);
        if (narrowed === null) return <span className="faint">{text}</span>;
        return (
          <Link className="row-link wrap-anywhere" href={requestsPath({ ...view, ...narrowed })}>
            {text}
          </Link>
        );
      },
    },
    { head: "Requests", right: true, cell: ({ requests }) => formatCount(requests) },
    { head: "Failed", right: true, cell: ({ failed }) => formatCount(failed) },
    { head: "Input", right: true, cell: ({ input_tokens }) => formatCount(input_tokens) },
    { head: "Output", right: true, cell: ({ output_tokens }) => formatCount(output_tokens) },
    {
      head: "Charged",
      right: true,
      cell: ({ charged }) => (
        <>
          <Credits value={charged} />
          <span className="share">
            <span style={{ width: `${most > 0 ? (charged / most) * 100 : 0}%` }} />
          </span>
        </>
      ),
    },
  ];
}
