import type { StatementEntry, StatementPage } from "../api/admin/credits.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro, creditsJson, creditsOf, formatCredits } from "../credits/amount.ts";
import type { BalanceRow } from "../credits/books.ts";
import { OperatorError } from "../errors.ts";
import { command, date, jsonOf, optional, required, toggle } from "../operations/command.ts";
import { assertUnchanged, periodFrom, Statements } from "../reports/statement.ts";
import { listPrinter } from "./command.ts";
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
    return { csv, selection: { organizationId, kind: null, fromMs: from ?? undefined, toMs: to?.timeMs } };
  },
  /** Prints entries as they are read, since a statement may be larger than memory. */
  async run(workspace: Workspace, { selection, csv }) {
    const { organizationId, fromMs, toMs } = selection;
    const { store, freshBalance, terminal, flags } = workspace;
    const { books } = store;
    const balance = await freshBalance(organizationId);
    const statements = new Statements(books);
    if (csv) {
      for await (const lines of statements.csv(selection, { forOperator: true })) {
        // The terminal ends what it prints with a line feed.
        if (lines !== "") terminal.out(lines.slice(0, -1));
        await terminal.drained();
      }
      return undefined;
    }
    const start = await books.statementStart(organizationId, fromMs ?? null);
    const period = periodFrom(start, toMs);
    const page = (cursor: string | null) => statements.page({ ...selection, cursor, limit: PAGE_ENTRIES });
    const first = await page(null);
    const pending = await books.pendingCredits(organizationId);
    const output = listPrinter<StatementEntry>(terminal, flags, { name: "entries", json: jsonOf, text: entryText });
    const { opening, closed_before: closedBefore, digests } = first;
    const head = {
      ...{ organizationId, ...creditsJson(creditsOf(balance)), creditsPending: creditsFromMicro(pending) },
      ...{ from: isoTime(period.fromMs ?? null), to: isoTime(period.toMs ?? null), opening, closedBefore, digests },
    };
    output.begin(head, headText(first, period.fromMs));
    let closing = opening;
    for (let next = first; ; next = await page(next.next_cursor)) {
      for (const entry of next.data) {
        output.entry(entry);
        closing = entry.balance;
      }
      await terminal.drained();
      if (next.next_cursor === null) break;
    }
    const last =
      period.toMs === undefined ? availableText(balance, pending) : totalText(period.toMs, closing, "closing");
    const months = digests.map(({ month, digest }) =>
      textLine([`${month}-01T00:00:00.000Z`, "digest", "", "", digest]),
    );
    output.end({ closing }, [...months, last].join("\n"));
    await assertUnchanged(books, organizationId, start);
    return undefined;
  },
});

function headText({ opening, closed_before }: StatementPage, fromMs: number | undefined): string {
  const headings = textLine(["TIME", "KIND", "CREDITS", "BALANCE", "WHAT"]);
  if (fromMs === undefined) return headings;
  const total = totalText(fromMs, opening, "opening");
  return `${headings}\n${total}${closed_before === isoTime(fromMs) ? " (older requests are closed)" : ""}`;
}

function totalText(atMs: number, credits: number, which: "opening" | "closing"): string {
  return textLine([isoTime(atMs), "", "", `${credits}`, `${which} balance`]);
}

/** Describes what can be spent now; `pending`: credits that were granted and take effect later. */
function availableText({ available, held }: BalanceRow, pending: bigint): string {
  const running = held > 0n ? ` ${formatCredits(held)} are held by running requests.` : "";
  const later = pending > 0n ? ` ${formatCredits(pending)} take effect later.` : "";
  return `${formatCredits(available)} credits are available.${running}${later}`;
}

function entryText(entry: StatementEntry): string {
  const credits = `${entry.amount > 0 ? "+" : ""}${entry.amount}`;
  return textLine([entry.at, entry.kind, credits, `${entry.balance}`, whatOf(entry)]);
}

function textLine([time, kind, credits, balance, what]: [string, string, string, string, string]): string {
  return `${time.padEnd(24)}  ${kind.padEnd(7)}  ${credits.padStart(18)}  ${balance.padStart(18)}  ${what}`.trimEnd();
}

function whatOf({ kind, id, reference, note, ...charge }: StatementEntry): string {
  if (kind === "lapse") return note ?? "";
  if (kind !== "charge") return [id, reference && `(${reference})`, note].filter(Boolean).join(" ");
  const { model, request_id, ending, shortfall, retry, budgets } = charge;
  const ended = ending === "complete" ? "" : ` (${ending?.replaceAll("_", " ")})`;
  const names = budgets.map(
    (budget) => `${budget.name ?? budget.id}${budget.value === null ? "" : ` (${budget.value})`}`,
  );
  const further = [
    shortfall !== null && shortfall > 0 && `${shortfall} not covered`,
    retry && `retry of ${retry.of}: ${retry.credited} not charged again`,
    names.length > 0 && `in budget ${names.join(", ")}`,
  ];
  return [`${model} ${request_id}${ended}`, ...further].filter(Boolean).join(", ");
}
