import type { Command } from "commander";
import { addCommand, type CommonFlags, creditsFlag, print, type Terminal } from "./command.ts";
import { organizationReport } from "./org-show.ts";
import { freshBalance, grantCredits, type Workspace, withWorkspace } from "./workspace.ts";

export function addOrgCreate(org: Command, terminal: Terminal): void {
  addCommand(org, "create <name>", "Create an organization, with credits if you like")
    .option("--credits <amount>", "credits to grant it at once", "0")
    .action(async (name: string, flags: CommonFlags & { credits: string }) => {
      const amount = creditsFlag("--credits", flags.credits, { orNone: true });
      const create = async (workspace: Workspace) => {
        const organization = await workspace.accounts.createOrganization(name);
        const organizationId = organization.id;
        const balance =
          amount > 0n
            ? (await grantCredits(workspace, terminal, { organizationId, amount, expiresAtMs: null, reference: null }))
                .balance
            : await freshBalance(workspace, terminal, organizationId);
        print(terminal, flags, organizationReport(organization, balance));
      };
      await withWorkspace(terminal, flags, create, { creates: true });
    });
}
