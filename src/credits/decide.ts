import { credit, grant, revoke } from "./adjustments.ts";
import { type Batch, type BookRows, type Decision, fundsOf, openBatch, writesOf } from "./batch.ts";
import type { Outcome, Transition } from "./books.ts";
import { expire, hold, release, renew, settle } from "./holds.ts";

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
  switch (transition.kind) {
    case "hold":
      return hold(batch, funds, transition);
    case "renew":
      return renew(batch, funds, transition);
    case "settle":
      return settle(batch, funds, transition);
    case "release":
      return release(batch, funds, transition);
    case "expire":
      return expire(batch, funds, transition);
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
