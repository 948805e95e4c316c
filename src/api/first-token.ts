const STEPS_A_DOUBLING = 4;
const LONGEST_MS = 600_000;

/**
 * The bounds between buckets of the time to the first piece of an answer, in milliseconds: four a doubling, so that what
 * is read off them is right to within a tenth, from 20 ms on. A bucket's number is how many bounds lie at or below the time.
 */
export const FIRST_TOKEN_BOUNDS_MS: readonly number[] = bounds();

function bounds(): number[] {
  const found: number[] = [];
  for (let step = 0; ; step += 1) {
    const bound = Math.round(2 ** (step / STEPS_A_DOUBLING));
    if (bound > LONGEST_MS) return found;
    if (bound !== found.at(-1)) found.push(bound);
  }
}

/** The time that stands for a bucket: the middle of it, on the scale of its bounds. */
export function timeOfBucket(bucket: number): number {
  const below = FIRST_TOKEN_BOUNDS_MS[bucket - 1];
  const above = FIRST_TOKEN_BOUNDS_MS[bucket];
  if (below === undefined) return 0;
  return Math.round(above === undefined ? below : Math.sqrt(below * above));
}

/** The time below which a share of the requests lies (0.5: the median), from how many lie in each bucket; null for none. */
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
