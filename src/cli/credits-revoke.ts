import type { Command } from "commander";
import { adjustmentMismatch } from "../admin/references.ts";
import { makeId } from "../admin/token.ts";
import { creditsFromMicro, formatCredits, type MicroCredits } from "../credits/amount.ts";
import { usageReport } from "../credits/api-format.ts";
import { OperatorError } from "../errors.ts";
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
  all?: boolean;
  grant?: string;
  reference?: string;
  note?: string;
}

export function addCreditsRevoke(credits: Command, terminal: Terminal): void {
  addCommand(credits, "revoke [amount]", "Revoke credits that are neither used nor held")
    .requiredOption("--org <id>", "organization to revoke them from")
    .option("--all", "revoke everything that is available, instead of an amount")
    .option("--grant <id>", "only of this grant (default: in the order in which grants are used up)")
    .option("--reference <reference>", "what it is for; the same reference twice revokes once")
    .option("--note <text>", "why")
    .action(async (amountText: string | undefined, flags: Flags) => {
      const asked = amountArgument(amountText, flags);
      const [reference, note] = [textFlag("--reference", flags.reference), textFlag("--note", flags.note)];
      await withWorkspace(terminal, flags, async ({ store, bookingAudit }) => {
        const adjustmentId = makeId("adjustment", terminal.random);
        const terms = { organizationId: flags.org, amount: asked, grantId: flags.grant ?? null, reference, note };
        const audit = bookingAudit({ action: "credits.revoke", after: terms });
        const [outcome] = await store.books.apply("durable", [{ kind: "revoke", adjustmentId, ...terms, audit }]);
        if (outcome.outcome === "unknown_organization") throw unknownOrganization(flags.org);
        if (outcome.outcome === "unknown_grant")
          throw new UnknownIdError("--grant", flags.grant ?? "", `credits statement --org ${flags.org}`);
        if (outcome.outcome === "excessive") throw excessive(amountText, flags, outcome.most);
        if (outcome.outcome === "reference_mismatch") {
          throw new OperatorError(adjustmentMismatch(reference, outcome.first));
        }
        const { adjustment, balance, repeated } = outcome;
        const { creditsTotal, creditsAvailable } = usageReport(balance);
        const amount = creditsFromMicro(adjustment.amount);
        const json = { id: adjustment.id, organizationId: flags.org, amount, reference, repeated };
        const left = { creditsTotal, creditsAvailable };
        const text = facts({
          id: json.id,
          amount: repeated ? `${amount}, revoked before under this reference` : `${amount}`,
          credits: `${creditsAvailable} of ${creditsTotal} available`,
        });
        print(terminal, flags, { json: { ...json, ...left }, text });
      });
    });
}

/** The amount to revoke; null for `--all`. */
function amountArgument(text: string | undefined, { all = false }: Flags): MicroCredits | null {
  if (all && text !== undefined) {
    throw new OperatorError(`--all: found with AMOUNT ${JSON.stringify(text)}; allowed: one of the two`);
  }
  if (all) return null;
  if (text !== undefined) return creditsFlag("AMOUNT", text, { orNone: false });
  throw new OperatorError(
    "AMOUNT: found none; allowed: a number of credits, or --all for everything that is available",
  );
}

function excessive(amount: string | undefined, { grant }: Flags, most: MicroCredits): OperatorError {
  const what = grant === undefined ? "which are available" : `which are left of ${grant}`;
  return new OperatorError(
    `AMOUNT: found ${JSON.stringify(amount)}; allowed: at most ${formatCredits(most)} credits, ${what}, or --all`,
  );
}
