import type { Insertable } from "kysely";
import type { AllowanceRow } from "../credits/allowance.ts";
import type { ActorKind, AuditRow } from "../credits/audit.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  GrantRow,
  HoldDetails,
  HoldRow,
  IdempotencyKeyRow,
  RequestRow,
  TokenBalanceRow,
} from "../credits/books.ts";
import {
  amount,
  type Cell,
  type ColumnKind,
  type ColumnsOf,
  decodeDetails,
  draws,
  encodeDetails,
  type Field,
  type Fields,
  flag,
  json,
  number,
  optionalNumber,
  optionalObject,
  optionalText,
  prices,
  remaining,
  settlement,
  text,
  tokens,
  trace,
} from "./schema-fields.ts";

/**
 * A table of the books: its columns in order, and the conversion between its rows and those of `credits/books.ts`.
 *
 * A column is declared once, in the lists of fields below. The types of the queries, the column lists and parameter types
 * of both databases, and the conversions follow from them. Integers are signed 64-bit integers, read as bigint from either
 * database; times are milliseconds since 1970, amounts micro-credits, prices pico-credits per token. SQL never looks into
 * the text of JSON columns.
 */
export class BookTable<Row extends object, Columns = object> {
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

  /** Encodes a row as values by column. */
  toRecord(row: Row): Insertable<Columns> {
    const { columns, toCells } = this.partOf();
    return Object.fromEntries(toCells(row).map((cell, index) => [columns[index], cell])) as Insertable<Columns>;
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
  metadata: optionalObject<"metadata", string>("metadata"),
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

const allowanceFields = {
  organizationId: text("organization_id"),
  id: text("id"),
  amount: amount("amount"),
  priority: number("priority"),
  lapses: flag("lapses"),
  reference: optionalText("reference"),
  anchorAtMs: number("anchor_at"),
  nextAtMs: number("next_at"),
  createdAtMs: number("created_at"),
  endedAtMs: optionalNumber("ended_at"),
} satisfies Fields<AllowanceRow>;

const auditFields = {
  id: text("id"),
  madeAtMs: number("made_at"),
  actorKind: text<"actor_kind", ActorKind>("actor_kind"),
  actorId: optionalText("actor_id"),
  address: optionalText("address"),
  requestId: optionalText("request_id"),
  action: text("action"),
  organizationId: optionalText("organization_id"),
  subjectId: optionalText("subject_id"),
  before: optionalObject<"before", unknown>("before"),
  after: optionalObject<"after", unknown>("after"),
} satisfies Fields<AuditRow>;

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
export const ALLOWANCE = new BookTable<AllowanceRow, BookTables["allowance"]>(
  "allowance",
  ["organizationId", "id"],
  allowanceFields,
);
export const AUDIT_ENTRY = new BookTable<AuditRow, BookTables["audit_entry"]>("audit_entry", ["id"], auditFields);

/** The writes of a batch: inserts of whole rows, and updates of the properties that change. */
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
  newAuditEntry: AUDIT_ENTRY.partOf(),
};

/** The columns of the books, for queries. */
export interface BookTables {
  balance: ColumnsOf<typeof balanceFields>;
  token_balance: ColumnsOf<typeof tokenBalanceFields>;
  credit_grant: ColumnsOf<typeof grantFields>;
  hold: ColumnsOf<typeof holdFields>;
  request: ColumnsOf<typeof requestFields>;
  idempotency_key: ColumnsOf<typeof keyFields>;
  adjustment: ColumnsOf<typeof adjustmentFields>;
  allowance: ColumnsOf<typeof allowanceFields>;
  audit_entry: ColumnsOf<typeof auditFields>;
}

/** A nullable integer of a query as a number. */
export function toOptionalNumber(value: bigint | null): number | null {
  return value === null ? null : Number(value);
}
