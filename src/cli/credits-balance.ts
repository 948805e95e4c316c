import type { Command } from "commander";
import { usageReport } from "../credits/api-format.ts";
import type { BalanceRow } from "../credits/books.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { facts } from "./table.ts";
import { freshBalance, withWorkspace } from "./workspace.ts";

export function addCreditsBalance(credits: Command, terminal: Terminal): void {
  addCommand(credits, "balance", "Show what an organization has, used and holds")
    .requiredOption("--org <id>", "organization")
    .action(async (flags: CommonFlags & { org: string }) => {
      await withWorkspace(terminal, flags, async (workspace) => {
        const json = creditsOf(await freshBalance(workspace, terminal, flags.org));
        const text = facts({
          total: `${json.creditsTotal}`,
          available: `${json.creditsAvailable}`,
          used: `${json.creditsUsed}`,
          held: `${json.creditsHeld}`,
        });
        print(terminal, flags, { json, text });
      });
    });
}

/** A balance as the commands print it. */
export function creditsOf(balance: BalanceRow) {
  const {
    organization_id: organizationId,
    creditsTotal,
    creditsAvailable,
    creditsUsed,
    creditsHeld,
  } = usageReport(balance);
  return { organizationId, creditsTotal, creditsAvailable, creditsUsed, creditsHeld };
}
