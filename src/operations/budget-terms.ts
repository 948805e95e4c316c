import { auditRow } from "../admin/audit.ts";
import type { Budget, BudgetCounter } from "../api/admin/budget.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import type { AuditRow } from "../credits/audit.ts";
import type { BudgetRow, BudgetUse, BudgetUseRow } from "../credits/books.ts";
import { auditedBudget, type BudgetState, budgetRest, budgetState, windowAt, windowEnd } from "../credits/budgets.ts";
import { ApiError, OperatorError, UnknownIdError } from "../errors.ts";
import { type AccountCore, type Core, notFound } from "./core.ts";

export type BudgetCore = AccountCore & Pick<Core, "budgets">;

/** Reads a budget. Rejects with not_found. */
export async function findBudget(
  { budgets }: Pick<Core, "budgets">,
  organizationId: string,
  id: string,
): Promise<BudgetRow> {
  const row = (await budgets.budgets(organizationId)).find((budget) => budget.id === id);
  if (row === undefined) throw notFound(new UnknownIdError("budget", id, "budget list"));
  return row;
}

/** Reads a budget that can be changed. Rejects with not_found, or invalid_value for the spending cap of a token. */
export async function changeableBudget(core: BudgetCore, organizationId: string, id: string): Promise<BudgetRow> {
  const row = await findBudget(core, organizationId, id);
  if (row.capOf === null) return row;
  const message = "The budget is the spending cap of a token.";
  const command = new OperatorError(`${message} Change it with: tollgate token update ${row.capOf} --cap`);
  throw new ApiError("invalid_value", `${message} Change it with PATCH /admin/v1/tokens/${row.capOf}.`, { command });
}

/** Returns the audit record of a change of a budget. */
export function budgetRecord(
  core: BudgetCore,
  action: string,
  { organizationId, id: subjectId }: Pick<BudgetRow, "organizationId" | "id">,
  change: { before?: Record<string, unknown>; after?: Record<string, unknown> },
): AuditRow {
  return auditRow(core.actor, { action, organizationId, subjectId, ...change }, core);
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
export function budgetJson(answer: Budget) {
  const { id, organization_id: organizationId, name, selector, each, window, amount, cap_of: capOf, current } = answer;
  return {
    id,
    organizationId,
    name,
    selector,
    each,
    window,
    amount,
    capOf,
    byCallersWord: answer.by_callers_word,
    current,
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
