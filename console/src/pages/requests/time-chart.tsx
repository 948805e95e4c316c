import type { SummedRequests } from "../../api/types.ts";
import { Chart } from "../../charts/chart.tsx";
import { formatExactCredits, formatShort } from "../../format/numbers.ts";
import { formatDay, formatHour } from "../../format/times.ts";
import { narrowedTo, requestsPath, type View } from "./view.ts";

const STEPS_SHOWN_MAX = 400;
const STEPS_MS = { hour: 3_600_000, day: 86_400_000 };

interface TimeChartProps {
  /** Sums of hours or days. */
  groups: readonly SummedRequests[];
  by: "hour" | "day";
  view: Partial<View>;
  /** Beginning of the chart; by default that of the first sum. */
  firstMs?: number;
}

/** Charges per hour or day. Each bar leads to its requests, the highest charge first. */
export function TimeChart({ groups, by, view, firstMs }: TimeChartProps) {
  const columns = stepsOf(groups, by, firstMs);
  const pathOf = (key: string) =>
    requestsPath({ ...view, ...narrowedTo({ key, organization_id: null }, by), sort: "charged" });
  return (
    <Chart
      title={`Credits charged per ${by}`}
      kind="bars"
      unit={by}
      series={[{ name: "Charged", color: "var(--series-1)" }]}
      columns={columns}
      format={formatExactCredits}
      formatTick={formatShort}
      pathOf={pathOf}
    />
  );
}

/** Returns the hours or days from the first to the last one with requests, those without requests too. */
function stepsOf(groups: readonly SummedRequests[], by: "hour" | "day", fromMs?: number) {
  const charged = new Map(groups.map(({ key, charged: sum }) => [Date.parse(key ?? ""), sum]));
  const lastMs = Math.max(...charged.keys(), fromMs ?? 0);
  const firstMs = fromMs ?? Math.min(...charged.keys());
  const count = Math.min(STEPS_SHOWN_MAX, (lastMs - firstMs) / STEPS_MS[by] + 1);
  return Array.from({ length: count }, (_, index) => {
    const atMs = lastMs - (count - 1 - index) * STEPS_MS[by];
    const key = new Date(atMs).toISOString();
    const values = [charged.get(atMs) ?? 0];
    if (by === "day") return { key, label: formatDay(key), values };
    const isMidnight = key.endsWith("T00:00:00.000Z");
    return { key, label: formatHour(atMs), tick: isMidnight ? formatDay(key) : key.slice(11, 16), values };
  });
}
