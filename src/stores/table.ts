import type { ColumnType, Insertable, Updateable } from "kysely";
import type { Attempt, Draw, HoldDetails, LateSettlement, Trace } from "../credits/books.ts";
import type { TokenClass, TokenCounts, UnitPrices } from "../credits/price.ts";

/** The value of a column. */
export type Cell = string | bigint | number | Uint8Array | null;
type Integer = ColumnType<bigint, bigint | number, bigint | number>;
type OptionalInteger = ColumnType<bigint | null, bigint | number | null, bigint | number | null>;
/** PostgreSQL's name of a column's type. */
type ColumnKind = "text" | "bigint" | "bytea";

/** One property of a row, stored in one or several columns. */
interface Field<Value, Columns> {
  columns: { [Name in keyof Columns]: ColumnKind };
  /** The types of the columns, for the compiler only. */
  types?: Columns;
  encode(value: Value, cells: Cell[]): void;
  /** Reads its columns, which begin at an index of the cells. */
  decode(cells: readonly unknown[], at: number): Value;
}

/** The fields that store a row type which is declared elsewhere. */
export type Fields<Row> = { [Property in keyof Row]-?: Field<Row[Property], object> };
type AnyFields = Record<string, Field<unknown, object>>;
type ValuesOf<Of extends AnyFields> = { [Property in keyof Of]: ReturnType<Of[Property]["decode"]> };
type UnionToIntersection<Union> = (Union extends unknown ? (of: Union) => void : never) extends (of: infer All) => void
  ? All
  : never;
type TypesOf<Of> = UnionToIntersection<{ [P in keyof Of]: Of[P] extends { types?: infer C } ? C : never }[keyof Of]>;

/**
 * A table: its columns in their order, and the conversion between its rows and those of the database. Integers are signed
 * 64-bit integers, which both databases return as bigint.
 */
export class Table<Row extends object, Columns = object> {
  readonly name: string;
  readonly key: readonly string[];
  readonly columns: readonly string[];
  /** By column. */
  readonly kinds: Readonly<Record<string, ColumnKind>>;
  /** The types of the columns, for the compiler only. */
  readonly types?: Columns;
  readonly #fields: [keyof Row, Field<never, object>, at: number][] = [];
  readonly #fieldOfKey = new Set<keyof Row>();

  constructor(name: string, key: readonly (keyof Row)[], fields: Fields<Row>) {
    const kinds: Record<string, ColumnKind> = {};
    for (const property of Object.keys(fields) as (keyof Row)[]) {
      this.#fields.push([property, fields[property] as Field<never, object>, Object.keys(kinds).length]);
      Object.assign(kinds, fields[property].columns);
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

  /** Encodes a row as values by column. */
  toRecord(row: Row): Insertable<Columns> {
    return this.toChange(row) as Insertable<Columns>;
  }

  /** Encodes the given properties of a row as values by column. */
  toChange(properties: Partial<Row>): Updateable<Columns> {
    const record: Record<string, Cell | undefined> = {};
    for (const [property, { columns, encode }] of this.#fields) {
      if (properties[property] === undefined) continue;
      const cells: Cell[] = [];
      encode(properties[property] as never, cells);
      for (const [index, column] of Object.keys(columns).entries()) record[column] = cells[index];
    }
    return record as Updateable<Columns>;
  }

  /** Returns the columns that a write of some properties (absent: all) sets, and their values; the key comes last. */
  partOf(properties?: readonly (keyof Row)[]): TablePart<Row> {
    const isKey = (property: keyof Row) => this.#fieldOfKey.has(property);
    const isChanged = (property: keyof Row) => !isKey(property) && (properties?.includes(property) ?? true);
    const chosen = [
      ...this.#fields.filter(([property]) => isChanged(property)),
      ...this.#fields.filter(([property]) => isKey(property)),
    ];
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

export interface TablePart<Row> {
  columns: string[];
  toCells(row: Row): Cell[];
}

/** Declares a table, from which the types of its rows and columns follow. */
export function table<Of extends AnyFields>(
  name: string,
  key: readonly (keyof Of)[],
  fields: Of,
): Table<ValuesOf<Of>, TypesOf<Of>> {
  return new Table<ValuesOf<Of>, TypesOf<Of>>(name, key, fields as unknown as Fields<ValuesOf<Of>>);
}

/** The row type of a table. */
export type RowOf<Of extends { fromCells(cells: unknown[]): object }> = ReturnType<Of["fromCells"]>;
/** The column types of a table, for queries. */
export type ColumnsOf<Of extends { types?: unknown }> = NonNullable<Of["types"]>;

function field<const Name extends string, Value, Type>(
  name: Name,
  kind: ColumnKind,
  encode: (value: Value) => Cell,
  decode: (cell: unknown) => Value,
): Field<Value, Record<Name, Type>> {
  return {
    columns: { [name]: kind } as Record<Name, ColumnKind>,
    encode: (value, cells) => void cells.push(encode(value)),
    decode: (cells, at) => decode(cells[at]),
  };
}

const same = <Value>(value: Value) => value;

export function text<const Name extends string, Value extends string = string>(name: Name) {
  return field<Name, Value, Value>(name, "text", same, (cell) => cell as Value);
}

export function optionalText<const Name extends string, Value extends string = string>(name: Name) {
  return field<Name, Value | null, Value | null>(name, "text", same, (cell) => cell as Value | null);
}

/** An exact integer, such as an amount of micro-credits. */
export function amount<const Name extends string>(name: Name) {
  return field<Name, bigint, Integer>(name, "bigint", same, (cell) => cell as bigint);
}

/** An integer of at most 2^53, such as a time in milliseconds. */
export function number<const Name extends string>(name: Name) {
  return field<Name, number, Integer>(name, "bigint", same, Number);
}

export function optionalNumber<const Name extends string>(name: Name) {
  const decode = (cell: unknown) => (cell === null ? null : Number(cell));
  return field<Name, number | null, OptionalInteger>(name, "bigint", same, decode);
}

export function bytes<const Name extends string>(name: Name) {
  return field<Name, Uint8Array, Uint8Array>(name, "bytea", same, (cell) => cell as Uint8Array);
}

export function optionalBytes<const Name extends string>(name: Name) {
  return field<Name, Uint8Array | null, Uint8Array | null>(name, "bytea", same, (cell) => cell as Uint8Array | null);
}

/** A boolean, stored as 0 or 1. */
export function flag<const Name extends string>(name: Name) {
  return field<Name, boolean, Integer>(name, "bigint", Number, (cell) => Number(cell) === 1);
}

/** JSON text. */
export function json<const Name extends string, Value>(
  name: Name,
  encode: (value: Value) => string = JSON.stringify,
  decode: (found: string) => Value = JSON.parse,
) {
  return field<Name, Value, string>(name, "text", encode, (cell) => decode(cell as string));
}

/** JSON text, or null. */
export function optionalJson<const Name extends string, Value>(name: Name) {
  const encode = (value: Value | null) => (value === null ? null : JSON.stringify(value));
  const decode = (cell: unknown) => (cell === null ? null : (JSON.parse(cell as string) as Value));
  return field<Name, Value | null, string | null>(name, "text", encode, decode);
}

/** A list of draws, stored as JSON text with amounts in decimal. */
export function draws<const Name extends string>(name: Name) {
  return json<Name, Draw[]>(name, encodeDraws, decodeDraws);
}

const PRICE_COLUMNS = {
  input_price: "bigint",
  cached_input_price: "bigint",
  cache_write_price: "bigint",
  output_price: "bigint",
  reasoning_price: "bigint",
} as const;

/** The prices of all classes of tokens, a column each. */
export function prices(): Field<UnitPrices, Record<keyof typeof PRICE_COLUMNS, Integer>> {
  return {
    columns: PRICE_COLUMNS,
    encode: pushClasses,
    decode: (cells, at) => classesFrom(cells, at, (cell) => cell as bigint),
  };
}

const TOKEN_COLUMNS = {
  input_tokens: "bigint",
  cached_input_tokens: "bigint",
  cache_write_tokens: "bigint",
  output_tokens: "bigint",
  reasoning_tokens: "bigint",
} as const;

/** The counts of all classes of tokens, a column each. */
export function tokens(): Field<TokenCounts, Record<keyof typeof TOKEN_COLUMNS, Integer>> {
  return {
    columns: TOKEN_COLUMNS,
    encode: pushClasses,
    decode: (cells, at) => classesFrom(cells, at, Number),
  };
}

/** Appends a value for each class of tokens, in the order of the columns. */
function pushClasses<Value>(values: Record<TokenClass, Value>, into: Value[]): void {
  into.push(values.input, values.cachedInput, values.cacheWrite, values.output, values.reasoning);
}

/** Reads a value for each class of tokens, from an index of a list on. */
function classesFrom<Value>(
  list: readonly unknown[],
  at: number,
  read: (item: unknown) => Value,
): Record<TokenClass, Value> {
  return {
    input: read(list[at]),
    cachedInput: read(list[at + 1]),
    cacheWrite: read(list[at + 2]),
    output: read(list[at + 3]),
    reasoning: read(list[at + 4]),
  };
}

/** The index of live grants covers `is_used_up`, which changes rarely. */
export function remaining(): Field<bigint, { remaining: Integer; is_used_up: Integer }> {
  return {
    columns: { remaining: "bigint", is_used_up: "bigint" },
    encode: (value, cells) => void cells.push(value, value === 0n ? 1 : 0),
    decode: (cells, at) => cells[at] as bigint,
  };
}

interface TraceColumns {
  /** 0 or 1; null if the request has no trace. */
  is_streamed: OptionalInteger;
  first_token_ms: OptionalInteger;
  /** JSON array of Attempt. */
  attempts: string | null;
  failure: string | null;
  provider_response_id: string | null;
  provider_cost: string | null;
}

/** The trace of a request, a column for each property; all are null if there is none. */
export function trace(): Field<Trace | null, TraceColumns> {
  return {
    columns: {
      is_streamed: "bigint",
      first_token_ms: "bigint",
      attempts: "text",
      failure: "text",
      provider_response_id: "text",
      provider_cost: "text",
    },
    encode: (value, cells) => {
      if (value === null) return void cells.push(null, null, null, null, null, null);
      const { isStreamed, firstTokenMs, attempts, failure, providerResponseId, providerCost } = value;
      // A fraction of a millisecond must not make a settlement fail.
      const firstToken = firstTokenMs === null ? null : Math.round(firstTokenMs);
      const attemptsText = attempts === null ? null : JSON.stringify(attempts);
      cells.push(Number(isStreamed), firstToken, attemptsText, failure, providerResponseId, providerCost);
    },
    decode: (cells, at) => {
      const [isStreamed, firstToken] = cells.slice(at, at + 2) as [Cell, Cell];
      if (isStreamed === null) return null;
      const [attempts, failure, responseId, cost] = cells.slice(at + 2, at + 6) as (string | null)[];
      return {
        isStreamed: Number(isStreamed) === 1,
        firstTokenMs: firstToken === null ? null : Number(firstToken),
        attempts: attempts === null || attempts === undefined ? null : (JSON.parse(attempts) as Attempt[]),
        failure: failure ?? null,
        providerResponseId: responseId ?? null,
        providerCost: cost ?? null,
      };
    },
  };
}

/** JSON has no bigint: prices are decimal text. */
type PlainPrices = Record<TokenClass, string>;

function plainPrices({ input, cachedInput, cacheWrite, output, reasoning }: UnitPrices): PlainPrices {
  return {
    input: input.toString(),
    cachedInput: cachedInput.toString(),
    cacheWrite: cacheWrite.toString(),
    output: output.toString(),
    reasoning: reasoning.toString(),
  };
}

function pricesFromPlain({ input, cachedInput, cacheWrite, output, reasoning }: PlainPrices): UnitPrices {
  return {
    input: BigInt(input),
    cachedInput: BigInt(cachedInput),
    cacheWrite: BigInt(cacheWrite),
    output: BigInt(output),
    reasoning: BigInt(reasoning),
  };
}

/** The facts of an open hold, stored as JSON text. */
export function details<const Name extends string>(name: Name) {
  return json<Name, HoldDetails>(name, encodeDetails, decodeDetails);
}

/** Encodes a list: with their names, the properties would take several times the space. */
function encodeDetails(hold: HoldDetails): string {
  const { tokenId, requestId, model, upstream, prices: unitPrices, metadata, idempotencyKey, tokens: counts } = hold;
  const list: unknown[] = [tokenId, requestId, model, upstream, metadata, idempotencyKey];
  pushClasses(plainPrices(unitPrices), list);
  pushClasses(counts, list);
  return JSON.stringify(list);
}

function decodeDetails(found: string): HoldDetails {
  const list = JSON.parse(found);
  const [tokenId, requestId, model, upstream, metadata, idempotencyKey] = list;
  const unitPrices = classesFrom(list, 6, (text) => BigInt(text as string));
  const counts = classesFrom(list, 11, Number);
  return { tokenId, requestId, model, upstream, prices: unitPrices, metadata, idempotencyKey, tokens: counts };
}

interface SettlementColumns {
  input_tokens: OptionalInteger;
  cached_input_tokens: OptionalInteger;
  cache_write_tokens: OptionalInteger;
  output_tokens: OptionalInteger;
  reasoning_tokens: OptionalInteger;
  shortfall: OptionalInteger;
  /** JSON of the rest of LateSettlement. */
  settlement: string | null;
}

/** Sums need the counts and the shortfall in columns of their own. */
export function settlement(): Field<LateSettlement | null, SettlementColumns> {
  return {
    columns: { ...TOKEN_COLUMNS, shortfall: "bigint", settlement: "text" },
    encode: (value, cells) => {
      if (value === null) return void cells.push(null, null, null, null, null, null, null);
      const { tokens: counts, shortfall, prices: unitPrices, ...rest } = value;
      const plain = JSON.stringify({ ...rest, prices: plainPrices(unitPrices) });
      pushClasses<Cell>(counts, cells);
      cells.push(shortfall, plain);
    },
    decode: (cells, at) => {
      const plain = cells[at + 6];
      if (typeof plain !== "string") return null;
      const rest = JSON.parse(plain);
      const found = { prices: pricesFromPlain(rest.prices), shortfall: cells[at + 5] as bigint };
      return { ...rest, ...found, tokens: classesFrom(cells, at, Number) };
    },
  };
}

function encodeDraws(of: readonly Draw[]): string {
  if (of.length === 0) return "[]";
  return JSON.stringify(of.map((draw) => [draw.grantId, draw.amount.toString()]));
}

function decodeDraws(found: string): Draw[] {
  if (found === "[]") return [];
  return (JSON.parse(found) as [string, string][]).map(([grantId, drawn]) => ({ grantId, amount: BigInt(drawn) }));
}
