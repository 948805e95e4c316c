import { creditsFromMicro, type MicroCredits } from "../credits/amount.ts";
import type { BudgetRow } from "../credits/books.ts";
import { OperatorError } from "../errors.ts";
import type { BudgetKey } from "../stores/queries/budgets.ts";
import {
  BUDGET_FLAGS,
  type BudgetCore,
  budgetAnswer,
  budgetIn,
  budgetOutput,
  changeableBudget,
  currentUse,
} from "./budget-terms.ts";
import { command, credits, optional, text } from "./command.ts";
import { checkName, rowRecord } from "./core.ts";
import { amountOf, operation } from "./operation.ts";

export const changeBudget = operation({
  route: "PATCH /organizations/:id/budgets/:budget_id",
  permission: "budgets:write",
  summary: "Change the name or the amount of a budget; an amount below what is spent interrupts no request",
  body: (s) => s.BudgetChange,
  answer: { status: 200, description: "The budget as it is now.", schema: (s) => s.Budget },
  async handle(services, call) {
    const { name, amount } = call.body;
    const change = { name, amount: amount === undefined ? undefined : amountOf("amount", amount) };
    return answerOf(services, await updateBudget(services, budgetIn(call), change));
  },
  commands: [
    command({
      usage: "budget update <id>",
      flags: {
        ...BUDGET_FLAGS,
        name: optional("--name <name>", "name that identifies it", text),
        amount: optional("--amount <credits>", "credits for each window", credits),
      },
      input({ name, amount, ...key }) {
        if (name === null && amount === null) throw new OperatorError("Nothing to change: name at least one term.");
        return { key, change: { name: name ?? undefined, amount: amount ?? undefined } };
      },
      run: async (services, { key, change }) =>
        budgetOutput(await answerOf(services, await updateBudget(services, key, change))),
    }),
  ],
});

interface BudgetTerms {
  name?: string | undefined;
  amount?: MicroCredits | undefined;
}

/** Changes a budget; absent terms stay unchanged. Rejects with not_found or invalid_value. */
async function updateBudget(core: BudgetCore, key: BudgetKey, { name, amount }: BudgetTerms): Promise<BudgetRow> {
  if (name !== undefined) checkName(name);
  for (;;) {
    const old = await changeableBudget(core, key);
    const changed = { ...old, name: name ?? old.name, amount: amount ?? old.amount };
    if (changed.name === old.name && changed.amount === old.amount) return old;
    const record = rowRecord(core, "budget.change", old, { before: termsOf(old), after: termsOf(changed) });
    if (await core.budgets.changeBudget(old, changed, record)) return changed;
  }
}

function termsOf({ name, amount }: BudgetRow) {
  return { name, amount: creditsFromMicro(amount) };
}

/** Formats a budget with its counter. */
async function answerOf({ budgets }: Pick<BudgetCore, "budgets">, row: BudgetRow) {
  const nowMs = await budgets.budgetTime();
  return budgetAnswer(row, await budgets.namedUses(row.organizationId, [currentUse(row, nowMs)]), nowMs);
}
