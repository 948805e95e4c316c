import { isoTime } from "../api/time.ts";
import type { UsageReport } from "../api/usage.ts";
import { creditsFromMicro, type MicroCredits, minimum } from "../credits/amount.ts";
import type { BudgetRow } from "../credits/books.ts";
import { budgetRest, budgetState, currentUse, windowEnd } from "../credits/budgets.ts";
import type { BudgetRows } from "../stores/queries/budgets.ts";

interface Caller {
  organizationId: string;
  callerId: string;
}

/**
 * Returns the budgets that cover requests of a caller, and what a request of it can spend at most. A budget for each model or
 * each value of metadata is left out: which counter a request uses is known only when it is sent.
 */
export async function callerBudgets(
  rows: Pick<BudgetRows, "budgets" | "budgetTime" | "namedUses">,
  { organizationId, callerId }: Caller,
  available: MicroCredits,
): Promise<Pick<UsageReport, "budgets" | "creditsSpendable">> {
  const covering = (await rows.budgets(organizationId)).filter(
    ({ callerIds, each }) => callerIds?.includes(callerId) !== false && (each === null || each === "token"),
  );
  const nowMs = covering.length === 0 ? 0 : await rows.budgetTime();
  const useOf = (budget: BudgetRow) => currentUse(budget, nowMs, budget.each === null ? "" : callerId);
  const counted = new Map(
    (await rows.namedUses(organizationId, covering.map(useOf))).map((row) => [row.budgetId, row]),
  );
  let spendable = available;
  const budgets = covering.map((budget) => {
    const state = budgetState(budget, useOf(budget), counted.get(budget.id));
    const coversAll = budget.models === null && budget.metadata === null;
    if (coversAll) spendable = minimum(spendable, budgetRest(state));
    const { budgetId: id, name, window, windowAtMs, limit, spent, held } = state;
    return {
      ...{ id, name, window, coversAll, resetsAt: isoTime(windowEnd(window, windowAtMs)) },
      ...{ limit: creditsFromMicro(limit), spent: creditsFromMicro(spent), held: creditsFromMicro(held) },
      remaining: creditsFromMicro(budgetRest(state)),
    };
  });
  return { creditsSpendable: creditsFromMicro(spendable), budgets };
}
