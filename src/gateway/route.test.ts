import { expect, test } from "vitest";
import { FREE } from "../credits/price.ts";
import { inOrder } from "./route.ts";

const routeOf = (model: string, weight?: number) => ({
  providerId: "up",
  model,
  prices: FREE,
  ...(weight !== undefined && { weight }),
});

/** Numbers from 0 up to 1, the same every time: a linear congruential generator (Numerical Recipes). */
function seeded(): () => number {
  let state = 4711;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

test("routes without weights keep their order", () => {
  const routes = [routeOf("a"), routeOf("b"), routeOf("c")];
  const never = () => {
    throw new Error("Nothing is left to chance here");
  };
  expect(inOrder(routes, never)).toBe(routes);
});

test("each route comes first as often as its weight says, and none is left out", () => {
  const routes = [routeOf("a", 70), routeOf("b", 20), routeOf("c", 10)];
  const random = seeded();
  const first = new Map<string, number>();
  for (let count = 0; count < 20_000; count += 1) {
    const order = inOrder(routes, random).map(({ model }) => model);
    expect(order.toSorted()).toEqual(["a", "b", "c"]);
    first.set(order[0] ?? "", (first.get(order[0] ?? "") ?? 0) + 1);
  }
  expect((first.get("a") ?? 0) / 20_000).toBeCloseTo(0.7, 1);
  expect((first.get("b") ?? 0) / 20_000).toBeCloseTo(0.2, 1);
  expect((first.get("c") ?? 0) / 20_000).toBeCloseTo(0.1, 1);
});
