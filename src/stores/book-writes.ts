import type { AuditOfRows } from "../credits/audit.ts";
import type { BookWrites } from "../credits/batch.ts";
import { AUDIT_ENTRY, EVENT, PAYMENT, VOUCHER, withChecksum } from "./admin-schema.ts";
import { ADJUSTMENT, BALANCE, BROKEN_ATTEMPT, BUDGET_USE, GRANT, HOLD, KEY, NEW_VALUES, REQUEST } from "./schema.ts";
import type { Table, TablePart, TableShape } from "./table.ts";

/** One kind of write of a batch, which each of its rows needs once. */
export interface BookWrite<Row> extends TablePart<Row> {
  verb: "insert" | "upsert" | "update" | "delete";
  table: TableShape;
  /** True if a row to delete may be missing, or one to insert be known; otherwise each must be written. */
  mayBeMissing?: boolean;
}

const AMOUNTS = ["granted", "available", "held", "spent", "expired", "nextChangeAtMs", "topUp", "announced"] as const;

const PAYMENT_CHANGES = [
  ...(["refunded", "disputed", "granted", "grants", "revoked", "covered", "covers", "returned"] as const),
  ...(["withheld", "debt", "debtCovered", "revision"] as const),
];

const audits = write("insert", AUDIT_ENTRY);

/** The writes of a batch, for both databases, by their properties in `BookWrites`. */
const WRITES = {
  balances: write("update", BALANCE, AMOUNTS),
  newBudgetUses: write("insert", BUDGET_USE),
  changedBudgetUses: write("update", BUDGET_USE, ["held", "spent", "warnedLimit", "warnedPercent"]),
  newValues: write("upsert", NEW_VALUES),
  newGrants: write("insert", GRANT),
  changedGrants: write("update", GRANT, ["remaining", "revoked", "state"]),
  newHolds: write("insert", HOLD),
  renewedHolds: write("update", HOLD, ["owner", "expiresAtMs", "details"]),
  removedHolds: write("delete", HOLD, []),
  newRequests: write("insert", REQUEST),
  keys: write("upsert", KEY),
  // An expired key may have been removed already.
  removedKeys: { ...write("delete", KEY, []), mayBeMissing: true },
  brokenAttempts: write("upsert", BROKEN_ATTEMPT),
  // One that has expired may have been removed already.
  removedBrokenAttempts: { ...write("delete", BROKEN_ATTEMPT, []), mayBeMissing: true },
  newAdjustments: write("insert", ADJUSTMENT),
  newPayments: write("insert", PAYMENT),
  changedPayments: write("update", PAYMENT, PAYMENT_CHANGES),
  redeemedVouchers: write("update", VOUCHER, ["organizationId", "redeemedAtMs"]),
  newAuditEntries: { ...audits, toCells: (audit: AuditOfRows) => audits.toCells(withChecksum(audit)) },
  // An event that is known is not written again.
  newEvents: { ...write("insert", EVENT), mayBeMissing: true },
} satisfies { [Name in keyof BookWrites]: BookWrite<BookWrites[Name][number]> };

/** The writes in the order in which they are made. */
export const BOOK_WRITES = Object.entries(WRITES) as [keyof BookWrites, BookWrite<object>][];

/** Writes some properties of the rows (absent: all), which are found by their keys. */
function write<Row extends object>(
  verb: BookWrite<Row>["verb"],
  table: Table<Row>,
  properties?: readonly (keyof Row)[],
): BookWrite<Row> {
  return { verb, table, ...table.partOf(properties) };
}

/** Returns the statement of a write, of one row or of those of `source`. `term` is the expression of a column's value. */
export function sqlOf(
  { verb, table: { name, key }, columns, mayBeMissing = false }: BookWrite<object>,
  term: (column: string) => string,
  source?: string,
): string {
  const changed = columns.filter((column) => !key.includes(column));
  const where = key.map((column) => `${name}.${column} = ${term(column)}`).join(" AND ");
  if (verb === "delete") return `DELETE FROM ${name} ${source === undefined ? "" : `USING ${source}`} WHERE ${where}`;
  if (verb === "update") {
    const values = changed.map((column) => `${column} = ${term(column)}`).join(", ");
    return `UPDATE ${name} SET ${values} ${source === undefined ? "" : `FROM ${source}`} WHERE ${where}`;
  }
  const terms = columns.map(term).join(", ");
  const values = source === undefined ? `VALUES (${terms})` : `SELECT ${terms} FROM ${source}`;
  const inserted = `INSERT INTO ${name} (${columns.join(", ")}) ${values}`;
  if (verb === "insert") return mayBeMissing ? `${inserted} ON CONFLICT DO NOTHING` : inserted;
  const replaced = changed.map((column) => `${column} = excluded.${column}`).join(", ");
  return `${inserted} ON CONFLICT (${key.join(", ")}) DO UPDATE SET ${replaced}`;
}
