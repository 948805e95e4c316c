import type { USAGE_COUNTS, USAGE_DAY } from "../stores/schema.ts";
import type { RowOf } from "../stores/table.ts";

/** Sums over requests. */
export type UsageCounts = Pick<RowOf<typeof USAGE_DAY>, keyof typeof USAGE_COUNTS>;

export const NO_USAGE: Readonly<UsageCounts> = {
  requests: 0,
  errors: 0,
  charged: 0n,
  inputTokens: 0,
  outputTokens: 0,
  providerCost: 0n,
  chargedWithCost: 0n,
};

/** Adds counts to others, in place. */
export function addCounts(into: UsageCounts, more: UsageCounts): void {
  into.requests += more.requests;
  into.errors += more.errors;
  into.charged += more.charged;
  into.inputTokens += more.inputTokens;
  into.outputTokens += more.outputTokens;
  into.providerCost += more.providerCost;
  into.chargedWithCost += more.chargedWithCost;
}

/** Adds up counts; rows may have other properties. */
export function sumOf(counts: Iterable<UsageCounts>): UsageCounts {
  const sum = { ...NO_USAGE };
  for (const more of counts) addCounts(sum, more);
  return sum;
}
