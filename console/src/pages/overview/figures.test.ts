import { describe, expect, test } from "vitest";
import type { Overview } from "../../api/types.ts";
import { modelColors } from "../../charts/model-color.tsx";
import { reportedCost, requestsByOutcome, spendByModel, timesPerDay } from "./figures.ts";

const counts = {
  requests: 10,
  errors: 2,
  refused: 3,
  spent: 0,
  input_tokens: 0,
  output_tokens: 0,
  provider_cost: null,
};

function overviewOf(days: Record<string, number>[]): Overview {
  return {
    top_models: [],
    days: days.map((models, index) => ({
      ...counts,
      day: `2026-11-0${index + 1}`,
      first_token_ms: index === 0 ? null : { p50: 100, p95: 300 },
      models: Object.entries(models).map(([model, spent]) => ({ ...counts, model, spent })),
    })),
  } as unknown as Overview;
}

describe("spend by model", () => {
  test("The chart of spend stacks the models of all days, the highest spend first.", () => {
    const { series, columns } = spendByModel(overviewOf([{ cheap: 1 }, { dear: 5, cheap: 2 }]));
    expect(series.map(({ name }) => name)).toEqual(["dear", "cheap"]);
    expect(columns).toEqual([
      { key: "2026-11-01", label: "Nov 1", values: [0, 1] },
      { key: "2026-11-02", label: "Nov 2", values: [5, 2] },
    ]);
  });

  test("The chart of spend groups the models beyond the eighth color, and the total stays the same.", () => {
    const models = Object.fromEntries(Array.from({ length: 12 }, (_, index) => [`m${index}`, 12 - index]));
    const { series, columns } = spendByModel(overviewOf([models]));
    expect(series).toHaveLength(8);
    expect(series.at(-1)).toEqual({ name: "Other models", color: "var(--series-other)" });
    expect(columns[0]?.values.at(-1)).toBe(5 + 4 + 3 + 2 + 1);
  });

  test("A model has the same color in every chart.", () => {
    const colorIn = (models: Record<string, number>) =>
      spendByModel(overviewOf([models])).series.find(({ name }) => name === "gpt-5-mini")?.color;
    expect(colorIn({ "gpt-5-mini": 1, other: 9 })).toBe(colorIn({ "gpt-5-mini": 9 }));
  });

  test("Models with the same usual color have different ones in a chart, as in the ranking.", () => {
    const ids = ["long-reader", "assistant-mini"];
    const overview = {
      ...overviewOf([{ [`${ids[0]}`]: 2, [`${ids[1]}`]: 1 }]),
      top_models: ids.map((model) => ({ model })),
    };
    const colors = spendByModel(overview as Overview).series.map(({ color }) => color);
    expect(colors[0]).not.toBe(colors[1]);
    expect(colors).toEqual(ids.map(modelColors(ids)));
  });

  test("The chart of spend names each of eight models.", () => {
    const models = Object.fromEntries(Array.from({ length: 8 }, (_, index) => [`m${index}`, 8 - index]));
    expect(spendByModel(overviewOf([models])).series.at(-1)?.name).toBe("m7");
  });
});

test("The chart of requests separates succeeded, failed and refused ones.", () => {
  expect(requestsByOutcome(overviewOf([{}])).columns[0]?.values).toEqual([8, 2, 3]);
});

test("A day without measurements is a gap, not a zero.", () => {
  const { columns } = timesPerDay(overviewOf([{}, {}]).days, "first_token_ms");
  expect(columns.map(({ values }) => values)).toEqual([
    [null, null],
    [100, 300],
  ]);
});

test.each([
  [null, null],
  [{ amount: "0", spent: 0 }, null],
  [
    { amount: "0", spent: 1.5 },
    { amount: "0", spent: "1.50" },
  ],
  [
    { amount: "0.0000000375", spent: 0 },
    { amount: "0.0000000375", spent: "0" },
  ],
  [
    { amount: "1234.5678", spent: 2000 },
    { amount: "1,234.57", spent: "2,000.00" },
  ],
])("The provider cost %j is shown as %j.", (cost, shown) => {
  expect(reportedCost({ provider_cost: cost })).toEqual(shown);
});
