import type { Books } from "../stores/queries/books.ts";
import type { Violation } from "../stores/queries/verify-report.ts";

const VIOLATIONS_REPORTED_MAX = 1_000;
/** For a sweep that finds a hold, one that ends it, and one that was late. */
const SWEEPS_AWAITED = 3;
const SLACK_SECONDS_MIN = 30;

/** Settings on which it depends how long a hold stays open that is no longer renewed. */
export interface HoldTimes {
  holdSeconds: number;
  sweepSeconds: number;
  recoverySeconds: number;
}

/** Returns the time after its expiry, in milliseconds, within which a service ends a hold. It must see it unchanged for a life. */
export function holdEndsWithinMs({ holdSeconds, sweepSeconds, recoverySeconds }: HoldTimes): number {
  const slackSeconds = Math.max(SLACK_SECONDS_MIN, SWEEPS_AWAITED * sweepSeconds);
  return (Math.max(holdSeconds, recoverySeconds) + slackSeconds) * 1_000;
}

export interface Verification {
  ok: boolean;
  organizations: number;
  holds: number;
  events: number;
  /** The first violations found, at most 1,000. */
  violations: Violation[];
  moreViolations: number;
}

/** Verifies the books of all organizations one after another, then what they share. `endsWithinMs` is that of `Books.verify`. */
export async function verifyBooks(
  books: Pick<Books, "verify" | "verifyStore" | "organizationIds">,
  endsWithinMs: number | undefined,
): Promise<Verification> {
  const found: Verification = { ok: true, organizations: 0, holds: 0, events: 0, violations: [], moreViolations: 0 };
  for await (const organizationId of books.organizationIds()) {
    const { holds, events, violations, more } = await books.verify(organizationId, endsWithinMs);
    found.organizations += 1;
    found.holds += holds;
    found.events += events;
    add(found, violations, more);
  }
  const { list, more } = await books.verifyStore();
  add(found, list, more);
  return found;
}

function add(found: Verification, violations: readonly Violation[], more: number): void {
  const room = VIOLATIONS_REPORTED_MAX - found.violations.length;
  found.violations.push(...violations.slice(0, room));
  found.moreViolations += more + Math.max(0, violations.length - room);
  found.ok &&= violations.length === 0;
}
