import type { StatementEntry, StatementPage } from "../api/admin/credits.ts";
import { FURTHER_CLASSES, PRICE_CLASSES, TOKEN_CLASSES } from "../api/price-classes.ts";
import { isoMonth, isoTime } from "../api/time.ts";
import { ALLOWANCE_REFERENCE } from "../credits/allowance.ts";
import { creditsFromMicro, formatCredits, type MicroCredits } from "../credits/amount.ts";
import type { AdjustmentRow } from "../credits/books.ts";
import { byName, displayPrice, tokensByClass } from "../credits/price.ts";
import { NO_TOTALS, type StatementTotals, sumOfTotals, TOTALS } from "../credits/statement-totals.ts";
import { invalidCursor, OperatorError } from "../errors.ts";
import { FairTurns } from "../ledger/fair-queue.ts";
import type { Books } from "../stores/queries/books.ts";
import type { MonthDigestRow } from "../stores/queries/month-digests.ts";
import type { LedgerEntry, StatementStart, UsageEvent } from "../stores/queries/statement.ts";
import { csvRow } from "./csv.ts";

const PAGE_ENTRIES = 500;
/** Entries in one page of an export. Reading and formatting a page takes about 3 ms on the event loop. */
const EXPORT_PAGE_ENTRIES = 100;
/** Entries read for one page at most: with a filter on a rare kind, a page may be shorter than its limit. */
const READ_ENTRIES_MAX = 5_000;

/** A period from `fromMs`, inclusive, to `toMs`, exclusive. */
export interface Period {
  fromMs: number | undefined;
  toMs: number | undefined;
}

interface Pages extends Period {
  /** That of the last entry seen; null: from the first one on. */
  position: string | null;
  /** Maximum number of entries in a page. */
  limit: number;
}

/** Reads a statement in pages, each when the consumer requests it. The last one may be empty. */
async function* pagesOf(
  books: Pick<Books, "statement">,
  organizationId: string,
  { fromMs = 0, toMs = Number.POSITIVE_INFINITY, position, limit }: Pages,
): AsyncGenerator<LedgerEntry[]> {
  let after = position;
  for (;;) {
    const page: LedgerEntry[] = await books.statement(organizationId, { after, fromMs, limit });
    const inPeriod = page.filter(({ atMs }) => atMs < toMs);
    yield inPeriod;
    if (inPeriod.length < limit) return;
    after = page.at(-1)?.position ?? null;
  }
}

export interface StatementSelection extends Period {
  organizationId: string;
  /** Null for every kind. */
  kind: StatementEntry["kind"] | null;
}

export interface StatementRequest extends StatementSelection {
  /** `next_cursor` of the previous page. */
  cursor: string | null;
  limit: number;
}

type StatementBooks = Pick<Books, "statement" | "statementStart" | "statementTotals" | "closedBefore" | "monthDigests">;

/** Lists the changes of an organization's credits, the oldest first, each with the balance after it. */
export class Statements {
  readonly #books: StatementBooks;
  /** Reads and formats the pages of all exports one at a time. */
  readonly #exports = new FairTurns(1);

  constructor(books: StatementBooks) {
    this.#books = books;
  }

  /** Reads one page. Throws ApiError (invalid_value) for an invalid cursor. */
  async page(request: StatementRequest): Promise<StatementPage> {
    for (;;) {
      const { page, closedBeforeMs } = await this.#page(request);
      // Requests that were closed while it was read may be missing.
      if (closedBeforeMs === (await this.#books.closedBefore(request.organizationId))) return page;
    }
  }

  async #page({ organizationId, kind, cursor, limit, fromMs, toMs }: StatementRequest) {
    const start = await this.#startOf(organizationId, fromMs ?? null, cursor === null ? undefined : placeOf(cursor));
    const { closedBeforeMs } = start;
    const rows = await this.#books.monthDigests(organizationId, { fromMs, toMs });
    const digests = rows.map(({ month, digest }) => ({ month: isoMonth(month), digest }));
    // Requires a sum over the period, which later pages need not repeat.
    const whole = { from: start.fromMs ?? undefined, to: toMs };
    const totals = cursor === null ? await this.#books.statementTotals(organizationId, whole) : null;
    let { opening: balance, position } = start;
    let readEntries = 0;
    const data: StatementEntry[] = [];
    const page = (next_cursor: string | null) => {
      const opening = creditsFromMicro(start.opening);
      const closing = totals && creditsFromMicro(start.opening + sumOfTotals(totals));
      const sums = { totals: totals && totalsJson(totals), closing };
      const rest = { next_cursor, opening, ...sums, closed_before: isoTime(closedBeforeMs), digests };
      return { page: { object: "list" as const, data, ...rest }, closedBeforeMs };
    };
    const period = { fromMs: start.fromMs ?? undefined, toMs, position, limit: PAGE_ENTRIES };
    for await (const entries of pagesOf(this.#books, organizationId, period)) {
      for (const entry of entries) {
        if (data.length === limit || readEntries === READ_ENTRIES_MAX) {
          return page(Buffer.from(`${balance} ${position}`).toString("base64url"));
        }
        balance += entry.amount;
        position = entry.position;
        readEntries += 1;
        if (kind === null || entry.kind === kind) data.push(toWire(entry, balance));
      }
    }
    return page(null);
  }

  /** Continues after a place, or begins anew if requests before it were closed since. */
  async #startOf(organizationId: string, fromMs: number | null, place: Place | undefined) {
    const closedBeforeMs = await this.#books.closedBefore(organizationId);
    const isPast = closedBeforeMs !== null && Number(place?.position?.split(":")[0]) < closedBeforeMs;
    if (place !== undefined && !isPast) {
      return { fromMs, opening: place.balance, closedBeforeMs, position: place.position };
    }
    return { ...(await this.#books.statementStart(organizationId, fromMs)), position: null as string | null };
  }

  /**
   * Exports a statement as comma-separated values, a page at a time. Providers' costs are for operators only. Each balance is
   * the one after every entry, also where only one kind is exported. Totals are in a column of their own, so that a sum of the
   * amounts counts nothing twice.
   */
  async *csv(
    { organizationId, kind: chosen, fromMs, toMs }: StatementSelection,
    { forOperator }: { forOperator: boolean },
  ): AsyncGenerator<string> {
    const start = await this.#books.statementStart(organizationId, fromMs ?? null);
    const period = periodFrom(start, toMs);
    let balance = start.opening;
    const totals = { ...NO_TOTALS };
    const pages = pagesOf(this.#books, organizationId, { ...period, position: null, limit: EXPORT_PAGE_ENTRIES });
    const total = (atMs: number, kind: string) =>
      `${csvLine({ time: isoTime(atMs), kind, balance: formatCredits(balance) })}\n`;
    const nextLines = async () => {
      const { value: page } = await pages.next();
      if (page === undefined) return undefined;
      await assertUnchanged(this.#books, organizationId, start);
      let lines = "";
      for (const entry of page) {
        balance += entry.amount;
        if (chosen !== null && entry.kind !== chosen) continue;
        totals[totalOf(entry)] += entry.amount;
        lines += `${csvOfEntry(entry, balance, forOperator)}\n`;
      }
      return lines;
    };
    let before = `${CSV_HEADINGS}\n`;
    if (period.fromMs !== undefined) before += total(period.fromMs, "opening");
    for (;;) {
      const lines = await this.#exports.run(organizationId, nextLines);
      if (lines === undefined) break;
      yield before + lines;
      before = "";
    }
    yield csvOfTotals(totals, chosen, period.toMs);
    const digests = await this.#books.monthDigests(organizationId, { fromMs, toMs });
    const lineOf = ({ month, digest }: MonthDigestRow) =>
      csvLine({ time: isoTime(month), kind: "digest", id: isoMonth(month), note: digest });
    if (digests.length > 0) yield digests.map((row) => `${lineOf(row)}\n`).join("");
    if (period.toMs !== undefined) yield total(period.toMs, "closing");
  }
}

/** Formats totals as the API shows them. */
export function totalsJson(totals: StatementTotals) {
  const inCredits = TOTALS.map((name) => [name, creditsFromMicro(totals[name])]);
  return Object.fromEntries(inCredits) as Record<keyof StatementTotals, number>;
}

function totalOf(entry: LedgerEntry): keyof StatementTotals {
  return entry.kind === "grant" && entry.grant.reference?.startsWith(ALLOWANCE_REFERENCE) ? "allowance" : entry.kind;
}

/** Formats the totals of a period, or those of one kind, as lines. */
function csvOfTotals(totals: StatementTotals, chosen: StatementEntry["kind"] | null, toMs: number | undefined): string {
  const names = TOTALS.filter((name) => [null, name, name === "allowance" ? "grant" : name].includes(chosen));
  const lineOf = (name: keyof StatementTotals) =>
    csvLine({ time: isoTime(toMs ?? null), kind: `total_${name}`, total: formatCredits(totals[name]) });
  return names.map((name) => `${lineOf(name)}\n`).join("");
}

/** Returns the period that a statement covers, which does not begin before requests that are closed. */
export function periodFrom({ fromMs }: Pick<StatementStart, "fromMs">, toMs: number | undefined): Period {
  if (fromMs === null) return { fromMs: undefined, toMs };
  return { fromMs, toMs: toMs === undefined ? undefined : Math.max(fromMs, toMs) };
}

/** Ends an export during which requests were closed: those that it has not reached may be missing. */
export async function assertUnchanged(
  books: Pick<Books, "closedBefore">,
  organizationId: string,
  { closedBeforeMs }: Pick<StatementStart, "closedBeforeMs">,
): Promise<void> {
  if (closedBeforeMs === (await books.closedBefore(organizationId))) return;
  throw new OperatorError("Old requests were closed during the export of the statement. Start it again.");
}

/** Position in a statement and the balance there, which would otherwise require reading all earlier entries. */
interface Place {
  balance: MicroCredits;
  position: string | null;
}

const PLACE = /^(-?\d{1,19}) (.{1,300})$/s;

function placeOf(cursor: string): Place {
  const [, balance, position] = PLACE.exec(Buffer.from(cursor, "base64url").toString()) ?? [];
  if (balance === undefined || position === undefined) throw invalidCursor();
  return { balance: BigInt(balance), position };
}

const EMPTY_FIELDS = {
  ...{ token_id: null, request_id: null, model: null, route: null, tokens: null, basis: null, ending: null },
  ...{ shortfall: null, retry: null, metadata: null, corrected_request_id: null, reference: null, note: null },
};

function toWire(entry: LedgerEntry, balance: MicroCredits): StatementEntry {
  const line = {
    object: "statement_entry" as const,
    kind: entry.kind,
    at: isoTime(entry.atMs),
    amount: creditsFromMicro(entry.amount),
    balance: creditsFromMicro(balance),
    budgets: budgetsOf(entry),
    ...EMPTY_FIELDS,
    token_name: entry.tokenName ?? null,
  };
  if (entry.kind === "grant") return { ...line, id: entry.grant.id, reference: entry.grant.reference };
  if (entry.kind !== "charge") {
    const { id, tokenId, holdId, reference } = entry.adjustment;
    const request = { token_id: tokenId, corrected_request_id: holdId };
    return { ...line, id, ...request, reference, note: noteOf(entry.adjustment) };
  }
  const { holdId, tokenId, requestId, model, upstream, tokens, basis, end, shortfall, retry, metadata } = entry.event;
  const request = { id: holdId, token_id: tokenId, request_id: requestId, model, route: upstream, metadata };
  const charge = { tokens: tokensByClass(tokens), basis, ending: end, shortfall: creditsFromMicro(shortfall) };
  return { ...line, ...request, ...charge, retry: retryJson(retry) };
}

/** Returns what a retry was charged less, as the API shows it. */
export function retryJson(retry: UsageEvent["retry"]): StatementEntry["retry"] {
  return retry && { of: retry.of, credited: creditsFromMicro(retry.credited) };
}

/** Returns the note of an adjustment; for expired credits the ids of their grants. */
function noteOf({ kind, draws, note }: AdjustmentRow): string | null {
  return kind === "lapse" ? draws.map(({ grantId }) => grantId).join(" ") : note;
}

/** Returns the budgets in which an entry counts, as the API and the CSV format show them. */
function budgetsOf({ budgets }: LedgerEntry): StatementEntry["budgets"] {
  return budgets.map(({ budgetId: id, name = null, windowAtMs, value }) => {
    const begins_at = windowAtMs === 0 ? null : isoTime(windowAtMs);
    return { id, name, begins_at, value: value === "" ? null : value };
  });
}

const CLASS_COLUMNS = TOKEN_CLASSES.map((name) => PRICE_CLASSES[name].name);
/** Amounts in credits, prices in credits per million tokens; `further_…` are JSON objects. */
const CSV_COLUMNS = [
  ...["time", "kind", "credits", "balance", "request", "token", "model", "upstream"],
  ...CLASS_COLUMNS.map((name) => `${name}_tokens` as const),
  ...CLASS_COLUMNS.map((name) => `${name}_price` as const),
  ...["further_tokens", "further_prices", "cost", "basis", "end", "shortfall", "hold", "event", "id", "reference"],
  ...["note", "metadata", "provider_cost", "budgets", "retry_of", "retry_credited", "token_name", "total"],
] as const;
type CsvCells = { [Column in (typeof CSV_COLUMNS)[number]]?: string | null | undefined };

/** Header line of the CSV format. Lines end with CRLF (RFC 4180); the caller adds the line feed. */
const CSV_HEADINGS = csvRow(CSV_COLUMNS);

function csvLine(cells: CsvCells): string {
  return csvRow(CSV_COLUMNS.map((column) => cells[column] ?? ""));
}

/** Formats a statement entry as a line, without the line feed. Amounts are exact decimals. */
function csvOfEntry(entry: LedgerEntry, balance: MicroCredits, forOperator: boolean): string {
  const { id, model, basis, reference, note, ...shown } = toWire(entry, balance);
  const line: CsvCells = {
    ...{ time: shown.at, kind: shown.kind, credits: formatCredits(entry.amount), balance: formatCredits(balance) },
    ...{ token: shown.token_id, model, upstream: shown.route, basis, end: shown.ending, reference, note },
    ...{ budgets: jsonOrEmpty(shown.budgets), token_name: shown.token_name },
  };
  if (entry.kind !== "charge") return csvLine({ ...line, id, hold: shown.corrected_request_id });
  const { cost, shortfall, sequence, metadata, providerCost, retry } = entry.event;
  return csvLine({
    ...{ ...line, ...csvOfTokens(entry.event), request: shown.request_id, hold: id, event: `${sequence}` },
    ...{ cost: formatCredits(cost), shortfall: formatCredits(shortfall) },
    metadata: metadata && JSON.stringify(metadata),
    provider_cost: forOperator ? providerCost : null,
    retry_of: retry?.of,
    retry_credited: retry && formatCredits(retry.credited),
  });
}

function csvOfTokens({ tokens, prices }: UsageEvent): CsvCells {
  const cells: CsvCells = {
    further_tokens: jsonOrEmpty(byName(tokens, FURTHER_CLASSES, (count) => count)),
    further_prices: jsonOrEmpty(byName(prices, FURTHER_CLASSES, displayPrice)),
  };
  for (const tokenClass of TOKEN_CLASSES) {
    const { name } = PRICE_CLASSES[tokenClass];
    cells[`${name}_tokens`] = `${tokens[tokenClass]}`;
    cells[`${name}_price`] = formatCredits(prices[tokenClass]);
  }
  return cells;
}

function jsonOrEmpty(values: object): string {
  return Object.keys(values).length === 0 ? "" : JSON.stringify(values);
}
