import type { Cell } from "./fields.ts";

/** A statement or a part of one: pieces of text, and the values of its parameters at their places. */
export class Sql {
  readonly pieces: readonly (string | { value: Cell })[];

  constructor(pieces: Sql["pieces"]) {
    this.pieces = pieces;
  }
}

/** Returns SQL from a template. A value becomes a parameter; other SQL becomes a part of the text. */
export function sql(texts: readonly string[], ...parts: readonly (Sql | Cell)[]): Sql {
  return new Sql(texts.flatMap((text, index) => (index === 0 ? [text] : [...piecesOf(parts[index - 1]), text])));
}

/** Returns text of the code itself as SQL: the name of a table or a column, or a number that must not be a parameter. */
export function raw(text: string | number): Sql {
  return new Sql([String(text)]);
}

/** Joins values or parts of a statement. */
export function join(parts: readonly (Sql | Cell)[], separator = ", "): Sql {
  return new Sql(parts.flatMap((part, index) => (index === 0 ? piecesOf(part) : [separator, ...piecesOf(part)])));
}

/** Joins the conditions that apply; false and undefined are left out. */
export function allOf(...conditions: readonly (Sql | false | undefined)[]): Sql {
  const applying = conditions.filter((condition) => condition instanceof Sql);
  return applying.length === 0 ? raw("1 = 1") : join(applying, " and ");
}

/** Returns the condition that columns have these values; null: any. */
export function equal(values: Record<string, Cell>): Sql {
  const wanted = Object.entries(values).filter(([, value]) => value !== null);
  return allOf(...wanted.map(([column, value]) => sql`${raw(column)} = ${value}`));
}

/** Returns the condition that columns have the values of a row that was read. */
export function isAsRead(columns: readonly string[], row: Record<string, unknown>): Sql {
  return allOf(...columns.map((column) => sql`${raw(column)} is not distinct from ${row[column] as Cell}`));
}

/** Returns the statement that deletes rows of a table that meet a condition, at most `limit`. */
export function deleteSome({ name, key }: { name: string; key: readonly string[] }, condition: Sql, limit: number) {
  const [table, columns] = [raw(name), raw(key.join(", "))];
  return sql`
    delete from ${table} where (${columns}) in (select ${columns} from ${table} where ${condition} limit ${limit})`;
}

/** A text with places for parameters, as a database takes it. */
export interface Statement {
  sql: string;
  parameters: readonly Cell[];
}

/** Returns a statement for a database. `place` names the parameter of an index, which begins at 1. */
export function statementOf({ pieces }: Sql, place: (index: number) => string): Statement {
  const parameters: Cell[] = [];
  const texts = pieces.map((piece) => (typeof piece === "string" ? piece : place(parameters.push(piece.value))));
  return { sql: texts.join(""), parameters };
}

function piecesOf(part: Sql | Cell | undefined): Sql["pieces"] {
  if (part instanceof Sql) return part.pieces;
  // As a number, SQLite would take it for a floating-point value.
  return [{ value: Number.isSafeInteger(part) ? BigInt(part as number) : (part ?? null) }];
}
