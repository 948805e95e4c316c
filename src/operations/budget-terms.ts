import type { Budget, BudgetCounter } from "../api/admin/budget.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import type { BudgetRow, BudgetUseRow } from "../credits/books.ts";
import { auditedBudget, type BudgetState, budgetRest, budgetState, windowAt, windowEnd } from "../credits/budgets.ts";
import type { BudgetUse } from "../credits/facts.ts";
import { ApiError, OperatorError, UnknownIdError } from "../errors.ts";
import type { BudgetKey } from "../stores/queries/budgets.ts";
import { argument, type CommandOutput, facts, required, text } from "./command.ts";
import { type AccountCore, type Core, notFound } from "./core.ts";
import type { OperationCall } from "./operation.ts";

export type BudgetCore = AccountCore & Pick<Core, "budgets">;

/** The flags by which commands name a budget. */
export const BUDGET_FLAGS = {
  id: argument("<id>", text),
  organizationId: required("--org <id>", "organization that it belongs to"),
};

/** Returns the budget that a path names. */
export function budgetIn({ params: { id, budget_id = "" } }: Pick<OperationCall, "params">): BudgetKey {
  return { organizationId: id, id: budget_id };
}

/** Reads a budget. Rejects with not_found. */
export async function findBudget(
  { budgets }: Pick<Core, "budgets">,
  { organizationId, id }: BudgetKey,
): Promise<BudgetRow> {
  const row = (await budgets.budgets(organizationId)).find((budget) => budget.id === id);
  if (row === undefined) throw notFound(new UnknownIdError("budget", id, "budget list"));
  return row;
}

/** Reads a budget that can be changed. Rejects with not_found, or invalid_value for the spending cap of a token. */
export async function changeableBudget(core: BudgetCore, key: BudgetKey): Promise<BudgetRow> {
  const row = await findBudget(core, key);
  if (row.capOf === null) return row;
  const message = "The budget is the spending cap of a token.";
  const command = new OperatorError(`${message} Change it with: tollgate token update ${row.capOf} --cap`);
  throw new ApiError("invalid_value", `${message} Change it with PATCH /admin/v1/tokens/${row.capOf}.`, { command });
}

/** Returns the counter that a budget without `each` uses at a time. */
export function currentUse({ id, window }: BudgetRow, atMs: number, value = ""): BudgetUse {
  return { budgetId: id, windowAtMs: windowAt(window, atMs), value };
}

/** Formats a budget for the admin API, with the counter of its current window if all share the amount. */
export function budgetAnswer(budget: BudgetRow, uses: readonly BudgetUseRow[], nowMs: number): Budget {
  const { organizationId, id, each, metadata, capOf, createdAtMs } = budget;
  const { windowAtMs } = currentUse(budget, nowMs);
  const own = uses.find((use) => use.budgetId === id && use.windowAtMs === windowAtMs && use.value === "");
  return {
    object: "budget",
    id,
    organization_id: organizationId,
    ...auditedBudget(budget),
    cap_of: capOf,
    by_callers_word: metadata !== null || each?.startsWith("metadata.") === true,
    current: each === null ? counterAnswer(budgetState(budget, currentUse(budget, nowMs), own)) : null,
    created_at: isoTime(createdAtMs),
  };
}

export function counterAnswer(state: BudgetState): BudgetCounter {
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

/** Formats a budget as commands do. */
export function budgetJson({ object, created_at, organization_id, cap_of, by_callers_word, ...terms }: Budget) {
  return { ...terms, organizationId: organization_id, capOf: cap_of, byCallersWord: by_callers_word };
}

/** Reports a budget, with further facts for people. */
export function budgetOutput(answer: Budget, further: Record<string, string> = {}): CommandOutput {
  const { id, name, window, amount } = answer;
  return {
    json: budgetJson(answer),
    text: facts({ id, name, covers: coverageOf(answer), window, amount, ...further }),
  };
}

/** Describes whom and what a budget covers, in words. */
export function coverageOf({ selector: { tokens, models, metadata }, each }: Budget): string {
  const values = Object.entries(metadata ?? {}).map(([key, allowed]) => `${key} ${allowed.join(" or ")}`);
  const parts = [...(tokens ?? []), ...(models ?? []), ...values];
  return `${parts.length === 0 ? "all requests" : parts.join(", ")}${each === null ? "" : `, each ${each}`}`;
}

/** Describes the use of a counter, in words. */
export function spentText(current: BudgetCounter | null): string {
  return current === null ? "by value" : `${current.spent} of ${current.limit}, ${current.held} held`;
}
