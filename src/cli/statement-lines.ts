import { creditsFromMicro, formatCredits, type MicroCredits } from "../credits/amount.ts";
import { pricePerMillion, TOKEN_CLASSES, type UnitPrices } from "../credits/price.ts";
import type { StatementEntry } from "../stores/store.ts";
import { isoTime } from "./times.ts";

/** The lines of a statement, for people, for spreadsheets and for programs. */

export function textLine([time, kind, credits, balance, what]: [string, string, string, string, string]): string {
  return `${time.padEnd(24)}  ${kind.padEnd(7)}  ${credits.padStart(18)}  ${balance.padStart(18)}  ${what}`.trimEnd();
}

export function textOfEntry(entry: StatementEntry, balance: MicroCredits): string {
  const sign = entry.amount > 0n ? "+" : "";
  const credits = `${sign}${formatCredits(entry.amount)}`;
  return textLine([isoTime(entry.atMs), entry.kind, credits, formatCredits(balance), whatOf(entry)]);
}

function whatOf(entry: StatementEntry): string {
  switch (entry.kind) {
    case "grant": {
      const { id, reference } = entry.grant;
      return reference === null ? id : `${id} (${reference})`;
    }
    case "charge": {
      const { model, requestId, end, shortfall } = entry.event;
      const ended = end === "complete" ? "" : ` (${end.replaceAll("_", " ")})`;
      return `${model} ${requestId}${ended}${shortfall > 0n ? `, ${formatCredits(shortfall)} not covered` : ""}`;
    }
    case "closing":
      return `${entry.events} charges of the day, which are no longer kept one by one`;
    case "lapse":
      return entry.adjustment.draws.map(({ grantId }) => grantId).join(" ");
    default: {
      const { id, reference, note } = entry.adjustment;
      return [id, reference === null ? "" : `(${reference})`, note ?? ""].filter((word) => word !== "").join(" ");
    }
  }
}

export function entryJson(entry: StatementEntry, balance: MicroCredits) {
  const { kind, atMs, amount } = entry;
  const line = {
    kind,
    at: isoTime(atMs),
    credits: creditsFromMicro(amount),
    balance: creditsFromMicro(balance),
  };
  switch (entry.kind) {
    case "grant": {
      const { id, effectiveAtMs, expiresAtMs, reference, state } = entry.grant;
      const dates = { effectiveAt: isoTime(effectiveAtMs), expiresAt: isoTime(expiresAtMs) };
      return { ...line, id, state, ...dates, reference };
    }
    case "charge": {
      const { holdId, sequence, requestId, tokenId, model, upstream, tokens, basis, end, metadata } = entry.event;
      const request = { holdId, sequence, requestId, tokenId, model, upstream, tokens };
      const cost = { prices: pricesJson(entry.event.prices), cost: creditsFromMicro(entry.event.cost) };
      return { ...line, ...request, ...cost, basis, end, shortfall: creditsFromMicro(entry.event.shortfall), metadata };
    }
    case "closing":
      return { ...line, charges: entry.events };
    default: {
      const { id, draws, holdId, reference, note } = entry.adjustment;
      return { ...line, id, grants: draws.map(({ grantId }) => grantId), holdId, reference, note };
    }
  }
}

/** Credits per million tokens. */
function pricesJson(prices: UnitPrices): Record<string, number> {
  return Object.fromEntries(TOKEN_CLASSES.map((tokenClass) => [tokenClass, pricePerMillion(prices[tokenClass])]));
}

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
  const line = { time: isoTime(atMs), kind, credits: formatCredits(amount), balance: formatCredits(balance) };
  if (entry.kind === "charge") return csvLine({ ...line, ...csvOfCharge(entry.event) });
  if (entry.kind === "grant") return csvLine({ ...line, id: entry.grant.id, reference: entry.grant.reference });
  if (entry.kind === "closing") return csvLine({ ...line, note: `${entry.events} charges` });
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
