import { auditRow } from "../admin/audit.ts";
import type { OrganizationChange, OrganizationRow } from "../stores/queries/accounts.ts";
import { argument, type CommandServices, command, text, toggle } from "./command.ts";
import { type AccountCore, checkLimits, checkName, defined, invalidValue, unknownOrganization } from "./core.ts";
import { limitSettingsOf, operation } from "./operation.ts";
import { organizationAnswer, outputWithStatus } from "./show-organization.ts";

export const changeOrganization = operation({
  route: "PATCH /organizations/:id",
  access: "operator",
  summary:
    "Change an organization's name or limits, pause or resume it, turn the storage of its conversations on or off",
  body: (s) => s.OrganizationChange,
  answer: { status: 200, description: "The organization as it is now.", schema: (s) => s.Organization },
  async handle(services, { params, body }) {
    const { name, status, limits, keeps_conversations: keepsConversations, pauses_allowances } = body;
    const change = { name, status, keepsConversations, pausesAllowances: pauses_allowances };
    const settings = limits === undefined ? {} : { limits: limitSettingsOf(limits) };
    await updateOrganization(services, params.id, { ...defined(change), ...settings });
    return organizationAnswer(services, params.id);
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
  ],
});

async function changed(services: CommandServices, id: string, change: OrganizationChange) {
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
  wanted: OrganizationChange,
): Promise<OrganizationRow> {
  const { status, pausesAllowances = false } = wanted;
  if (pausesAllowances && status !== "paused") {
    throw invalidValue("pauses_allowances", "true", 'false, or sent with "status": "paused"');
  }
  const change = { ...wanted, ...(status !== undefined && { pausesAllowances }) };
  if (change.name !== undefined) checkName(change.name);
  checkLimits(change.limits ?? null);
  const subject = { action: "organization.change", organizationId: id, subjectId: id };
  const row = await core.accounts.changeOrganization(id, change, (before, after) =>
    auditRow(core.actor, { ...subject, before, after }, core),
  );
  if (row === undefined) throw unknownOrganization(id);
  return row;
}
