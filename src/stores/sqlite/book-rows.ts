import type { BookRows, BookWrites } from "../../credits/batch.ts";
import type { Transition } from "../../credits/books.ts";
import { BOOK_READS, type BookRead, type FoundRows, planReads, type WantedRows } from "../book-reads.ts";
import { BOOK_WRITES, sqlOf } from "../book-writes.ts";
import type { BudgetCache } from "../budget-cache.ts";
import type { Cell } from "../fields.ts";
import type { Connection } from "./connection.ts";

const READS = new Map(
  Object.entries<BookRead>(BOOK_READS).map(([name, read]) => [name, { ...read, sql: selection(read, name) }]),
);

function selection({ table: { name, columns }, by, rest = "" }: BookRead, read: string): string {
  // SQLite would read every grant of the organization instead.
  const index = read === "liveGrants" ? "INDEXED BY credit_grant_live" : "";
  const where = Object.keys(by).map((column) => `${column} = ?`);
  return `SELECT ${columns.join(", ")} FROM ${name} ${index} WHERE ${where.join(" AND ")} ${rest}`;
}

/** Reads the rows that a batch needs. */
export function readRows(
  connection: Connection,
  cache: BudgetCache,
  transitions: readonly Transition[],
  nowMs: number,
): BookRows {
  const plan = planReads(cache, transitions);
  let step = plan.next();
  while (!step.done) step = plan.next(rowsOf(connection, step.value, nowMs));
  return step.value;
}

function rowsOf(connection: Connection, wanted: WantedRows, nowMs: number): FoundRows {
  const found: Record<string, object[] | number> = { nowMs };
  for (const [name, of] of Object.entries(wanted)) found[name] = of.length === 0 ? [] : readNamed(connection, name, of);
  return found as unknown as FoundRows;
}

/** Reads rows as arrays: the objects of node:sqlite cost twice as much. */
function readNamed(connection: Connection, name: string, of: readonly object[]): object[] {
  const read = READS.get(name);
  if (read === undefined) throw new Error(`no read is named ${name}`);
  const { table, by, sql, hasMany } = read;
  const statement = connection.prepare(sql, "arrays");
  const properties = Object.values(by);
  const rows: object[] = [];
  for (const one of of) {
    const values = properties.map((property) => (one as Record<string, Cell>)[property] as Cell);
    if (hasMany) {
      for (const cells of statement.all(...values)) rows.push(table.fromCells(cells as unknown as unknown[]));
      continue;
    }
    const cells = statement.get(...values) as unknown as unknown[] | undefined;
    if (cells !== undefined) rows.push(table.fromCells(cells));
  }
  return rows;
}

const WRITES = BOOK_WRITES.map(([name, write]) => ({ name, write, sql: sqlOf(write, () => "?") }));

/**
 * Changes only what remains of a grant. SQLite writes an index whenever a statement names a column of its condition, also with
 * the value that it had: that of live grants would take a page of each batch.
 */
const DRAW = drawOf(WRITES.find(({ name }) => name === "changedGrants")?.write.columns ?? []);

function drawOf(columns: readonly string[]): string {
  const terms = columns.map((column, index) => `${column} = ?${index + 1}`);
  const isSet = (term: string) => term.startsWith("remaining ");
  return `UPDATE credit_grant SET ${terms.find(isSet)} WHERE ${terms.filter((term) => !isSet(term)).join(" AND ")}`;
}

/** Writes the decision over a batch. Throws the errors of SQLite; the caller rolls back. */
export function writeRows(connection: Connection, writes: BookWrites): void {
  for (const { name, write, sql } of WRITES) {
    if (writes[name].length === 0) continue;
    const statement = connection.prepare(sql);
    for (const row of writes[name]) {
      const cells = write.toCells(row);
      const isWritten = name === "changedGrants" && Number(connection.prepare(DRAW).run(...cells).changes) === 1;
      if (!isWritten) statement.run(...cells);
    }
  }
}
