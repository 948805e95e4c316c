import type { Command } from "commander";
import { makeId } from "../accounts/token.ts";
import { creditsFromMicro, formatCredits } from "../credits/amount.ts";
import { usageReport } from "../ledger/report.ts";
import {
  addCommand,
  type CommonFlags,
  creditsFlag,
  print,
  type Terminal,
  textFlag,
  UnknownIdError,
} from "./command.ts";
import { facts } from "./table.ts";
import { unknownOrganization, withWorkspace } from "./workspace.ts";

interface Flags extends CommonFlags {
  org: string;
  grant?: string;
  reference?: string;
  note?: string;
}

export function addCreditsRevoke(credits: Command, terminal: Terminal): void {
  addCommand(credits, "revoke <amount>", "Take back credits that are neither used nor held; at most what is available")
    .requiredOption("--org <id>", "organization to take them from")
    .option("--grant <id>", "only of this grant (default: in the order in which grants are used up)")
    .option("--reference <reference>", "what it is for; the same reference twice revokes once")
    .option("--note <text>", "why")
    .action(async (amountText: string, flags: Flags) => {
      const asked = creditsFlag("AMOUNT", amountText, { orNone: false });
      const [reference, note] = [textFlag("--reference", flags.reference), textFlag("--note", flags.note)];
      await withWorkspace(terminal, flags, async ({ store, record }) => {
        const adjustmentId = makeId("adjustment", terminal.random);
        const terms = { organizationId: flags.org, amount: asked, grantId: flags.grant ?? null, reference, note };
        const [outcome] = await store.books.apply("durable", [{ kind: "revoke", adjustmentId, ...terms }]);
        if (outcome.outcome === "unknown_organization") throw unknownOrganization(flags.org);
        if (outcome.outcome === "unknown_grant")
          throw new UnknownIdError("--grant", flags.grant ?? "", `credits statement --org ${flags.org}`);
        const { adjustment, balance, repeated } = outcome;
        if (!repeated) {
          const after = { ...terms, amount: formatCredits(adjustment.amount) };
          await record({ action: "credits.revoke", organizationId: flags.org, subjectId: adjustment.id, after });
        }
        const { creditsTotal, creditsAvailable } = usageReport(balance);
        const amount = creditsFromMicro(adjustment.amount);
        const json = { id: adjustment.id, organizationId: flags.org, amount, reference, repeated };
        const isLess = !repeated && adjustment.amount < asked;
        const remark = repeated ? ", revoked before under this reference" : isLess ? `, all that was available` : "";
        const left = { creditsTotal, creditsAvailable };
        const text = facts({
          id: json.id,
          amount: `${amount}${remark}`,
          credits: `${creditsAvailable} of ${creditsTotal} available`,
        });
        print(terminal, flags, { json: { ...json, ...left }, text });
      });
    });
}
