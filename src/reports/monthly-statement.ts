import type { ListedStatement, MonthlyStatement } from "../api/admin/credits.ts";
import { isoMonth, isoTime } from "../api/time.ts";
import { creditsFromMicro } from "../credits/amount.ts";
import { closingOf, type MonthlyStatementRow, statementId } from "../credits/monthly-statement.ts";
import { TOTALS } from "../credits/statement-totals.ts";
import { lineFormats } from "./csv.ts";
import { totalsJson } from "./statement.ts";

/** Formats a statement as lists show it. */
export function toListedStatement(row: MonthlyStatementRow): ListedStatement {
  const { organizationId, month, madeAtMs, isFinal, digest, details } = row;
  return {
    ...{ object: "monthly_statement", id: statementId(row), organization_id: organizationId, month: isoMonth(month) },
    ...{ made_at: isoTime(madeAtMs), final: isFinal, customer: details.customer },
    ...{ opening: creditsFromMicro(row.opening), totals: totalsJson(row.totals) },
    ...{ closing: creditsFromMicro(closingOf(row)), digest },
  };
}

/** Formats a statement with its lists. */
export function toMonthlyStatement(row: MonthlyStatementRow): MonthlyStatement {
  return { ...toListedStatement(row), ...row.details };
}

const COLUMNS = ["section", "at", "kind", "id", "name", "reference", "note"];
const COUNTS = ["requests", "input_tokens", "output_tokens", "amount"];
const { csv: CSV } = lineFormats([...COLUMNS, ...COUNTS], (cells: Record<string, unknown>) => cells);

/** Formats a statement as comma-separated values: sections with sums of their own, and `totals` from opening to closing balance. */
export function csvOfStatement(row: MonthlyStatementRow): string {
  const { customer, opening, totals, closing, bookings, models, tokens, ...rest } = toMonthlyStatement(row);
  const total = (kind: string, amount: number) => ({ section: "totals", kind, amount });
  const lines = [
    { section: "statement", at: `${rest.month}-01`, id: rest.id, name: customer.name, note: rest.digest },
    ...bookings.map((line) => ({ section: "bookings", ...line })),
    ...models.map(({ model, ...line }) => ({ section: "models", id: model, ...line })),
    ...tokens.map((line) => ({ section: "tokens", ...line, id: line.token_id, name: line.token_name })),
    ...[total("opening", opening), ...TOTALS.map((name) => total(name, totals[name])), total("closing", closing)],
  ];
  return CSV.head + lines.map((line) => CSV.line(line)).join("");
}
