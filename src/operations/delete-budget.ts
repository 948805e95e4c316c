import { auditedBudget } from "../credits/budgets.ts";
import type { BudgetKey } from "../stores/queries/budgets.ts";
import { BUDGET_FLAGS, type BudgetCore, budgetIn, changeableBudget } from "./budget-terms.ts";
import { command } from "./command.ts";
import { rowRecord } from "./core.ts";
import { operation } from "./operation.ts";

export const deleteBudget = operation({
  route: "DELETE /organizations/:id/budgets/:budget_id",
  permission: "budgets:write",
  summary: "Delete a budget with its counters; other budgets stay as they are",
  answer: { status: 204, description: "The budget is deleted." },
  handle: (services, call) => removeBudget(services, budgetIn(call)),
  commands: [
    command({
      usage: "budget delete <id>",
      flags: BUDGET_FLAGS,
      async run(services, key) {
        await removeBudget(services, key);
        return { json: { id: key.id, deleted: true }, text: `${key.id} is deleted.` };
      },
    }),
  ],
});

/** Deletes a budget. Rejects with not_found or invalid_value. */
async function removeBudget(core: BudgetCore, key: BudgetKey): Promise<void> {
  const row = await changeableBudget(core, key);
  const record = rowRecord(core, "budget.delete", row, { before: auditedBudget(row) });
  // False: another request has deleted it meanwhile.
  await core.budgets.deleteBudget(row, record);
}
