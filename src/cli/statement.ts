import type { StatementEntry } from "../api/admin/credits.ts";
import { isoTime } from "../api/time.ts";
import { creditsFromMicro, formatCredits, usageReport } from "../credits/amount.ts";
import { OperatorError } from "../errors.ts";
import { command, date, jsonOf, optional, required, toggle } from "../operations/command.ts";
import { assertUnchanged, periodFrom, Statements } from "../reports/statement.ts";
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
    const closedBeforeMs = await books.closedBefore(organizationId);
    const page = (cursor: string | null) => statements.page({ ...selection, cursor, limit: PAGE_ENTRIES });
    const first = await page(null);
    const start = Math.max(fromMs ?? Number.NEGATIVE_INFINITY, closedBeforeMs ?? Number.NEGATIVE_INFINITY);
    const period = periodFrom({ fromMs: Number.isFinite(start) ? start : null }, toMs);
    const pending = await books.pendingCredits(organizationId);
    const statement = { ...first, period, balance, pending };
    const output = flags.json === true ? jsonParts(statement) : textParts(statement);
    terminal.out(output.head);
    let [closing, before] = [first.opening, ""];
    for (let next = first; ; next = await page(next.next_cursor)) {
      for (const entry of next.data) {
        terminal.out(`${before}${output.entry(entry)}`);
        before = output.separator;
        closing = entry.balance;
      }
      await terminal.drained();
      if (next.next_cursor === null) break;
    }
    terminal.out(output.end(closing));
    await assertUnchanged(books, organizationId, { closedBeforeMs });
    return undefined;
  },
});

type Page = Awaited<ReturnType<Statements["page"]>>;
interface Statement extends Page {
  period: ReturnType<typeof periodFrom>;
  balance: Awaited<ReturnType<Workspace["freshBalance"]>>;
  /** Credits that were granted and take effect later. */
  pending: bigint;
}

/** Text before, for and after the entries. */
interface Parts {
  head: string;
  separator: string;
  entry(entry: StatementEntry): string;
  end(closing: number): string;
}

function textParts({ period, balance, pending, opening, closed_before, digests }: Statement): Parts {
  const total = (atMs: number, amount: number, what: string) => textLine([isoTime(atMs), "", "", `${amount}`, what]);
  const isClosed = closed_before !== null && closed_before === isoTime(period.fromMs ?? null);
  const what = isClosed ? "opening balance (older requests are closed)" : "opening balance";
  const head = [textLine(["TIME", "KIND", "CREDITS", "BALANCE", "WHAT"])];
  if (period.fromMs !== undefined) head.push(total(period.fromMs, opening, what));
  const held = balance.held > 0n ? ` ${formatCredits(balance.held)} are held by running requests.` : "";
  const later = pending > 0n ? ` ${formatCredits(pending)} take effect later.` : "";
  const now = `${formatCredits(balance.available)} credits are available.${held}${later}`;
  return {
    ...{ head: head.join("\n"), separator: "" },
    entry: (entry) => {
      const credits = `${entry.amount > 0 ? "+" : ""}${entry.amount}`;
      return textLine([entry.at, entry.kind, credits, `${entry.balance}`, whatOf(entry)]);
    },
    end: (closing) => {
      const lines = digests.map(({ month, digest }) =>
        textLine([`${month}-01T00:00:00.000Z`, "digest", "", "", digest]),
      );
      return [...lines, period.toMs === undefined ? now : total(period.toMs, closing, "closing balance")].join("\n");
    },
  };
}

function jsonParts({ period, balance, pending, opening, closed_before, digests }: Statement): Parts {
  const { object, organization_id: organizationId, ...credits } = usageReport(balance);
  const head = {
    ...{ organizationId, ...credits, creditsPending: creditsFromMicro(pending) },
    ...{ from: isoTime(period.fromMs ?? null), to: isoTime(period.toMs ?? null), opening },
    ...{ closedBefore: closed_before, digests },
  };
  return {
    ...{ head: `${JSON.stringify(head).slice(0, -1)},"entries":[`, separator: "," },
    entry: (entry) => JSON.stringify(jsonOf(entry)),
    end: (closing) => `],"closing":${closing}}`,
  };
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
