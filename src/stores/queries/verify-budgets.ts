import type { BudgetRow, BudgetUseRow } from "../../credits/books.ts";
import { type Counter, counterIdOf, countersIn } from "../../credits/budget-uses.ts";
import { windowAt, windowEnd } from "../../credits/budgets.ts";
import { addAmount, type ChargeSums } from "../../credits/closing.ts";
import type { BudgetUse } from "../../credits/facts.ts";
import { compare, type ReportViolation, type RowsOfTables } from "./verify-report.ts";

/** The budgets of an organization, and the rows that they are compared with. */
interface CountedRows extends RowsOfTables {
  /** Without the charges of closed requests. */
  sums: Pick<ChargeSums, "byUse">;
  closing: { beforeAtMs: number } | undefined;
}

/** Checks the counters of budgets against the holds and charges that recorded them. */
export function checkBudgets(rows: CountedRows, report: ReportViolation): void {
  const { budgets, budgetUses, balances, holds, sums, closing, tokens } = rows;
  const callerOf = new Map(tokens.map(({ id, callerId }) => [id, callerId]));
  const callers = new Set(callerOf.values());
  for (const { id, callerIds, capOf } of budgets) {
    for (const callerId of new Set([...(callerIds ?? []), ...(capOf === null ? [] : [capOf])])) {
      if (!callers.has(callerId)) report(10, `The budget ${id} names the caller ${callerId}, who does not exist.`);
    }
  }
  if (budgets.length > 0 && balances[0]?.budgetVersion === 0) report(16, "The budgets are not in force.");
  const held = new Map<string, bigint>();
  for (const hold of holds) for (const { id } of countersIn(hold.budgets)) addAmount(held, id, hold.amount);
  const byId = new Map(budgets.map((budget) => [budget.id, budget]));
  const counted = new Set<string>();
  for (const use of budgetUses) {
    const id = counterIdOf(use);
    counted.add(id);
    const budget = byId.get(use.budgetId);
    if (budget === undefined) report(10, `The counter ${id} is of a budget that does not exist.`);
    // The requests of such a window are closed, and retention removes the counter.
    else if ((windowEnd(budget.window, use.windowAtMs) ?? Number.POSITIVE_INFINITY) > (closing?.beforeAtMs ?? 0)) {
      checkUse(budget, use, { held: held.get(id) ?? 0n, spent: sums.byUse.get(id)?.spent ?? 0n }, report);
    }
  }
  for (const { budgets: recorded, amount, holdId, tokenId } of holds) {
    const uses = countersIn(recorded);
    const isMissing = ({ id, budgetId }: Counter) => byId.has(budgetId) && !counted.has(id);
    if (amount > 0n && uses.some(isMissing)) report(16, "The hold recorded a counter that is missing.", holdId);
    const isOfOthers = (use: BudgetUse) =>
      byId.get(use.budgetId)?.callerIds?.includes(callerOf.get(tokenId) ?? "") === false;
    if (uses.some(isOfOthers)) report(16, "The hold counts in a budget of another caller.", holdId);
  }
}

function checkUse(
  budget: BudgetRow,
  use: BudgetUseRow,
  sums: { held: bigint; spent: bigint },
  report: ReportViolation,
): void {
  const id = counterIdOf(use);
  const { windowAtMs, value, opening } = use;
  const isOfBudget = windowAt(budget.window, windowAtMs) === windowAtMs && (budget.each === null) === (value === "");
  if (!isOfBudget) report(10, `The counter ${id} is not one of its budget.`);
  compare(report, 16, `counter ${id}`, use, { held: sums.held }, "its open holds add up to");
  const charges = "its opening amount and its charges less credits add up to";
  compare(report, 16, `counter ${id}`, use, { spent: opening + sums.spent }, charges);
}
