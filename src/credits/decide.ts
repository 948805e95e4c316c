import { credit, grant, revoke } from "./adjustments.ts";
import { type Batch, type BookRows, type Decision, fundsOf, openBatch, writesOf } from "./batch.ts";
import type { Transition } from "./books.ts";
import type { HoldFacts } from "./facts.ts";
import type { Funds } from "./funds.ts";
import { expireHold, makeHold, releaseHold, renewHold, settleHold } from "./holds.ts";
import type { Outcome } from "./outcomes.ts";
import { beganBefore } from "./request-id.ts";
import { creditsLeft, warnOfCredits } from "./warnings.ts";

/**
 * Decides a batch: takes its rows, read under the locks of its balances, and its transitions in their order of arrival;
 * returns an outcome for each and the rows to write in their last state. Pure: the rows are not changed. Throws for an
 * amount below 0, for a count of tokens that is not a natural number, and for inconsistent rows; the caller must then
 * book nothing.
 */
export function decide(rows: BookRows, transitions: readonly Transition[]): Decision {
  const batch = openBatch(rows);
  const outcomes = transitions.map((transition) => decideOne(batch, transition));
  return { outcomes, writes: writesOf(batch, rows) };
}

function decideOne(batch: Batch, transition: Transition): Outcome {
  const { organizationId } = "facts" in transition ? transition.facts : transition;
  const funds = fundsOf(batch, organizationId);
  if (funds === undefined) return { outcome: "unknown_organization" };
  const left = creditsLeft(funds.balance);
  const outcome = decideKnown(batch, funds, transition);
  if (creditsLeft(funds.balance) < left) warnOfCredits(batch, funds.balance);
  return outcome;
}

function decideKnown(batch: Batch, funds: Funds, transition: Transition): Outcome {
  switch (transition.kind) {
    case "hold":
      assertOpenPeriod(funds, transition.facts);
      return makeHold(batch, funds, transition);
    case "renew":
      assertOpenPeriod(funds, transition.facts);
      return renewHold(batch, funds, transition);
    case "settle":
      return closedFor(funds, transition.facts) ?? settleHold(batch, funds, transition);
    case "release":
      return closedFor(funds, transition.facts) ?? releaseHold(batch, funds, transition);
    case "expire":
      return expireHold(batch, funds, transition);
    case "grant":
      return grant(batch, funds, transition);
    case "revoke":
      return revoke(batch, funds, transition);
    case "credit":
      return credit(batch, funds, transition);
    case "refresh":
      return { outcome: "refreshed", balance: { ...funds.balance } };
  }
}

/** The row of a closed request may have been removed, so its absence does not show that it never ended. */
function closedFor({ balance }: Funds, { holdId }: HoldFacts): { outcome: "closed"; beforeMs: number } | undefined {
  const beforeMs = balance.closedBeforeMs;
  return beganBefore(holdId, beforeMs) ? { outcome: "closed", beforeMs } : undefined;
}

/** No period with an open hold is closed, so such a hold or renewal has the id of another time. */
function assertOpenPeriod(funds: Funds, facts: HoldFacts): void {
  if (closedFor(funds, facts) !== undefined) throw new Error(`the request ${facts.holdId} belongs to a closed period`);
}
