import { expect, test } from "vitest";
import { type Histogram, LATENCY_BOUNDS_MS, quantilesOf, timeOfBucket } from "./latency.ts";

/** Returns the bucket of a time like the stores. */
function bucketOf(timeMs: number): number {
  const bucket = LATENCY_BOUNDS_MS.findIndex((bound) => timeMs < bound);
  return bucket === -1 ? LATENCY_BOUNDS_MS.length : bucket;
}

test("The value of a bucket is within 10 % of its times.", () => {
  expect(timeOfBucket(bucketOf(0))).toBe(0);
  for (let timeMs = 20; timeMs < 4 * 3_600_000; timeMs += 1 + Math.floor(timeMs / 50)) {
    const value = timeOfBucket(bucketOf(timeMs));
    expect([timeMs, Math.abs(value - timeMs) / timeMs < 0.1]).toEqual([timeMs, true]);
  }
  expect(timeOfBucket(bucketOf(100_000_000))).toBeGreaterThan(4 * 3_600_000);
});

test("Quantiles are within 10 % of those of the times.", () => {
  const times = Array.from({ length: 1000 }, (_, index) => 10 + index * 7);
  const counts: Histogram = {};
  for (const timeMs of times) counts[bucketOf(timeMs)] = (counts[bucketOf(timeMs)] ?? 0) + 1;
  const { p50, p95 } = quantilesOf([counts]) ?? { p50: 0, p95: 0 };
  for (const [share, found] of [
    [0.5, p50],
    [0.95, p95],
  ] as const) {
    const exact = times[Math.ceil(share * times.length) - 1] ?? 0;
    expect(Math.abs(found - exact) / exact).toBeLessThan(0.1);
  }
  expect(quantilesOf([])).toBeNull();
});

test("Quantiles of several histograms are those of their sum.", () => {
  const [fast, slow] = [bucketOf(100), bucketOf(9_000)];
  expect(quantilesOf([{ [slow]: 2, [fast]: 8 }, { [fast]: 90 }])).toEqual({
    p50: timeOfBucket(fast),
    p95: timeOfBucket(fast),
  });
  expect(quantilesOf([{ [slow]: 5 }, { [fast]: 5 }])).toEqual({ p50: timeOfBucket(fast), p95: timeOfBucket(slow) });
  expect(quantilesOf([{ [slow]: 0 }, {}])).toBeNull();
});
