const BUCKETS_PER_DOUBLING = 4;
const BOUND_MS_MAX = 2 ** 24;

/** Bucket bounds in milliseconds, four per doubling. The number of a bucket is that of the bounds up to the time. */
export const LATENCY_BOUNDS_MS: readonly number[] = bounds();

function bounds(): number[] {
  const found: number[] = [];
  for (let step = 0; ; step += 1) {
    const bound = Math.round(2 ** (step / BUCKETS_PER_DOUBLING));
    if (bound > BOUND_MS_MAX) return found;
    if (bound !== found.at(-1)) found.push(bound);
  }
}

/** Returns the time that represents a bucket: its geometric middle. */
export function timeOfBucket(bucket: number): number {
  const below = LATENCY_BOUNDS_MS[bucket - 1];
  const above = LATENCY_BOUNDS_MS[bucket];
  if (below === undefined) return 0;
  return Math.round(above === undefined ? below : Math.sqrt(below * above));
}

/** Numbers of requests by bucket. */
export type Histogram = Record<number, number>;

/** Adds the counts of a histogram to another, in place. */
export function addHistogram(into: Histogram, more: Histogram): void {
  for (const [bucket, count] of Object.entries(more)) into[Number(bucket)] = (into[Number(bucket)] ?? 0) + count;
}

/** Returns the median and the 95th percentile of histograms together; null without requests. */
export function quantilesOf(histograms: readonly Histogram[]): { p50: number; p95: number } | null {
  const sum: Histogram = {};
  for (const histogram of histograms) addHistogram(sum, histogram);
  const total = Object.values(sum).reduce((before, count) => before + count, 0);
  const quantile = (share: number) => {
    let missing = share * total;
    // Objects list integer keys in ascending order.
    const found = Object.entries(sum).find(([, count]) => {
      missing -= count;
      return missing <= 0;
    });
    return timeOfBucket(Number(found?.[0]));
  };
  return total === 0 ? null : { p50: quantile(0.5), p95: quantile(0.95) };
}
