import { formatDecimal, PROVIDER_COST_DIGITS, parseDecimal } from "../credits/amount.ts";
import { countersIn } from "../credits/budget-uses.ts";
import { decodeLines } from "../credits/charge-lines.ts";
import type {
  Attempt,
  CallerKey,
  Draw,
  HoldDetails,
  LateSettlement,
  RecordedUses,
  Retry,
  Trace,
} from "../credits/facts.ts";
import { type StatementTotals, TOTALS } from "../credits/statement-totals.ts";

export type Cell = string | bigint | number | Uint8Array | null;
/** PostgreSQL's name of a column's type. */
export type ColumnKind = "text" | "bigint" | "bytea";

/** One property of a row, stored in one or several columns. */
export interface Field<Value> {
  columns: Readonly<Record<string, ColumnKind>>;
  /** Those of its columns that may be null; absent: none. */
  optional?: readonly string[];
  /** The only values that its column may have; absent: any. */
  values?: readonly unknown[];
  /** Throws an error for a decoded value that no row may have. Only a verification calls it. */
  check?(value: Value): void;
  /** The rule that a verification checks: an amount is not below 0, a past time is not in the future. */
  rule?: "amount" | "past";
  encode(value: Value, cells: Cell[]): void;
  /** Reads its columns, which begin at an index of the cells. */
  decode(cells: readonly unknown[], at: number): Value;
}

function field<Value>(
  name: string,
  kind: ColumnKind,
  encode: (value: Value) => Cell,
  decode: (cell: unknown) => Value,
  rules: Pick<Field<Value>, "optional" | "values" | "check" | "rule"> = {},
): Field<Value> {
  return {
    columns: { [name]: kind },
    ...rules,
    encode: (value, cells) => void cells.push(encode(value)),
    decode: (cells, at) => decode(cells[at]),
  };
}

const same = <Value>(value: Value) => value;

export function requiredText(name: string) {
  return field<string>(name, "text", same, (cell) => cell as string);
}

/** One of some texts. */
export function oneOf<const Value extends string>(name: string, values: readonly Value[]) {
  return field<Value>(name, "text", same, (cell) => cell as Value, { values });
}

/** An amount of micro-credits that is not below 0. */
export function amount(name: string) {
  return { ...signedAmount(name), rule: "amount" as const };
}

/** An exact integer, such as a difference of amounts. */
export function signedAmount(name: string) {
  return field<bigint>(name, "bigint", same, (cell) => cell as bigint);
}

/** A list of amounts, stored as JSON text with amounts in decimal. */
export function amounts(name: string) {
  const encode = (list: readonly bigint[]) => JSON.stringify(list.map(String));
  return json<readonly bigint[]>(name, encode, (found) => (JSON.parse(found) as string[]).map(BigInt));
}

/** An integer of at most 2^53, such as a time in milliseconds. */
export function number(name: string) {
  return field<number>(name, "bigint", same, Number);
}

/** The time of something that has happened, or null. */
export function past<Value extends number | null>(time: Field<Value>): Field<Value> {
  return { ...time, rule: "past" };
}

export function bytes(name: string) {
  return field<Uint8Array>(name, "bytea", same, (cell) => cell as Uint8Array);
}

/** A boolean, stored as 0 or 1. */
export function flag(name: string) {
  return field<boolean>(name, "bigint", Number, (cell) => Number(cell) === 1, { values: [0n, 1n] });
}

/** JSON text of an object or a list. */
export function json<Value>(
  name: string,
  encode: (value: Value) => string = JSON.stringify,
  decode: (found: string) => Value = JSON.parse,
) {
  return field<Value>(name, "text", encode, (cell) => decode(cell as string), { check: expectObject });
}

function expectObject(value: unknown): void {
  if (value !== null && typeof value !== "object") throw new Error("neither an object nor a list");
}

/** The lines of a charge: see `charge-lines.ts`. */
export function chargeLines(name: string): Field<string> {
  return { ...requiredText(name), check: (charge) => void decodeLines(charge) };
}

/** The counters of budgets that a request recorded; null for none. */
export function recordedBudgets(name: string): Field<RecordedUses> {
  return { ...nullable(requiredText(name)), check: (recorded) => void countersIn(recorded) };
}

/** A value of one column, or null. */
export function nullable<Value>({ columns, decode, encode, ...rest }: Field<Value>): Field<Value | null> {
  return {
    ...{ ...rest, columns, optional: Object.keys(columns) },
    encode: (value, cells) => (value === null ? void cells.push(null) : encode(value, cells)),
    decode: (cells, at) => (cells[at] === null ? null : decode(cells, at)),
  };
}

/** An object or null, with a column for each property. It is null if the column of a required property is null. */
function optionalGroup<Value extends object>(
  fields: {
    [Property in keyof Value]: Field<Value[Property]>;
  },
): Field<Value | null> {
  const parts = Object.entries(fields) as [keyof Value, Field<Value[keyof Value]>][];
  const columns = Object.assign({}, ...parts.map(([, field]) => field.columns));
  const required = parts.flatMap(([, field], index) => (field.optional === undefined ? [index] : []));
  return {
    ...{ columns, optional: Object.keys(columns) },
    encode(value, cells) {
      for (const [property, field] of parts) {
        if (value === null) cells.push(null);
        else field.encode(value[property], cells);
      }
    },
    decode(cells, at) {
      if (required.some((index) => cells[at + index] === null)) return null;
      const value: Partial<Value> = {};
      for (const [index, [property, field]] of parts.entries()) value[property] = field.decode(cells, at + index);
      return value as Value;
    },
  };
}

/** A list of draws, stored as JSON text with amounts in decimal. */
export function draws(name: string) {
  return json<Draw[]>(name, encodeDraws, decodeDraws);
}

/** The index of live grants covers `is_used_up`, which changes rarely. */
export function remaining(): Field<bigint> {
  return {
    columns: { remaining: "bigint", is_used_up: "bigint" },
    rule: "amount",
    encode: (value, cells) => void cells.push(value, value === 0n ? 1 : 0),
    decode: (cells, at) => cells[at] as bigint,
  };
}

/** The idempotency key of a request, or null. */
export function callerKey() {
  return optionalGroup<CallerKey>({
    callerId: requiredText("idempotency_caller_id"),
    key: requiredText("idempotency_key"),
  });
}

/** The trace of a request, or null. */
export function trace() {
  return optionalGroup<Trace>({
    isStreamed: flag("is_streamed"),
    // A fraction of a millisecond must not make a settlement fail.
    firstTokenMs: nullable(field<number>("first_token_ms", "bigint", Math.round, Number)),
    attempts: nullable(json<Attempt[]>("attempts")),
    failure: nullable(requiredText("failure")),
    providerResponseId: nullable(requiredText("provider_response_id")),
    // A cost that is no number is left out.
    providerCost: field<string | null>(
      "provider_cost",
      "bigint",
      (cost) => (cost === null ? null : (parseDecimal(cost, PROVIDER_COST_DIGITS) ?? null)),
      (cell) => (cell === null ? null : formatDecimal(cell as bigint, PROVIDER_COST_DIGITS)),
      { optional: ["provider_cost"] },
    ),
  });
}

/** The facts of an open hold, stored as JSON text. */
export function details(name: string): Field<HoldDetails> {
  return { ...json(name, encodeDetails, decodeDetails), check: ({ charge }) => void decodeLines(charge) };
}

/** Encodes a list: with their names, the properties would take several times the space. */
function encodeDetails(details: HoldDetails): string {
  const { requestId, model, upstream, metadata, idempotencyKey, charge, intent, retry } = details;
  const list: unknown[] = [requestId, model, upstream, metadata, idempotencyKey, charge];
  if (intent !== null) list.push(intent, retry && encodeRetry(retry));
  return JSON.stringify(list);
}

function decodeDetails(found: string): HoldDetails {
  const [requestId, model, upstream, metadata, idempotencyKey, charge, intent = null, retry = null] = JSON.parse(found);
  const names = { requestId, model, upstream, metadata, idempotencyKey, charge };
  return { ...names, intent, retry: retry && decodeRetry(retry) };
}

/** The attempt that a request repeats, stored as JSON text, or null. */
export function retry(name: string) {
  return nullable(json<Retry>(name, encodeRetry, decodeRetry));
}

function encodeRetry({ of, paid }: Retry): string {
  return JSON.stringify([of, paid.toString()]);
}

function decodeRetry(found: string): Retry {
  const [of, paid] = JSON.parse(found) as [string, string];
  return { of, paid: BigInt(paid) };
}

const SETTLEMENT_COLUMNS = {
  input_tokens: "bigint",
  output_tokens: "bigint",
  shortfall: "bigint",
  /** JSON of the rest of LateSettlement. */
  settlement: "text",
} as const;

/** Sums need the counts and the shortfall in columns of their own. */
export function settlement(): Field<LateSettlement | null> {
  return {
    columns: SETTLEMENT_COLUMNS,
    optional: Object.keys(SETTLEMENT_COLUMNS),
    check: (value) => void (value && decodeLines(value.charge)),
    encode: (value, cells) => {
      if (value === null) return void cells.push(null, null, null, null);
      const { inputTokens, outputTokens, shortfall, ...rest } = value;
      cells.push(inputTokens, outputTokens, shortfall, JSON.stringify(rest));
    },
    decode: (cells, at) => {
      const [input, output, shortfall, rest] = cells.slice(at, at + 4);
      if (typeof rest !== "string") return null;
      const sums = { inputTokens: Number(input), outputTokens: Number(output), shortfall: shortfall as bigint };
      return { ...JSON.parse(rest), ...sums };
    },
  };
}

/** Sums of a statement by kind, each in a column. */
export function statementTotals(): Field<StatementTotals> {
  return {
    columns: Object.fromEntries(TOTALS.map((name) => [`${name}_total`, "bigint" as const])),
    encode: (totals, cells) => void cells.push(...TOTALS.map((name) => totals[name])),
    decode: (cells, at) =>
      Object.fromEntries(TOTALS.map((name, index) => [name, cells[at + index]])) as unknown as StatementTotals,
  };
}

/** Encodes JSON by hand, because each hold and each request has some. */
function encodeDraws(of: readonly Draw[]): string {
  return `[${of.map(({ grantId, amount }) => `[${JSON.stringify(grantId)},"${amount}"]`).join(",")}]`;
}

function decodeDraws(found: string): Draw[] {
  if (found === "[]") return [];
  return (JSON.parse(found) as [string, string][]).map(([grantId, drawn]) => ({ grantId, amount: BigInt(drawn) }));
}
