import type { Latencies, Overview } from "../../api/types.ts";
import { modelColors } from "../../charts/model-color.tsx";
import type { Column, Series } from "../../charts/scales.ts";
import { formatCredits } from "../../format/numbers.ts";
import { formatDay } from "../../format/times.ts";

const SHOWN_MODELS = 7;
const OTHER = "Other models";
const OTHER_COLOR = "var(--series-other)";

/** Spend per day by model. The models with the lowest spend are grouped as one series. */
export function spendByModel({ days, top_models }: Overview): { series: Series[]; columns: Column[] } {
  const all = new Map<string, number>();
  for (const { models } of days) {
    for (const { model, spent } of models) all.set(model, (all.get(model) ?? 0) + spent);
  }
  const ranks = new Map(top_models.map(({ model }, index) => [model, index]));
  const byCost = [...all].sort(
    ([a, spentA], [b, spentB]) => spentB - spentA || (ranks.get(a) ?? ranks.size) - (ranks.get(b) ?? ranks.size),
  );
  const named = byCost
    .slice(0, byCost.length > SHOWN_MODELS + 1 ? SHOWN_MODELS : SHOWN_MODELS + 1)
    .map(([model]) => model);
  const hasOther = byCost.length > named.length;
  // With those of the ranking, which has the same colors.
  const colorOf = modelColors([...ranks.keys(), ...named]);
  const own = named.map((name) => ({ name, color: colorOf(name) }));
  const series = hasOther ? [...own, { name: OTHER, color: OTHER_COLOR }] : own;
  const columns = days.map(({ day, models }) => {
    const spent = new Map(models.map((one) => [one.model, one.spent]));
    const rest = models.filter(({ model }) => !named.includes(model)).reduce((sum, one) => sum + one.spent, 0);
    const values = named.map((model) => spent.get(model) ?? 0);
    return { key: day, label: formatDay(day), values: hasOther ? [...values, rest] : values };
  });
  return { series, columns };
}

const OUTCOMES: readonly Series[] = [
  { name: "Succeeded", color: "var(--series-1)" },
  { name: "Failed", color: "var(--series-2)" },
];

/** Requests of a model per day. Those that were refused are known of all models together only. */
export function outcomesOfModel({ days }: Overview, id: string): { series: Series[]; columns: Column[] } {
  const columns = days.map(({ day, models }) => {
    const { requests, errors } = models.find(({ model }) => model === id) ?? { requests: 0, errors: 0 };
    return { key: day, label: formatDay(day), values: [requests - errors, errors] };
  });
  return { series: [...OUTCOMES], columns };
}

export function requestsByOutcome({ days }: Overview): { series: Series[]; columns: Column[] } {
  return {
    series: [...OUTCOMES, { name: "Refused", color: "var(--series-3)" }],
    columns: days.map(({ day, requests, errors, refused }) => ({
      key: day,
      label: formatDay(day),
      values: [requests - errors, errors, refused],
    })),
  };
}

/** Median and 95th percentile of a time per day. */
export function timesPerDay<Name extends "first_token_ms" | "duration_ms">(
  days: readonly Pick<Latencies["data"][number]["days"][number], "day" | Name>[],
  name: Name,
): { series: Series[]; columns: Column[] } {
  return {
    series: [
      { name: "Median", color: "var(--series-1)" },
      { name: "p95", color: "var(--series-2)" },
    ],
    columns: days.map((one) => ({
      key: one.day,
      label: formatDay(one.day),
      values: [one[name]?.p50 ?? null, one[name]?.p95 ?? null],
    })),
  };
}

/** Formats what providers reported as their cost, and the charges it covers; null for members, and if none was reported. */
export function reportedCost({ provider_cost: cost }: Pick<Overview["totals"], "provider_cost">) {
  if (cost === null || (cost.amount === "0" && cost.spent === 0)) return null;
  return { amount: formatCredits(Number(cost.amount)), spent: formatCredits(cost.spent) };
}
