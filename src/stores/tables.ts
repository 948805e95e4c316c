import type { ColumnType, CompiledQuery, Generated, Kysely, RawBuilder } from "kysely";
import type { OrganizationKind } from "../api/principal.ts";
import type { AdminKeyRow } from "./admin-store.ts";
import type { BookTables } from "./schema.ts";
import type { UsageDayRow } from "./usage-store.ts";

/**
 * The tables, under the same names in both stores, for the queries that are written once; those of the books are declared
 * in `schema.ts`. Every integer column is a
 * signed 64-bit integer and is read as a bigint from either store; a number may be written. Times are milliseconds
 * since 1970, amounts micro-credits, prices pico-credits a token, JSON is text. Texts compare by their bytes.
 */
export interface Tables extends BookTables {
  organization: OrganizationTable;
  token: TokenTable;
  allowance: AllowanceTable;
  admin_token: AdminTokenTable;
  admin_session: AdminSessionTable;
  short_token: ShortTokenTable;
  admin_idempotency_key: AdminIdempotencyKeyTable;
  statement_balance: StatementBalanceTable;
  usage_day: UsageDayTable;
  usage_day_done: UsageDayDoneTable;
  conversation: ConversationTable;
  refusal: RefusalTable;
  schema_migration: SchemaMigrationTable;
}

type Integer = ColumnType<bigint, bigint | number, bigint | number>;
type OptionalInteger = ColumnType<bigint | null, bigint | number | null, bigint | number | null>;

export interface OrganizationTable {
  id: string;
  name: string;
  kind: OrganizationKind;
  status: Generated<"active" | "suspended" | "closed">;
  /** JSON of Partial<LimitSettings>. */
  limits: Generated<string | null>;
  created_at: Integer;
  /** 0 or 1. */
  keeps_conversations: ColumnType<bigint, bigint | number | undefined, bigint | number>;
}

export interface TokenTable {
  organization_id: string;
  id: string;
  name: string;
  hash: Uint8Array;
  prefix: string;
  /** JSON array. */
  scopes: string;
  /** JSON array, or null for every model. */
  models: string | null;
  /** JSON of Partial<LimitSettings>. */
  limits: string | null;
  created_at: Integer;
  expires_at: OptionalInteger;
  revoked_at: OptionalInteger;
  last_used_at: OptionalInteger;
  successor_id: string | null;
}

export interface AllowanceTable {
  organization_id: string;
  id: string;
  amount: Integer;
  priority: Integer;
  /** 0 or 1. */
  lapses: Integer;
  reference: string | null;
  anchor_at: Integer;
  next_at: Integer;
  created_at: Integer;
  ended_at: OptionalInteger;
}

export interface AdminTokenTable {
  id: string;
  hash: Uint8Array;
  prefix: string;
  created_at: Integer;
  revoked_at: OptionalInteger;
}

export interface AdminSessionTable {
  hash: Uint8Array;
  admin_token_id: string | null;
  token_id: string | null;
  created_at: Integer;
  seen_at: Integer;
  expires_at: Integer;
}

interface ShortTokenTable {
  hash: Uint8Array;
  token_id: string;
  expires_at: Integer;
  session_hash: Uint8Array | null;
  admin_token_id: string | null;
}

interface AdminIdempotencyKeyTable {
  scope: string;
  key: string;
  fingerprint: string;
  state: AdminKeyRow["state"];
  status: OptionalInteger;
  /** JSON. */
  answer: string | null;
  created_at: Integer;
  expires_at: Integer;
}

interface UsageDayTable {
  /** `*` for all. */
  organization_id: string;
  dimension: UsageDayRow["dimension"];
  /** Its first millisecond, in UTC. */
  day: Integer;
  name: string;
  requests: Integer;
  errors: Integer;
  charged: Integer;
  input_tokens: Integer;
  output_tokens: Integer;
}

interface StatementBalanceTable {
  organization_id: string;
  before_at: Integer;
  balance: Integer;
}

interface UsageDayDoneTable {
  day: Integer;
  done_at: Integer;
}

export interface ConversationTable {
  organization_id: string;
  hold_id: string;
  ended_at: Integer;
  /** 0 or 1. */
  is_truncated: Integer;
  /** JSON. */
  request: string;
  answer: string | null;
}

export interface RefusalTable {
  organization_id: string;
  id: string;
  token_id: string;
  request_id: string;
  endpoint: string;
  model: string | null;
  status: Integer;
  code: string;
  message: string;
  duration_ms: Integer;
  count: Integer;
}

export interface SchemaMigrationTable {
  version: Integer;
  name: string;
  checksum: string;
  applied_at: Integer;
}

/**
 * What a store lends to the portable queries. Everything rejects with StoreUnavailableError as the seam says.
 */
export interface PortableDatabase {
  /** Runs single statements, each a transaction of its own, durable where it writes. */
  readonly kysely: Kysely<Tables>;
  /**
   * Runs writes in one transaction, in their order; gives the number of rows that each changed. Lazy: what may be lost in
   * a crash of the store, so that nothing waits for the disk.
   */
  write(queries: CompiledQuery[], durability?: "durable" | "lazy"): Promise<number[]>;
  /**
   * Runs writes in one durable transaction if each of the `required` ones changes a row; otherwise undoes all of them.
   * Returns whether they were written.
   */
  writeIf(required: CompiledQuery[], rest: CompiledQuery[]): Promise<boolean>;
  /** Runs reads in one snapshot that is as short as they are; gives the rows of each. */
  snapshot(queries: CompiledQuery[]): Promise<Record<string, unknown>[][]>;
  /** The store's clock in milliseconds, as an expression. */
  now(): RawBuilder<bigint>;
  /** Ends a query: the rows that it reads do not change until its transaction has ended. */
  sharedLock(): RawBuilder<unknown>;
  /**
   * Restricts a query to ids of a range, the end excluded (null: none), for a database that keeps requests by the month.
   * Only a hint: the query must find the same rows without it.
   */
  idsWithin(column: string, ids: { from: string; to: string | null }): RawBuilder<boolean>;
}
