import { expect, test } from "vitest";
import { RetryBudget } from "./retry-budget.ts";

const takenOf = (budget: RetryBudget, nowMs: number, tries: number) =>
  Array.from({ length: tries }, () => budget.takes("org", "m", nowMs)).filter(Boolean).length;

test("A quiet organization has a hundred retries for a model in ten seconds.", () => {
  const budget = new RetryBudget();
  budget.count("org", "m", 0);
  expect(takenOf(budget, 0, 1000)).toBe(100);
  expect(takenOf(budget, 9_999, 10)).toBe(0);
  expect(takenOf(budget, 10_000, 1000)).toBe(100);
});

test("A retry budget recovers after the clock is set back.", () => {
  const budget = new RetryBudget();
  expect(takenOf(budget, 86_400_000, 1000)).toBe(100);
  expect(takenOf(budget, 5_000, 1000)).toBe(100);
  expect(takenOf(budget, 15_000, 1000)).toBe(100);
});

test("An organization uses neither the budget of another one nor that of another model.", () => {
  const budget = new RetryBudget();
  expect(takenOf(budget, 0, 1000)).toBe(100);
  expect(budget.takes("org", "m", 0)).toBe(false);
  expect(budget.takes("org", "other", 0)).toBe(true);
  expect(budget.takes("other", "m", 0)).toBe(true);
});

test("A busy organization may retry a fifth of the requests of the last ten seconds.", () => {
  const budget = new RetryBudget();
  for (let count = 0; count < 5_000; count += 1) budget.count("org", "m", count * 2);
  expect(takenOf(budget, 9_999, 5_000)).toBe(1_000);
  expect(takenOf(budget, 15_000, 5_000)).toBe(0);
  expect(takenOf(budget, 30_000, 5_000)).toBe(100);
});
