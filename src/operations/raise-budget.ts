import { isoTime } from "../api/time.ts";
import { creditsFromMicro, type MicroCredits } from "../credits/amount.ts";
import { budgetState } from "../credits/budgets.ts";
import type { BudgetKey } from "../stores/queries/budgets.ts";
import {
  BUDGET_FLAGS,
  type BudgetCore,
  budgetIn,
  changeableBudget,
  counterAnswer,
  currentUse,
  spentText,
} from "./budget-terms.ts";
import { argument, command, credits, facts, optional, text } from "./command.ts";
import { invalidValue, notFound, rowRecord, shortText } from "./core.ts";
import { amountOf, operation } from "./operation.ts";

export const raiseBudget = operation({
  route: "POST /organizations/:id/budgets/:budget_id/raises",
  permission: "budgets:write",
  summary: "Add credits to a budget in its current window only",
  body: (s) => s.BudgetRaise,
  answer: { status: 201, description: "The counter with its new limit.", schema: (s) => s.BudgetCounter },
  async handle(services, call) {
    const { amount, value = null } = call.body;
    return addRaise(services, { ...budgetIn(call), amount: amountOf("amount", amount), value });
  },
  commands: [
    command({
      usage: "budget raise <id> <amount>",
      flags: {
        ...BUDGET_FLAGS,
        amount: argument("<amount>", credits),
        value: optional("--value <value>", "the value whose amount is raised, of a budget with --each", text),
      },
      async run(services, terms) {
        const counter = await addRaise(services, terms);
        const { limit, resets_at: resets } = counter;
        return {
          json: counter,
          text: facts({ id: terms.id, limit, spent: spentText(counter), resets: resets ?? "-" }),
        };
      },
    }),
  ],
});

interface Raise extends BudgetKey {
  amount: MicroCredits;
  value: string | null;
}

/** Raises the limit of one counter of a budget in the current window. Rejects with not_found or invalid_value. */
async function addRaise(core: BudgetCore, { amount, value, ...key }: Raise) {
  const row = await changeableBudget(core, key);
  if (row.each === null && value !== null) {
    throw invalidValue("value", shortText(value), "absent: the budget has no `each`");
  }
  if (row.each !== null && value === null) throw invalidValue("value", "absent", `a value of ${row.each}`);
  const use = currentUse(row, await core.budgets.budgetTime(), value ?? "");
  const window = { window_at: use.windowAtMs === 0 ? null : isoTime(use.windowAtMs) };
  const after = { amount: creditsFromMicro(amount), value: use.value, ...window };
  const record = rowRecord(core, "budget.raise", row, { after });
  if (!(await core.budgets.raiseBudget(key.organizationId, use, amount, record))) throw notFound();
  const [raised] = await core.budgets.namedUses(key.organizationId, [use]);
  return counterAnswer(budgetState(row, use, raised));
}
