import type { ColumnType, Generated } from "kysely";
import type { OrganizationKind } from "../api/principal.ts";
import type { BookTables } from "./schema.ts";

/**
 * The tables, which have the same names in both databases; those of the books are declared in `schema.ts`. Every integer
 * column is a signed 64-bit integer and is read as bigint; a number may be written. Times are milliseconds since 1970,
 * amounts micro-credits, prices pico-credits per token, JSON is text. Texts compare by their bytes.
 */
export interface Tables extends BookTables {
  organization: OrganizationTable;
  token: TokenTable;
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

export interface AdminIdempotencyKeyTable {
  scope: string;
  key: string;
  fingerprint: string;
  /** Interrupted: it failed without a known outcome. */
  state: "running" | "answered" | "interrupted";
  status: OptionalInteger;
  /** JSON. */
  answer: string | null;
  created_at: Integer;
  expires_at: Integer;
}

export interface UsageDayTable {
  /** `*` for all. */
  organization_id: string;
  dimension: "model" | "token" | "organization" | "first_token";
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
