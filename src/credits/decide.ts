import { credit, grant, redeem, revoke } from "./adjustments.ts";
import { type Account, type BookRows, openAccounts, writesOf } from "./batch.ts";
import type { Transition } from "./books.ts";
import type { HoldFacts } from "./facts.ts";
import { applyDue } from "./funds.ts";
import { expireHold, makeHold, releaseHold, renewHold, settleHold } from "./holds.ts";
import { organizationIdOf } from "./names.ts";
import type { Outcome } from "./outcomes.ts";
import { bookPayment } from "./payments.ts";
import { beganBefore } from "./request-id.ts";
import { creditsLeft, warnOfCredits } from "./warnings.ts";

/**
 * Decides a batch: takes its rows, read under the locks of its balances, and its transitions in their order of arrival;
 * returns an outcome for each, in their order, and the rows to write in their last state. Pure: the rows are not changed.
 * Throws for an amount below 0, for a count of tokens that is not a natural number, and for inconsistent rows; the caller must
 * then book nothing.
 */
export function decide(rows: BookRows, transitions: readonly Transition[]) {
  const accounts = openAccounts(rows);
  for (const account of accounts.values()) warningOfLess(account, () => applyDue(account));
  const outcomes = transitions.map((transition): Outcome => {
    const account = accounts.get(organizationIdOf(transition));
    if (account === undefined) return { outcome: "unknown_organization" };
    return warningOfLess(account, () => decideKnown(account, transition), "isClosing" in transition);
  });
  return { outcomes, writes: writesOf(accounts.values()) };
}

/** Runs a change of an account, and warns if fewer credits are left after it, unless it is silent. */
function warningOfLess<Result>(account: Account, change: () => Result, isSilent = false): Result {
  const left = creditsLeft(account.balance);
  const result = change();
  if (!isSilent && creditsLeft(account.balance) < left) warnOfCredits(account, account.balance);
  return result;
}

function decideKnown(account: Account, transition: Transition): Outcome {
  switch (transition.kind) {
    case "hold":
      assertOpenPeriod(account, transition.facts);
      return makeHold(account, transition);
    case "renew":
      assertOpenPeriod(account, transition.facts);
      return renewHold(account, transition);
    case "settle":
      return closedFor(account, transition.facts) ?? settleHold(account, transition);
    case "release":
      return closedFor(account, transition.facts) ?? releaseHold(account, transition);
    case "expire":
      return expireHold(account, transition);
    case "grant":
      return grant(account, transition);
    case "revoke":
      return revoke(account, transition);
    case "credit":
      return credit(account, transition);
    case "payment":
      return bookPayment(account, transition);
    case "redeem":
      return redeem(account, transition);
    case "refresh":
      return { outcome: "refreshed", balance: { ...account.balance } };
  }
}

/** The row of a closed request may have been removed, so its absence does not show that it never ended. */
function closedFor({ balance }: Account, { holdId }: HoldFacts): { outcome: "closed"; beforeMs: number } | undefined {
  const beforeMs = balance.closedBeforeMs;
  return beganBefore(holdId, beforeMs) ? { outcome: "closed", beforeMs } : undefined;
}

/** No period with an open hold is closed, so such a hold or renewal has the id of another time. */
function assertOpenPeriod(account: Account, facts: HoldFacts): void {
  if (closedFor(account, facts) !== undefined)
    throw new Error(`the request ${facts.holdId} belongs to a closed period`);
}
