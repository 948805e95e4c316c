import type { Cell, ColumnKind, Field } from "./fields.ts";
import { join, raw, type Sql, sql } from "./sql.ts";

const TYPES: Record<ColumnKind, string> = { text: "string", bigint: "bigint", bytea: "object" };

/** The fields that store a row type which is declared elsewhere. */
type Fields<Row> = { [Property in keyof Row]-?: Field<Row[Property]> };
// biome-ignore lint/suspicious/noExplicitAny: a field of any type.
type AnyFields = Record<string, Field<any>>;
type ValuesOf<Of extends AnyFields> = { [Property in keyof Of]: ReturnType<Of[Property]["decode"]> };

/** A table: its columns in their order, and the conversion of its rows. Both databases return integers as bigint. */
export class Table<Row extends object> {
  readonly name: string;
  readonly key: readonly string[];
  readonly columns: readonly string[];
  readonly kinds: Readonly<Record<string, ColumnKind>>;
  readonly #fields: [keyof Row, Field<never>, at: number][] = [];
  /** By column: the type of its values, whether it may be null, and the only values that it may have. */
  readonly rules: [column: string, type: string, isOptional: boolean, values: readonly unknown[] | undefined][] = [];
  readonly #fieldOfKey = new Set<keyof Row>();
  readonly #ruled: Record<"amount" | "past", (keyof Row)[]> = { amount: [], past: [] };

  constructor(name: string, key: readonly (keyof Row)[], fields: Fields<Row>) {
    const kinds: Record<string, ColumnKind> = {};
    for (const property of Object.keys(fields) as (keyof Row)[]) {
      this.#fields.push([property, fields[property] as Field<never>, Object.keys(kinds).length]);
      const { columns, optional = [], values, rule } = fields[property];
      if (rule !== undefined) this.#ruled[rule].push(property);
      Object.assign(kinds, columns);
      for (const [column, kind] of Object.entries(columns) as [string, ColumnKind][]) {
        this.rules.push([column, TYPES[kind], optional.includes(column), values]);
      }
    }
    this.name = name;
    this.kinds = kinds;
    this.columns = Object.keys(kinds);
    for (const property of key) this.#fieldOfKey.add(property);
    this.key = key.flatMap((property) => Object.keys(fields[property].columns));
  }

  /** Decodes values in the order of `columns`. */
  fromCells(cells: readonly unknown[]): Row {
    const row: Partial<Record<keyof Row, unknown>> = {};
    for (const [property, { decode }, at] of this.#fields) row[property] = decode(cells, at);
    return row as Row;
  }

  /** Decodes values by column. Ignores other columns. */
  fromRecord = (record: object): Row => {
    return this.fromCells(this.columns.map((column) => (record as Record<string, unknown>)[column]));
  };

  /** Decodes values by column, but returns as a text what is malformed in them, or the error of a further check. */
  examine(record: object, check: (row: Row) => void = () => {}): Row | string {
    try {
      const row = this.#examine(record);
      check(row);
      return row;
    } catch (error) {
      return (error as Error).message;
    }
  }

  #examine(record: object): Row {
    for (const [column, type, isOptional, values] of this.rules) {
      const cell = (record as Record<string, unknown>)[column] ?? null;
      if (cell === null) {
        if (!isOptional) throw new Error(`${column} is null`);
      } else if (typeof cell !== type) throw new Error(`${column} is not of the type ${type}`);
      else if (values?.includes(cell) === false)
        throw new Error(`${column} has the unknown value ${JSON.stringify(String(cell))}`);
    }
    const cells = this.columns.map((column) => (record as Record<string, unknown>)[column]);
    const row: Partial<Record<keyof Row, unknown>> = {};
    for (const [property, field, at] of this.#fields) {
      try {
        const value: unknown = field.decode(cells, at);
        (field as Field<unknown>).check?.(value);
        if (!isComplete(field, value, cells, at)) throw new Error("they contradict each other");
        row[property] = value;
      } catch (error) {
        throw new Error(`${Object.keys(field.columns).join(", ")} cannot be read: ${(error as Error).message}`);
      }
    }
    return row as Row;
  }

  /** Returns the properties of a row that are amounts below 0. */
  amountsBelowZero(row: Row): (keyof Row)[] {
    return this.#ruled.amount.filter((property) => (row[property] as bigint) < 0n);
  }

  /** Returns the properties of a row that are times of past events but later than a time. */
  timesAfter(row: Row, timeMs: number): (keyof Row)[] {
    return this.#ruled.past.filter(
      (property) => (row[property] as number | null) !== null && (row[property] as number) > timeMs,
    );
  }

  /** Returns the statement that inserts rows. */
  insert(...rows: readonly Row[]): Sql {
    const { columns, toCells } = this.partOf();
    const values = rows.map((row) => sql`(${join(toCells(row))})`);
    return sql`insert into ${raw(this.name)} (${raw(columns.join(", "))}) values ${join(values)}`;
  }

  /** Returns the statement that inserts a row for each one of a source, with `selected` columns of it. SQLite would cast bytes. */
  insertFrom(source: Sql, row: Row, selected: Readonly<Record<string, Sql>> = {}): Sql {
    const { columns, toCells } = this.partOf();
    // In a selection, databases do not infer the types of parameters from the columns.
    const values = toCells(row).map((cell, index) => {
      const column = columns[index] ?? "";
      return selected[column] ?? sql`cast(${cell} as ${raw(this.kinds[column] ?? "")})`;
    });
    return sql`insert into ${raw(this.name)} (${raw(columns.join(", "))}) select ${join(values)} ${source}`;
  }

  /** Returns the assignments of an update that sets some properties; those that are undefined stay unchanged. */
  set(properties: Partial<Row>): Sql {
    const given = this.#fields.filter(([property]) => properties[property] !== undefined);
    const { columns, toCells } = this.#partOf(given);
    const cells = toCells(properties as Row);
    return join(columns.map((column, index) => sql`${raw(column)} = ${cells[index] ?? null}`));
  }

  /** Returns the columns of some properties. */
  columnsOf(properties: readonly (keyof Row)[]): string[] {
    return this.#partOf(this.#fields.filter(([property]) => properties.includes(property))).columns;
  }

  /** Returns the columns that a write of some properties (absent: all) sets, and their values; the key comes last. */
  partOf(properties?: readonly (keyof Row)[]): TablePart<Row> {
    const isKey = (property: keyof Row) => this.#fieldOfKey.has(property);
    const isChanged = (property: keyof Row) => !isKey(property) && (properties?.includes(property) ?? true);
    return this.#partOf([
      ...this.#fields.filter(([property]) => isChanged(property)),
      ...this.#fields.filter(([property]) => isKey(property)),
    ]);
  }

  #partOf(chosen: readonly [keyof Row, Field<never>, at: number][]): TablePart<Row> {
    return {
      columns: chosen.flatMap(([, { columns }]) => Object.keys(columns)),
      toCells(row) {
        const cells: Cell[] = [];
        for (const [property, { encode }] of chosen) encode(row[property] as never, cells);
        return cells;
      },
    };
  }
}

/** Returns false if several columns of a field have other numbers, or nulls, than its value would be stored with. */
function isComplete(field: Field<never>, value: unknown, cells: readonly unknown[], at: number): boolean {
  if (Object.keys(field.columns).length === 1) return true;
  const stored: Cell[] = [];
  field.encode(value as never, stored);
  return stored.every((cell, index) => {
    const found = cells[at + index];
    return typeof found === "bigint"
      ? cell !== null && BigInt(cell as number) === found
      : (cell === null) === (found === null);
  });
}

/** A table as SQL sees it. */
export type TableShape = Pick<Table<object>, "name" | "key" | "columns" | "kinds" | "rules">;

export interface TablePart<Row> {
  columns: string[];
  toCells(row: Row): Cell[];
}

/** Declares a table, from which the types of its rows and columns follow. */
export function declareTable<Of extends AnyFields>(name: string, key: readonly (keyof Of)[], fields: Of) {
  return new Table<ValuesOf<Of>>(name, key, fields as unknown as Fields<ValuesOf<Of>>);
}

/** The row type of a table. */
export type RowOf<Of extends { fromCells(cells: unknown[]): object }> = ReturnType<Of["fromCells"]>;
