import type { Overview } from "../../api/types.ts";
import { Chart } from "../../charts/chart.tsx";
import { formatCount, formatDuration, formatExactCredits, formatShort } from "../../format/numbers.ts";
import { Card } from "../../ui/page.tsx";
import { Skeleton } from "../../ui/states.tsx";
import { firstTokenTimes, requestsByOutcome, spendByModel } from "./figures.ts";

/** Height of a chart with its legend and table toggle, so that the layout does not shift. */
const PLACE = "16.6rem";

export function Charts({ figures }: { figures: Overview | undefined }) {
  return (
    <>
      <Card title="Spend" about="Credits per day, by model">
        {figures === undefined ? (
          <Skeleton height={PLACE} />
        ) : (
          <Chart
            title="Credits spent per day, by model"
            kind="bars"
            {...spendByModel(figures)}
            format={formatExactCredits}
            formatTick={formatShort}
            withTotal
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
              {...firstTokenTimes(figures)}
              format={formatDuration}
              formatTick={formatDuration}
              tickStep={1}
            />
          )}
        </Card>
      </div>
    </>
  );
}
