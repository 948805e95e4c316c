import type { Command } from "commander";
import { usageReport } from "../credits/api-format.ts";
import type { BalanceRow } from "../credits/books.ts";
import type { OrganizationRow } from "../stores/queries/organizations.ts";
import { addCommand, type CommonFlags, print, type Report, type Terminal } from "./command.ts";
import { facts } from "./table.ts";
import { freshBalance, unknownOrganization, withWorkspace } from "./workspace.ts";

export function addOrgShow(org: Command, terminal: Terminal): void {
  addCommand(org, "show <id>", "Show an organization and its credits").action(
    async (id: string, flags: CommonFlags) => {
      await withWorkspace(terminal, flags, async (workspace) => {
        const organization = await workspace.accounts.organization(id);
        if (organization === undefined) throw unknownOrganization(id);
        print(terminal, flags, organizationReport(organization, await freshBalance(workspace, terminal, id)));
      });
    },
  );
}

/** An organization as the commands show one. */
export function organizationReport({ id, name, kind }: OrganizationRow, balance: BalanceRow): Report {
  const { creditsTotal, creditsAvailable } = usageReport(balance);
  return {
    json: { id, name, kind, creditsTotal, creditsAvailable },
    text: facts({ id, name, kind, credits: `${creditsAvailable} of ${creditsTotal} available` }),
  };
}
