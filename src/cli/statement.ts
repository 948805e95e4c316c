import { FURTHER_CLASSES, TOKEN_CLASSES } from "../api/price-classes.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro, formatCredits, type MicroCredits, usageReport } from "../credits/amount.ts";
import type { BalanceRow } from "../credits/books.ts";
import { displayPrice, type TokenCounts, type UnitPrices } from "../credits/price.ts";
import { OperatorError } from "../errors.ts";
import { command, date, optional, required, toggle } from "../operations/command.ts";
import {
  assertUnchanged,
  budgetsOf,
  digestsJson,
  entriesOf,
  type Period,
  periodFrom,
  retryJson,
  Statements,
} from "../reports/statement.ts";
import type { Books } from "../stores/queries/books.ts";
import type { LedgerEntry } from "../stores/queries/statement.ts";
import type { Terminal } from "./command.ts";
import type { Workspace } from "./workspace.ts";

const PAGE_ENTRIES = 500;

export const creditsStatement = command({
  usage: "credits statement",
  summary: "List everything that changed an organization's credits, the oldest first",
  flags: {
    organizationId: required("--org <id>", "organization"),
    from: optional("--from <date>", "start of the period; earlier entries are one opening line", date),
    to: optional("--to <date>", "end of the period, exclusive", (text, name) => ({ text, timeMs: date(text, name) })),
    csv: toggle("--csv", "print comma-separated values"),
  },
  input({ from, to, csv, organizationId }, { json }) {
    if (from !== null && to !== null && to.timeMs <= from) {
      throw new OperatorError(`--to is ${JSON.stringify(to.text)}, but must be a time after --from.`);
    }
    if (csv && json === true) throw new OperatorError("--csv and --json exclude each other; state one of them.");
    return { organizationId, csv, asked: { fromMs: from ?? undefined, toMs: to?.timeMs } };
  },
  async run({ store: { books }, freshBalance, terminal, flags }: Workspace, { organizationId, csv, asked }) {
    const balance = await freshBalance(organizationId);
    if (csv) {
      const selection = { ...asked, organizationId, kind: null };
      for await (const lines of new Statements(books).csv(selection, { forOperator: true })) {
        // The terminal ends what it prints with a line feed.
        if (lines !== "") terminal.out(lines.slice(0, -1));
        await terminal.drained();
      }
      return undefined;
    }
    const statement = await readStatement(books, organizationId, balance, asked);
    await (flags.json === true ? printJson : printText)(terminal, statement);
    await assertUnchanged(books, organizationId, statement);
    return undefined;
  },
});

type Statement = Awaited<ReturnType<typeof readStatement>>;

/** Reads a statement but for its entries, which are read while they are printed. */
async function readStatement(books: Books, organizationId: string, balance: BalanceRow, asked: Period) {
  const start = await books.statementStart(organizationId, asked.fromMs ?? null);
  const period = periodFrom(start, asked.toMs);
  return {
    ...start,
    period,
    balance,
    /** Credits that were granted and take effect later. */
    pending: await books.pendingCredits(organizationId),
    /** Digests of the months that lie in the period, also of closed ones. */
    digests: await books.monthDigests(organizationId, asked),
    entries: entriesOf(books, organizationId, period),
  };
}

/** Prints entries as they are read, since a statement may be larger than memory. Returns the closing balance. */
async function forEach(
  terminal: Terminal,
  { opening, entries }: Statement,
  print: (entry: LedgerEntry, balance: MicroCredits) => void,
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
  const what =
    statement.closedBeforeMs === period.fromMs ? "opening balance (older requests are closed)" : "opening balance";
  if (period.fromMs !== undefined) total(period.fromMs, opening, what);
  const closing = await forEach(terminal, statement, (entry, now) => terminal.out(textOfEntry(entry, now)));
  for (const { month, digest } of statement.digests) terminal.out(textLine([isoTime(month), "digest", "", "", digest]));
  if (period.toMs !== undefined) return total(period.toMs, closing, "closing balance");
  const held = balance.held > 0n ? ` ${formatCredits(balance.held)} are held by running requests.` : "";
  const later = pending > 0n ? ` ${formatCredits(pending)} take effect later.` : "";
  terminal.out(`${formatCredits(balance.available)} credits are available.${held}${later}`);
}

async function printJson(terminal: Terminal, statement: Statement): Promise<void> {
  const { period, balance, pending, opening } = statement;
  const { object, organization_id: organizationId, ...credits } = usageReport(balance);
  const head = {
    ...{ organizationId, ...credits },
    creditsPending: creditsFromMicro(pending),
    from: isoTime(period.fromMs ?? null),
    to: isoTime(period.toMs ?? null),
    opening: creditsFromMicro(opening),
    closedBefore: isoTime(statement.closedBeforeMs),
    digests: digestsJson(statement.digests),
  };
  terminal.out(`${JSON.stringify(head).slice(0, -1)},"entries":[`);
  let before = "";
  const closing = await forEach(terminal, statement, (entry, now) => {
    terminal.out(`${before}${JSON.stringify(entryJson(entry, now))}`);
    before = ",";
  });
  terminal.out(`],"closing":${creditsFromMicro(closing)}}`);
}

function textLine([time, kind, credits, balance, what]: [string, string, string, string, string]): string {
  return `${time.padEnd(24)}  ${kind.padEnd(7)}  ${credits.padStart(18)}  ${balance.padStart(18)}  ${what}`.trimEnd();
}

function textOfEntry(entry: LedgerEntry, balance: MicroCredits): string {
  const sign = entry.amount > 0n ? "+" : "";
  const credits = `${sign}${formatCredits(entry.amount)}`;
  return textLine([isoTime(entry.atMs), entry.kind, credits, formatCredits(balance), whatOf(entry)]);
}

function whatOf(entry: LedgerEntry): string {
  switch (entry.kind) {
    case "grant": {
      const { id, reference } = entry.grant;
      return reference === null ? id : `${id} (${reference})`;
    }
    case "charge": {
      const { model, requestId, end, shortfall, retry } = entry.event;
      const ended = end === "complete" ? "" : ` (${end.replaceAll("_", " ")})`;
      const missing = shortfall > 0n ? `, ${formatCredits(shortfall)} not covered` : "";
      const less = retry === null ? "" : `, retry of ${retry.of}: ${formatCredits(retry.credited)} not charged again`;
      return `${model} ${requestId}${ended}${missing}${less}${budgetsText(entry)}`;
    }
    case "lapse":
      return entry.adjustment.draws.map(({ grantId }) => grantId).join(" ");
    default: {
      const { id, reference, note } = entry.adjustment;
      return [id, reference === null ? "" : `(${reference})`, note ?? ""].filter((word) => word !== "").join(" ");
    }
  }
}

function budgetsText({ budgets }: LedgerEntry): string {
  const names = budgets.map(({ budgetId, name, value }) => `${name ?? budgetId}${value === "" ? "" : ` (${value})`}`);
  return names.length === 0 ? "" : `, in budget ${names.join(", ")}`;
}

function entryJson(entry: LedgerEntry, balance: MicroCredits) {
  const { kind, atMs, amount } = entry;
  const line = {
    kind,
    at: isoTime(atMs),
    credits: creditsFromMicro(amount),
    balance: creditsFromMicro(balance),
  };
  const budgets = budgetsOf(entry);
  switch (entry.kind) {
    case "grant": {
      const { id, effectiveAtMs, expiresAtMs, reference, state } = entry.grant;
      const dates = { effectiveAt: isoTime(effectiveAtMs), expiresAt: isoTime(expiresAtMs) };
      return { ...line, id, state, ...dates, reference };
    }
    case "charge": {
      const { holdId, sequence, requestId, tokenId, model, upstream, tokens, basis, end } = entry.event;
      const { metadata, providerCost } = entry.event;
      const request = { holdId, sequence, requestId, tokenId, model, upstream, tokens: tokensJson(tokens) };
      const cost = { prices: pricesJson(entry.event.prices), cost: creditsFromMicro(entry.event.cost) };
      const shortfall = creditsFromMicro(entry.event.shortfall);
      const retry = retryJson(entry.event.retry);
      return { ...line, ...request, ...cost, basis, end, shortfall, retry, metadata, providerCost, budgets };
    }
    default: {
      const { id, draws, holdId, reference, note } = entry.adjustment;
      return { ...line, id, grants: draws.map(({ grantId }) => grantId), holdId, reference, note, budgets };
    }
  }
}

/** Formats prices: credits per million tokens, of calls credits each. */
export function pricesJson(prices: UnitPrices): Record<string, number> {
  return Object.fromEntries(
    [...TOKEN_CLASSES, ...FURTHER_CLASSES].flatMap((name) => {
      const price = prices[name];
      return price === undefined ? [] : [[name, displayPrice(price, name)]];
    }),
  );
}

/** Formats counts, those of parts and calls in an object of their own. */
function tokensJson(tokens: TokenCounts): object {
  const classes = Object.fromEntries(TOKEN_CLASSES.map((name) => [name, tokens[name]]));
  const further = FURTHER_CLASSES.filter((name) => tokens[name] !== undefined).map((name) => [name, tokens[name]]);
  return further.length === 0 ? classes : { ...classes, further: Object.fromEntries(further) };
}
