import { budgetAnswer, budgetJson, coverageOf, currentUse, spentText } from "./budget-terms.ts";
import { command, required, tableOf } from "./command.ts";
import { type Core, knownOrganization } from "./core.ts";
import { operation } from "./operation.ts";

export const listBudgets = operation({
  route: "GET /organizations/:id/budgets",
  permission: "budgets:read",
  summary: "List an organization's budgets and the spending caps of its tokens",
  answer: { status: 200, description: "All of them, in one page.", schema: (s) => s.PageOf(s.Budget) },
  async handle(services, { params }) {
    return { object: "list", data: await budgetsOf(services, params.id), next_cursor: null };
  },
  commands: [
    command({
      usage: "budget list",
      flags: { organizationId: required("--org <id>", "organization whose budgets are listed") },
      async run(services, { organizationId }) {
        const answers = await budgetsOf(services, organizationId);
        const text = tableOf(answers, {
          ID: ({ id }) => id,
          NAME: ({ name }) => name,
          COVERS: coverageOf,
          WINDOW: ({ window }) => window,
          AMOUNT: ({ amount }) => amount,
          SPENT: ({ current }) => spentText(current),
          RESETS: ({ current }) => current?.resets_at ?? "-",
        });
        return { json: answers.map(budgetJson), text };
      },
    }),
  ],
});

/** Reads the budgets of an organization, the oldest first. Rejects with not_found. */
async function budgetsOf(core: Pick<Core, "accounts" | "budgets">, organizationId: string) {
  await knownOrganization(core, organizationId);
  const [rows, nowMs] = await Promise.all([core.budgets.budgets(organizationId), core.budgets.budgetTime()]);
  const shared = rows.filter(({ each }) => each === null);
  const uses = await core.budgets.namedUses(
    organizationId,
    shared.map((row) => currentUse(row, nowMs)),
  );
  return rows.sort((a, b) => a.createdAtMs - b.createdAtMs).map((row) => budgetAnswer(row, uses, nowMs));
}
