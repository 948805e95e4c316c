import { type PageRequest, pageOf } from "../admin/directory.ts";
import { makeId } from "../admin/token.ts";
import type { NewBudget } from "../api/admin/budget.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro, type MicroCredits } from "../credits/amount.ts";
import type { BudgetRow, BudgetWindow } from "../credits/books.ts";
import { auditedBudget, budgetState, isModel, METADATA_PREFIX } from "../credits/budgets.ts";
import { ApiError, OperatorError } from "../errors.ts";
import type { BudgetKey } from "../stores/queries/budgets.ts";
import {
  BUDGET_FLAGS,
  type BudgetCore,
  budgetAnswer,
  budgetIn,
  budgetJson,
  budgetOutput,
  changeableBudget,
  counterAnswer,
  coverageOf,
  currentUse,
  findBudget,
  spentText,
} from "./budget-terms.ts";
import {
  argument,
  command,
  credits,
  facts,
  list,
  optional,
  pairs,
  required,
  tableOf,
  text,
  withDefault,
} from "./command.ts";
import { type Core, checkName, invalidValue, knownOrganization, notFound, rowRecord, shortText } from "./core.ts";
import { amountOf, type OperationServices, operation } from "./operation.ts";

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
