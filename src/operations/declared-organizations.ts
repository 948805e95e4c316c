import { isDeepStrictEqual } from "node:util";
import type { NewBudget } from "../api/admin/budget.ts";
import type { Allowance } from "../api/admin/credits.ts";
import { checkDeclaration, type OrganizationDeclaration } from "../api/admin/declaration.ts";
import type { Token } from "../api/admin/token.ts";
import { isoTime } from "../api/time.ts";
import { auditedBudget } from "../credits/budgets.ts";
import { ApiError } from "../errors.ts";
import { allowancesOf, createAllowance, endAllowance } from "./allowances.ts";
import { changeBudget, checkNewBudget, createBudget, deleteBudget } from "./budgets.ts";
import {
  allPages,
  type Core,
  checkName,
  closedOrganization,
  invalidValue,
  shortText,
  unknownOrganization,
} from "./core.ts";
import { createGrant } from "./credits.ts";
import {
  amountOf,
  futureTimeOf,
  type Operation,
  type OperationCall,
  type OperationServices,
  timeOf,
} from "./operation.ts";
import { termsOf } from "./organization-terms.ts";
import { addOrganization, changeOrganization } from "./organizations.ts";
import { scopesOf } from "./token-terms.ts";
import { changeToken, createToken, endToken } from "./tokens.ts";

type Values = Record<string, unknown>;
type Terms = Omit<OrganizationDeclaration, "id" | "tokens" | "budgets" | "allowances" | "grants">;

type FieldChange = ReturnType<typeof differences>[number];

/** A change in one transaction, or in a few that the next run completes. */
interface Step {
  kind: "organization" | "token" | "budget" | "allowance" | "grant";
  /** The name or the reference within the organization. */
  name: string;
  action: "create" | "change" | "remove";
  changes: FieldChange[];
  /** Resolves with the answer of its operation: for a new token, with its secret. */
  run(): Promise<unknown>;
}

/** The steps that make an organization match its declaration; none if it does already. */
export interface OrganizationPlan {
  /** Null until the first step has created it. */
  id: string | null;
  externalId: string | null;
  name: string;
  isNew: boolean;
  steps: Step[];
}

/**
 * Compares a declaration with the stored organization of its `id` or `external_id`, and entries of lists by name or reference.
 * Rejects with ApiError for what no operation can make; its `param` is the path within the declaration.
 */
export async function planOrganization(core: Core, declared: OrganizationDeclaration): Promise<OrganizationPlan> {
  const issue = checkDeclaration(declared);
  if (issue !== undefined) {
    const { code, message, param } = issue;
    throw new ApiError(code, message, { ...(param !== null && { param }) });
  }
  const { id: _id, tokens, budgets, allowances, grants, ...terms } = declared;
  const present = await findOrganization(core, declared);
  const { id, external_id: externalId, name } = present ?? { id: null, external_id: null, name: "" };
  const plan: OrganizationPlan = { id, externalId, name, isNew: id === null, steps: [] };
  if (id === null) Object.assign(plan, { externalId: terms.external_id, name: terms.name });
  plan.steps.push(...(await organizationSteps(core, plan, terms, present)));
  await addSteps(core, plan, "tokens", tokens);
  // After the tokens, which their selectors name.
  await addSteps(core, plan, "budgets", budgets);
  await addSteps(core, plan, "allowances", allowances);
  await addSteps(core, plan, "grants", grants);
  return plan;
}

async function findOrganization({ directory }: Core, { id, external_id: externalId, name }: OrganizationDeclaration) {
  if (id === undefined && typeof externalId !== "string") {
    throw missing("external_id", "'external_id', or 'id': names are not unique");
  }
  const search = { search: null, status: null, externalId: externalId ?? null, cursor: null, limit: 1 };
  const present = id === undefined ? (await directory.organizations(search)).data[0] : await directory.organization(id);
  if (present === undefined) {
    if (id !== undefined) throw unknownOrganization(id);
    if (name !== undefined) return undefined;
    throw missing(
      "name",
      `'name', because there is no organization with the external id ${shortText(externalId ?? "")}`,
    );
  }
  if (present.status === "closed") throw closedOrganization(present.id);
  if (present.kind === "playground") throw invalidValue("id", "that of the playground", "that of a customer");
  return present;
}

async function organizationSteps(core: Core, plan: OrganizationPlan, terms: Terms, present?: Values): Promise<Step[]> {
  const { name, models, aliases, price_list, external_id, contacts, note, limits, ...settings } = terms;
  await termsOf(core, terms, present);
  if (settings.pauses_allowances === true && settings.status !== "paused") {
    throw invalidValue("pauses_allowances", "true", 'false, or stated with "status": "paused"');
  }
  const changes = differences(core, terms, present);
  if (changes.length === 0) return [];
  const change = (body: Values) => call(changeOrganization, core, { params: { id: plan.id }, body });
  if (present === undefined) {
    const run = async () => {
      plan.id = (await addOrganization(core, plan.name, await termsOf(core, terms))).id;
      if (Object.keys(settings).length > 0) await change(settings);
    };
    return [{ kind: "organization", name: plan.name, action: "create", changes, run }];
  }
  const body: Values = bodyOf(changes);
  // An organization pauses its allowances only together with itself.
  if ("pauses_allowances" in body) body.status = settings.status ?? present.status;
  return [{ kind: "organization", name: plan.name, action: "change", changes, run: () => change(body) }];
}

/** The lists of a declaration, with the field that identifies an entry. */
const LISTS = {
  tokens: { key: "name", kind: "token", open: openTokens },
  budgets: { key: "name", kind: "budget", open: openBudgets },
  allowances: { key: "reference", kind: "allowance", open: openAllowances },
  grants: { key: "reference", kind: "grant", open: openGrants },
} as const;
type List = keyof typeof LISTS;

/** The stored entries of one list, and the operations on them. */
interface Kind {
  /** Returns the entries that are stored under a name or a reference. */
  find(name: string): Promise<Stored[]> | Stored[];
  /** Fields that can change. Default: all. */
  changeable?: readonly string[];
  /** Returns the terms with the values that are stored for them. Default: the terms. */
  stored?(terms: Values): Values;
  /** Throws an ApiError for terms that cannot be created. */
  check?(terms: Values): void;
  create(terms: Values): Promise<unknown>;
  change?(id: string, body: Values): Promise<unknown>;
  remove?(id: string): Promise<unknown>;
}

interface Stored {
  id: string;
  /** True if it was revoked, has expired or was ended. It is not created again: the file may be older than its end. */
  isEnded: boolean;
  values: object;
}

/** Adds the steps for the entries of a list to the plan. The path of an error begins with the list. */
async function addSteps(core: Core, plan: OrganizationPlan, list: List, entries: Values[] = []): Promise<void> {
  if (entries.length === 0) return;
  const { key, open } = LISTS[list];
  const kind = await open(core, plan);
  const indexes = new Map<string, number>();
  for (const [index, entry] of entries.entries()) {
    try {
      const name = String(entry[key]);
      const first = indexes.get(name);
      if (first !== undefined) throw invalidValue(key, shortText(name), `different from that of ${list}[${first}]`);
      indexes.set(name, index);
      plan.steps.push(...(await stepOf(core, name, entry, kind, LISTS[list])));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const param = [`${list}[${index}]`, ...(error.param === null ? [] : [error.param])].join(".");
      throw new ApiError(error.code, error.message, { param, cause: error });
    }
  }
}

/** Returns the step for an entry; none if there is nothing to do. */
async function stepOf(
  core: Core,
  name: string,
  { removed, ...terms }: Values,
  { find, changeable, stored, check, create, change, remove }: Kind,
  { key, kind }: (typeof LISTS)[List],
): Promise<Step[]> {
  const found = await find(name);
  const [present, other] = found.filter(({ isEnded }) => !isEnded);
  if (other !== undefined) throw invalidValue(key, shortText(name), `a ${key} that only one ${kind} has`);
  if (present === undefined && (removed || found.length > 0)) return [];
  if (present !== undefined && removed) {
    return [{ kind, name, action: "remove", changes: [], run: async () => remove?.(present.id) }];
  }
  const changes = differences(core, stored?.(terms) ?? terms, present?.values);
  if (present === undefined) {
    check?.(terms);
    return [{ kind, name, action: "create", changes, run: () => create(terms) }];
  }
  if (changes.length === 0) return [];
  const fixed = changeable && changes.find(({ field }) => !changeable.includes(field));
  if (fixed !== undefined) {
    const message = `The ${fixed.field} of the ${kind} is ${JSON.stringify(fixed.from)} and cannot change. Use another ${key}.`;
    throw new ApiError("invalid_value", message, { param: fixed.field });
  }
  return [{ kind, name, action: "change", changes, run: async () => change?.(present.id, bodyOf(changes)) }];
}

async function openTokens(core: Core, plan: OrganizationPlan): Promise<Kind> {
  const tokens = await tokensOf(core, plan.id);
  const stored = (token: Token) => {
    return { id: token.id, isEnded: !isActive(token), values: { ...token, cap: token.cap?.amount ?? null } };
  };
  return {
    find: (name) => tokens.filter((token) => token.name === name).map(stored),
    create: (terms) => call(createToken, core, { body: { organization_id: plan.id, ...terms } }),
    change: (id, body) => call(changeToken, core, { params: { id }, body }),
    remove: (id) => endToken(core, id),
  };
}

async function tokensOf({ directory }: Core, organizationId: string | null): Promise<Token[]> {
  if (organizationId === null) return [];
  const filter = { organizationId, createdBy: null, search: null, status: null };
  const all = await allPages((page) => directory.tokens({ ...filter, ...page }));
  return all.filter(({ kind }) => kind === "secret");
}

/** Tests whether a token is active. One that was rotated is not: its successor has its name. */
function isActive({ status, successor_id }: Token): boolean {
  return status === "active" && successor_id === null;
}

type Selector = NonNullable<OrganizationDeclaration["budgets"]>[number]["selector"];

async function openBudgets(core: Core, plan: OrganizationPlan): Promise<Kind> {
  const rows = plan.id === null ? [] : await core.budgets.budgets(plan.id);
  const tokens = await tokensOf(core, plan.id);
  const withTokens = (selector: unknown, of: Token[], field: "id" | "caller_id") => {
    const named = selector as Selector;
    return named && { ...named, tokens: named.tokens?.map((name) => tokenNamed(of, name)?.[field] ?? name) ?? null };
  };
  const stored = (row: (typeof rows)[number]) => ({ id: row.id, isEnded: false, values: auditedBudget(row) });
  const own = rows.filter(({ capOf }) => capOf === null);
  const isNew = (name: string) =>
    plan.steps.some((step) => step.kind === "token" && step.action === "create" && step.name === name);
  const planned = (action: Step["action"]) =>
    plan.steps.filter((step) => step.kind === "budget" && step.action === action).length;
  return {
    changeable: ["amount", "limits"],
    find: (name) => own.filter((row) => row.name === name).map(stored),
    stored({ selector, ...terms }) {
      const named = withTokens(selector, tokens, "caller_id");
      return named === undefined ? terms : { ...terms, selector: { models: null, metadata: null, ...named } };
    },
    check(terms) {
      checkNewBudget(terms as unknown as NewBudget, own.length + planned("create") - planned("remove"));
      const { tokens: names } = (terms.selector as Selector) ?? {};
      for (const [index, name] of names?.entries() ?? []) {
        if (tokenNamed(tokens, name) !== undefined || isNew(name)) continue;
        throw invalidValue(`selector.tokens[${index}]`, shortText(name), "the name of a token of the organization");
      }
    },
    async create({ selector, ...terms }) {
      const body = { ...terms, selector: withTokens(selector, await tokensOf(core, plan.id), "id") };
      return call(createBudget, core, { params: { id: plan.id }, body });
    },
    change: (budget_id, body) => call(changeBudget, core, { params: { id: plan.id, budget_id }, body }),
    remove: (budget_id) => call(deleteBudget, core, { params: { id: plan.id, budget_id } }),
  };
}

/** Finds a token by its id or its name; an ended one only if no active one has the name. */
function tokenNamed(tokens: Token[], name: string): Token | undefined {
  const named = tokens.filter((token) => token.id === name || token.name === name);
  return named.find((token) => token.id === name || isActive(token)) ?? named[0];
}

async function openAllowances(core: Core, plan: OrganizationPlan): Promise<Kind> {
  const { id } = plan;
  const allowances = id === null ? [] : await allPages((page) => allowancesOf(core, id, page));
  const stored = (values: Allowance) => ({ id: values.id, isEnded: values.ended_at !== null, values });
  return {
    changeable: [],
    find: (reference) => allowances.filter((allowance) => allowance.reference === reference).map(stored),
    create: (body) => call(createAllowance, core, { params: { id: plan.id }, body }),
    remove: (allowance_id) => call(endAllowance, core, { params: { id: plan.id, allowance_id } }),
  };
}

async function openGrants(core: Core, plan: OrganizationPlan): Promise<Kind> {
  return {
    changeable: [],
    async find(reference) {
      const named = plan.id === null ? [] : await core.directory.grantsNamed(reference, plan.id, 2);
      const own = named.filter((grant) => grant.reference === reference);
      return own.map((grant) => ({ id: grant.id, isEnded: false, values: grant }));
    },
    create: (body) => call(createGrant, core, { params: { id: plan.id }, body }),
  };
}

/** Calls an operation that needs only the services that commands have. */
function call(operation: Operation, core: Core, input: Partial<Record<"params" | "body", unknown>>) {
  return operation.handle(core as OperationServices, { who: null, params: {}, query: {}, ...input } as OperationCall);
}

/** Returns the fields whose values differ from the present ones. Throws invalid_value for one that no operation accepts. */
function differences(core: Core, terms: object, present: object = {}) {
  return Object.entries(terms).flatMap(([field, value]) => {
    const from = (present as Values)[field] ?? null;
    const to = storedValue(field, value);
    if (isDeepStrictEqual(from, to)) return [];
    if (field === "expires_at" || field === "begins_at") futureTimeOf(core, field, value);
    return [{ field, from, to }];
  });
}

function storedValue(field: string, value: unknown): unknown {
  if (field === "name") checkName(String(value));
  if (value === null) return field === "scopes" ? scopesOf(null) : null;
  if (field === "scopes") return scopesOf(value as string[]);
  if (field.endsWith("_at")) return isoTime(timeOf(field, String(value)));
  if (field === "limits" && Object.keys(value as object).length === 0) return null;
  if (field === "amount" || field === "cap") amountOf(field, value as number);
  if (field === "credit_warnings") for (const amount of value as number[]) amountOf(field, amount);
  return value;
}

function bodyOf(changes: FieldChange[]): Values {
  return Object.fromEntries(changes.map(({ field, to }) => [field, to]));
}

function missing(param: string, named: string): ApiError {
  return new ApiError("missing_required_parameter", `Missing required parameter: ${named}.`, { param });
}
