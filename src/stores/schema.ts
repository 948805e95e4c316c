import type { ColumnType } from "kysely";
import type {
  AdjustmentRow,
  Attempt,
  BalanceRow,
  Draw,
  GrantRow,
  HoldDetails,
  HoldRow,
  IdempotencyKeyRow,
  LateSettlement,
  RequestRow,
  TokenBalanceRow,
  Trace,
} from "../credits/books.ts";
import { TOKEN_CLASSES, type TokenCounts, type UnitPrices } from "../credits/price.ts";

/**
 * The tables of the books. A column is declared once, here: the types of the portable queries, the column lists and the
 * parameter types of both stores, and the mappers between rows of tables and rows of the books follow from it. Integers
 * are signed 64-bit integers, read as bigint from either store; times are milliseconds since 1970, amounts micro-credits,
 * prices pico-credits a token, JSON is text that SQL never looks into.
 */
export type Cell = string | bigint | number | null;
type Integer = ColumnType<bigint, bigint | number, bigint | number>;
type OptionalInteger = ColumnType<bigint | null, bigint | number | null, bigint | number | null>;
type ColumnKind = "text" | "bigint";

/** One property of a row of the books, kept in one or several columns. */
interface Field<Value, Columns> {
  columns: { [Name in keyof Columns]: ColumnKind };
  /** Only for the compiler: the types of the columns. */
  types?: Columns;
  encode(value: Value, cells: Cell[]): void;
  /** Reads its columns, which begin at a place of the cells. */
  decode(cells: readonly unknown[], at: number): Value;
}

type Fields<Row> = { [Property in keyof Row]-?: Field<Row[Property], object> };
type UnionToIntersection<Union> = (Union extends unknown ? (of: Union) => void : never) extends (of: infer All) => void
  ? All
  : never;
type ColumnsOf<Of> = UnionToIntersection<{ [P in keyof Of]: Of[P] extends { types?: infer C } ? C : never }[keyof Of]>;

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

function text<const Name extends string, Value extends string = string>(name: Name) {
  return field<Name, Value, Value>(name, "text", same, (cell) => cell as Value);
}

function optionalText<const Name extends string, Value extends string = string>(name: Name) {
  return field<Name, Value | null, Value | null>(name, "text", same, (cell) => cell as Value | null);
}

function amount<const Name extends string>(name: Name) {
  return field<Name, bigint, Integer>(name, "bigint", same, (cell) => cell as bigint);
}

function number<const Name extends string>(name: Name) {
  return field<Name, number, Integer>(name, "bigint", same, Number);
}

function optionalNumber<const Name extends string>(name: Name) {
  const decode = (cell: unknown) => (cell === null ? null : Number(cell));
  return field<Name, number | null, OptionalInteger>(name, "bigint", same, decode);
}

function flag<const Name extends string>(name: Name) {
  return field<Name, boolean, Integer>(name, "bigint", Number, (cell) => Number(cell) === 1);
}

function json<Value, const Name extends string>(
  name: Name,
  encode: (value: Value) => string | null,
  decode: (text: string | null) => Value,
) {
  return field<Name, Value, string | null>(name, "text", encode, (cell) => decode(cell as string | null));
}

function draws<const Name extends string>(name: Name) {
  return field<Name, Draw[], string>(name, "text", encodeDraws, (cell) => decodeDraws(cell as string));
}

function metadata<const Name extends string>(name: Name) {
  type Metadata = Record<string, string> | null;
  const encode = (value: Metadata) => (value === null ? null : JSON.stringify(value));
  return json<Metadata, Name>(name, encode, (found) => (found === null ? null : JSON.parse(found)));
}

const PRICE_COLUMNS = {
  input_price: "bigint",
  cached_input_price: "bigint",
  cache_write_price: "bigint",
  output_price: "bigint",
  reasoning_price: "bigint",
} as const;

function prices(): Field<UnitPrices, Record<keyof typeof PRICE_COLUMNS, Integer>> {
  return {
    columns: PRICE_COLUMNS,
    encode: (value, cells) => void cells.push(...TOKEN_CLASSES.map((tokenClass) => value[tokenClass])),
    decode: (cells, at) => {
      const [input, cachedInput, cacheWrite, output, reasoning] = cells.slice(at, at + 5) as bigint[];
      return { input, cachedInput, cacheWrite, output, reasoning } as UnitPrices;
    },
  };
}

const TOKEN_COLUMNS = {
  input_tokens: "bigint",
  cached_input_tokens: "bigint",
  cache_write_tokens: "bigint",
  output_tokens: "bigint",
  reasoning_tokens: "bigint",
} as const;

function tokens(): Field<TokenCounts, Record<keyof typeof TOKEN_COLUMNS, Integer>> {
  return {
    columns: TOKEN_COLUMNS,
    encode: (value, cells) => void cells.push(...TOKEN_CLASSES.map((tokenClass) => value[tokenClass])),
    decode: (cells, at) => decodeTokens(cells, at),
  };
}

function decodeTokens(cells: readonly unknown[], at: number): TokenCounts {
  const [input, cachedInput, cacheWrite, output, reasoning] = cells.slice(at, at + 5).map(Number);
  return { input, cachedInput, cacheWrite, output, reasoning } as TokenCounts;
}

/** The index of live grants is over a column that changes rarely. */
function remaining(): Field<bigint, { remaining: Integer; is_used_up: Integer }> {
  return {
    columns: { remaining: "bigint", is_used_up: "bigint" },
    encode: (value, cells) => void cells.push(value, value === 0n ? 1 : 0),
    decode: (cells, at) => cells[at] as bigint,
  };
}

interface TraceColumns {
  /** 0 or 1; null where nothing is known of how the request went. */
  is_streamed: OptionalInteger;
  first_token_ms: OptionalInteger;
  /** JSON array of Attempt. */
  attempts: string | null;
  failure: string | null;
}

function trace(): Field<Trace | null, TraceColumns> {
  return {
    columns: { is_streamed: "bigint", first_token_ms: "bigint", attempts: "text", failure: "text" },
    encode: (value, cells) => {
      if (value === null) return void cells.push(null, null, null, null);
      const { isStreamed, firstTokenMs, attempts, failure } = value;
      // No settlement may fail because of a fraction of a millisecond.
      const firstToken = firstTokenMs === null ? null : Math.round(firstTokenMs);
      cells.push(Number(isStreamed), firstToken, attempts === null ? null : JSON.stringify(attempts), failure);
    },
    decode: (cells, at) => {
      const [isStreamed, firstToken, attempts, failure] = cells.slice(at, at + 4) as [Cell, Cell, string, string];
      if (isStreamed === null) return null;
      return {
        isStreamed: Number(isStreamed) === 1,
        firstTokenMs: firstToken === null ? null : Number(firstToken),
        attempts: attempts === null ? null : (JSON.parse(attempts) as Attempt[]),
        failure,
      };
    },
  };
}

/** JSON knows no bigint: prices are decimal text. */
function plainPrices(of: UnitPrices): Record<string, string> {
  return Object.fromEntries(TOKEN_CLASSES.map((tokenClass) => [tokenClass, of[tokenClass].toString()]));
}

function pricesFromPlain(plain: Record<string, string>): UnitPrices {
  const found = TOKEN_CLASSES.map((tokenClass) => [tokenClass, BigInt(plain[tokenClass] ?? 0)]);
  return Object.fromEntries(found) as unknown as UnitPrices;
}

function encodeDetails(details: HoldDetails): string {
  return JSON.stringify({ ...details, prices: plainPrices(details.prices) });
}

function decodeDetails(found: string | null): HoldDetails {
  const plain = JSON.parse(found ?? "");
  return { ...plain, prices: pricesFromPlain(plain.prices) };
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

/** What is added up is in columns of its own. */
function settlement(): Field<LateSettlement | null, SettlementColumns> {
  return {
    columns: { ...TOKEN_COLUMNS, shortfall: "bigint", settlement: "text" },
    encode: (value, cells) => {
      if (value === null) return void cells.push(null, null, null, null, null, null, null);
      const { tokens: counts, shortfall, prices: unitPrices, ...rest } = value;
      const plain = JSON.stringify({ ...rest, prices: plainPrices(unitPrices) });
      cells.push(...TOKEN_CLASSES.map((tokenClass) => counts[tokenClass]), shortfall, plain);
    },
    decode: (cells, at) => {
      const plain = cells[at + 6];
      if (typeof plain !== "string") return null;
      const rest = JSON.parse(plain);
      const found = { prices: pricesFromPlain(rest.prices), shortfall: cells[at + 5] as bigint };
      return { ...rest, ...found, tokens: decodeTokens(cells, at) };
    },
  };
}

/** A table of the books: its columns in one order, and the way from its rows to those of the books and back. */
export class BookTable<Row extends object> {
  readonly name: string;
  readonly key: readonly string[];
  readonly columns: readonly string[];
  /** By column. */
  readonly kinds: Readonly<Record<string, ColumnKind>>;
  readonly #fields: [keyof Row, Field<never, object>, at: number][] = [];
  readonly #fieldOfKey = new Set<keyof Row>();

  constructor(name: string, key: (keyof Row)[], fields: Fields<Row>) {
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

  fromRecord = (record: object): Row => {
    return this.fromCells(this.columns.map((column) => (record as Record<string, unknown>)[column]));
  };

  /** Which columns a write names, and how to make their values: of some properties, the key at the end. */
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

const balanceFields = {
  organizationId: text("organization_id"),
  granted: amount("granted"),
  available: amount("available"),
  held: amount("held"),
  spent: amount("spent"),
  expired: amount("expired"),
  nextChangeAtMs: optionalNumber("next_change_at"),
} satisfies Fields<BalanceRow>;

const tokenBalanceFields = {
  organizationId: text("organization_id"),
  tokenId: text("token_id"),
  budgetId: optionalText("budget_id"),
  cap: amount("cap"),
  held: amount("held"),
  spent: amount("spent"),
} satisfies Fields<TokenBalanceRow>;

const grantFields = {
  organizationId: text("organization_id"),
  id: text("id"),
  source: text<"source", GrantRow["source"]>("source"),
  amount: amount("amount"),
  revoked: amount("revoked"),
  remaining: remaining(),
  state: text<"state", GrantRow["state"]>("state"),
  effectiveAtMs: number("effective_at"),
  expiresAtMs: optionalNumber("expires_at"),
  priority: number("priority"),
  reference: optionalText("reference"),
  createdAtMs: number("created_at"),
} satisfies Fields<GrantRow>;

const holdFields = {
  organizationId: text("organization_id"),
  holdId: text("id"),
  amount: amount("amount"),
  draws: draws("draws"),
  owner: text("owner"),
  madeAtMs: number("made_at"),
  expiresAtMs: number("expires_at"),
  details: json<HoldDetails, "details">("details", encodeDetails, decodeDetails),
} satisfies Fields<HoldRow>;

const requestFields = {
  organizationId: text("organization_id"),
  holdId: text("id"),
  tokenId: text("token_id"),
  requestId: text("request_id"),
  model: text("model"),
  upstream: text("upstream"),
  prices: prices(),
  tokens: tokens(),
  amount: amount("amount"),
  cost: amount("cost"),
  shortfall: amount("shortfall"),
  draws: draws("draws"),
  basis: optionalText<"basis", NonNullable<RequestRow["basis"]>>("basis"),
  end: text<"ending", RequestRow["end"]>("ending"),
  madeAtMs: number("made_at"),
  endedAtMs: number("ended_at"),
  isLate: flag("is_late"),
  trace: trace(),
  idempotencyKey: optionalText("idempotency_key"),
  metadata: metadata("metadata"),
} satisfies Fields<RequestRow>;

const keyFields = {
  organizationId: text("organization_id"),
  key: text("key"),
  fingerprint: text("fingerprint"),
  holdId: text("hold_id"),
  answer: optionalText("answer"),
  createdAtMs: number("created_at"),
  expiresAtMs: number("expires_at"),
} satisfies Fields<IdempotencyKeyRow>;

const adjustmentFields = {
  organizationId: text("organization_id"),
  id: text("id"),
  kind: text<"kind", AdjustmentRow["kind"]>("kind"),
  amount: amount("amount"),
  draws: draws("draws"),
  isAll: flag("is_all"),
  grantId: optionalText("grant_id"),
  expiresAtMs: optionalNumber("expires_at"),
  holdId: optionalText("hold_id"),
  tokenId: optionalText("token_id"),
  reference: optionalText("reference"),
  note: optionalText("note"),
  madeAtMs: number("made_at"),
  settlement: settlement(),
} satisfies Fields<AdjustmentRow>;

export const BALANCE = new BookTable<BalanceRow>("balance", ["organizationId"], balanceFields);
export const TOKEN_BALANCE = new BookTable<TokenBalanceRow>(
  "token_balance",
  ["organizationId", "tokenId"],
  tokenBalanceFields,
);
export const GRANT = new BookTable<GrantRow>("credit_grant", ["organizationId", "id"], grantFields);
export const HOLD = new BookTable<HoldRow>("hold", ["organizationId", "holdId"], holdFields);
export const REQUEST = new BookTable<RequestRow>("request", ["organizationId", "holdId"], requestFields);
export const KEY = new BookTable<IdempotencyKeyRow>("idempotency_key", ["organizationId", "key"], keyFields);
export const ADJUSTMENT = new BookTable<AdjustmentRow>("adjustment", ["organizationId", "id"], adjustmentFields);

/** The writes of a batch: what is inserted whole, and what changes of a row. */
export const WRITES = {
  balance: BALANCE.partOf(),
  tokenBalance: TOKEN_BALANCE.partOf(["held", "spent"]),
  newGrant: GRANT.partOf(),
  changedGrant: GRANT.partOf(["remaining", "revoked", "state"]),
  newHold: HOLD.partOf(),
  renewedHold: HOLD.partOf(["owner", "expiresAtMs", "details"]),
  newRequest: REQUEST.partOf(),
  key: KEY.partOf(),
  newAdjustment: ADJUSTMENT.partOf(),
};

/** The columns of the books, for the queries that are written once. */
export interface BookTables {
  balance: ColumnsOf<typeof balanceFields>;
  token_balance: ColumnsOf<typeof tokenBalanceFields>;
  credit_grant: ColumnsOf<typeof grantFields>;
  hold: ColumnsOf<typeof holdFields>;
  request: ColumnsOf<typeof requestFields>;
  idempotency_key: ColumnsOf<typeof keyFields>;
  adjustment: ColumnsOf<typeof adjustmentFields>;
}

export function encodeDraws(of: readonly Draw[]): string {
  if (of.length === 0) return "[]";
  return JSON.stringify(of.map((draw) => [draw.grantId, draw.amount.toString()]));
}

export function decodeDraws(found: string): Draw[] {
  if (found === "[]") return [];
  return (JSON.parse(found) as [string, string][]).map(([grantId, drawn]) => ({ grantId, amount: BigInt(drawn) }));
}

/** A nullable integer of a query as a number. */
export function toOptionalNumber(value: bigint | null): number | null {
  return value === null ? null : Number(value);
}
