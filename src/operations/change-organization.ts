import { auditRow } from "../admin/audit.ts";
import { CREDIT_WARNINGS_MAX } from "../api/admin/event-kinds.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import type { OrganizationRow, OrganizationUpdate } from "../stores/queries/accounts.ts";
import {
  argument,
  type CommandServices,
  command,
  credits,
  facts,
  list,
  onOrOff,
  optional,
  text,
  toggle,
} from "./command.ts";
import {
  type AccountCore,
  checkLimits,
  checkName,
  defined,
  found,
  invalidValue,
  rowRecord,
  unknownOrganization,
} from "./core.ts";
import { amountOf, limitSettingsOf, operation } from "./operation.ts";
import { outputWithStatus } from "./show-organization.ts";

export const changeOrganization = operation({
  route: "PATCH /organizations/:id",
  permission: "organizations:write",
  summary:
    "Change an organization's name, limits or credit warnings, pause or resume it, turn the storage of its conversations or responses on or off",
  body: (s) => s.OrganizationChange,
  answer: { status: 200, description: "The organization as it is now.", schema: (s) => s.Organization },
  async handle(services, { params, body }) {
    const { name, status, limits, pauses_allowances: pausesAllowances } = body;
    const warnings = body.credit_warnings?.map((credits) => amountOf("credit_warnings", credits)) ?? null;
    const { keeps_conversations: keepsConversations, keeps_responses: keepsResponses } = body;
    const change = { name, status, keepsConversations, keepsResponses, pausesAllowances };
    const settings = limits === undefined ? {} : { limits: limitSettingsOf(limits) };
    await updateOrganization(services, params.id, { ...defined(change), ...settings });
    if (body.credit_warnings !== undefined) await updateCreditWarnings(services, params.id, warnings);
    return found(services.directory.organization(params.id));
  },
  commands: [
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
    command({
      usage: "org warnings <id>",
      summary: "Set the credits at which an organization is warned, in addition to shares of its last top-up",
      flags: {
        id: argument("<id>", text),
        at: list("--at <credits...>", "amounts of credits, at most ten; without it all are removed"),
      },
      input: ({ id, at }) => ({ id, amounts: at?.map((one) => credits(one, "--at")) ?? null }),
      async run(services, { id, amounts }) {
        await updateCreditWarnings(services, id, amounts);
        const creditWarnings = amounts?.map(creditsFromMicro) ?? null;
        return { json: { id, creditWarnings }, text: facts({ id, warnings: creditWarnings?.join(", ") ?? "none" }) };
      },
    }),
    command({
      usage: "org storage <id>",
      summary: "Show or change what is stored of an organization's prompts and answers",
      flags: {
        id: argument("<id>", text),
        keepsConversations: optional("--conversations <on|off>", "prompts and answers, for the operator", onOrOff),
        keepsResponses: optional(
          "--responses <on|off>",
          "items of responses, for requests that refer to them",
          onOrOff,
        ),
      },
      async run(services, { id, ...choices }) {
        const change = Object.fromEntries(Object.entries(choices).filter(([, choice]) => choice !== null));
        const isChanged = Object.keys(change).length > 0;
        const organization = isChanged
          ? await updateOrganization(services, id, change)
          : await services.accounts.organization(id);
        if (organization === undefined) throw unknownOrganization(id);
        const { keepsConversations, keepsResponses } = organization;
        const words = { conversations: onOff(keepsConversations), responses: onOff(keepsResponses) };
        return { json: { id, keepsConversations, keepsResponses }, text: facts({ id, ...words }) };
      },
    }),
  ],
});

/** Sets the thresholds at which an organization is warned. Rejects with not_found or invalid_value. */
export async function updateCreditWarnings(core: AccountCore, id: string, amounts: bigint[] | null): Promise<void> {
  if (amounts !== null && amounts.length > CREDIT_WARNINGS_MAX) {
    throw invalidValue(
      "credit_warnings",
      `a list of ${amounts.length} amounts`,
      `a list of at most ${CREDIT_WARNINGS_MAX}`,
    );
  }
  const after = { creditWarnings: amounts?.map(creditsFromMicro) ?? null };
  const change = { action: "organization.change", organizationId: id, subjectId: id, after };
  const isKnown = await core.accounts.changeCreditWarnings(id, amounts, auditRow(core.actor, change, core));
  if (!isKnown) throw unknownOrganization(id);
}

function onOff(isOn: boolean): string {
  return isOn ? "on" : "off";
}

async function changed(services: CommandServices, id: string, change: OrganizationUpdate) {
  const organization = await updateOrganization(services, id, change);
  return outputWithStatus(organization, await services.freshBalance(id));
}

/**
 * Changes an organization. Its allowances are paused only together with it, and resumed with it: the months that begin in
 * between are not granted. Rejects with invalid_value, or not_found.
 */
export async function updateOrganization(
  core: AccountCore,
  id: string,
  wanted: OrganizationUpdate,
): Promise<OrganizationRow> {
  const { status, pausesAllowances = false } = wanted;
  if (pausesAllowances && status !== "paused") {
    throw invalidValue("pauses_allowances", "true", 'false, or sent with "status": "paused"');
  }
  const change = { ...wanted, ...(status !== undefined && { pausesAllowances }) };
  if (change.name !== undefined) checkName(change.name);
  checkLimits(change.limits ?? null);
  const row = await core.accounts.changeOrganization(id, change, (before, after) =>
    rowRecord(core, "organization.change", { organizationId: id, id }, { before, after }),
  );
  if (row === undefined) throw unknownOrganization(id);
  return row;
}
