import { expect, test } from "vitest";
import { costLines } from "./costs.tsx";

test("Each class with tokens has a line with its price.", () => {
  const tokens = { input: 1000, cached_input: 0, cache_write: 0, output: 50, reasoning: 10 };
  const prices = { input: 0.25, cached_input: 0.025, cache_write: 0.3, output: 2, reasoning: 4 };
  expect(costLines(tokens, prices)).toEqual([
    { name: "Input", count: 1000, price: 0.25, cost: 0.00025 },
    { name: "Output", count: 50, price: 2, cost: 0.0001 },
    { name: "Reasoning", count: 10, price: 4, cost: 0.00004 },
  ]);
});
