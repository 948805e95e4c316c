import { usageReport } from "../credits/amount.ts";
import type { BalanceRow } from "../credits/books.ts";
import type { OrganizationRow } from "../stores/queries/accounts.ts";
import { argument, type CommandOutput, command, facts, required, text } from "./command.ts";
import { found, unknownOrganization } from "./core.ts";
import { operation } from "./operation.ts";

export const showOrganization = operation({
  route: "GET /organizations/:id",
  permission: "organizations:read",
  summary: "Show an organization",
  answer: { status: 200, description: "The organization.", schema: (s) => s.Organization },
  handle: (services, { params }) => found(services.directory.organization(params.id)),
  commands: [
    command({
      usage: "org show <id>",
      summary: "Show an organization and its credits",
      flags: { id: argument("<id>", text) },
      async run(services, { id }) {
        const organization = await services.accounts.organization(id);
        if (organization === undefined) throw unknownOrganization(id);
        return outputWithStatus(organization, await services.freshBalance(id));
      },
    }),
    command({
      usage: "credits balance",
      summary: "Show an organization's total, available, used and held credits",
      flags: { id: required("--org <id>", "organization") },
      async run(services, { id }) {
        const { object, organization_id: organizationId, ...credits } = usageReport(await services.freshBalance(id));
        const { creditsTotal: total, creditsAvailable: available, creditsUsed: used, creditsHeld: held } = credits;
        return { json: { organizationId, ...credits }, text: facts({ total, available, used, held }) };
      },
    }),
  ],
});

export function organizationOutput({ id, name, kind }: OrganizationRow, balance: BalanceRow): CommandOutput {
  const { creditsTotal, creditsAvailable } = usageReport(balance);
  return {
    json: { id, name, kind, creditsTotal, creditsAvailable },
    text: facts({ id, name, kind, credits: `${creditsAvailable} of ${creditsTotal} available` }),
  };
}

/** Reports an organization that exists already, which may be paused. */
export function outputWithStatus(organization: OrganizationRow, balance: BalanceRow): CommandOutput {
  const { status, pausesAllowances } = organization;
  const { json, text } = organizationOutput(organization, balance);
  const line = facts({ status: pausesAllowances ? "paused, with its allowances" : status });
  return { json: { ...(json as object), status, pausesAllowances }, text: `${text}\n${line}` };
}
