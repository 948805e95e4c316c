import { microCreditsOf } from "../../credits/amount.ts";
import type { BalanceRow, BudgetRow, BudgetUse, BudgetUseRow, HoldRow } from "../../credits/books.ts";
import { auditedBudget, windowAt, windowEnd } from "../../credits/budgets.ts";
import { budgetUseId } from "../../credits/names.ts";
import type { TokenRow } from "./accounts.ts";
import { type Records, type ReportViolation, recordedTime } from "./verify-report.ts";

/** The budgets of an organization, and the rows that they are compared with. */
interface CountedRows {
  budgets: readonly BudgetRow[];
  budgetUses: readonly BudgetUseRow[];
  balance: BalanceRow | undefined;
  open: readonly HoldRow[];
  tokens: readonly TokenRow[];
  /** Charges by `budgetUseId`, without those of closed requests. */
  sums: { spentOfUse: ReadonlyMap<string, bigint> };
  closing: { beforeAtMs: number } | undefined;
}

/** Adds an amount to a sum. */
export function addAmount(sums: Map<string, bigint>, id: string, amount: bigint): void {
  sums.set(id, (sums.get(id) ?? 0n) + amount);
}

/** Checks the counters of budgets against the holds and charges that recorded them. */
export function checkBudgets(rows: CountedRows, report: ReportViolation): void {
  const { budgets, budgetUses, balance, open, sums, closing, tokens } = rows;
  const callerOf = new Map(tokens.map(({ id, callerId }) => [id, callerId]));
  const callers = new Set(callerOf.values());
  for (const { id, callerIds, capOf } of budgets) {
    for (const callerId of new Set([...(callerIds ?? []), ...(capOf === null ? [] : [capOf])])) {
      if (!callers.has(callerId)) report(10, `The budget ${id} names the caller ${callerId}, who does not exist.`);
    }
  }
  if (budgets.length > 0 && balance?.budgetVersion === 0) report(16, "The budgets are not in force.");
  const held = new Map<string, bigint>();
  for (const hold of open) for (const use of hold.budgets) addAmount(held, budgetUseId(use), hold.amount);
  const byId = new Map(budgets.map((budget) => [budget.id, budget]));
  const counted = new Set<string>();
  for (const use of budgetUses) {
    const id = budgetUseId(use);
    counted.add(id);
    const budget = byId.get(use.budgetId);
    if (budget === undefined) report(10, `The counter ${id} is of a budget that does not exist.`);
    // The requests of such a window are closed, and retention removes the counter.
    else if (!isRemovable(budget, use, closing?.beforeAtMs ?? 0)) {
      checkUse(budget, use, { held: held.get(id) ?? 0n, spent: sums.spentOfUse.get(id) ?? 0n }, report);
    }
  }
  for (const { budgets: uses, amount, holdId, tokenId } of open) {
    const isMissing = (use: BudgetUse) => byId.has(use.budgetId) && !counted.has(budgetUseId(use));
    if (amount > 0n && uses.some(isMissing)) report(16, "The hold recorded a counter that is missing.", holdId);
    const isOfOthers = (use: BudgetUse) =>
      byId.get(use.budgetId)?.callerIds?.includes(callerOf.get(tokenId) ?? "") === false;
    if (uses.some(isOfOthers)) report(16, "The hold counts in a budget of another caller.", holdId);
  }
}

function isRemovable({ window }: BudgetRow, { windowAtMs }: BudgetUse, closedBeforeMs: number): boolean {
  return (windowEnd(window, windowAtMs) ?? Number.POSITIVE_INFINITY) <= closedBeforeMs;
}

function checkUse(
  budget: BudgetRow,
  use: BudgetUseRow,
  sums: { held: bigint; spent: bigint },
  report: ReportViolation,
): void {
  const id = budgetUseId(use);
  const { windowAtMs, value, held, spent, opening, raised } = use;
  const isOfBudget = windowAt(budget.window, windowAtMs) === windowAtMs && (budget.each === null) === (value === "");
  if (!isOfBudget) report(10, `The counter ${id} is not one of its budget.`);
  if ([held, spent, opening, raised].some((amount) => amount < 0n)) report(6, `The counter ${id} is below 0.`);
  if (held !== sums.held) report(16, `The counter ${id} holds ${held}, but its open holds add up to ${sums.held}.`);
  if (spent !== opening + sums.spent) {
    const charges = `its opening amount and its charges less credits add up to ${opening + sums.spent}`;
    report(16, `The counter ${id} has spent ${spent}, but ${charges}.`);
  }
}

/** Compares a budget with its audit records. That of a cap has those of its tokens, covers one caller, and is not raised. */
export function checkBudgetRecords(budget: BudgetRow, uses: readonly BudgetUseRow[], records: Records): void {
  const { id, createdAtMs, capOf } = budget;
  const what = `budget ${id}`;
  if (capOf !== null) {
    const { amount: _, ...terms } = auditedBudget(budget);
    const selector = { tokens: [capOf], models: null, metadata: null };
    const expected = { name: "Spending cap", selector, each: null, window: "lifetime" };
    const isRaised = uses.some(({ budgetId, raised }) => budgetId === id && raised !== 0n);
    if (isRaised || JSON.stringify(terms) !== JSON.stringify(expected)) {
      records.report(12, `The ${what} is not that of a spending cap.`);
    }
    return;
  }
  const record = records.required("budget.create", what, id, createdAtMs);
  if (record === undefined) return;
  const stored = auditedBudget(budget);
  const changes = records.of("budget.change", id);
  const { name, amount, ...terms } = record.after ?? {};
  records.compare(what, record, stored, terms);
  records.compareTime(what, record, createdAtMs);
  for (const [term, value] of Object.entries({ name, amount })) {
    records.compareChanged(what, changes, stored, term, { record, value });
  }
  const raised = new Map<string, bigint>();
  for (const { after } of records.of("budget.raise", id)) {
    const use = { budgetId: id, windowAtMs: recordedTime(after?.window_at) ?? 0, value: String(after?.value ?? "") };
    addAmount(raised, budgetUseId(use), microCreditsOf(Number(after?.amount)) ?? 0n);
  }
  for (const use of uses) {
    const expected = raised.get(budgetUseId(use)) ?? 0n;
    if (use.budgetId !== id || use.raised === expected) continue;
    records.report(12, `The ${what} is raised by ${use.raised}, but its audit records say ${expected}.`);
  }
}
