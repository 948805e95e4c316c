import { type PageRequest, pageOf } from "../admin/directory.ts";
import { budgetState } from "../credits/budgets.ts";
import type { BudgetKey } from "../stores/queries/budgets.ts";
import {
  BUDGET_FLAGS,
  budgetAnswer,
  budgetIn,
  budgetOutput,
  counterAnswer,
  currentUse,
  findBudget,
  spentText,
} from "./budget-terms.ts";
import { command } from "./command.ts";
import type { Core } from "./core.ts";
import { operation } from "./operation.ts";

const SHOWN_MAX = 50;

export const showBudget = operation({
  route: "GET /organizations/:id/budgets/:budget_id",
  permission: "budgets:read",
  summary: "Show a budget with the counters of its current window, by value",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "The budget.", schema: (s) => s.BudgetWithCounters },
  handle: (services, call) => budgetWithCounters(services, budgetIn(call), call.page),
  commands: [
    command({
      usage: "budget show <id>",
      flags: BUDGET_FLAGS,
      async run(services, key) {
        const { counters, ...answer } = await budgetWithCounters(services, key, { cursor: null, limit: SHOWN_MAX });
        const { current } = answer;
        const values = counters.data.filter(({ value }) => value !== null);
        const { json, text } = budgetOutput(answer, {
          ...{ spent: spentText(current), resets: (current ?? counters.data[0])?.resets_at ?? "-" },
          ...Object.fromEntries(values.map((counter) => [String(counter.value), spentText(counter)])),
        });
        return { json: { ...(json as object), counters: counters.data }, text };
      },
    }),
  ],
});

/** Reads a budget and a page of its counters. Rejects with not_found. */
async function budgetWithCounters(core: Pick<Core, "budgets">, key: BudgetKey, { cursor, limit }: PageRequest) {
  const [row, nowMs] = await Promise.all([findBudget(core, key), core.budgets.budgetTime()]);
  const { windowAtMs } = currentUse(row, nowMs);
  const [uses, own] = await Promise.all([
    core.budgets.usesInWindow(row, windowAtMs, { after: cursor, limit: limit + 1 }),
    core.budgets.namedUses(key.organizationId, [currentUse(row, nowMs)]),
  ]);
  const counters = pageOf(
    uses,
    limit,
    (use) => counterAnswer(budgetState(row, use, use)),
    ({ value }) => value,
  );
  return { ...budgetAnswer(row, own, nowMs), counters };
}
