import type { MonthlyStatement } from "../api/admin/credits.ts";
import { flag, json, number, past, requiredText, signedAmount, statementTotals } from "./fields.ts";
import { declareTable } from "./table.ts";

/* The tables of monthly statements; as in `schema.ts`. */

/** Monthly statements, which never change, stored with the month's digest. A month without bookings and balance has none. */
export const MONTHLY_STATEMENT = declareTable("monthly_statement", ["organizationId", "month"], {
  organizationId: requiredText("organization_id"),
  /** Its first millisecond, in UTC. */
  month: number("month"),
  /** Unique over all organizations, and without gaps. */
  number: number("number"),
  numberPrefix: requiredText("number_prefix"),
  madeAtMs: past(number("made_at")),
  opening: signedAmount("opening"),
  totals: statementTotals(),
  digest: requiredText("digest"),
  /** True for the last statement of a closed organization. */
  isFinal: flag("is_final"),
  details: json<Pick<MonthlyStatement, "letterhead" | "customer" | "bookings" | "models" | "tokens">>("details"),
});

/** One row with the id 1. A transaction that makes a statement locks it by adding 1. */
export const STATEMENT_SERIES = declareTable("statement_series", ["id"], {
  id: number("id"),
  lastNumber: number("last_number"),
});
