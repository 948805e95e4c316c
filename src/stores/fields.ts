import { formatDecimal, PROVIDER_COST_DIGITS, parseDecimal } from "../credits/amount.ts";
import type { Attempt, BudgetUse, CallerKey, Draw, HoldDetails, LateSettlement, Trace } from "../credits/books.ts";

/** The value of a column. */
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
  /** True if it decodes the JSON text of an object or a list. */
  isJson?: boolean;
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
  rules: Pick<Field<Value>, "optional" | "values" | "isJson" | "rule"> = {},
): Field<Value> {
  return {
    columns: { [name]: kind },
    ...rules,
    encode: (value, cells) => void cells.push(encode(value)),
    decode: (cells, at) => decode(cells[at]),
  };
}

const same = <Value>(value: Value) => value;

export function requiredText<Value extends string = string>(name: string) {
  return field<Value>(name, "text", same, (cell) => cell as Value);
}

export function optionalText<Value extends string = string>(name: string) {
  return field<Value | null>(name, "text", same, (cell) => cell as Value | null, { optional: [name] });
}

/** One of some texts. */
export function oneOf<const Value extends string>(name: string, values: readonly Value[]) {
  return { ...requiredText<Value>(name), values };
}

/** One of some texts, or null. */
export function optionalOneOf<const Value extends string>(name: string, values: readonly Value[]) {
  return { ...optionalText<Value>(name), values };
}

/** An amount of micro-credits that is not below 0. */
export function amount(name: string) {
  return { ...signedAmount(name), rule: "amount" as const };
}

/** An exact integer, such as a difference of amounts. */
export function signedAmount(name: string) {
  return field<bigint>(name, "bigint", same, (cell) => cell as bigint);
}

/** An integer of at most 2^53, such as a time in milliseconds. */
export function number(name: string) {
  return field<number>(name, "bigint", same, Number);
}

export function optionalNumber(name: string) {
  const decode = (cell: unknown) => (cell === null ? null : Number(cell));
  return field<number | null>(name, "bigint", same, decode, { optional: [name] });
}

/** The time of something that has happened, or null. */
export function past<Value extends number | null>(time: Field<Value>): Field<Value> {
  return { ...time, rule: "past" };
}

export function bytes(name: string) {
  return field<Uint8Array>(name, "bytea", same, (cell) => cell as Uint8Array);
}

export function optionalBytes(name: string) {
  return field<Uint8Array | null>(name, "bytea", same, (cell) => cell as Uint8Array | null, { optional: [name] });
}

/** A boolean, stored as 0 or 1. */
export function flag(name: string) {
  return field<boolean>(name, "bigint", Number, (cell) => Number(cell) === 1, { values: [0n, 1n] });
}

/** JSON text. */
export function json<Value>(
  name: string,
  encode: (value: Value) => string = JSON.stringify,
  decode: (found: string) => Value = JSON.parse,
) {
  return field<Value>(name, "text", encode, (cell) => decode(cell as string), { isJson: true });
}

/** JSON text, or null. */
export function optionalJson<Value>(name: string) {
  const encode = (value: Value | null) => (value === null ? null : JSON.stringify(value));
  const decode = (cell: unknown) => (cell === null ? null : (JSON.parse(cell as string) as Value));
  return field<Value | null>(name, "text", encode, decode, { optional: [name], isJson: true });
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
export function callerKey(): Field<CallerKey | null> {
  return {
    columns: { idempotency_caller_id: "text", idempotency_key: "text" },
    optional: ["idempotency_caller_id", "idempotency_key"],
    encode: (value, cells) => void cells.push(value?.callerId ?? null, value?.key ?? null),
    decode: (cells, at) => {
      const [callerId, key] = cells.slice(at, at + 2) as (string | null)[];
      return callerId == null || key == null ? null : { callerId, key };
    },
  };
}

const TRACE_COLUMNS = {
  /** 0 or 1; null if the request has no trace. */
  is_streamed: "bigint",
  first_token_ms: "bigint",
  /** JSON array of Attempt. */
  attempts: "text",
  failure: "text",
  provider_response_id: "text",
  provider_cost: "bigint",
} as const;

/** The trace of a request, a column for each property; all are null if there is none. */
export function trace(): Field<Trace | null> {
  return {
    columns: TRACE_COLUMNS,
    optional: Object.keys(TRACE_COLUMNS),
    encode: (value, cells) => {
      if (value === null) return void cells.push(null, null, null, null, null, null);
      const { isStreamed, firstTokenMs, attempts, failure, providerResponseId, providerCost } = value;
      // A fraction of a millisecond must not make a settlement fail.
      const firstToken = firstTokenMs === null ? null : Math.round(firstTokenMs);
      const attemptsText = attempts === null ? null : JSON.stringify(attempts);
      const cost = providerCost === null ? null : (parseDecimal(providerCost, PROVIDER_COST_DIGITS) ?? null);
      cells.push(Number(isStreamed), firstToken, attemptsText, failure, providerResponseId, cost);
    },
    decode: (cells, at) => {
      const [isStreamed, firstToken] = cells.slice(at, at + 2) as [Cell, Cell];
      if (isStreamed === null) return null;
      const [attempts, failure, responseId] = cells.slice(at + 2, at + 5) as (string | null)[];
      const cost = cells[at + 5] as bigint | null;
      return {
        isStreamed: Number(isStreamed) === 1,
        firstTokenMs: firstToken === null ? null : Number(firstToken),
        attempts: attempts === null || attempts === undefined ? null : (JSON.parse(attempts) as Attempt[]),
        failure: failure ?? null,
        providerResponseId: responseId ?? null,
        providerCost: cost === null ? null : formatDecimal(cost, PROVIDER_COST_DIGITS),
      };
    },
  };
}

/** The facts of an open hold, stored as JSON text. */
export function details(name: string) {
  return json<HoldDetails>(name, encodeDetails, decodeDetails);
}

/** Encodes a list: with their names, the properties would take several times the space. */
function encodeDetails({ requestId, model, upstream, metadata, idempotencyKey, charge }: HoldDetails): string {
  return JSON.stringify([requestId, model, upstream, metadata, idempotencyKey, charge]);
}

function decodeDetails(found: string): HoldDetails {
  const [requestId, model, upstream, metadata, idempotencyKey, charge] = JSON.parse(found);
  return { requestId, model, upstream, metadata, idempotencyKey, charge };
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

function encodeDraws(of: readonly Draw[]): string {
  if (of.length === 0) return "[]";
  return JSON.stringify(of.map((draw) => [draw.grantId, draw.amount.toString()]));
}

function decodeDraws(found: string): Draw[] {
  if (found === "[]") return [];
  return (JSON.parse(found) as [string, string][]).map(([grantId, drawn]) => ({ grantId, amount: BigInt(drawn) }));
}

/** The counters of budgets that a request recorded, a JSON list for each in a JSON list; null for none. */
export function budgetUses(name: string) {
  const encode = (uses: readonly BudgetUse[]) =>
    uses.length === 0 ? null : JSON.stringify(uses.map((use) => [use.budgetId, use.windowAtMs, use.value]));
  const decode = (cell: unknown): readonly BudgetUse[] => {
    if (cell === null) return [];
    const uses = JSON.parse(cell as string) as [string, number, string][];
    return uses.map(([budgetId, windowAtMs, value]) => ({ budgetId, windowAtMs, value }));
  };
  const rules = { optional: [name], isJson: true };
  return field<readonly BudgetUse[]>(name, "text", encode, decode, rules);
}
