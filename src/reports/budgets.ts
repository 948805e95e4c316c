import type { Budget, BudgetCounter } from "../api/admin/budget.ts";
import type { Principal } from "../api/principal.ts";
import { isoTime } from "../api/time.ts";
import type { UsageReport } from "../api/usage.ts";
import { creditsFromMicro, type MicroCredits, minimum } from "../credits/amount.ts";
import type { BudgetRow, BudgetUseRow } from "../credits/books.ts";
import {
  auditedBudget,
  budgetRest,
  budgetState,
  currentUse,
  hasAmount,
  type SpendingBudget,
  windowAt,
  windowEnd,
} from "../credits/budgets.ts";
import type { BudgetUse } from "../credits/facts.ts";
import type { Store } from "../stores/store.ts";

/**
 * Returns the budgets that cover requests of a caller, and what a request of it can spend at most. A budget for each model or
 * each value of metadata is left out: which counter a request uses is known only when it is sent.
 */
export async function callerBudgets(
  rows: Pick<Store["budgets"], "budgets" | "budgetTime" | "namedUses">,
  { organizationId, callerId }: Pick<Principal, "organizationId" | "callerId">,
  available: MicroCredits,
): Promise<Pick<UsageReport, "budgets" | "creditsSpendable">> {
  const covering = (await rows.budgets(organizationId))
    .filter(hasAmount)
    .filter(({ callerIds, each }) => callerIds?.includes(callerId) !== false && (each === null || each === "token"));
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
      id,
      name,
      window,
      coversAll,
      resetsAt: isoTime(windowEnd(window, windowAtMs)),
      limit: creditsFromMicro(limit),
      spent: creditsFromMicro(spent),
      held: creditsFromMicro(held),
      remaining: creditsFromMicro(budgetRest(state)),
    };
  });
  return { creditsSpendable: creditsFromMicro(spendable), budgets };
}

/** Formats budgets of one organization for the admin API, each with the counter of its current window if all share its amount. */
export async function budgetAnswers(
  budgets: Store["budgets"],
  rows: readonly BudgetRow[],
  isByCallersWord: (row: BudgetRow) => Promise<boolean>,
): Promise<Budget[]> {
  const [{ organizationId } = { organizationId: "" }] = rows;
  const nowMs = await budgets.budgetTime();
  const shared = rows
    .filter(({ each, amount }) => each === null && amount !== null)
    .map((row) => currentUse(row, nowMs));
  const uses = new Map((await budgets.namedUses(organizationId, shared)).map((use) => [use.budgetId, use]));
  const holders = rows.some(({ capOf }) => capOf !== null) ? await budgets.capHolders(organizationId) : new Map();
  const answers: Budget[] = [];
  // One by one: a hundred budgets of one organization must not take all connections of the store.
  for (const row of rows) {
    const { id, each, window, amount, capOf, createdAtMs } = row;
    const counter = () => (hasAmount(row) ? counterAnswer(row, currentUse(row, nowMs), uses.get(id)) : null);
    answers.push({
      object: "budget",
      id,
      organization_id: organizationId,
      ...auditedBudget(row),
      cap_of: capOf && (holders.get(capOf) ?? capOf),
      by_callers_word: await isByCallersWord(row),
      current: each === null ? counter() : null,
      resets_at: amount === null ? null : isoTime(windowEnd(window, windowAt(window, nowMs))),
      created_at: isoTime(createdAtMs),
    });
  }
  return answers;
}

/** Returns a budget without the tokens that a caller does not see; undefined if it covers no others. Null: they see all. */
export function budgetFor(row: BudgetRow, tokens: ReadonlySet<string> | null): BudgetRow | undefined {
  if (tokens === null || row.callerIds === null) return row;
  const callerIds = row.callerIds.filter((id) => tokens.has(id));
  return callerIds.length === 0 ? undefined : { ...row, callerIds };
}

/** Formats a counter of a budget; one without a row has counted nothing. */
export function counterAnswer(budget: SpendingBudget, use: BudgetUse, row: BudgetUseRow | undefined): BudgetCounter {
  const state = budgetState(budget, use, row);
  const { value, window, windowAtMs, limit, spent, held } = state;
  return {
    value: value === "" ? null : value,
    begins_at: window === "lifetime" ? null : isoTime(windowAtMs),
    resets_at: isoTime(windowEnd(window, windowAtMs)),
    limit: creditsFromMicro(limit),
    spent: creditsFromMicro(spent),
    held: creditsFromMicro(held),
    remaining: creditsFromMicro(budgetRest(state)),
  };
}
