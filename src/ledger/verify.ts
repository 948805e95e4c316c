import type { Books } from "../stores/queries/books.ts";
import type { Violation } from "../stores/queries/verify.ts";

const VIOLATIONS_REPORTED_MAX = 100;
/** For a sweep that finds a hold, one that ends it, and one that was late. */
const SWEEPS_AWAITED = 3;
const SLACK_SECONDS_MIN = 30;

/** Settings on which it depends how long a hold stays open that is no longer renewed. */
export interface HoldTimes {
  holdSeconds: number;
  sweepSeconds: number;
  recoverySeconds: number;
}

/**
 * Returns the time after its expiry, in milliseconds, within which a service ends a hold. It waits for the recovery time, and
 * until it has seen the hold unchanged for one life.
 */
export function holdEndsWithinMs({ holdSeconds, sweepSeconds, recoverySeconds }: HoldTimes): number {
  const slackSeconds = Math.max(SLACK_SECONDS_MIN, SWEEPS_AWAITED * sweepSeconds);
  return (Math.max(holdSeconds, recoverySeconds) + slackSeconds) * 1_000;
}

export interface Verification {
  ok: boolean;
  organizations: number;
  holds: number;
  events: number;
  /** The first violations found, at most 100. */
  violations: Violation[];
}

/**
 * Verifies the books of the organizations one after another, each in a snapshot of its own. A hold that stays open longer than
 * `endsWithinMs` after its expiry is a violation; undefined: by the default configuration.
 */
export async function verifyBooks(
  books: Pick<Books, "verify" | "verifyOwners">,
  organizationIds: AsyncIterable<string>,
  endsWithinMs: number | undefined,
): Promise<Verification> {
  const verification: Verification = { ok: true, organizations: 0, holds: 0, events: 0, violations: [] };
  for await (const organizationId of organizationIds) {
    const { holds, events, violations } = await books.verify(organizationId, endsWithinMs);
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
