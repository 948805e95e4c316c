import type { Cell } from "../fields.ts";
import type { Table, TablePart } from "../table.ts";

const ESCAPED = /["\\]/;
const ESCAPED_ALL = /["\\]/g;

/** A statement that writes rows; its text depends on them. */
export interface Write<Row> {
  table: string;
  part: TablePart<Row>;
  /** Types by column. */
  kinds: Readonly<Record<string, string>>;
  text(parameters: RowParameters): string;
}

/** The rows of a write as parameters: one value for a column that all rows share, otherwise one array per column. */
export interface RowParameters {
  values: unknown[];
  /** The expression for each column. */
  terms: Record<string, string>;
  /** Produces one row per row to write. */
  from: string;
}

/** Returns the parameters of a write. Most columns of the requests of a batch have the same value, which is sent once. */
export function parametersOf<Row>(
  part: TablePart<Row>,
  kinds: Write<Row>["kinds"],
  rows: readonly Row[],
): RowParameters {
  const names = part.columns;
  // No table of the books has binary columns.
  const cells = rows.map((row) => part.toCells(row) as Exclude<Cell, Uint8Array>[]);
  const isShared = (index: number) => cells.every((row) => row[index] === cells[0]?.[index]);
  // At least one column is an array, because the number of rows comes from it.
  const arrays = new Set(names.filter((_, index) => !isShared(index)));
  if (arrays.size === 0 && names[0] !== undefined) arrays.add(names[0]);
  const place = (name: string) => `$${names.indexOf(name) + 1}::${kinds[name]}`;
  const listed = [...arrays];
  return {
    values: names.map((name, index) =>
      arrays.has(name) ? arrayText(cells.map((row) => row[index] ?? null)) : cells[0]?.[index],
    ),
    terms: Object.fromEntries(names.map((name) => [name, arrays.has(name) ? `input.${name}` : place(name)])),
    from: `unnest(${listed.map((name) => `${place(name)}[]`).join(", ")}) AS input (${listed.join(", ")})`,
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

/** Inserts rows. */
export function insert<Row extends object>({ name, kinds }: Table<Row>, part: TablePart<Row>): Write<Row> {
  const names = part.columns;
  const text = ({ terms, from }: RowParameters) =>
    `INSERT INTO ${name} (${names.join(", ")}) SELECT ${names.map((column) => terms[column]).join(", ")} FROM ${from}`;
  return { table: name, part, kinds, text };
}

/** Inserts rows or replaces existing rows with the same key. */
export function upsert<Row extends object>(table: Table<Row>, part: TablePart<Row>): Write<Row> {
  const inserted = insert(table, part);
  const changed = part.columns.filter((column) => !table.key.includes(column));
  const assignments = changed.map((column) => `${column} = excluded.${column}`).join(", ");
  const conflict = `ON CONFLICT (${table.key.join(", ")}) DO UPDATE SET ${assignments}`;
  return { ...inserted, text: (parameters) => `${inserted.text(parameters)} ${conflict}` };
}

/** Updates the rows with the same key. */
export function update<Row extends object>({ name, key, kinds }: Table<Row>, part: TablePart<Row>): Write<Row> {
  const changed = part.columns.filter((column) => !key.includes(column));
  const text = ({ terms, from }: RowParameters) => {
    const set = changed.map((column) => `${column} = ${terms[column]}`).join(", ");
    const where = key.map((column) => `${name}.${column} = ${terms[column]}`).join(" AND ");
    return `UPDATE ${name} SET ${set} FROM ${from} WHERE ${where}`;
  };
  return { table: name, part, kinds, text };
}
