import type { Books } from "../stores/queries/books.ts";
import type { Violation } from "../stores/queries/verify.ts";

const VIOLATIONS_REPORTED_MAX = 100;

export interface Verification {
  ok: boolean;
  organizations: number;
  holds: number;
  events: number;
  /** The first violations found, at most 100. */
  violations: Violation[];
}

/** Verifies the books of the organizations one after another, each in a snapshot of its own. */
export async function verifyBooks(
  books: Pick<Books, "verify" | "verifyOwners">,
  organizationIds: AsyncIterable<string>,
): Promise<Verification> {
  const verification: Verification = { ok: true, organizations: 0, holds: 0, events: 0, violations: [] };
  for await (const organizationId of organizationIds) {
    const { holds, events, violations } = await books.verify(organizationId);
    verification.organizations += 1;
    verification.holds += holds;
    verification.events += events;
    if (violations.length > 0) verification.ok = false;
    const room = VIOLATIONS_REPORTED_MAX - verification.violations.length;
    verification.violations.push(...violations.slice(0, room));
  }
  const orphans = await books.verifyOwners();
  if (orphans.length > 0) verification.ok = false;
  verification.violations.push(...orphans.slice(0, VIOLATIONS_REPORTED_MAX - verification.violations.length));
  return verification;
}
