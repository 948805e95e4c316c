import type { Batch, BookRows } from "./batch.ts";
import type { BudgetUseRow, HoldTransition, Transition } from "./books.ts";
import { counterIdOf, countersIn } from "./budget-uses.ts";
import { type BudgetState, budgetState } from "./budgets.ts";
import type { BudgetUse, RecordedUses } from "./facts.ts";
import { type BudgetUseName, NameMap } from "./names.ts";
import { UNWARNED_USE, warnOfBudget } from "./warnings.ts";

/**
 * Returns the counters that a batch names, each once: those that its new holds will use, and those that its transitions, holds
 * and requests recorded. `rows` are the ones that were read so far.
 */
export function budgetUsesOf(
  rows: Pick<BookRows, "nowMs" | "budgets" | "holds" | "requests">,
  transitions: readonly Transition[],
): BudgetUseName[] {
  const names = new NameMap<BudgetUseName>();
  const texts = new NameMap<true>();
  const add = (organizationId: string, recorded: RecordedUses | undefined) => {
    if (recorded === null || recorded === undefined || texts.has(organizationId, recorded)) return;
    texts.set(organizationId, recorded, true);
    for (const counter of countersIn(recorded)) names.set(organizationId, counter.id, { organizationId, ...counter });
  };
  for (const transition of transitions) {
    if (!("facts" in transition)) continue;
    const { organizationId, budgets } = transition.facts;
    const own = transition.kind === "hold" ? rows.budgets.get(organizationId) : undefined;
    if (transition.kind !== "hold") add(organizationId, budgets);
    else if (own !== undefined) add(organizationId, own.recordFor(transition, rows.nowMs));
  }
  for (const { organizationId, budgets } of rows.holds) add(organizationId, budgets);
  for (const { organizationId, budgets } of rows.requests) add(organizationId, budgets);
  return names.size === 0 ? NO_NAMES : names.values();
}

const NO_NAMES: BudgetUseName[] = [];

/** Returns what a hold records of the budgets that cover it. */
export function recordedUses({ budgets, nowMs }: Batch, hold: HoldTransition): RecordedUses {
  return budgets.get(hold.facts.organizationId)?.recordFor(hold, nowMs) ?? null;
}

/** The counters that a request recorded. */
export interface Recorded {
  organizationId: string;
  budgets?: RecordedUses;
}

/** Returns the states of the counters that a request recorded, without those of deleted budgets. */
export function statesOf(batch: Batch, { organizationId, budgets: recorded }: Recorded): BudgetState[] {
  const budgets = batch.budgets.get(organizationId);
  const states: BudgetState[] = [];
  for (const { id, ...use } of countersIn(recorded)) {
    const budget = budgets?.get(use.budgetId);
    if (budget !== undefined) states.push(budgetState(budget, use, batch.budgetUses.get(organizationId, id)));
  }
  return states;
}

/**
 * Adds amounts to the counters that a request recorded. A counter of a deleted budget is gone, and nothing is counted. An
 * admission and a charge begin a missing counter. A correction does not, because retention removes those of ended windows.
 */
export function countInBudgets(
  batch: Batch,
  { organizationId, budgets }: Recorded,
  { held = 0n, spent = 0n }: Partial<Pick<BudgetUseRow, "held" | "spent">>,
  rows: "new" | "existing",
): void {
  for (const { id, ...use } of countersIn(budgets)) {
    const found = batch.budgetUses.get(organizationId, id);
    const row = found ?? (rows === "new" ? newUse(batch, organizationId, use) : undefined);
    if (row === undefined) continue;
    const counted = { ...row, held: row.held + held, spent: row.spent + spent };
    const budget = spent === 0n ? undefined : batch.budgets.get(organizationId)?.get(use.budgetId);
    const after = budget === undefined ? counted : warnOfBudget(batch, budget, counted);
    batch.budgetUses.set(organizationId, id, after);
  }
}

/** Announces that a request no longer fits into a budget, if that is nearly used. */
export function warnOfUsedBudget(batch: Batch, organizationId: string, use: BudgetUse): void {
  const budget = batch.budgets.get(organizationId)?.get(use.budgetId);
  const id = counterIdOf(use);
  const row = batch.budgetUses.get(organizationId, id);
  if (budget === undefined || row === undefined) return;
  const warned = warnOfBudget(batch, budget, row, true);
  if (warned !== row) batch.budgetUses.set(organizationId, id, warned);
}

function newUse(batch: Batch, organizationId: string, use: BudgetUse): BudgetUseRow | undefined {
  if (batch.budgets.get(organizationId)?.get(use.budgetId) === undefined) return undefined;
  const { budgetId, windowAtMs, value } = use;
  return { organizationId, budgetId, windowAtMs, value, held: 0n, spent: 0n, opening: 0n, raised: 0n, ...UNWARNED_USE };
}
