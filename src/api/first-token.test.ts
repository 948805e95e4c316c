import { expect, test } from "vitest";
import { FIRST_TOKEN_BOUNDS_MS, quantileOf, timeOfBucket } from "./first-token.ts";

/** Returns the bucket of a time like the stores. */
function bucketOf(timeMs: number): number {
  const bucket = FIRST_TOKEN_BOUNDS_MS.findIndex((bound) => timeMs < bound);
  return bucket === -1 ? FIRST_TOKEN_BOUNDS_MS.length : bucket;
}

test("The value of a bucket is within 10 % of its times.", () => {
  expect(timeOfBucket(bucketOf(0))).toBe(0);
  for (let timeMs = 20; timeMs < 500_000; timeMs += 1 + Math.floor(timeMs / 50)) {
    const value = timeOfBucket(bucketOf(timeMs));
    expect([timeMs, Math.abs(value - timeMs) / timeMs < 0.1]).toEqual([timeMs, true]);
  }
  expect(timeOfBucket(bucketOf(10_000_000))).toBeGreaterThan(500_000);
});

test("Quantiles are within 10 % of those of the times.", () => {
  const times = Array.from({ length: 1000 }, (_, index) => 10 + index * 7);
  const counts = new Map<number, number>();
  for (const timeMs of times) counts.set(bucketOf(timeMs), (counts.get(bucketOf(timeMs)) ?? 0) + 1);
  for (const share of [0.5, 0.95, 1]) {
    const exact = times[Math.ceil(share * times.length) - 1] ?? 0;
    expect(Math.abs((quantileOf(counts, share) ?? 0) - exact) / exact).toBeLessThan(0.1);
  }
  expect(quantileOf(new Map(), 0.5)).toBeNull();
});
