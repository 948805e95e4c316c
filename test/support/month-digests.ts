import type { StatementTerms } from "../../src/stores/queries/monthly-statements.ts";
import type { Store } from "../../src/stores/store.ts";

/** Terms of the statements. */
export const STATEMENT_TERMS: StatementTerms = { numberPrefix: "ST-", letterhead: {} };

/** Stores the digests and the statements of the first months of an organization that are over, by default of all; reads `limit` rows at once. */
export async function storeDigests(
  { monthDigests }: Store,
  organizationId: string,
  limit = 500,
  months = Number.POSITIVE_INFINITY,
  terms = STATEMENT_TERMS,
): Promise<void> {
  for (let stored = 0; stored < months; stored += 1) {
    const next = await monthDigests.next(organizationId);
    if (next === undefined || !next.isOver) return;
    const hash = monthDigests.begin(organizationId, next);
    while (!(await monthDigests.add(hash, limit)));
    await monthDigests.store(hash, terms);
  }
}

/** Returns the ids of the organizations that may have a month without a digest. */
export async function organizationsDue({ organizations }: Pick<Store["monthDigests"], "organizations">) {
  const ids: string[] = [];
  for await (const id of organizations()) ids.push(id);
  return ids;
}
