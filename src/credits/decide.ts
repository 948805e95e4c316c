import { credit, revoke } from "./adjustments.ts";
import { type Batch, openBatch, purseOf, recordBooking, writesOf } from "./batch.ts";
import type { GrantRow, GrantTransition, Outcome, Outcomes, Transition } from "./books.ts";
import { expire, settle } from "./charges.ts";
import { assertAmount } from "./checks.ts";
import type { BookRows, Decision } from "./decision.ts";
import { hold, release, renew } from "./holds.ts";
import { addGrant, type Purse } from "./purse.ts";

/**
 * Decides a batch: takes the rows that it concerns, read under the locks of its balances, and its transitions in their
 * order of arrival; gives an outcome for each and the rows to write, each in its last state. Pure: the rows are not
 * changed. Throws, and then nothing is to be booked, on an amount below 0, on a count of tokens that is no natural
 * number, and on rows that contradict each other.
 */
export function decide(rows: BookRows, transitions: readonly Transition[]): Decision {
  const batch = openBatch(rows);
  const outcomes = transitions.map((transition) => decideOne(batch, transition));
  return { outcomes, writes: writesOf(batch, rows) };
}

function decideOne(batch: Batch, transition: Transition): Outcome {
  const { organizationId } = "facts" in transition ? transition.facts : transition;
  const purse = purseOf(batch, organizationId);
  if (purse === undefined) return { outcome: "unknown_organization" };
  switch (transition.kind) {
    case "hold":
      return hold(batch, purse, transition);
    case "renew":
      return renew(batch, purse, transition);
    case "settle":
      return settle(batch, purse, transition);
    case "release":
      return release(batch, purse, transition);
    case "expire":
      return expire(batch, purse, transition);
    case "grant":
      return grant(batch, purse, transition);
    case "revoke":
      return revoke(batch, purse, transition);
    case "credit":
      return credit(batch, purse, transition);
    case "refresh":
      return { outcome: "refreshed", balance: { ...purse.balance } };
  }
}

function grant(batch: Batch, purse: Purse, transition: GrantTransition): Outcomes["grant"] {
  assertAmount(transition.amount);
  const { grant, first } = addGrant(purse, transition, batch.nowMs);
  if (!first && !isRepetition(grant, transition)) {
    const { id, amount, effectiveAtMs, expiresAtMs, priority, createdAtMs } = grant;
    return { outcome: "reference_mismatch", first: { id, amount, effectiveAtMs, expiresAtMs, priority, createdAtMs } };
  }
  if (first) recordBooking(batch, transition, grant);
  return { outcome: "granted", grantId: grant.id, balance: { ...purse.balance }, repeated: !first };
}

/** Whether a transition is the one that made the grant, sent again: the same id, or the same reference and terms. */
function isRepetition(grant: GrantRow, transition: GrantTransition): boolean {
  if (grant.id === transition.grantId) return true;
  const { amount, effectiveAtMs, expiresAtMs, priority } = transition;
  // A grant that named no time took effect when it was booked.
  const isSameStart = grant.effectiveAtMs === (effectiveAtMs ?? grant.createdAtMs);
  const isSameEnd = grant.expiresAtMs === expiresAtMs;
  return grant.amount === amount && grant.priority === priority && isSameStart && isSameEnd;
}
