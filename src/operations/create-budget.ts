import { makeId } from "../admin/token.ts";
import type { NewBudget } from "../api/admin/budget.ts";
import type { MicroCredits } from "../credits/amount.ts";
import type { BudgetRow, BudgetWindow } from "../credits/books.ts";
import { auditedBudget, isModel, METADATA_PREFIX } from "../credits/budgets.ts";
import { ApiError, OperatorError } from "../errors.ts";
import { type BudgetCore, budgetAnswer, budgetOutput } from "./budget-terms.ts";
import { command, credits, list, optional, pairs, required, text, withDefault } from "./command.ts";
import { checkName, invalidValue, knownOrganization, rowRecord, shortText } from "./core.ts";
import { amountOf, type OperationServices, operation } from "./operation.ts";

/** A hold compares its request with each budget of the organization but the caps of other tokens. */
const BUDGETS_MAX = 100;
const WINDOWS: readonly BudgetWindow[] = ["day", "week", "month", "lifetime"];
const EACH = /^(token|model|metadata\..{1,64})$/;

export const createBudget = operation({
  route: "POST /organizations/:id/budgets",
  permission: "budgets:write",
  summary: "Limit what some requests of an organization may spend in each window of time",
  body: (s) => s.NewBudget,
  answer: { status: 201, description: "The budget.", schema: (s) => s.Budget },
  async handle(services, { params, body: { selector = {}, amount, ...terms } }) {
    checkModels(services, selector.models ?? []);
    const draft = { ...terms, selector, organizationId: params.id, amount: amountOf("amount", amount) };
    const row = await addBudget(services, draft);
    return budgetAnswer(row, [], row.createdAtMs);
  },
  commands: [
    command({
      usage: "budget create",
      flags: {
        organizationId: required("--org <id>", "organization whose requests it limits"),
        name: required("--name <name>", "name that identifies it"),
        amount: { ...optional("--amount <credits>", "credits for each window", credits), isRequired: true },
        window: withDefault("--window <window>", `one of: ${WINDOWS.join(", ")}`, "month", windowOf),
        tokens: list("--token <id...>", "only requests of these tokens and their successors by rotation"),
        models: list("--model <id...>", "only requests for these models; * at the end stands for every ending"),
        metadata: pairs("--metadata <key=value...>", "only requests with one of these values of each key"),
        each: optional("--each <what>", "token, model or metadata.KEY: each value has the whole amount", text),
      },
      input({ tokens, models, metadata, amount, ...terms }) {
        return { ...terms, amount: amount ?? 0n, selector: { tokens, models, metadata: metadataOf(metadata) } };
      },
      async run(services, draft) {
        const row = await addBudget(services, draft);
        return budgetOutput(budgetAnswer(row, [], row.createdAtMs));
      },
    }),
  ],
});

function windowOf(given: string, name: string): BudgetWindow {
  const window = WINDOWS.find((known) => known === given);
  if (window !== undefined) return window;
  throw new OperatorError(`${name} is ${shortText(given)}, but must be one of: ${WINDOWS.join(", ")}.`);
}

function metadataOf(stated: [key: string, value: string][] | null): Record<string, string[]> | null {
  if (stated === null) return null;
  const values = Map.groupBy(stated, ([key]) => key);
  return Object.fromEntries([...values].map(([key, of]) => [key, of.map(([, value]) => value)]));
}

interface BudgetDraft extends Pick<BudgetRow, "organizationId" | "name" | "window"> {
  amount: MicroCredits;
  selector: NonNullable<NewBudget["selector"]>;
  each?: string | null | undefined;
}

/** Creates a budget, which counts from now on. Rejects with not_found or invalid_value. */
export async function addBudget(core: BudgetCore, draft: BudgetDraft): Promise<BudgetRow> {
  const { organizationId, name, window, amount, each = null, selector } = draft;
  const { tokens = null, models = null, metadata = null } = selector;
  checkName(name);
  if (each !== null && !EACH.test(each)) {
    throw invalidValue("each", shortText(each), `token, model or ${METADATA_PREFIX}KEY`);
  }
  await knownOrganization(core, organizationId);
  const others = await core.budgets.budgets(organizationId);
  if (others.filter(({ capOf }) => capOf === null).length >= BUDGETS_MAX) {
    throw new ApiError("invalid_value", `The organization has ${BUDGETS_MAX} budgets, which is the maximum.`);
  }
  const callerIds = tokens === null ? null : await callersOf(core, organizationId, tokens);
  const row: BudgetRow = {
    ...{ organizationId, id: makeId("bud", core.random), name, callerIds, models, metadata, each, window, amount },
    ...{ capOf: null, createdAtMs: core.clock() },
  };
  const record = rowRecord(core, "budget.create", row, { after: auditedBudget(row) });
  if (!(await core.budgets.insertBudget(row, record))) throw new Error("the organization has no balance");
  return row;
}

/** Returns the callers of tokens, each once. Rejects with invalid_value for a token that the organization does not have. */
async function callersOf({ accounts }: BudgetCore, organizationId: string, tokens: string[]): Promise<string[]> {
  const rows = await Promise.all(tokens.map((id) => accounts.token(id)));
  const callers = rows.map((row, index) => {
    if (row?.organizationId === organizationId) return row.callerId;
    throw invalidValue(`selector.tokens[${index}]`, shortText(tokens[index] ?? ""), "a token of the organization");
  });
  return [...new Set(callers)];
}

/** Throws invalid_value for a model that the service does not offer: the budget could match nothing. */
function checkModels({ gateway }: Pick<OperationServices, "gateway">, models: readonly string[]): void {
  for (const [index, pattern] of models.entries()) {
    if (gateway.catalog.list().some(({ id }) => isModel(pattern, id))) continue;
    throw invalidValue(`selector.models[${index}]`, shortText(pattern), "a model of the service, or a beginning and *");
  }
}
