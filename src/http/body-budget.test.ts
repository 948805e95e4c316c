import { expect, test } from "vitest";
import { ANONYMOUS, BodyBudget } from "./body-budget.ts";

test("all bodies together hold at most the budget, and one organization half of it", () => {
  const budget = new BodyBudget(1_000);
  const [first, second] = [budget.reserve("org_1"), budget.reserve("org_1")];
  expect([first.add(300), second.add(200), second.add(1)]).toEqual([true, true, false]);
  const other = budget.reserve("org_2");
  expect([other.add(500), budget.reserve("org_3").add(1)]).toEqual([true, false]);
  other.release();
  other.release();
  expect(budget.usedBytes).toBe(500);
  expect([second.add(1), budget.reserve("org_3").add(500)]).toEqual([false, true]);
  first.release();
  expect(second.add(300)).toBe(true);
});

test("callers that are not known yet hold a sixteenth together", () => {
  const budget = new BodyBudget(1_600);
  const [first, second] = [budget.reserve(ANONYMOUS), budget.reserve(ANONYMOUS)];
  expect([first.add(60), second.add(40), second.add(1), budget.reserve("org_1").add(800)]).toEqual([
    true,
    true,
    false,
    true,
  ]);
  first.release();
  second.release();
  expect(budget.usedBytes).toBe(800);
});
