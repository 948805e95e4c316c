import type { Command } from "commander";
import { creditsFromMicro, formatCredits, type MicroCredits } from "../credits/amount.ts";
import type { BalanceRow } from "../credits/books.ts";
import { OperatorError } from "../errors.ts";
import { CSV_HEADINGS, csvLine, csvOfEntry, entriesOf, type Period } from "../reports/statement.ts";
import type { StatementEntry } from "../stores/queries/statement.ts";
import { addCommand, type CommonFlags, type Terminal } from "./command.ts";
import { creditsOf } from "./credits-balance.ts";
import { entryJson, textLine, textOfEntry } from "./statement-lines.ts";
import { isoTime, timeFlag } from "./times.ts";
import { freshBalance, withWorkspace } from "./workspace.ts";

const PAGE_ENTRIES = 500;

interface Flags extends CommonFlags {
  org: string;
  from?: string;
  to?: string;
  csv?: boolean;
}

export function addCreditsStatement(credits: Command, terminal: Terminal): void {
  addCommand(credits, "statement", "List everything that changed an organization's credits, the oldest first")
    .requiredOption("--org <id>", "organization")
    .option("--from <date>", "from this time on; what was before is one line")
    .option("--to <date>", "up to this time, which is no longer part of it")
    .option("--csv", "print comma-separated values")
    .action(async (flags: Flags) => {
      const period = periodOf(flags);
      if (flags.csv === true && flags.json === true) throw new OperatorError("--csv: found with --json; allowed: one");
      await withWorkspace(terminal, flags, async (workspace) => {
        const { books } = workspace.store;
        const balance = await freshBalance(workspace, terminal, flags.org);
        const pending = await books.pendingCredits(flags.org);
        const opening = period.fromMs === undefined ? 0n : await books.openingBalance(flags.org, period.fromMs);
        const statement = { period, balance, pending, opening, entries: entriesOf(books, flags.org, period) };
        if (flags.json === true) await printJson(terminal, statement);
        else if (flags.csv === true) await printCsv(terminal, statement);
        else await printText(terminal, statement);
      });
    });
}

function periodOf({ from, to }: Flags): Period {
  const fromMs = from === undefined ? undefined : timeFlag("--from", from);
  const toMs = to === undefined ? undefined : timeFlag("--to", to);
  if (fromMs !== undefined && toMs !== undefined && toMs <= fromMs) {
    throw new OperatorError(`--to: found ${JSON.stringify(to)}; allowed: a time after --from`);
  }
  return { fromMs, toMs };
}

interface Statement {
  period: Period;
  balance: BalanceRow;
  /** Granted, and not in force yet. */
  pending: MicroCredits;
  /** What the entries before the period add up to. */
  opening: MicroCredits;
  entries: AsyncIterable<StatementEntry>;
}

/** Lines go out as they are read: a statement may be longer than memory. Gives what they add up to. */
async function forEach(
  terminal: Terminal,
  { opening, entries }: Statement,
  print: (entry: StatementEntry, balance: MicroCredits) => void,
): Promise<MicroCredits> {
  let [balance, printed] = [opening, 0];
  for await (const entry of entries) {
    balance += entry.amount;
    print(entry, balance);
    printed += 1;
    if (printed % PAGE_ENTRIES === 0) await terminal.drained();
  }
  return balance;
}

async function printText(terminal: Terminal, statement: Statement): Promise<void> {
  const { period, balance, pending, opening } = statement;
  terminal.out(textLine(["TIME", "KIND", "CREDITS", "BALANCE", "WHAT"]));
  const total = (atMs: number, amount: MicroCredits, what: string) =>
    terminal.out(textLine([isoTime(atMs), "", "", formatCredits(amount), what]));
  if (period.fromMs !== undefined) total(period.fromMs, opening, "opening balance");
  const closing = await forEach(terminal, statement, (entry, now) => terminal.out(textOfEntry(entry, now)));
  if (period.toMs !== undefined) return total(period.toMs, closing, "closing balance");
  const held = balance.held > 0n ? ` ${formatCredits(balance.held)} are held by running requests.` : "";
  const later = pending > 0n ? ` ${formatCredits(pending)} take effect later.` : "";
  terminal.out(`${formatCredits(balance.available)} credits are available.${held}${later}`);
}

async function printCsv(terminal: Terminal, statement: Statement): Promise<void> {
  const { period, opening } = statement;
  const total = (atMs: number, kind: string, amount: MicroCredits) =>
    terminal.out(csvLine({ time: isoTime(atMs), kind, balance: formatCredits(amount) }));
  terminal.out(CSV_HEADINGS);
  if (period.fromMs !== undefined) total(period.fromMs, "opening", opening);
  const closing = await forEach(terminal, statement, (entry, now) => terminal.out(csvOfEntry(entry, now)));
  if (period.toMs !== undefined) total(period.toMs, "closing", closing);
}

/** One document, an entry a line. */
async function printJson(terminal: Terminal, statement: Statement): Promise<void> {
  const { period, balance, pending, opening } = statement;
  const head = {
    ...creditsOf(balance),
    creditsPending: creditsFromMicro(pending),
    from: isoTime(period.fromMs ?? null),
    to: isoTime(period.toMs ?? null),
    opening: creditsFromMicro(opening),
  };
  terminal.out(`${JSON.stringify(head).slice(0, -1)},"entries":[`);
  let before = "";
  const closing = await forEach(terminal, statement, (entry, now) => {
    terminal.out(`${before}${JSON.stringify(entryJson(entry, now))}`);
    before = ",";
  });
  terminal.out(`],"closing":${creditsFromMicro(closing)}}`);
}
