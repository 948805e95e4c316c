import type { MicroCredits } from "./amount.ts";

/** Kinds of totals, in their order. Grants of allowances are summed up apart from others. */
export const TOTALS = ["grant", "allowance", "charge", "revoke", "credit", "lapse"] as const;

/** Sums of the entries of a statement by kind, with the signs of their amounts. */
export type StatementTotals = Record<(typeof TOTALS)[number], MicroCredits>;

export const NO_TOTALS = Object.fromEntries(TOTALS.map((name) => [name, 0n])) as StatementTotals;

/** Returns the change of the balance: the sum of all kinds. */
export function sumOfTotals(totals: StatementTotals): MicroCredits {
  return TOTALS.reduce((sum, name) => sum + totals[name], 0n);
}
