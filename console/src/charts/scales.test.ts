import { describe, expect, test } from "vitest";
import { HEIGHT, plotOf } from "./scales.ts";

const column = (key: string, ...values: (number | null)[]) => ({ key, label: key, values });

describe("the plot of a chart", () => {
  test("The plot stacks bars, but not lines.", () => {
    const columns = [column("a", 60, 40), column("b", 10, null)];
    expect(plotOf(columns, "bars", 400).ticks.at(-1)).toBe(100);
    expect(plotOf(columns, "lines", 400).ticks.at(-1)).toBe(60);
  });

  test("The plot starts at zero and stays inside its area.", () => {
    const plot = plotOf([column("a", 3)], "bars", 400);
    expect(plot.y(0)).toBe(plot.bottom);
    expect(plot.y(3)).toBeGreaterThanOrEqual(plot.top);
    expect(plot.bottom).toBeLessThan(HEIGHT);
  });

  test("The axis of a count has whole steps.", () => {
    const ticks = (value: number) => plotOf([column("a", value)], "lines", 400, 1).ticks;
    expect([ticks(0.4), ticks(1), ticks(3), ticks(100)]).toEqual([
      [0, 1],
      [0, 1],
      [0, 1, 2, 3],
      [0, 20, 40, 60, 80, 100],
    ]);
  });

  test("A plot without values has one axis line at zero.", () => {
    const plot = plotOf([column("a", null)], "lines", 400);
    expect(plot.ticks).toEqual([0]);
    expect(plot.y(0)).toBe(plot.bottom);
  });

  test("The plot labels no more columns than fit, and always the last one.", () => {
    const columns = Array.from({ length: 90 }, (_, index) => column(String(index), 1));
    const { labelled } = plotOf(columns, "bars", 360);
    expect(labelled.length).toBeLessThanOrEqual(6);
    expect(labelled.at(-1)?.key).toBe("89");
  });
});
