import { pageOf } from "../admin/directory.ts";
import { makeId } from "../admin/token.ts";
import type { Budget, BudgetCounter, NewBudget } from "../api/admin/budget.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import type { BudgetRow, BudgetUseRow, BudgetWindow } from "../credits/books.ts";
import {
  auditedBudget,
  BUDGETS_MAX,
  currentUse,
  hasAmount,
  METADATA_PREFIX,
  type SpendingBudget,
  windowAt,
} from "../credits/budgets.ts";
import { ApiError } from "../errors.ts";
import { budgetAnswers, budgetFor, counterAnswer } from "../reports/budgets.ts";
import {
  argument,
  credits,
  facts,
  integer,
  jsonOf,
  list,
  optional,
  pairs,
  required,
  text,
  toggle,
  withDefault,
  wordOf,
} from "./command.ts";
import {
  type AccountCore,
  type Core,
  changesIn,
  checkModels,
  checkName,
  defined,
  found,
  invalidValue,
  knownOrganization,
  notFound,
  rowRecord,
  shortText,
  stated,
  wholeList,
} from "./core.ts";
import { amountOf, limitSettingsOf, type OperationCall, sharedOperation } from "./operation.ts";
import { seenTokens } from "./token-bounds.ts";

type BudgetCore = AccountCore & Pick<Core, "budgets">;

const BUDGET_FLAGS = {
  budget_id: argument("<id>", text),
  id: required("--org <id>", "organization that it belongs to"),
};

export const listBudgets = sharedOperation({
  route: "GET /organizations/:id/budgets",
  permission: "budgets:read",
  summary: "List an organization's budgets and the spending caps of its tokens",
  answer: { status: 200, description: "All of them, in one page.", schema: (s) => s.PageOf(s.Budget) },
  async handle(core, { who, params }) {
    const tokens = await seenTokens(core, who);
    const rows = (await core.budgets.budgets(params.id)).flatMap((row) => budgetFor(row, tokens) ?? []);
    rows.sort((a, b) => a.createdAtMs - b.createdAtMs);
    return wholeList(await answersOf(core, rows));
  },
  commands: (make) => [
    make.list({
      usage: "budget list",
      flags: { id: required("--org <id>", "organization whose budgets are listed") },
      columns: {
        ID: ({ id }) => id,
        NAME: ({ name }) => name,
        COVERS: coverageOf,
        WINDOW: ({ window }) => window,
        AMOUNT: ({ amount }) => amount ?? "-",
        LIMITS: limitsText,
        SPENT: ({ current, amount }) => (amount === null ? "-" : spentText(current)),
        RESETS: ({ resets_at }) => resets_at ?? "-",
      },
    }),
  ],
});

const LIMIT = integer(1, 999_999_999);
/** The flags of limits; those that are stated replace the present ones. */
const LIMIT_FLAGS = {
  requests_per_minute: optional("--requests-per-minute <number>", "requests per minute of each value", LIMIT),
  tokens_per_minute: optional("--tokens-per-minute <number>", "tokens per minute of each value", LIMIT),
  concurrent_requests: optional("--concurrent-requests <number>", "concurrent requests of each value", LIMIT),
};

const WINDOWS: readonly BudgetWindow[] = ["day", "week", "month", "lifetime"];
const EACH = /^(token|model|metadata\..{1,64})$/;

export const createBudget = sharedOperation({
  route: "POST /organizations/:id/budgets",
  permission: "budgets:write",
  summary: "Limit the spending or the rate of some requests of an organization",
  body: (s) => s.NewBudget,
  answer: { status: 201, description: "The budget.", schema: (s) => s.Budget },
  async handle(core, { params, body }) {
    checkModels(core, "selector.models", body.selector?.models ?? []);
    return answerOf(core, await addBudget(core, params.id, body));
  },
  commands: (make) => [
    make.command({
      usage: "budget create",
      flags: {
        id: required("--org <id>", "organization whose requests it limits"),
        name: required("--name <name>", "name that identifies it"),
        amount: optional("--amount <credits>", "credits for each window", credits),
        window: withDefault("--window <window>", `one of: ${WINDOWS.join(", ")}`, "month", wordOf(WINDOWS)),
        tokens: list("--token <id...>", "only requests of these tokens and their successors by rotation"),
        models: list("--model <id...>", "only requests for these models; * at the end stands for every ending"),
        metadata: pairs("--metadata <key=value...>", "only requests with one of these values of each key"),
        each: optional(
          "--each <what>",
          "token, model or metadata.KEY: each value has the amount and the limits for itself",
          text,
        ),
        ...LIMIT_FLAGS,
      },
      call: ({ id, name, amount, window, tokens, models, metadata, each, ...limits }) => ({
        params: { id },
        body: {
          ...{ name, amount, window, each, limits: limitsIn(limits) },
          selector: { tokens, models, metadata: metadataOf(metadata) },
        },
      }),
      text: (budget) => budgetText(budget),
    }),
  ],
});

function limitsIn(flags: Record<keyof typeof LIMIT_FLAGS, number | null>) {
  const limits = stated(flags);
  return Object.keys(limits).length === 0 ? null : limits;
}

function metadataOf(stated: [key: string, value: string][] | null): Record<string, string[]> | null {
  if (stated === null) return null;
  const values = Map.groupBy(stated, ([key]) => key);
  return Object.fromEntries([...values].map(([key, of]) => [key, of.map(([, value]) => value)]));
}

/** Creates a budget, which counts from now on. Rejects with not_found or invalid_value. */
export async function addBudget(core: BudgetCore, organizationId: string, terms: NewBudget): Promise<BudgetRow> {
  const { name, window = "month", each = null, selector = {} } = terms;
  const { tokens = null, models = null, metadata = null } = selector;
  await knownOrganization(core, organizationId);
  const others = await core.budgets.budgets(organizationId);
  const { amount, limits } = checkNewBudget(terms, others.filter(({ capOf }) => capOf === null).length);
  const callerIds = tokens === null ? null : await callersOf(core, organizationId, tokens);
  const row: BudgetRow = {
    ...{ organizationId, id: makeId("bud", core.random), name, callerIds, models, metadata, each, window, amount },
    ...{ limits, capOf: null, createdAtMs: core.clock() },
  };
  const record = rowRecord(core, "budget.create", row, { after: auditedBudget(row) });
  if (!(await core.budgets.insertBudget(row, record))) throw new Error("the organization has no balance");
  return row;
}

/** Returns the amount and the limits of a new budget. `othersCount`: budgets that the organization has. Throws invalid_value. */
export function checkNewBudget({ name, each = null, ...terms }: NewBudget, othersCount: number) {
  const amount = terms.amount == null ? null : amountOf("amount", terms.amount);
  const limits = limitSettingsOf(terms.limits);
  checkName(name);
  checkTerms({ amount, limits }, "amount");
  if (each !== null && !EACH.test(each)) {
    throw invalidValue("each", shortText(each), `token, model or ${METADATA_PREFIX}KEY`);
  }
  if (othersCount >= BUDGETS_MAX) {
    throw new ApiError("invalid_value", `The organization has ${BUDGETS_MAX} budgets, which is the maximum.`);
  }
  return { amount, limits };
}

function checkTerms({ amount, limits }: Pick<BudgetRow, "amount" | "limits">, param: string): void {
  if (amount !== null || limits !== null) return;
  throw new ApiError("invalid_value", `Invalid '${param}': a budget needs an amount, limits or both.`, { param });
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

const SHOWN_MAX = 50;

export const showBudget = sharedOperation({
  route: "GET /organizations/:id/budgets/:budget_id",
  permission: "budgets:read",
  summary: "Show a budget with the counters of its current window, by value",
  query: (s) => s.Strict(s.PageQuery),
  answer: { status: 200, description: "The budget.", schema: (s) => s.BudgetWithCounters },
  async handle(core, { who, params, page: { cursor, limit } }) {
    const { budgets } = core;
    const [tokens, nowMs] = await Promise.all([seenTokens(core, who), budgets.budgetTime()]);
    const row = budgetFor(await findBudget(core, params), tokens);
    if (row === undefined) throw notFound();
    const page = { after: cursor, limit: limit + 1 };
    // Values of metadata, too, name others.
    const isShown = tokens === null || row.each === null || row.each === "model";
    const uses = isShown ? await budgets.usesInWindow(row, windowAt(row.window, nowMs), page) : [];
    const toEntry = (counted: BudgetUseRow) => counterAnswer(row as SpendingBudget, counted, counted);
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
          ...{ spent: spentText(budget.current), resets: budget.resets_at ?? "-" },
          ...Object.fromEntries(values.map((counter) => [String(counter.value), spentText(counter)])),
        });
      },
    }),
  ],
});

export const changeBudget = sharedOperation({
  route: "PATCH /organizations/:id/budgets/:budget_id",
  permission: "budgets:write",
  summary: "Change the name, the amount or the limits of a budget; an amount below what is spent interrupts no request",
  body: (s) => s.BudgetChange,
  answer: { status: 200, description: "The budget as it is now.", schema: (s) => s.Budget },
  async handle(core, { params, body }) {
    const amount = body.amount === undefined ? undefined : amountOf("amount", body.amount);
    const limits = body.limits === undefined ? undefined : limitSettingsOf(body.limits);
    if (body.name !== undefined) checkName(body.name);
    for (;;) {
      const old = await changeableBudget(core, params);
      const changed = { ...old, ...defined({ name: body.name, amount, limits }) };
      checkTerms(changed, "limits");
      const [before, after] = [auditedBudget(old), auditedBudget(changed)];
      if (JSON.stringify(before) === JSON.stringify(after)) return answerOf(core, old);
      const record = rowRecord(core, "budget.change", old, { before, after });
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
        ...LIMIT_FLAGS,
        noLimits: toggle("--no-limits", "remove its limits"),
      },
      call: ({ id, budget_id, name, amount, noLimits, ...flags }) => ({
        params: { id, budget_id },
        body: changesIn({ name, amount, limits: limitsIn(flags) }, { limits: noLimits }),
      }),
      text: (budget) => budgetText(budget),
    }),
  ],
});

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
    if (!hasAmount(row)) throw invalidValue("amount", `${body.amount}`, "absent: the budget has limits only");
    if ((each === null) !== (value === null)) {
      const expected = each === null ? "absent: the budget has no `each`" : `a value of ${each}`;
      throw invalidValue("value", value === null ? "absent" : shortText(value), expected);
    }
    const use = currentUse(row, await core.budgets.budgetTime(), value ?? "");
    const window = { window_at: use.windowAtMs === 0 ? null : isoTime(use.windowAtMs) };
    const after = { amount: creditsFromMicro(amount), value: use.value, ...window };
    const record = rowRecord(core, "budget.raise", row, { after });
    if (!(await core.budgets.raiseBudget(organizationId, use, amount, record))) throw notFound();
    const [raised] = await core.budgets.namedUses(organizationId, [use]);
    return counterAnswer(row, use, raised);
  },
  commands: (make) => [
    make.command({
      usage: "budget raise <id> <amount>",
      flags: {
        ...BUDGET_FLAGS,
        amount: argument("<amount>", credits),
        value: optional("--value <value>", "the value whose amount is raised, of a budget with --each", text),
      },
      json: (counter) => counter,
      text: (counter, { budget_id: id }) =>
        facts({ id, limit: counter.limit, spent: spentText(counter), resets: counter.resets_at ?? "-" }),
    }),
  ],
});

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

function answersOf(core: Core, rows: readonly BudgetRow[]): Promise<Budget[]> {
  return budgetAnswers(core.budgets, rows, (row) => isByCallersWord(core, row));
}

async function answerOf(core: Core, row: BudgetRow): Promise<Budget> {
  return (await answersOf(core, [row]))[0] as Budget;
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
  if (callerIds === null && organizations.some((one) => typeof one === "object" || one === organizationId)) return true;
  return budgets.hasFreeCaller(row, keys, (key) => without(key).map(({ issuer }) => issuer));
}

function budgetText(budget: Budget, further: Record<string, string> = {}): string {
  const { id, name, window, amount } = budget;
  const limits = limitsText(budget);
  return facts({ id, name, covers: coverageOf(budget), window, amount: amount ?? "none", limits, ...further });
}

function limitsText({ limits }: Budget): string {
  const words = Object.entries(limits ?? {}).map(([unit, limit]) => `${limit} ${unit.replaceAll("_", " ")}`);
  return words.join(", ") || "none";
}

function coverageOf({ selector: { tokens, models, metadata }, each }: Budget): string {
  const values = Object.entries(metadata ?? {}).map(([key, allowed]) => `${key} ${allowed.join(" or ")}`);
  const parts = [...(tokens ?? []), ...(models ?? []), ...values];
  return `${parts.length === 0 ? "all requests" : parts.join(", ")}${each === null ? "" : `, each ${each}`}`;
}

function spentText(current: BudgetCounter | null): string {
  return current === null ? "by value" : `${current.spent} of ${current.limit}, ${current.held} held`;
}
