import { formatCredits, type MicroCredits } from "../credits/amount.ts";
import { TOKEN_CLASSES } from "../credits/price.ts";
import type { StatementEntry } from "../stores/queries/statement.ts";

/** The lines of a statement for spreadsheets. */

const CLASS_COLUMNS = ["input", "cached_input", "cache_write", "output", "reasoning"] as const;
/** Amounts in credits, prices in credits per million tokens. */
const CSV_COLUMNS = [
  "time",
  "kind",
  "credits",
  "balance",
  "request",
  "token",
  "model",
  "upstream",
  ...CLASS_COLUMNS.map((name) => `${name}_tokens` as const),
  ...CLASS_COLUMNS.map((name) => `${name}_price` as const),
  "cost",
  "basis",
  "end",
  "shortfall",
  "hold",
  "event",
  "id",
  "reference",
  "note",
  "metadata",
] as const;
type CsvCells = { [Column in (typeof CSV_COLUMNS)[number]]?: string | null };

/** Without its line feed, as every line here: RFC 4180 ends lines with both. */
export const CSV_HEADINGS = `${CSV_COLUMNS.join(",")}\r`;

export function csvLine(cells: CsvCells): string {
  return `${CSV_COLUMNS.map((column) => csvCell(cells[column] ?? "")).join(",")}\r`;
}

const NUMBER = /^-?\d+(\.\d+)?$/;

/** Quoted where it must be. What a spreadsheet would take for a formula is made a text. */
function csvCell(text: string): string {
  const isFormula = /^[\s]*[=+\-@\t\r]/.test(text) && !NUMBER.test(text);
  const safe = isFormula ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csvOfEntry(entry: StatementEntry, balance: MicroCredits): string {
  const { kind, atMs, amount } = entry;
  const line = {
    time: new Date(atMs).toISOString(),
    kind,
    credits: formatCredits(amount),
    balance: formatCredits(balance),
  };
  if (entry.kind === "charge") return csvLine({ ...line, ...csvOfCharge(entry.event) });
  if (entry.kind === "grant") return csvLine({ ...line, id: entry.grant.id, reference: entry.grant.reference });
  const { id, holdId, reference, note, draws } = entry.adjustment;
  const about = entry.kind === "lapse" ? draws.map(({ grantId }) => grantId).join(" ") : note;
  return csvLine({ ...line, id, hold: holdId, reference, note: about });
}

function csvOfCharge(event: Extract<StatementEntry, { kind: "charge" }>["event"]): CsvCells {
  const cells: CsvCells = {
    request: event.requestId,
    token: event.tokenId,
    model: event.model,
    upstream: event.upstream,
    cost: formatCredits(event.cost),
    basis: event.basis,
    end: event.end,
    shortfall: formatCredits(event.shortfall),
    hold: event.holdId,
    event: `${event.sequence}`,
    metadata: event.metadata === null ? "" : JSON.stringify(event.metadata),
  };
  for (const [index, tokenClass] of TOKEN_CLASSES.entries()) {
    const name = CLASS_COLUMNS[index] as (typeof CLASS_COLUMNS)[number];
    cells[`${name}_tokens`] = `${event.tokens[tokenClass]}`;
    cells[`${name}_price`] = formatCredits(event.prices[tokenClass]);
  }
  return cells;
}
