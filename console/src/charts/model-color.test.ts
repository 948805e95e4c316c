import { expect, test } from "vitest";
import { modelColor } from "./model-color.tsx";

test("The color of a model depends on its ID alone, and twelve colors are used evenly.", () => {
  expect([modelColor("gpt-5-mini"), modelColor("sandbox/echo")]).toEqual([
    modelColor("gpt-5-mini"),
    modelColor("sandbox/echo"),
  ]);
  const colors = Array.from({ length: 1200 }, (_, index) => modelColor(`vendor/model-${index}`));
  const counts = [...Map.groupBy(colors, (color) => color).values()].map((of) => of.length);
  expect(counts).toHaveLength(12);
  expect(Math.min(...counts)).toBeGreaterThan(50);
  expect(colors.every((color) => /^var\(--model-([1-9]|1[0-2])\)$/.test(color))).toBe(true);
});
