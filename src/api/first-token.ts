const BUCKETS_PER_DOUBLING = 4;
const BOUND_MS_MAX = 600_000;

/**
 * Bucket bounds of the time to the first token, in milliseconds. Four buckets per doubling give values within 10 % from
 * 20 ms on. The number of a bucket is the number of bounds at or below the time.
 */
export const FIRST_TOKEN_BOUNDS_MS: readonly number[] = bounds();

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
  const below = FIRST_TOKEN_BOUNDS_MS[bucket - 1];
  const above = FIRST_TOKEN_BOUNDS_MS[bucket];
  if (below === undefined) return 0;
  return Math.round(above === undefined ? below : Math.sqrt(below * above));
}

/** Returns the quantile of a histogram (share 0.5: the median) from its counts per bucket; null without requests. */
export function quantileOf(counts: ReadonlyMap<number, number>, share: number): number | null {
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let seen = 0;
  for (const bucket of [...counts.keys()].sort((a, b) => a - b)) {
    seen += counts.get(bucket) ?? 0;
    if (seen >= share * total) return timeOfBucket(bucket);
  }
  return null;
}
