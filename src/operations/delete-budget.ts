import { auditedBudget } from "../credits/budgets.ts";
import { type BudgetCore, budgetRecord, changeableBudget } from "./budget-terms.ts";
import { argument, command, required, text } from "./command.ts";
import { operation } from "./operation.ts";

export const deleteBudget = operation({
  route: "DELETE /organizations/:id/budgets/:budget_id",
  access: "operator",
  summary: "Delete a budget with its counters; other budgets stay as they are",
  answer: { status: 204, description: "The budget is deleted." },
  handle: (services, { params: { id, budget_id = "" } }) => removeBudget(services, id, budget_id),
  commands: [
    command({
      usage: "budget delete <id>",
      summary: "Delete a budget with its counters; other budgets stay as they are",
      flags: { id: argument("<id>", text), organizationId: required("--org <id>", "organization that it belongs to") },
      async run(services, { id, organizationId }) {
        await removeBudget(services, organizationId, id);
        return { json: { id, deleted: true }, text: `${id} is deleted.` };
      },
    }),
  ],
});

/** Deletes a budget. Rejects with not_found or invalid_value. */
async function removeBudget(core: BudgetCore, organizationId: string, id: string): Promise<void> {
  const row = await changeableBudget(core, organizationId, id);
  const record = budgetRecord(core, "budget.delete", row, { before: auditedBudget(row) });
  // False: another request has deleted it meanwhile.
  await core.budgets.deleteBudget(row, record);
}
