import type { BookWrites } from "../../credits/batch.ts";
import type { Transition } from "../../credits/books.ts";
import { BOOK_READS, type BookRead, type FoundRows, planReads, type WantedRows } from "../book-reads.ts";
import { BOOK_WRITES, type BookWrite, sqlOf } from "../book-writes.ts";
import type { BudgetCache } from "../budget-cache.ts";
import type { Cell } from "../fields.ts";
import { CLOCK, type Transaction } from "./transact.ts";

const READS = new Map(
  Object.entries<BookRead>(BOOK_READS).map(([name, read]) => [name, { ...read, text: selection(read, name) }]),
);

/** Returns the statement that reads the rows of many names, with an array of values for each column. */
function selection({ table: { name, columns, kinds }, by, rest = "", isLocked }: BookRead, read: string): string {
  const key = Object.keys(by);
  const selected = `SELECT ${columns.map((column) => `${name}.${column}`).join(", ")}`;
  const arrays = key.map((column, index) => `$${index + 1}::${kinds[column]}[]`);
  const named = `unnest(${arrays.join(", ")}) AS named (${key.join(", ")})`;
  const isNamed = key.map((column) => `${name}.${column} = named.${column}`).join(" AND ");
  const found =
    key.length === 1 ? `FROM ${name} WHERE ${key[0]} = ANY ($1)` : `FROM ${named} JOIN ${name} ON ${isNamed}`;
  const lock = isLocked ? `ORDER BY ${key.map((column) => `${name}.${column}`).join(", ")} FOR UPDATE OF ${name}` : "";
  // For the server, which would otherwise search every partition.
  const bounds = read === "requests" ? "AND request.id >= $3 AND request.id <= $4" : "";
  return `${selected} ${found} ${rest} ${bounds} ${lock}`;
}

/** Reads the rows of a batch. After the locks of the balances, snapshots are newer. All reads of a step are sent at once. */
export async function readRows(transaction: Transaction, cache: BudgetCache, transitions: readonly Transition[]) {
  const plan = planReads(cache, transitions);
  let step = plan.next();
  let nowMs: number | undefined;
  while (!step.done) {
    const [rows, clock] = await Promise.all([
      rowsOf(transaction, step.value),
      // Sent after the locks.
      nowMs === undefined ? transaction.planned(CLOCK, []) : undefined,
    ]);
    nowMs ??= Number(clock?.rows[0]?.[0]);
    step = plan.next({ ...rows, nowMs });
  }
  return step.value;
}

async function rowsOf(transaction: Transaction, wanted: WantedRows): Promise<Omit<FoundRows, "nowMs">> {
  const found: Record<string, object[]> = {};
  await Promise.all(
    Object.entries(wanted).map(async ([name, of]) => {
      found[name] = of.length === 0 ? [] : await readNamed(transaction, name, of);
    }),
  );
  return found as unknown as FoundRows;
}

async function readNamed(transaction: Transaction, name: string, of: readonly object[]): Promise<object[]> {
  const read = READS.get(name);
  if (read === undefined) throw new Error(`no read is named ${name}`);
  const { table, by, text } = read;
  const values: unknown[] = Object.values(by).map((property) =>
    arrayText(of.map((one) => (one as Record<string, Exclude<Cell, Uint8Array>>)[property] ?? null)),
  );
  if (name === "requests") {
    // The order of the column, whose collation is "C".
    const ids = of.map((one) => (one as { id: string }).id).sort();
    values.push(ids[0], ids.at(-1));
  }
  const { rows } = await transaction.planned(text, values);
  return rows.map((cells) => table.fromCells(cells));
}

/** Writes the decision over a batch: one statement per table and kind of write, all sent at once. */
export async function writeRows(transaction: Transaction, writes: BookWrites): Promise<void> {
  await Promise.all(
    BOOK_WRITES.map(async ([name, write]) => {
      const rows = writes[name];
      if (rows.length === 0) return;
      const { text, values } = writeStatement(write, rows);
      const { rowCount } = await transaction.planned(text, values);
      // No row can disappear under the lock of its balance. If one has, nothing of the batch may be booked.
      if (rowCount === rows.length || write.mayBeMissing) return;
      throw new Error(`${rowCount} of ${rows.length} rows of ${write.table.name} were written`);
    }),
  );
}

/** Returns the statement that writes rows. A column is an array of values, or one value if all rows share it, as most do. */
function writeStatement<Row extends object>(write: BookWrite<Row>, rows: readonly Row[]) {
  const { columns, table } = write;
  // No table of the books has binary columns.
  const cells = rows.map((row) => write.toCells(row) as Exclude<Cell, Uint8Array>[]);
  // A plan for one shared organization could read all of its holds to delete a few.
  const isShared = (index: number) => write.verb !== "delete" && cells.every((row) => row[index] === cells[0]?.[index]);
  // At least one column is an array, because the number of rows comes from it.
  const arrays = new Set(columns.filter((_, index) => !isShared(index)));
  if (arrays.size === 0 && columns[0] !== undefined) arrays.add(columns[0]);
  const place = (column: string) => `$${columns.indexOf(column) + 1}::${table.kinds[column]}`;
  const listed = [...arrays];
  const source = `unnest(${listed.map((column) => `${place(column)}[]`).join(", ")}) AS input (${listed.join(", ")})`;
  return {
    text: sqlOf(write, (column) => (arrays.has(column) ? `input.${column}` : place(column)), source),
    values: columns.map((column, index) =>
      arrays.has(column) ? arrayText(cells.map((row) => row[index] ?? null)) : cells[0]?.[index],
    ),
  };
}

const ESCAPED = /["\\]/;
const ESCAPED_ALL = /["\\]/g;

/** Returns an array in PostgreSQL's input syntax (section 8.15.2 of its manual). The client would search each text twice. */
export function arrayText(cells: readonly Exclude<Cell, Uint8Array>[]): string {
  let text = "{";
  for (const cell of cells) {
    if (text.length > 1) text += ",";
    if (typeof cell !== "string") text += cell === null ? "NULL" : cell;
    else text += ESCAPED.test(cell) ? `"${cell.replace(ESCAPED_ALL, "\\$&")}"` : `"${cell}"`;
  }
  return `${text}}`;
}
