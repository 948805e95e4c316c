import type { MonthlyStatement } from "../api/admin/credits.ts";
import { isoDay, isoTime, monthStart } from "../api/time.ts";
import type { MONTHLY_STATEMENT } from "../stores/admin-schema.ts";
import type { RowOf } from "../stores/table.ts";
import { ALLOWANCE_REFERENCE } from "./allowance.ts";
import { creditsFromMicro, formatCredits, type MicroCredits } from "./amount.ts";
import { NO_TOTALS, type StatementTotals, sumOfTotals, TOTALS } from "./statement-totals.ts";

export type MonthlyStatementRow = RowOf<typeof MONTHLY_STATEMENT>;

/** Maximum number of lines of a list. The others are added up, so that the size of a statement is bounded. */
const LINES_MAX = 500;

/** A row as the database returns it. */
type Cells = Record<string, unknown>;
type Booking = MonthlyStatement["bookings"][number];
type ChargeSum = { id: string; requests: number; input_tokens: number; output_tokens: number; amount: MicroCredits };

/** Adds up the rows that were booked in a month. A malformed cell counts as 0: a verification reports it elsewhere. */
export class StatementTally {
  readonly totals: StatementTotals = { ...NO_TOTALS };
  readonly #bookings: (Booking & { micro: MicroCredits })[] = [];
  readonly #models = new Map<string, ChargeSum>();
  readonly #tokens = new Map<string, ChargeSum>();

  /** Adds a row of a table. `model`: that of the request of a late settlement. */
  add(table: "credit_grant" | "adjustment" | "request", row: Cells, model: string): void {
    const amount = amountOf(row.amount);
    if (table === "request") this.#addCharge(row, String(row.model), amountOf(row.cost), 1);
    else if (row.kind === "late_settlement") this.#addCharge(row, model, amount, 0);
    else if (table === "adjustment") {
      this.#addBooking(row.kind as Booking["kind"], row.made_at, row.kind === "credit" ? amount : -amount, row);
    } else if (row.source === "grant") {
      const isAllowance = String(row.reference).startsWith(ALLOWANCE_REFERENCE);
      this.#addBooking(isAllowance ? "allowance" : "grant", row.created_at, amount, row);
    }
  }

  /** True if anything was booked. */
  get hasRows(): boolean {
    return this.#bookings.length > 0 || this.#models.size > 0;
  }

  /** Returns the lists, each of which adds up to the totals. Tokens have no names yet. */
  lines(): Pick<MonthlyStatement, "bookings" | "models" | "tokens"> {
    return {
      bookings: this.#bookingLines(),
      models: highest(this.#models).map(({ id, ...sums }) => ({ model: id, ...sums })),
      tokens: highest(this.#tokens).map(({ id, ...sums }) => ({ token_id: id, token_name: null, ...sums })),
    };
  }

  #bookingLines(): Booking[] {
    const sorted = this.#bookings.toSorted((one, other) => ((one.at ?? "") < (other.at ?? "") ? -1 : 1));
    const rest = Map.groupBy(sorted.splice(LINES_MAX), ({ kind }) => kind);
    const sums = [...rest].map(([kind, lines]) => {
      const amount = creditsFromMicro(lines.reduce((sum, { micro }) => sum + micro, 0n));
      return { kind, at: null, id: null, amount, reference: null, note: `${lines.length} more` };
    });
    return [...sorted.map(({ micro: _, ...line }) => line), ...sums];
  }

  #addBooking(kind: Booking["kind"], at: unknown, micro: MicroCredits, { id, reference, note = null }: Cells): void {
    if (!(kind in this.totals)) return;
    this.totals[kind] += micro;
    const words = { reference: reference as string | null, note: note as string | null };
    const line = { kind, at: isoTime(Number(at)), id: String(id), amount: creditsFromMicro(micro), ...words };
    this.#bookings.push({ ...line, micro });
  }

  #addCharge(row: Cells, model: string, cost: MicroCredits, requests: number): void {
    this.totals.charge -= cost;
    const tokens = { input_tokens: Number(row.input_tokens), output_tokens: Number(row.output_tokens) };
    for (const [sums, id] of [[this.#models, model] as const, [this.#tokens, String(row.token_id)] as const]) {
      sums.set(id, sumOf([sums.get(id) ?? newSum(id), { id, requests, ...tokens, amount: -cost }]));
    }
  }
}

function amountOf(cell: unknown): MicroCredits {
  return typeof cell === "bigint" ? cell : 0n;
}

function newSum(id: string): ChargeSum {
  return { id, requests: 0, input_tokens: 0, output_tokens: 0, amount: 0n };
}

/** Adds up charges under the id of the first. */
function sumOf(parts: readonly ChargeSum[]): ChargeSum {
  return parts.reduce((sum, part) => ({
    id: sum.id,
    requests: sum.requests + part.requests,
    input_tokens: sum.input_tokens + part.input_tokens,
    output_tokens: sum.output_tokens + part.output_tokens,
    amount: sum.amount + part.amount,
  }));
}

/** Returns the highest charges, and one line without an id with the sum of the others. */
function highest(sums: ReadonlyMap<string, ChargeSum>) {
  const sorted = [...sums.values()].sort((one, other) => {
    if (one.amount !== other.amount) return one.amount < other.amount ? -1 : 1;
    return one.id < other.id ? -1 : 1;
  });
  const rest = sorted.splice(LINES_MAX);
  const others = rest.length === 0 ? [] : [sumOf([newSum(""), ...rest])];
  return [...sorted, ...others].map((sum) => ({ ...sum, id: sum.id || null, amount: creditsFromMicro(sum.amount) }));
}

/** Returns the number of a statement with its prefix, which identifies it. */
export function statementId({ numberPrefix, number }: Pick<MonthlyStatementRow, "numberPrefix" | "number">): string {
  return `${numberPrefix}${number}`;
}

/** Returns the balance at the end of the month. */
export function closingOf({ opening, totals }: Pick<MonthlyStatementRow, "opening" | "totals">): MicroCredits {
  return opening + sumOfTotals(totals);
}

const LABELS: Record<keyof StatementTotals, string> = {
  ...{ grant: "Granted", allowance: "Allowances", charge: "Charged" },
  ...{ revoke: "Revoked", credit: "Refunded", lapse: "Expired" },
};

/** Formats the figures of a statement as plain text, for the terminal and for mail. */
export function statementText(row: MonthlyStatementRow): string {
  const { letterhead, customer, models } = row.details;
  const line = (label: string, amount: string) => `${label.padEnd(40)} ${amount.padStart(20)}`;
  const charges = models.map(({ model, amount }) => line(model ?? "Others", String(amount)));
  return [
    `${row.isFinal ? "Final statement" : "Statement"} ${statementId(row)} of ${customer.name}`,
    `${isoDay(row.month)} to ${isoDay(monthStart(row.month, 1) - 1)} in UTC, in credits`,
    "",
    line("Opening balance", formatCredits(row.opening)),
    ...TOTALS.map((name) => line(LABELS[name], formatCredits(row.totals[name]))),
    line("Closing balance", formatCredits(closingOf(row))),
    "",
    ...(charges.length === 0 ? [] : ["Charges by model", ...charges, ""]),
    `Digest of the month: ${row.digest}`,
    ...[letterhead.name, ...letterhead.address, letterhead.tax_id, letterhead.footer].filter(Boolean),
  ].join("\n");
}
