import { type BookWrite, sqlOf } from "../book-writes.ts";
import type { Cell } from "../fields.ts";

const ESCAPED = /["\\]/;
const ESCAPED_ALL = /["\\]/g;

/**
 * Returns the statement that writes rows. A column is an array of their values, or one value if all rows share it: most
 * columns of the requests of a batch have the same value, which is sent once.
 */
export function writeStatement<Row extends object>(write: BookWrite<Row>, rows: readonly Row[]) {
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

/**
 * Returns an array in PostgreSQL's input syntax (section 8.15.2 of its manual). The client would search each text twice for
 * characters to escape.
 */
export function arrayText(cells: readonly Exclude<Cell, Uint8Array>[]): string {
  let text = "{";
  for (const cell of cells) {
    if (text.length > 1) text += ",";
    if (typeof cell !== "string") text += cell === null ? "NULL" : cell;
    else text += ESCAPED.test(cell) ? `"${cell.replace(ESCAPED_ALL, "\\$&")}"` : `"${cell}"`;
  }
  return `${text}}`;
}
