import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { latencies } from "../../api/queries.ts";
import type { Model } from "../../api/types.ts";
import { Chart } from "../../charts/chart.tsx";
import { formatDuration } from "../../format/numbers.ts";
import { QueryFailure, Skeleton } from "../../ui/states.tsx";
import { useNow } from "../../ui/values.tsx";
import { timesPerDay } from "../overview/figures.ts";
import { useRequestsPath } from "../requests/link.tsx";
import { wasCalledThisHour } from "./health.tsx";

const CHARTS = [
  ["Time to first token", "first_token_ms"],
  ["Duration of complete answers", "duration_ms"],
] as const;

/** Times of a model's answers per day, on all routes or on one. */
export function ModelLatency({ model: { id, routes: called } }: { model: Model }) {
  const isPending = wasCalledThisHour(called ?? [], useNow());
  const query = useQuery(latencies(id));
  const [route, setRoute] = useState("");
  const toPath = useRequestsPath();
  const [all, ...routes] = query.data?.data ?? [];
  const days = (routes.find((one) => one.route === route) ?? all)?.days;
  return (
    <section className="stack-small">
      <h3>Latency, last 30 days</h3>
      <p className="small faint">
        Median and 95th percentile of all organizations, within 10%. An hour is included when its requests have ended.
      </p>
      <QueryFailure query={query} />
      {query.isPending && <Skeleton height="40rem" />}
      {all !== undefined && routes.length === 0 && (
        <p className="soft">{isPending ? "Appears after the end of this hour." : "Not measured yet."}</p>
      )}
      {routes.length > 1 && (
        <select aria-label="Route" value={route} onChange={(event) => setRoute(event.target.value)}>
          <option value="">All routes</option>
          {routes.map((one) => (
            <option key={one.route}>{one.route}</option>
          ))}
        </select>
      )}
      {routes.length > 0 &&
        CHARTS.map(([title, name]) => (
          <div key={name} className="stack-small">
            <h4>{title}</h4>
            <Chart
              title={title}
              kind="lines"
              {...timesPerDay(days ?? [], name)}
              format={formatDuration}
              formatTick={formatDuration}
              tickStep={1}
              pathOf={
                toPath &&
                ((day) => toPath({ model: id, period: `${day}..${day}`, ...(route && { route }), sort: "duration" }))
              }
            />
          </div>
        ))}
    </section>
  );
}
