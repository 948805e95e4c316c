import type { Command } from "commander";
import { creditsFromMicro } from "../credits/amount.ts";
import { areCounts, priceOf } from "../credits/price.ts";
import { OperatorError, UnknownIdError } from "../errors.ts";
import { retryDeadLetter } from "../ledger/dead-letter.ts";
import { type DeadLetter, deadLetterFileOf, readDeadLetters } from "../ledger/dead-letter-file.ts";
import type { SpooledTransition } from "../ledger/spool-file.ts";
import { table } from "../operations/command.ts";
import { addCommand, type CommonFlags, print, type Terminal } from "./command.ts";
import { withWorkspace } from "./workspace.ts";

export function addDeadLetters(ledger: Command, terminal: Terminal): void {
  const deadLetters = ledger.command("dead-letters").description("charges that could not be booked");
  addCommand(deadLetters, "list", "List the dead letters of the data directory").action((flags: CommonFlags) =>
    list(terminal, flags),
  );
  addCommand(deadLetters, "retry [ids...]", "Book dead letters again; the service may be running")
    .option("--all", "all of them, instead of ids")
    .action((ids: string[], flags: RetryFlags) => retry(terminal, ids, flags));
}

type RetryFlags = CommonFlags & { all?: boolean };

async function list(terminal: Terminal, flags: CommonFlags): Promise<void> {
  await withWorkspace(terminal, flags, async ({ config }) => {
    const json = [];
    for await (const deadLetter of readDeadLetters(deadLetterFileOf(config.dataDir))) json.push(toJson(deadLetter));
    const rows = json.map(({ id, at, kind, organizationId, holdId, credits, reason }) => {
      return [id, at ?? "", kind ?? "damaged", organizationId ?? "", holdId ?? "", `${credits ?? ""}`, reason];
    });
    const text = table(["ID", "TIME", "KIND", "ORGANIZATION", "REQUEST", "CREDITS", "REASON"], rows);
    print(terminal, flags, { json, text });
  });
}

function toJson({ id, at, reason, transition }: DeadLetter) {
  if (transition === null) return { id, at, kind: null, organizationId: null, holdId: null, credits: null, reason };
  const { kind, facts } = transition;
  const { organizationId, holdId } = facts;
  return { id, at, kind, organizationId, holdId, credits: creditsOf(transition), reason };
}

/** Returns the price of a settlement; null if its counts are the reason why it could not be booked. */
function creditsOf(transition: SpooledTransition): number | null {
  if (transition.kind === "release") return 0;
  const { tokens, facts } = transition;
  return areCounts(tokens) ? creditsFromMicro(priceOf(tokens, facts.prices)) : null;
}

async function retry(terminal: Terminal, ids: string[], flags: RetryFlags): Promise<void> {
  const { all = false } = flags;
  if (all !== (ids.length === 0)) throw new OperatorError("State the ids of dead letters, or --all.");
  await withWorkspace(terminal, flags, async ({ config, store }) => {
    const file = deadLetterFileOf(config.dataDir);
    const missing = new Set(ids);
    for await (const { id } of readDeadLetters(file)) missing.delete(id);
    const [unknown] = missing;
    if (unknown !== undefined) throw new UnknownIdError("dead letter", unknown, "ledger dead-letters list");
    const json = [];
    for await (const deadLetter of readDeadLetters(file)) {
      const { id } = deadLetter;
      if (!all && !ids.includes(id)) continue;
      const result = await retryDeadLetter(store.books, { file, clock: terminal.clock }, deadLetter);
      const isBooked = result.outcome === "booked";
      const charged = isBooked ? creditsFromMicro(result.charged) : null;
      const shortfall = isBooked ? creditsFromMicro(result.shortfall) : null;
      json.push({ id, outcome: result.outcome, charged, shortfall, reason: isBooked ? null : result.reason });
    }
    const rows = json.map(({ id, outcome, charged, shortfall, reason }) => {
      return [id, outcome, `${charged ?? ""}`, `${shortfall ?? ""}`, reason ?? ""];
    });
    print(terminal, flags, { json, text: table(["ID", "OUTCOME", "CHARGED", "SHORTFALL", "REASON"], rows) });
    if (json.some(({ outcome }) => outcome === "refused")) terminal.exitWith(1);
  });
}
