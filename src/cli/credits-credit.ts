import type { Command } from "commander";
import { adjustmentMismatch } from "../admin/references.ts";
import { makeId } from "../admin/token.ts";
import { creditsFromMicro, formatCredits, type MicroCredits } from "../credits/amount.ts";
import { usageReport } from "../credits/api-format.ts";
import { OperatorError } from "../errors.ts";
import { addCommand, type CommonFlags, creditsFlag, print, type Terminal, textFlag } from "./command.ts";
import { facts } from "./table.ts";
import { dateFlag, isoTime } from "./times.ts";
import { unknownOrganization, withWorkspace } from "./workspace.ts";

interface Flags extends CommonFlags {
  org: string;
  completion?: string;
  expires?: string;
  reference?: string;
  note?: string;
}

/** `chatcmpl-` and the 32 digits of a hold's UUID, or the UUID itself. */
const COMPLETION = /^(?:chatcmpl-)?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})$/;

export function addCreditsCredit(credits: Command, terminal: Terminal): void {
  addCommand(credits, "credit <amount>", "Give back credits that were charged, as goodwill or to correct a charge")
    .requiredOption("--org <id>", "organization that was charged")
    .option("--completion <id>", "the completion whose charge is corrected, by its `id` (chatcmpl-…)")
    .option("--expires <date>", "when what is left of them lapses (default: never)")
    .option("--reference <reference>", "what it is for; the same reference twice credits once")
    .option("--note <text>", "why")
    .action(async (amountText: string, flags: Flags) => {
      const amount = creditsFlag("AMOUNT", amountText, { orNone: false });
      const expiresAtMs = flags.expires === undefined ? null : dateFlag("--expires", flags.expires, terminal.clock());
      const [reference, note] = [textFlag("--reference", flags.reference), textFlag("--note", flags.note)];
      const holdId = flags.completion === undefined ? null : completionFlag(flags.completion);
      await withWorkspace(terminal, flags, async ({ store, bookingAudit }) => {
        const adjustmentId = makeId("credit", terminal.random);
        const terms = { organizationId: flags.org, amount, holdId, expiresAtMs, priority: 0, reference, note };
        const audit = bookingAudit({ action: "credits.credit", after: terms });
        const [outcome] = await store.books.apply("durable", [{ kind: "credit", adjustmentId, ...terms, audit }]);
        if (outcome.outcome === "unknown_organization") throw unknownOrganization(flags.org);
        if (outcome.outcome === "missing") throw unknownCompletion(flags.completion ?? "");
        if (outcome.outcome === "excessive") throw excessive(amountText, outcome.most);
        if (outcome.outcome === "reference_mismatch") {
          throw new OperatorError(adjustmentMismatch(reference, outcome.first));
        }
        const { adjustment, balance, repeated } = outcome;
        const { creditsTotal, creditsAvailable, creditsUsed } = usageReport(balance);
        const json = {
          id: adjustment.id,
          organizationId: flags.org,
          amount: creditsFromMicro(adjustment.amount),
          expiresAt: isoTime(expiresAtMs),
          reference,
          repeated,
          creditsTotal,
          creditsAvailable,
          creditsUsed,
        };
        const text = facts({
          id: json.id,
          amount: repeated ? `${json.amount}, credited before under this reference` : `${json.amount}`,
          credits: `${creditsAvailable} of ${creditsTotal} available, ${creditsUsed} used`,
        });
        print(terminal, flags, { json, text });
      });
    });
}

function completionFlag(text: string): string {
  const [, ...parts] = COMPLETION.exec(text) ?? [];
  if (parts.length === 0) throw unknownCompletion(text);
  return parts.join("-");
}

function unknownCompletion(id: string): OperatorError {
  return new OperatorError(
    `--completion: found ${JSON.stringify(id)}; allowed: the id of a completion of the organization, as chatcmpl-…`,
  );
}

function excessive(amount: string, most: MicroCredits): OperatorError {
  return new OperatorError(
    `AMOUNT: found ${JSON.stringify(amount)}; allowed: at most ${formatCredits(most)}, which was charged and not given back yet`,
  );
}
