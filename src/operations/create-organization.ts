import { makeId } from "../admin/token.ts";
import type { LimitSettings } from "../api/principal.ts";
import type { OrganizationRow } from "../stores/queries/accounts.ts";
import { argument, command, creditsOrNone, text, withDefault } from "./command.ts";
import { type AccountCore, checkLimits, checkName, found, rowRecord } from "./core.ts";
import { grantCredits } from "./create-grant.ts";
import { limitSettingsOf, operation } from "./operation.ts";
import { organizationOutput } from "./show-organization.ts";

export const createOrganization = operation({
  route: "POST /organizations",
  permission: "organizations:write",
  summary: "Create an organization",
  body: (s) => s.NewOrganization,
  answer: { status: 201, description: "The organization.", schema: (s) => s.Organization },
  async handle(services, { body }) {
    const { id } = await addOrganization(services, body.name, limitSettingsOf(body.limits));
    return found(services.directory.organization(id));
  },
  commands: [
    command({
      usage: "org create <name>",
      summary: "Create an organization, optionally with credits",
      flags: {
        name: argument("<name>", text),
        amount: withDefault("--credits <amount>", "credits to grant to it", "0", creditsOrNone),
      },
      createsStore: true,
      async run(services, { name, amount }) {
        const organization = await addOrganization(services, name);
        const { id: organizationId } = organization;
        if (amount === 0n) return organizationOutput(organization, await services.freshBalance(organizationId));
        const { balance } = await grantCredits(services, { organizationId, amount });
        return organizationOutput(organization, balance);
      },
    }),
  ],
});

/** Creates an organization without credits. Rejects with invalid_value. */
export async function addOrganization(
  core: AccountCore,
  name: string,
  limits: Partial<LimitSettings> | null = null,
): Promise<OrganizationRow> {
  checkName(name);
  checkLimits(limits);
  const id = makeId("org", core.random);
  const row = { id, name, kind: "standard", status: "active", limits, createdAtMs: core.clock() } as const;
  const record = rowRecord(core, "organization.create", { organizationId: id, id }, { after: { name, limits } });
  await core.accounts.insertOrganization(row, record);
  return { ...row, keepsConversations: false, keepsResponses: true, pausesAllowances: false };
}
