import { isoTime } from "../api/time.ts";
import { creditsFromMicro, formatCredits } from "../credits/amount.ts";
import { type BudgetState, budgetRest, windowEnd } from "../credits/budgets.ts";
import type { ErrorFields } from "../errors.ts";

/** Share of a budget, in percent, from which answers warn. */
const WARNING_PERCENT = 80n;

/** Returns the headers that tell a caller about the budget with the least left. */
export function budgetHeaders(state: BudgetState | undefined): Record<string, string> {
  if (state === undefined) return {};
  const { limit, spent, held } = state;
  const resetsAt = resetOf(state);
  const percent = limit === 0n ? 100n : ((spent + held) * 100n) / limit;
  return {
    "x-budget-limit": formatCredits(limit),
    "x-budget-remaining": formatCredits(budgetRest(state)),
    ...(resetsAt !== null && { "x-budget-reset": resetsAt }),
    ...(percent >= WARNING_PERCENT && { "x-budget-warning": `${percent}% of the budget is spent or held` }),
  };
}

/** Returns the fields of an error that say which limit refused a request: the credits, or a budget. */
export function limitFields(state: BudgetState | undefined): ErrorFields {
  if (state === undefined) return { limit_source: "organization" };
  if (state.isCap) return { limit_source: "token" };
  const { budgetId: id, name, window, limit } = state;
  return {
    limit_source: "budget",
    budget: { id, name, window, amount: creditsFromMicro(limit) },
    budget_remaining: creditsFromMicro(budgetRest(state)),
    resets_at: resetOf(state),
  };
}

/** Names the credits that do not suffice, as the subject of a sentence. */
export function limitName(state: BudgetState | undefined): string {
  if (state === undefined) return "The organization's credits";
  return state.isCap ? "The credits that the token's cap allows" : `The credits of the budget "${state.name}"`;
}

function resetOf({ window, windowAtMs }: BudgetState): string | null {
  return isoTime(windowEnd(window, windowAtMs));
}
