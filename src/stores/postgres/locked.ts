import type pg from "pg";
import type { Transition } from "../../credits/books.ts";
import { namesOf } from "../../credits/names.ts";
import { query } from "./transact.ts";

const LOCKED = `
  WITH free AS (
    SELECT organization_id FROM balance WHERE organization_id = ANY ($1) ORDER BY organization_id FOR UPDATE SKIP LOCKED
  )
  SELECT organization_id FROM balance
  WHERE organization_id = ANY ($1) AND organization_id NOT IN (SELECT organization_id FROM free)`;

/** Returns the organizations of a batch whose balances another transaction has locked at this moment. */
export async function lockedOrganizations(pool: pg.Pool, transitions: readonly Transition[]): Promise<string[]> {
  const { organizationIds } = namesOf(transitions);
  const { rows } = await query<{ organization_id: string }>(pool, {
    text: LOCKED,
    values: [organizationIds],
    isRepeatable: true,
  });
  return rows.map(({ organization_id: id }) => id);
}
