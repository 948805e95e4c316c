import type { Command } from "commander";
import { creditsFromMicro } from "../credits/amount.ts";
import { usageReport } from "../credits/api-format.ts";
import { addCommand, type CommonFlags, creditsFlag, print, type Terminal, textFlag } from "./command.ts";
import { facts } from "./table.ts";
import { dateFlag, isoTime } from "./times.ts";
import { grantCredits, withWorkspace } from "./workspace.ts";

interface Flags extends CommonFlags {
  org: string;
  expires?: string;
  reference?: string;
}

export function addCreditsGrant(credits: Command, terminal: Terminal): void {
  addCommand(credits, "grant <amount>", "Grant credits to an organization")
    .requiredOption("--org <id>", "organization to grant them to")
    .option("--expires <date>", "when what is left of them lapses (default: never)")
    .option("--reference <reference>", "what the grant is for; the same reference twice grants once")
    .action(async (amountText: string, flags: Flags) => {
      const amount = creditsFlag("AMOUNT", amountText, { orNone: false });
      const expiresAtMs = flags.expires === undefined ? null : dateFlag("--expires", flags.expires, terminal.clock());
      const reference = textFlag("--reference", flags.reference);
      await withWorkspace(terminal, flags, async (workspace) => {
        const terms = { amount, expiresAtMs, reference };
        const outcome = await grantCredits(workspace, terminal, { organizationId: flags.org, ...terms });
        const { grantId, repeated, balance } = outcome;
        const { creditsTotal, creditsAvailable } = usageReport(balance);
        const json = {
          id: grantId,
          organizationId: flags.org,
          amount: creditsFromMicro(amount),
          expiresAt: isoTime(expiresAtMs),
          reference,
          repeated,
          creditsTotal,
          creditsAvailable,
        };
        const text = facts({
          id: grantId,
          amount: repeated ? `${json.amount}, granted before under this reference` : `${json.amount}`,
          expires: json.expiresAt ?? "never",
          credits: `${creditsAvailable} of ${creditsTotal} available`,
        });
        print(terminal, flags, { json, text });
      });
    });
}
