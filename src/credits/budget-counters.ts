import { maximum } from "./amount.ts";
import type { Account, BookRows } from "./batch.ts";
import type { BudgetUseRow, Transition } from "./books.ts";
import { counterIdOf, countersIn } from "./budget-uses.ts";
import { type BudgetState, budgetState, METADATA_PREFIX } from "./budgets.ts";
import type { BudgetUse, RecordedUses } from "./facts.ts";
import { type BudgetUseName, type RowName, without } from "./names.ts";
import { UNWARNED_USE, warnOfBudget } from "./warnings.ts";

/**
 * Returns the counters that a batch names, each once: those that its new holds will use, and those that its transitions, holds
 * and requests recorded. `rows` are the ones that were read so far.
 */
export function budgetUsesOf(
  rows: Pick<BookRows, "nowMs" | "budgets" | "holds" | "requests">,
  transitions: readonly Transition[],
): BudgetUseName[] {
  const named: RowName[] = [];
  const add = (organizationId: string, recorded: RecordedUses | undefined) => {
    if (recorded === null || recorded === undefined) return;
    const last = named.at(-1);
    if (last?.id !== recorded || last.organizationId !== organizationId) named.push({ organizationId, id: recorded });
  };
  for (const transition of transitions) {
    if (!("facts" in transition)) continue;
    const { organizationId, budgets } = transition.facts;
    if (transition.kind !== "hold") add(organizationId, budgets);
    else add(organizationId, rows.budgets.get(organizationId)?.recordFor(transition, rows.nowMs));
  }
  for (const { organizationId, budgets } of [...rows.holds, ...rows.requests]) add(organizationId, budgets);
  const counters = without(named, []).flatMap(({ organizationId, id: recorded }) => {
    return countersIn(recorded).map((counter) => ({ organizationId, ...counter }));
  });
  return without(counters, []);
}

/** Returns the states of the counters that a request recorded, without those of deleted budgets. */
export function statesOf({ budgets, budgetUses }: Account, recorded: RecordedUses | undefined): BudgetState[] {
  const states: BudgetState[] = [];
  for (const use of countersIn(recorded)) {
    const budget = budgets?.get(use.budgetId);
    if (budget !== undefined) states.push(budgetState(budget, use, budgetUses.get(use.id)));
  }
  return states;
}

/**
 * Adds amounts to the counters that a request recorded. A counter of a deleted budget is gone, and nothing is counted. An
 * admission and a charge begin a missing counter, which counts nothing of a hold that ends. A correction does not begin one,
 * because retention removes those of ended windows.
 */
export function countInBudgets(
  account: Account,
  recorded: RecordedUses | undefined,
  { held = 0n, spent = 0n }: Partial<Pick<BudgetUseRow, "held" | "spent">>,
  rows: "new" | "existing",
): void {
  const { organizationId, budgets, budgetUses } = account;
  for (const { id, budgetId, windowAtMs, value } of countersIn(recorded)) {
    const budget = budgets?.get(budgetId);
    let row = budgetUses.get(id);
    if (row !== undefined) row.held += held;
    else if (rows === "new" && budget !== undefined) {
      row = { organizationId, budgetId, windowAtMs, value, ...NOTHING_USED, held: maximum(held, 0n) };
      budgetUses.insert(id, row);
    } else continue;
    row.spent += spent;
    if (budget !== undefined && spent !== 0n) warnOfBudget(account, budget, row);
  }
}

const NEW_VALUES_MS = 60_000;

/** Returns the first of a request's counters that would begin with it, because of a value of metadata. */
export function newValueIn(
  { budgets, budgetUses }: Account,
  covering: readonly BudgetState[],
): BudgetState | undefined {
  const isOfMetadata = ({ budgetId }: BudgetState) => budgets?.get(budgetId)?.each?.startsWith(METADATA_PREFIX);
  return covering.find((state) => isOfMetadata(state) && budgetUses.get(counterIdOf(state)) === undefined);
}

/**
 * Counts a request with a new value, so that a caller who states values cannot begin any number of counters. Returns 0, or if
 * the caller has had `most` of them in this minute the time until the next one.
 */
export function countNewValue({ organizationId, nowMs, newValues }: Account, callerId: string, most: number): number {
  const row = newValues.get(callerId);
  const ageMs = nowMs - (row?.beganAtMs ?? 0);
  const running = ageMs >= 0 && ageMs < NEW_VALUES_MS ? row : undefined;
  const { beganAtMs, requests } = running ?? { beganAtMs: nowMs, requests: 0 };
  if (requests >= most) return NEW_VALUES_MS - ageMs;
  newValues.set(callerId, { organizationId, callerId, beganAtMs, requests: requests + 1 });
  return 0;
}

/** The amounts of a new counter. */
const NOTHING_USED = { held: 0n, spent: 0n, opening: 0n, raised: 0n, ...UNWARNED_USE };

/** Announces that a request no longer fits into a budget, if that is nearly used. */
export function warnOfUsedBudget(account: Account, use: BudgetUse): void {
  const { budgets, budgetUses } = account;
  const budget = budgets?.get(use.budgetId);
  const row = budgetUses.get(counterIdOf(use));
  if (budget !== undefined && row !== undefined) warnOfBudget(account, budget, row, true);
}
