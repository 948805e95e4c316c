import { useQuery } from "@tanstack/react-query";
import { overview } from "../../api/queries.ts";
import { Chart } from "../../charts/chart.tsx";
import { formatCount, formatShare } from "../../format/numbers.ts";
import { Facts } from "../../ui/page.tsx";
import { QueryFailure, Skeleton } from "../../ui/states.tsx";
import { Credits } from "../../ui/values.tsx";
import { outcomesOfModel } from "../overview/figures.ts";
import { useRequestsPath } from "../requests/link.tsx";

/** Requests of a model in the last 30 days, of all organizations or of the reader's own, and how many failed. */
export function ModelUsage({ id }: { id: string }) {
  const figures = useQuery(overview({}));
  const toPath = useRequestsPath();
  return (
    <section className="stack-small">
      <h3>Last 30 days</h3>
      <QueryFailure query={figures} />
      {figures.data === undefined ? (
        !figures.isError && <Skeleton height="20rem" />
      ) : (
        <>
          <Facts
            facts={factsOf(figures.data.days.flatMap(({ models }) => models.filter(({ model }) => model === id)))}
          />
          <Chart
            title="Requests per day"
            kind="bars"
            {...outcomesOfModel(figures.data, id)}
            format={formatCount}
            formatTick={formatCount}
            tickStep={1}
            withTotal
            pathOf={toPath && ((day) => toPath({ model: id, period: `${day}..${day}` }))}
          />
        </>
      )}
    </section>
  );
}

function factsOf(days: readonly { requests: number; errors: number; spent: number }[]) {
  const sum = (name: keyof (typeof days)[number]) => days.reduce((total, one) => total + one[name], 0);
  const requests = sum("requests");
  return [
    ["Requests", formatCount(requests)],
    ["Failed", requests === 0 ? "–" : formatShare(sum("errors") / requests)],
    ["Spent", <Credits key="spent" value={sum("spent")} />],
  ] as const;
}
