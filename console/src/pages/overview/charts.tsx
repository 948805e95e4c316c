import { useParts } from "../../api/queries.ts";
import type { Overview, SummedRequests } from "../../api/types.ts";
import { Chart } from "../../charts/chart.tsx";
import { formatCount, formatDuration, formatExactCredits, formatShort } from "../../format/numbers.ts";
import { Card } from "../../ui/page.tsx";
import { QueryFailure, Skeleton } from "../../ui/states.tsx";
import { useRequestsPath } from "../requests/link.tsx";
import { TimeChart } from "../requests/time-chart.tsx";
import { merged, type View } from "../requests/view.ts";
import { requestsByOutcome, spendByModel, timesPerDay } from "./figures.ts";

/** Height of a chart with its legend and table toggle, so that the layout does not shift. */
const PLACE = "16.6rem";

interface ChartsProps {
  figures: Overview | undefined;
  /** The view of the requests that the figures count. */
  view: Partial<View>;
  /** The only day of the period, whose spend is shown by hour. */
  day: string | null;
}

export function Charts({ figures, view, day }: ChartsProps) {
  const toPath = useRequestsPath();
  const pathOf = toPath && ((key: string) => toPath({ ...view, period: `${key}..${key}` }));
  const byCharge = pathOf && ((key: string) => `${pathOf(key)}&sort=charged`);
  const isHourly = day !== null && toPath !== undefined;
  return (
    <>
      <Card title="Spend" about={isHourly ? "Credits per hour" : "Credits per day, by model"}>
        {figures === undefined ? (
          <Skeleton height={PLACE} />
        ) : isHourly ? (
          <HourlySpend view={view} day={day} />
        ) : (
          <Chart
            title="Credits spent per day, by model"
            kind="bars"
            {...spendByModel(figures)}
            format={formatExactCredits}
            formatTick={formatShort}
            withTotal
            pathOf={byCharge}
          />
        )}
      </Card>
      <div className="columns">
        <Card title="Requests" about="Per day, succeeded, failed and refused">
          {figures === undefined ? (
            <Skeleton height={PLACE} />
          ) : (
            <Chart
              title="Requests per day"
              kind="bars"
              {...requestsByOutcome(figures)}
              format={formatCount}
              formatTick={formatShort}
              tickStep={1}
              withTotal
              pathOf={pathOf}
            />
          )}
        </Card>
        <Card title="Time to first token" about="From the start of a request to the first token of its answer">
          {figures === undefined ? (
            <Skeleton height={PLACE} />
          ) : (
            <Chart
              title="Time to first token"
              kind="lines"
              {...timesPerDay(figures.days, "first_token_ms")}
              format={formatDuration}
              formatTick={formatDuration}
              tickStep={1}
              pathOf={pathOf}
            />
          )}
        </Card>
      </div>
    </>
  );
}

const DAY_MS = 86_400_000;

/** Spend of a day by hour, which the list of requests adds up. */
function HourlySpend({ view, day }: { view: Partial<View>; day: string }) {
  const fromMs = Date.parse(`${day}T00:00:00Z`);
  const [from, to] = [fromMs, fromMs + DAY_MS].map((timeMs) => new Date(timeMs).toISOString()) as [string, string];
  const { organization_id } = view;
  const filter = { from, to, by: "hour", ...(organization_id && { organization_id }) };
  const parts = useParts<SummedRequests>("/admin/v1/requests/sums", filter, { refetchMs: 30_000 });
  if (parts.isError) {
    return <QueryFailure query={parts} />;
  }
  if (!parts.isComplete) return <Skeleton height={PLACE} />;
  return <TimeChart groups={merged(parts.rows ?? [], "hour")} by="hour" view={view} firstMs={fromMs} />;
}
