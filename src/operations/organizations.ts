import type { Directory } from "../admin/directory.ts";
import { makeId } from "../admin/token.ts";
import { CREDIT_WARNINGS_MAX } from "../api/admin/event-kinds.ts";
import type { Organization } from "../api/admin/organization.ts";
import type { ConversationRemoval } from "../api/admin/request.ts";
import { permits } from "../api/admin/roles.ts";
import { creditsFromMicro, creditsJson, creditsOf } from "../credits/amount.ts";
import type { BalanceRow } from "../credits/books.ts";
import type { OrganizationTerms, OrganizationUpdate } from "../stores/queries/accounts.ts";
import {
  argument,
  type CommandServices,
  command,
  credits,
  creditsOrNone,
  facts,
  integer,
  jsonOf,
  list,
  onOrOff,
  optional,
  required,
  tableOf,
  text,
  toggle,
  withDefault,
} from "./command.ts";
import {
  type AccountCore,
  allPages,
  checkLimits,
  checkName,
  closedOrganization,
  defined,
  found,
  invalidValue,
  rowRecord,
  stated,
  unknownOrganization,
} from "./core.ts";
import { grantCredits } from "./credits.ts";
import { amountOf, type OperationCall, operation, sharedOperation } from "./operation.ts";
import { EXTERNAL_ID, PRICE_LIST, refuseExternalId, termsOf, UPDATE } from "./organization-terms.ts";

export const listOrganizations = operation({
  route: "GET /organizations",
  permission: "organizations:read",
  summary: "List organizations, the newest first; members see their own",
  query: (s) =>
    s.Strict({
      ...s.PageQuery,
      search: s.Type.Optional(s.Type.String({ maxLength: 200, description: "Part of the name, or an id." })),
      external_id: s.Type.Optional(s.ExternalId),
      status: s.Type.Optional(s.OrganizationStatus),
    }),
  answer: { status: 200, description: "A page.", schema: (s) => s.PageOf(s.Organization) },
  async handle({ directory }, { who, query: { search = null, external_id: externalId = null, status = null }, page }) {
    const organizationId = who?.organizationId ?? null;
    if (organizationId === null) return directory.organizations({ search, externalId, status, ...page });
    return { object: "list", data: [await organizationFor(directory, who, organizationId)], next_cursor: null };
  },
  commands: [
    command({
      usage: "org list",
      summary: "List the organizations, the oldest first",
      flags: {},
      async run({ directory, freshBalance }) {
        const all = await allPages((page) => directory.organizations({ search: null, status: null, ...page }));
        const json = [];
        for (const organization of all.reverse()) {
          json.push(organizationJson(organization, await freshBalance(organization.id)));
        }
        const text = tableOf(json, {
          ID: ({ id }) => id,
          NAME: ({ name }) => name,
          KIND: ({ kind }) => kind,
          STATUS: ({ status }) => status,
          CREDITS: ({ creditsTotal }) => creditsTotal,
          AVAILABLE: ({ creditsAvailable }) => creditsAvailable,
        });
        return { json, text };
      },
    }),
  ],
});

export const createOrganization = operation({
  route: "POST /organizations",
  permission: "organizations:write",
  summary: "Create an organization",
  body: (s) => s.NewOrganization,
  answer: { status: 201, description: "The organization.", schema: (s) => s.Organization },
  async handle(services, { body: { name, ...terms } }) {
    const { id } = await addOrganization(services, name, await termsOf(services, terms));
    return found(services.directory.organization(id));
  },
  commands: [
    command({
      usage: "org create <name>",
      summary: "Create an organization, optionally with credits",
      flags: {
        name: argument("<name>", text),
        amount: withDefault("--credits <amount>", "credits to grant to it", "0", creditsOrNone),
        external_id: EXTERNAL_ID,
        price_list: PRICE_LIST,
      },
      createsStore: true,
      async run(services, { name, amount, ...terms }) {
        const { id } = await addOrganization(services, name, await termsOf(services, terms));
        if (amount > 0) await grantCredits(services, { organizationId: id, amount: amountOf("amount", amount) });
        const { json, text } = await organizationOutput(services, id);
        const { name: stored, kind, creditsTotal, creditsAvailable } = json;
        return { json: { id, name: stored, kind, creditsTotal, creditsAvailable }, text };
      },
    }),
  ],
});

/** Creates an organization without credits. Rejects with invalid_value. */
export async function addOrganization(core: AccountCore, name: string, terms: Partial<OrganizationTerms> = {}) {
  checkName(name);
  checkLimits(terms.limits ?? null);
  const id = makeId("org", core.random);
  const after = { name, limits: null, ...stated(terms) };
  const record = rowRecord(core, "organization.create", { organizationId: id, id }, { after });
  const row = { ...terms, id, name, kind: "standard", createdAtMs: core.clock() } as const;
  return (await core.accounts.insertOrganization(row, record)) ?? refuseExternalId(terms.externalId);
}

export const showOrganization = operation({
  route: "GET /organizations/:id",
  permission: "organizations:read",
  summary: "Show an organization",
  answer: { status: 200, description: "The organization.", schema: (s) => s.Organization },
  async handle(services, { who, params }) {
    return organizationFor(services.directory, who, params.id);
  },
  commands: [
    command({
      usage: "org show <id>",
      summary: "Show an organization and its credits",
      flags: { id: argument("<id>", text) },
      run: (services, { id }) => organizationOutput(services, id),
    }),
    command({
      usage: "credits balance",
      summary: "Show an organization's total, available, used and held credits",
      flags: { id: required("--org <id>", "organization") },
      async run({ freshBalance }, { id }) {
        const balance = creditsOf(await freshBalance(id));
        const { total, available, used, held } = balance;
        return { json: { organizationId: id, ...creditsJson(balance) }, text: facts({ total, available, used, held }) };
      },
    }),
  ],
});

/** Reads an organization as a caller sees it: those of its own see no note, and without `credits:read` no contacts. Rejects with not_found. */
async function organizationFor(directory: Directory, who: OperationCall["who"], id: string) {
  const organization = await found(directory.organization(id));
  if ((who?.organizationId ?? null) === null) return organization;
  return { ...organization, note: null, ...(!permits(who?.role ?? null, "credits:read") && { contacts: null }) };
}

/** Reports an organization, after every grant that has taken effect or expired. Rejects with not_found. */
async function organizationOutput({ freshBalance, directory }: CommandServices, id: string) {
  const balance = await freshBalance(id);
  const json = organizationJson(await found(directory.organization(id)), balance);
  const { name, kind, creditsTotal, creditsAvailable, status, pausesAllowances } = json;
  const credits = `${creditsAvailable} of ${creditsTotal} available`;
  const allowances = status === "paused" && pausesAllowances ? ", with its allowances" : "";
  const text = facts({ id, name, kind, credits, status: `${status}${allowances}` });
  return { json, text };
}

/** Formats an organization as commands do. */
function organizationJson({ credits, ...organization }: Organization, balance: BalanceRow) {
  const { id, name, kind, status, pauses_allowances: pausesAllowances } = organization;
  return { id, name, kind, ...creditsJson(creditsOf(balance)), status, pausesAllowances, ...jsonOf(organization) };
}

export const changeOrganization = sharedOperation({
  route: "PATCH /organizations/:id",
  permission: "organizations:write",
  summary:
    "Change an organization's name, terms or credit warnings, pause or resume it, turn the storage of its conversations or responses on or off",
  body: (s) => s.OrganizationChange,
  answer: { status: 200, description: "The organization as it is now.", schema: (s) => s.Organization },
  async handle(core, { params, body }) {
    const { name, status, pauses_allowances: pausesAllowances, credit_warnings, ...others } = body;
    const warnings = credit_warnings?.map((credits) => amountOf("credit_warnings", credits)) ?? null;
    const { keeps_conversations: keepsConversations, keeps_responses: keepsResponses, ...terms } = others;
    const change = { name, status, keepsConversations, keepsResponses, pausesAllowances };
    const present = terms.aliases ? await core.accounts.organization(params.id) : undefined;
    await updateOrganization(core, params.id, { ...defined(change), ...(await termsOf(core, terms, present)) });
    if (body.credit_warnings !== undefined) await updateCreditWarnings(core, params.id, warnings);
    return found(core.directory.organization(params.id));
  },
  commands: (make) => [
    command({
      usage: "org pause <id>",
      summary: "Refuse new requests of an organization; running ones complete",
      flags: {
        id: argument("<id>", text),
        pausesAllowances: toggle("--allowances", "also grant no month of its allowances until it is resumed"),
      },
      run: (services, { id, pausesAllowances }) => changed(services, id, { status: "paused", pausesAllowances }),
    }),
    command({
      usage: "org resume <id>",
      summary: "Accept requests of an organization again, and continue its allowances",
      flags: { id: argument("<id>", text) },
      run: (services, { id }) => changed(services, id, { status: "active" }),
    }),
    make.command(UPDATE),
    make.command({
      usage: "org warnings <id>",
      summary: "Set the credits at which an organization is warned, in addition to shares of its last top-up",
      flags: {
        id: argument("<id>", text),
        at: list("--at <credits...>", "amounts of credits, at most ten; without it all are removed"),
      },
      call({ id, at }) {
        const credit_warnings = at?.map((one) => credits(one, "--at")) ?? null;
        return { params: { id }, body: { credit_warnings } };
      },
      json: ({ id, credit_warnings: creditWarnings }) => ({ id, creditWarnings }),
      text: ({ id, credit_warnings: warnings }) => facts({ id, warnings: warnings?.join(", ") ?? "none" }),
    }),
    make.command({
      usage: "org storage <id>",
      summary: "Show or change what is stored of an organization's prompts and answers",
      flags: {
        id: argument("<id>", text),
        keeps_conversations: optional("--conversations <on|off>", "prompts and answers, for the operator", onOrOff),
        keeps_responses: optional(
          "--responses <on|off>",
          "items of responses, for requests that refer to them",
          onOrOff,
        ),
      },
      call: ({ id, ...body }) => ({ params: { id }, body: stated(body) }),
      json: ({ id, keeps_conversations, keeps_responses }) => jsonOf({ id, keeps_conversations, keeps_responses }),
      text: ({ id, keeps_conversations, keeps_responses }) =>
        facts({ id, conversations: keeps_conversations ? "on" : "off", responses: keeps_responses ? "on" : "off" }),
    }),
  ],
});

export const changeTokenBounds = sharedOperation({
  route: "PATCH /organizations/:id/token-bounds",
  permission: "token-bounds:write",
  summary: "Set what tokens the owners and developers of an organization can create themselves",
  body: (s) => s.OwnTokenBounds,
  answer: { status: 200, description: "The organization as it is now.", schema: (s) => s.Organization },
  async handle(core, { who, params: { id }, body }) {
    const { max_count: countMax, models, max_cap: capMax, max_days: daysMax } = body;
    if (capMax !== null) amountOf("max_cap", capMax);
    await updateOrganization(core, id, { tokenBounds: { countMax, models, capMax, daysMax } });
    return organizationFor(core.directory, who, id);
  },
  commands: (make) => [
    make.command({
      usage: "org token-bounds <id>",
      flags: {
        id: argument("<id>", text),
        max_count: {
          ...optional("--count <number>", "active tokens of each person; 0: none", integer(0, 1_000)),
          isRequired: true,
        },
        models: list("--model <id...>", "models that they can call (default: all)"),
        max_cap: optional("--cap <credits>", "highest spending cap of a token (default: a token needs none)", credits),
        max_days: optional(
          "--days <number>",
          "days until a token expires at the latest (default: never)",
          integer(1, 3_650),
        ),
      },
      json: ({ id, token_bounds }) => ({ id, ...jsonOf(token_bounds) }),
      text: ({ id, token_bounds: { max_count, models, max_cap, max_days } }) =>
        facts({
          id,
          "tokens each": max_count,
          models: models?.join(", ") ?? "all",
          cap: max_cap ?? "none",
          days: max_days ?? "any",
        }),
    }),
  ],
});

/** Sets the thresholds at which an organization is warned. Rejects with not_found or invalid_value. */
export async function updateCreditWarnings(core: AccountCore, id: string, amounts: bigint[] | null): Promise<void> {
  if (amounts !== null && amounts.length > CREDIT_WARNINGS_MAX) {
    throw invalidValue("credit_warnings", `${amounts.length} amounts`, `${CREDIT_WARNINGS_MAX} or fewer`);
  }
  const after = { creditWarnings: amounts?.map(creditsFromMicro) ?? null };
  const record = rowRecord(core, "organization.change", { organizationId: id, id }, { after });
  if (!(await core.accounts.changeCreditWarnings(id, amounts, record))) throw unknownOrganization(id);
}

async function changed(services: CommandServices, id: string, change: OrganizationUpdate) {
  await updateOrganization(services, id, change);
  return organizationOutput(services, id);
}

/**
 * Changes an organization. Its allowances are paused only together with it, and resumed with it: the months that begin in
 * between are not granted. Rejects with invalid_value, or not_found.
 */
export async function updateOrganization(core: AccountCore, id: string, wanted: OrganizationUpdate) {
  const { status, pausesAllowances = false } = wanted;
  if (pausesAllowances && (status === undefined || status === "active")) {
    throw invalidValue("pauses_allowances", "true", 'false, or sent with "status": "paused"');
  }
  const change = { ...wanted, ...(status !== undefined && { pausesAllowances }) };
  if (change.name !== undefined) checkName(change.name);
  checkLimits(change.limits ?? null);
  const row = await core.accounts.changeOrganization(id, change, (before, after) =>
    rowRecord(core, "organization.change", { organizationId: id, id }, { before, after }),
  );
  if (row === undefined) throw unknownOrganization(id);
  if (row === "closed") throw closedOrganization(id);
  return row === "taken" ? refuseExternalId(change.externalId) : row;
}

export const removeConversations = operation({
  route: "DELETE /organizations/:id/conversations",
  permission: "conversations:delete",
  summary: "Delete the stored conversations of an organization now, and the kept items of its responses",
  answer: {
    status: 200,
    description: "The number of conversations that were deleted.",
    schema: (s) => s.ConversationRemoval,
  },
  async handle(services, { params: { id: organizationId } }): Promise<ConversationRemoval> {
    const { conversations, responseItems, audit, actor } = services;
    const change = { action: "conversations.remove", organizationId, subjectId: organizationId };
    const removed = await conversations.remove(organizationId, (kept) =>
      audit.record(actor, { ...change, before: { kept } }),
    );
    await responseItems.removeOf(organizationId);
    return { object: "conversation_removal", organization_id: organizationId, removed };
  },
});
