import type { PageRequest } from "../admin/directory.ts";
import { pageOf } from "../admin/directory.ts";
import { budgetState } from "../credits/budgets.ts";
import {
  budgetAnswer,
  budgetJson,
  counterAnswer,
  coverageOf,
  currentUse,
  findBudget,
  spentText,
} from "./budget-terms.ts";
import { argument, command, facts, required, text } from "./command.ts";
import type { Core } from "./core.ts";
import { operation } from "./operation.ts";

const SHOWN_MAX = 50;

export const showBudget = operation({
  route: "GET /organizations/:id/budgets/:budget_id",
  access: "member",
  summary: "Show a budget with the counters of its current window, by value",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "The budget.", schema: (s) => s.BudgetWithCounters },
  handle: (services, { params: { id, budget_id = "" }, page }) => budgetWithCounters(services, id, budget_id, page),
  commands: [
    command({
      usage: "budget show <id>",
      summary: "Show a budget with the counters of its current window, by value",
      flags: { id: argument("<id>", text), organizationId: required("--org <id>", "organization that it belongs to") },
      async run(services, { id, organizationId }) {
        const page = { cursor: null, limit: SHOWN_MAX };
        const { counters, ...answer } = await budgetWithCounters(services, organizationId, id, page);
        const { name, window, amount, current } = answer;
        const values = counters.data.filter(({ value }) => value !== null);
        const text = facts({
          ...{ id, name, covers: coverageOf(answer), window, amount },
          ...{ spent: spentText(current), resets: (current ?? counters.data[0])?.resets_at ?? "-" },
          ...Object.fromEntries(values.map((counter) => [String(counter.value), spentText(counter)])),
        });
        return { json: { ...budgetJson(answer), counters: counters.data }, text };
      },
    }),
  ],
});

/** Reads a budget and a page of its counters. Rejects with not_found. */
async function budgetWithCounters(
  core: Pick<Core, "budgets">,
  organizationId: string,
  id: string,
  { cursor, limit }: PageRequest,
) {
  const [row, nowMs] = await Promise.all([findBudget(core, organizationId, id), core.budgets.budgetTime()]);
  const { windowAtMs } = currentUse(row, nowMs);
  const [uses, own] = await Promise.all([
    core.budgets.usesInWindow(row, windowAtMs, { after: cursor, limit: limit + 1 }),
    core.budgets.namedUses(organizationId, [currentUse(row, nowMs)]),
  ]);
  const counters = pageOf(
    uses,
    limit,
    (use) => counterAnswer(budgetState(row, use, use)),
    ({ value }) => value,
  );
  return { ...budgetAnswer(row, own, nowMs), counters };
}
