import fc from "fast-check";
import { expect, test } from "vitest";
import { FairBudget } from "./fair-budget.ts";

test("One owner takes half of a budget at most, and all together no more than the whole.", () => {
  const owner = fc.constantFrom("a", "b", "c");
  const step = fc.record({ owner, amount: fc.integer({ min: 1, max: 60 }), takes: fc.boolean() });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const budget = new FairBudget(100);
      const held = new Map<string, number>();
      const sum = () => [...held.values()].reduce((total, amount) => total + amount, 0);
      for (const one of steps) {
        const before = held.get(one.owner) ?? 0;
        if (one.takes) {
          const fits = before + one.amount <= 50 && sum() + one.amount <= 100;
          expect(budget.take(one.owner, one.amount)).toBe(fits);
          if (fits) held.set(one.owner, before + one.amount);
        } else if (before >= one.amount) {
          budget.putBack(one.owner, one.amount);
          held.set(one.owner, before - one.amount);
        }
        expect(budget.used).toBe(sum());
      }
    }),
  );
});

test("An owner can have a smaller share.", () => {
  const budget = new FairBudget(1_600);
  expect([budget.take("a", 100, 1 / 16), budget.take("a", 1, 1 / 16), budget.take("b", 800)]).toEqual([
    true,
    false,
    true,
  ]);
});
