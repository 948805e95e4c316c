import { pageOf } from "../admin/directory.ts";
import { makeId } from "../admin/token.ts";
import type { Budget, BudgetCounter, NewBudget } from "../api/admin/budget.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import type { BudgetRow, BudgetUseRow, BudgetWindow } from "../credits/books.ts";
import {
  auditedBudget,
  type BudgetState,
  budgetRest,
  budgetState,
  currentUse,
  isModel,
  METADATA_PREFIX,
  windowAt,
  windowEnd,
} from "../credits/budgets.ts";
import { ApiError, OperatorError } from "../errors.ts";
import {
  argument,
  credits,
  facts,
  jsonOf,
  list,
  optional,
  pairs,
  required,
  text,
  withDefault,
  wordOf,
} from "./command.ts";
import {
  type AccountCore,
  type Core,
  checkName,
  found,
  invalidValue,
  knownOrganization,
  notFound,
  rowRecord,
  shortText,
  wholeList,
} from "./core.ts";
import { amountOf, type OperationCall, sharedOperation } from "./operation.ts";

type BudgetCore = AccountCore & Pick<Core, "budgets">;

/** The flags by which commands name a budget. */
const BUDGET_FLAGS = {
  budget_id: argument("<id>", text),
  id: required("--org <id>", "organization that it belongs to"),
};

export const listBudgets = sharedOperation({
  route: "GET /organizations/:id/budgets",
  permission: "budgets:read",
  summary: "List an organization's budgets and the spending caps of its tokens",
  answer: { status: 200, description: "All of them, in one page.", schema: (s) => s.PageOf(s.Budget) },
  async handle(core, { params }) {
    const rows = await core.budgets.budgets(params.id);
    rows.sort((a, b) => a.createdAtMs - b.createdAtMs);
    return wholeList(await budgetAnswers(core, params.id, rows));
  },
  commands: (make) => [
    make.list({
      usage: "budget list",
      flags: { organizationId: required("--org <id>", "organization whose budgets are listed") },
      call: ({ organizationId: id }) => ({ params: { id } }),
      columns: {
        ID: ({ id }) => id,
        NAME: ({ name }) => name,
        COVERS: coverageOf,
        WINDOW: ({ window }) => window,
        AMOUNT: ({ amount }) => amount,
        SPENT: ({ current }) => spentText(current),
        RESETS: ({ current }) => current?.resets_at ?? "-",
      },
    }),
  ],
});

/** A hold compares its request with each budget of the organization but the caps of other tokens. */
const BUDGETS_MAX = 100;
const WINDOWS: readonly BudgetWindow[] = ["day", "week", "month", "lifetime"];
const EACH = /^(token|model|metadata\..{1,64})$/;

export const createBudget = sharedOperation({
  route: "POST /organizations/:id/budgets",
  permission: "budgets:write",
  summary: "Limit what some requests of an organization may spend in each window of time",
  body: (s) => s.NewBudget,
  answer: { status: 201, description: "The budget.", schema: (s) => s.Budget },
  async handle(core, { params, body }) {
    checkModels(core, body.selector?.models ?? []);
    return answerOf(core, await addBudget(core, params.id, body));
  },
  commands: (make) => [
    make.command({
      usage: "budget create",
      flags: {
        id: required("--org <id>", "organization whose requests it limits"),
        name: required("--name <name>", "name that identifies it"),
        amount: { ...optional("--amount <credits>", "credits for each window", credits), isRequired: true },
        window: withDefault("--window <window>", `one of: ${WINDOWS.join(", ")}`, "month", wordOf(WINDOWS)),
        tokens: list("--token <id...>", "only requests of these tokens and their successors by rotation"),
        models: list("--model <id...>", "only requests for these models; * at the end stands for every ending"),
        metadata: pairs("--metadata <key=value...>", "only requests with one of these values of each key"),
        each: optional("--each <what>", "token, model or metadata.KEY: each value has the whole amount", text),
      },
      call: ({ id, tokens, models, metadata, amount, ...terms }) => ({
        params: { id },
        body: { ...terms, amount: amount ?? 0, selector: { tokens, models, metadata: metadataOf(metadata) } },
      }),
      text: (budget) => budgetText(budget),
    }),
  ],
});

function metadataOf(stated: [key: string, value: string][] | null): Record<string, string[]> | null {
  if (stated === null) return null;
  const values = Map.groupBy(stated, ([key]) => key);
  return Object.fromEntries([...values].map(([key, of]) => [key, of.map(([, value]) => value)]));
}

/** Creates a budget, which counts from now on. Rejects with not_found or invalid_value. */
export async function addBudget(core: BudgetCore, organizationId: string, terms: NewBudget): Promise<BudgetRow> {
  const { name, window, each = null, selector = {} } = terms;
  const { tokens = null, models = null, metadata = null } = selector;
  const amount = amountOf("amount", terms.amount);
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
function checkModels({ modelIds }: Core, models: readonly string[]): void {
  for (const [index, pattern] of models.entries()) {
    if (modelIds === null || modelIds().some((id) => isModel(pattern, id))) continue;
    throw invalidValue(`selector.models[${index}]`, shortText(pattern), "a model of the service, or a beginning and *");
  }
}

const SHOWN_MAX = 50;

export const showBudget = sharedOperation({
  route: "GET /organizations/:id/budgets/:budget_id",
  permission: "budgets:read",
  summary: "Show a budget with the counters of its current window, by value",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "The budget.", schema: (s) => s.BudgetWithCounters },
  async handle(core, { params, page: { cursor, limit } }) {
    const { budgets } = core;
    const [row, nowMs] = await Promise.all([findBudget(core, params), budgets.budgetTime()]);
    const page = { after: cursor, limit: limit + 1 };
    const uses = await budgets.usesInWindow(row, windowAt(row.window, nowMs), page);
    const toEntry = (counted: BudgetUseRow) => counterAnswer(budgetState(row, counted, counted));
    const counters = pageOf(uses, limit, toEntry, ({ value }) => value);
    return { ...(await answerOf(core, row)), counters };
  },
  commands: (make) => [
    make.command({
      usage: "budget show <id>",
      flags: BUDGET_FLAGS,
      call: (params) => ({ params, page: { cursor: null, limit: SHOWN_MAX } }),
      json: ({ counters, ...budget }) => ({ ...jsonOf(budget), counters: counters.data }),
      text({ counters: { data }, ...budget }) {
        const values = data.filter(({ value }) => value !== null);
        return budgetText(budget, {
          ...{ spent: spentText(budget.current), resets: (budget.current ?? data[0])?.resets_at ?? "-" },
          ...Object.fromEntries(values.map((counter) => [String(counter.value), spentText(counter)])),
        });
      },
    }),
  ],
});

export const changeBudget = sharedOperation({
  route: "PATCH /organizations/:id/budgets/:budget_id",
  permission: "budgets:write",
  summary: "Change the name or the amount of a budget; an amount below what is spent interrupts no request",
  body: (s) => s.BudgetChange,
  answer: { status: 200, description: "The budget as it is now.", schema: (s) => s.Budget },
  async handle(core, { params, body }) {
    const { name } = body;
    const amount = body.amount === undefined ? undefined : amountOf("amount", body.amount);
    if (name !== undefined) checkName(name);
    for (;;) {
      const old = await changeableBudget(core, params);
      const changed = { ...old, name: name ?? old.name, amount: amount ?? old.amount };
      if (changed.name === old.name && changed.amount === old.amount) return answerOf(core, old);
      const record = rowRecord(core, "budget.change", old, { before: termsOf(old), after: termsOf(changed) });
      if (await core.budgets.changeBudget(old, changed, record)) return answerOf(core, changed);
    }
  },
  commands: (make) => [
    make.command({
      usage: "budget update <id>",
      flags: {
        ...BUDGET_FLAGS,
        name: optional("--name <name>", "name that identifies it", text),
        amount: optional("--amount <credits>", "credits for each window", credits),
      },
      call({ name, amount, ...params }) {
        if (name === null && amount === null) throw new OperatorError("Nothing to change: name at least one term.");
        return { params, body: { name: name ?? undefined, amount: amount ?? undefined } };
      },
      text: (budget) => budgetText(budget),
    }),
  ],
});

function termsOf({ name, amount }: BudgetRow) {
  return { name, amount: creditsFromMicro(amount) };
}

export const deleteBudget = sharedOperation({
  route: "DELETE /organizations/:id/budgets/:budget_id",
  permission: "budgets:write",
  summary: "Delete a budget with its counters; other budgets stay as they are",
  answer: { status: 204, description: "The budget is deleted." },
  async handle(core, { params }) {
    const row = await changeableBudget(core, params);
    const record = rowRecord(core, "budget.delete", row, { before: auditedBudget(row) });
    // False: another request has deleted it meanwhile.
    await core.budgets.deleteBudget(row, record);
  },
  commands: (make) => [
    make.command({
      usage: "budget delete <id>",
      flags: BUDGET_FLAGS,
      json: (_, { budget_id: id }) => ({ id, deleted: true }),
      text: (_, { budget_id: id }) => `${id} is deleted.`,
    }),
  ],
});

export const raiseBudget = sharedOperation({
  route: "POST /organizations/:id/budgets/:budget_id/raises",
  permission: "budgets:write",
  summary: "Add credits to a budget in its current window only",
  body: (s) => s.BudgetRaise,
  answer: { status: 201, description: "The counter with its new limit.", schema: (s) => s.BudgetCounter },
  async handle(core, { params, body }) {
    const { value = null } = body;
    const amount = amountOf("amount", body.amount);
    const row = await changeableBudget(core, params);
    const { organizationId, each } = row;
    if (each === null && value !== null) {
      throw invalidValue("value", shortText(value), "absent: the budget has no `each`");
    }
    if (each !== null && value === null) throw invalidValue("value", "absent", `a value of ${each}`);
    const use = currentUse(row, await core.budgets.budgetTime(), value ?? "");
    const window = { window_at: use.windowAtMs === 0 ? null : isoTime(use.windowAtMs) };
    const after = { amount: creditsFromMicro(amount), value: use.value, ...window };
    const record = rowRecord(core, "budget.raise", row, { after });
    if (!(await core.budgets.raiseBudget(organizationId, use, amount, record))) throw notFound();
    const [raised] = await core.budgets.namedUses(organizationId, [use]);
    return counterAnswer(budgetState(row, use, raised));
  },
  commands: (make) => [
    make.command({
      usage: "budget raise <id> <amount>",
      flags: {
        ...BUDGET_FLAGS,
        amount: argument("<amount>", credits),
        value: optional("--value <value>", "the value whose amount is raised, of a budget with --each", text),
      },
      call: ({ amount, value, ...params }) => ({ params, body: { amount, value } }),
      json: (counter) => counter,
      text: (counter, { budget_id: id }) =>
        facts({ id, limit: counter.limit, spent: spentText(counter), resets: counter.resets_at ?? "-" }),
    }),
  ],
});

/** Reads the budget that a path names. Rejects with not_found. */
async function findBudget({ budgets }: Core, { id, budget_id = "" }: OperationCall["params"]): Promise<BudgetRow> {
  const lookup = budgets.budgets(id).then((rows) => rows.find((row) => row.id === budget_id));
  return found(lookup, { kind: "budget", id: budget_id });
}

/** Reads a budget that can be changed. Rejects with not_found, or invalid_value for the spending cap of a token. */
async function changeableBudget(core: Core, params: OperationCall["params"]): Promise<BudgetRow> {
  const row = await findBudget(core, params);
  if (row.capOf === null) return row;
  const { cap_of } = await answerOf(core, row);
  const message = `The budget is the spending cap of a token. Change it with PATCH /admin/v1/tokens/${cap_of} (tollgate token update ${cap_of} --cap).`;
  throw new ApiError("invalid_value", message);
}

/** Formats a budget for the admin API. */
async function answerOf(core: Core, row: BudgetRow): Promise<Budget> {
  return (await budgetAnswers(core, row.organizationId, [row]))[0] as Budget;
}

/** Formats budgets of an organization, each with the counter of its current window if all share the amount. */
async function budgetAnswers(core: Core, organizationId: string, rows: readonly BudgetRow[]): Promise<Budget[]> {
  const { budgets } = core;
  const nowMs = await budgets.budgetTime();
  const shared = rows.filter(({ each }) => each === null).map((row) => currentUse(row, nowMs));
  const uses = new Map((await budgets.namedUses(organizationId, shared)).map((use) => [use.budgetId, use]));
  const holders = rows.some(({ capOf }) => capOf !== null) ? await budgets.capHolders(organizationId) : new Map();
  const answers: Budget[] = [];
  // One by one: a hundred budgets of one organization must not take all connections of the store.
  for (const row of rows) {
    const { id, each, capOf, createdAtMs } = row;
    const state = budgetState(row, currentUse(row, nowMs), uses.get(id));
    answers.push({
      object: "budget",
      id,
      organization_id: organizationId,
      ...auditedBudget(row),
      cap_of: capOf && (holders.get(capOf) ?? capOf),
      by_callers_word: await isByCallersWord(core, row),
      current: each === null ? counterAnswer(state) : null,
      created_at: isoTime(createdAtMs),
    });
  }
  return answers;
}

/** Tells if a caller that a budget covers can choose the metadata that it depends on. */
async function isByCallersWord({ budgets, issuers }: Core, row: BudgetRow): Promise<boolean> {
  const { organizationId, callerIds, metadata, each } = row;
  const keys = Object.keys(metadata ?? {});
  if (each?.startsWith(METADATA_PREFIX)) keys.push(each.slice(METADATA_PREFIX.length));
  if (keys.length === 0) return false;
  const accepted = (await issuers()).filter(({ audience }) => audience !== undefined);
  const without = (key: string) => accepted.filter(({ pins }) => !Object.hasOwn(pins, key));
  // A caller of an issuer has no token before its first request.
  const organizations = keys.flatMap(without).flatMap(({ roles }) => roles.map(({ organization }) => organization));
  const isOpen = organizations.some((one) => typeof one === "object" || one === organizationId);
  if (callerIds === null && isOpen) return true;
  return budgets.hasFreeCaller(row, keys, (key) => without(key).map(({ issuer }) => issuer));
}

function counterAnswer(state: BudgetState): BudgetCounter {
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

/** Describes a budget, with further facts. */
function budgetText(budget: Budget, further: Record<string, string> = {}): string {
  const { id, name, window, amount } = budget;
  return facts({ id, name, covers: coverageOf(budget), window, amount, ...further });
}

/** Describes whom and what a budget covers, in words. */
function coverageOf({ selector: { tokens, models, metadata }, each }: Budget): string {
  const values = Object.entries(metadata ?? {}).map(([key, allowed]) => `${key} ${allowed.join(" or ")}`);
  const parts = [...(tokens ?? []), ...(models ?? []), ...values];
  return `${parts.length === 0 ? "all requests" : parts.join(", ")}${each === null ? "" : `, each ${each}`}`;
}

/** Describes the use of a counter, in words. */
function spentText(current: BudgetCounter | null): string {
  return current === null ? "by value" : `${current.spent} of ${current.limit}, ${current.held} held`;
}
