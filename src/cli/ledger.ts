import type { Command } from "commander";
import { countDeadLetters, deadLetterFileOf } from "../ledger/dead-letter-file.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { addDeadLetters } from "./dead-letters.ts";
import { verifyAll } from "./store-verification.ts";
import { withWorkspace } from "./workspace.ts";

export function addLedger(program: Command, terminal: Terminal): void {
  const ledger = program
    .command("ledger")
    .description("verification of the books, and charges that could not be booked");
  addDeadLetters(ledger, terminal);
  addCommand(ledger, "verify", "Check that the books balance; the service may be running").action(
    async (flags: CommonFlags) => {
      await withWorkspace(terminal, flags, async (workspace) => {
        const found = await verifyAll(workspace.store, flags);
        const { organizations, holds, events, violations, moreViolations } = found;
        const checked = `${organizations} organizations, ${holds} holds and ${events} charges checked`;
        const [first] = violations;
        const file = deadLetterFileOf(workspace.config.dataDir);
        const deadLetters = await countDeadLetters(file);
        if (!found.ok || deadLetters > 0) terminal.exitWith(1);
        if (first === undefined || flags.json === true) {
          print(terminal, flags, {
            json: { ...found, deadLetters },
            text: `The books balance: ${checked}.`,
          });
        }
        if (deadLetters > 0 && flags.json !== true) {
          terminal.error(`tollgate: dead letters, which could not be booked: ${deadLetters} (${file})`);
        }
        if (first !== undefined) {
          const others = violations.length - 1 + moreViolations;
          const more = others === 0 ? "" : `; violations found besides: ${others}`;
          const where = first.holdId === null ? first.organizationId : `${first.organizationId}, hold ${first.holdId}`;
          terminal.error(
            `tollgate: the books do not balance: ${first.message} (invariant ${first.invariant}, ${where}; ${checked}${more})`,
          );
        }
      });
    },
  );
}
