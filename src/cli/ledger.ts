import { countDeadLetters, deadLetterFileOf } from "../ledger/dead-letter-file.ts";
import { command } from "../operations/command.ts";
import { verifyAll } from "./store-verification.ts";
import type { Workspace } from "./workspace.ts";

export const verifyLedger = command({
  usage: "ledger verify",
  summary: "Check that the books balance; the service may be running",
  flags: {},
  async run({ store, config, terminal, flags }: Workspace) {
    const found = await verifyAll(store, flags);
    const { organizations, holds, events, violations, moreViolations } = found;
    const checked = `${organizations} organizations, ${holds} holds and ${events} charges checked`;
    const [first] = violations;
    const file = deadLetterFileOf(config.dataDir);
    const deadLetters = await countDeadLetters(file);
    if (!found.ok || deadLetters > 0) terminal.exitWith(1);
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
      if (flags.json !== true) return undefined;
    }
    return { json: { ...found, deadLetters }, text: `The books balance: ${checked}.` };
  },
});
