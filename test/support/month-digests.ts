import type { Store } from "../../src/stores/store.ts";

/** Stores the digests of all months of an organization that are over, reading so many rows at once. */
export async function storeDigests({ monthDigests }: Store, organizationId: string, limit = 500): Promise<void> {
  for (;;) {
    const next = await monthDigests.next(organizationId);
    if (next === undefined || !next.isOver) return;
    const hash = monthDigests.begin(organizationId, next);
    while (!(await monthDigests.add(hash, limit)));
    await monthDigests.store(hash);
  }
}
