import type { LimitSettings, Scope } from "../api/principal.ts";
import type { AllowanceRow } from "../credits/allowance.ts";
import type { AuditRow } from "../credits/audit.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  GrantRow,
  HoldRow,
  IdempotencyKeyRow,
  RequestRow,
  TokenBalanceRow,
} from "../credits/books.ts";
import type { ClosingPartRow, ClosingRow } from "../credits/closing.ts";
import {
  amount,
  bytes,
  callerKey,
  details,
  draws,
  flag,
  json,
  number,
  oneOf,
  optionalBytes,
  optionalJson,
  optionalNumber,
  optionalOneOf,
  optionalText,
  remaining,
  settlement,
  text,
  trace,
} from "./fields.ts";
import { type Fields, type TableShape, table } from "./table.ts";

/*
 * Every column is declared here once, for both databases. The types of rows, the column lists and parameter types, and
 * the conversions follow from it. Times are milliseconds since 1970, amounts micro-credits, prices pico-credits
 * per token. SQL never looks into JSON text. Texts compare by their bytes.
 */

export const BALANCE = table("balance", ["organizationId"], {
  organizationId: text("organization_id"),
  granted: amount("granted"),
  available: amount("available"),
  held: amount("held"),
  spent: amount("spent"),
  expired: amount("expired"),
  nextChangeAtMs: optionalNumber("next_change_at"),
  closedBeforeMs: optionalNumber("closed_before"),
} satisfies Fields<BalanceRow>);

export const TOKEN_BALANCE = table("token_balance", ["organizationId", "tokenId"], {
  organizationId: text("organization_id"),
  tokenId: text("token_id"),
  budgetId: optionalText("budget_id"),
  cap: amount("cap"),
  held: amount("held"),
  spent: amount("spent"),
} satisfies Fields<TokenBalanceRow>);

export const GRANT = table("credit_grant", ["organizationId", "id"], {
  organizationId: text("organization_id"),
  id: text("id"),
  source: oneOf("source", ["grant", "credit"]),
  amount: amount("amount"),
  revoked: amount("revoked"),
  remaining: remaining(),
  state: oneOf("state", ["pending", "active", "expired"]),
  effectiveAtMs: number("effective_at"),
  expiresAtMs: optionalNumber("expires_at"),
  priority: number("priority"),
  reference: optionalText("reference"),
  createdAtMs: number("created_at"),
} satisfies Fields<GrantRow>);

export const HOLD = table("hold", ["organizationId", "holdId"], {
  organizationId: text("organization_id"),
  holdId: text("id"),
  tokenId: text("token_id"),
  amount: amount("amount"),
  draws: draws("draws"),
  owner: text("owner"),
  madeAtMs: number("made_at"),
  expiresAtMs: number("expires_at"),
  details: details("details"),
} satisfies Fields<HoldRow>);

const ENDED = ["complete", "client_disconnected", "upstream_failed", "timed_out", "service_failed"] as const;

export const REQUEST = table("request", ["organizationId", "holdId"], {
  organizationId: text("organization_id"),
  holdId: text("id"),
  tokenId: text("token_id"),
  requestId: text("request_id"),
  model: text("model"),
  upstream: text("upstream"),
  charge: text("charge"),
  inputTokens: number("input_tokens"),
  outputTokens: number("output_tokens"),
  amount: amount("amount"),
  cost: amount("cost"),
  shortfall: amount("shortfall"),
  draws: draws("draws"),
  basis: optionalOneOf("basis", ["reported", "counted", "bounded", "estimated"]),
  end: oneOf("ending", [...ENDED, "recovered", "released"]),
  madeAtMs: number("made_at"),
  endedAtMs: number("ended_at"),
  isLate: flag("is_late"),
  trace: trace(),
  idempotencyKey: callerKey(),
  metadata: optionalJson<Record<string, string>>("metadata"),
} satisfies Fields<RequestRow>);

export const KEY = table("idempotency_key", ["organizationId", "callerId", "key"], {
  organizationId: text("organization_id"),
  callerId: text("caller_id"),
  key: text("key"),
  fingerprint: text("fingerprint"),
  holdId: text("hold_id"),
  answer: optionalText("answer"),
  createdAtMs: number("created_at"),
  expiresAtMs: number("expires_at"),
} satisfies Fields<IdempotencyKeyRow>);

export const ADJUSTMENT = table("adjustment", ["organizationId", "id"], {
  organizationId: text("organization_id"),
  id: text("id"),
  kind: oneOf("kind", ["revoke", "credit", "lapse", "late_settlement"]),
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
} satisfies Fields<AdjustmentRow>);

export const ALLOWANCE = table("allowance", ["organizationId", "id"], {
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
} satisfies Fields<AllowanceRow>);

export const AUDIT_ENTRY = table("audit_entry", ["id"], {
  id: text("id"),
  madeAtMs: number("made_at"),
  actorKind: oneOf("actor_kind", ["operator", "member", "command", "service", "anonymous"]),
  actorId: optionalText("actor_id"),
  address: optionalText("address"),
  requestId: optionalText("request_id"),
  action: text("action"),
  organizationId: optionalText("organization_id"),
  subjectId: optionalText("subject_id"),
  before: optionalJson<Record<string, unknown>>("before"),
  after: optionalJson<Record<string, unknown>>("after"),
} satisfies Fields<AuditRow>);

export const ORGANIZATION = table("organization", ["id"], {
  id: text("id"),
  name: text("name"),
  kind: oneOf("kind", ["standard", "playground"]),
  /** Paused: its tokens are refused; running requests continue. */
  status: oneOf("status", ["active", "paused"]),
  /** Limits that differ from those of the service. */
  limits: optionalJson<Partial<LimitSettings>>("limits"),
  createdAtMs: number("created_at"),
  /** True if prompts and answers are stored for some time. */
  keepsConversations: flag("keeps_conversations"),
  /** True if items of its responses are kept for a short time, so that requests can refer to them. */
  keepsResponses: flag("keeps_responses"),
  /** True if it is paused, and no month of its allowances is granted until it is resumed. */
  pausesAllowances: flag("pauses_allowances"),
});

export const TOKEN = table("token", ["id"], {
  organizationId: text("organization_id"),
  id: text("id"),
  name: text("name"),
  /** SHA-256 of the whole token. */
  hash: bytes("hash"),
  /** First characters of the token, to recognize it by. */
  prefix: text("prefix"),
  scopes: json<Scope[]>("scopes"),
  /** Null: every model. */
  models: optionalJson<string[]>("models"),
  /** Limits that differ from those of the service. */
  limits: optionalJson<Partial<LimitSettings>>("limits"),
  createdAtMs: number("created_at"),
  expiresAtMs: optionalNumber("expires_at"),
  revokedAtMs: optionalNumber("revoked_at"),
  /** Time of the first use, later updated about once a minute. */
  lastUsedAtMs: optionalNumber("last_used_at"),
  /** The token that replaced this one in a rotation. */
  successorId: optionalText("successor_id"),
  /** The caller that the token identifies: the first token of the rotations to this one. */
  callerId: text("caller_id"),
});

export const ADMIN_TOKEN = table("admin_token", ["id"], {
  id: text("id"),
  /** SHA-256 of the whole token. */
  hash: bytes("hash"),
  /** First characters, for display. */
  prefix: text("prefix"),
  createdAtMs: number("created_at"),
  revokedAtMs: optionalNumber("revoked_at"),
});

export const ADMIN_SESSION = table("admin_session", ["hash"], {
  /** SHA-256 of the cookie's value. */
  hash: bytes("hash"),
  adminTokenId: optionalText("admin_token_id"),
  tokenId: optionalText("token_id"),
  createdAtMs: number("created_at"),
  /** Time of the last use, to the minute. */
  seenAtMs: number("seen_at"),
  expiresAtMs: number("expires_at"),
});

export const SHORT_TOKEN = table("short_token", ["hash"], {
  hash: bytes("hash"),
  tokenId: text("token_id"),
  expiresAtMs: number("expires_at"),
  /** The session that created it, with which it ends. Null: created without a session. */
  sessionHash: optionalBytes("session_hash"),
  /** The admin token that authorized it, with which it ends. */
  adminTokenId: optionalText("admin_token_id"),
});

/** One row with the id 1, or none: a random number that triggers replace at every change of what a token may do. */
export const ACCOUNT_VERSION = table("account_version", ["id"], { id: number("id"), version: number("version") });

export const ADMIN_KEY = table("admin_idempotency_key", ["scope", "key"], {
  /** `operator`, or the caller that a member's token identifies. */
  scope: text("scope"),
  key: text("key"),
  /** Fingerprint of the request: the same key with another request is refused. */
  fingerprint: text("fingerprint"),
  /** Interrupted: it failed without a known outcome. */
  state: oneOf("state", ["running", "answered", "interrupted"]),
  /** HTTP status. */
  status: optionalNumber("status"),
  /** JSON text. Holds no secret. */
  answer: optionalText("answer"),
  createdAtMs: number("created_at"),
  expiresAtMs: number("expires_at"),
});

/** `UsageCounts` in a table or in the result of a query. */
export const USAGE_COUNTS = {
  requests: number("requests"),
  errors: number("errors"),
  charged: amount("charged"),
  inputTokens: number("input_tokens"),
  outputTokens: number("output_tokens"),
  providerCost: amount("provider_cost"),
  chargedWithCost: amount("charged_with_cost"),
};

export const USAGE_DAY = table("usage_day", ["organizationId", "dimension", "day", "name"], {
  /** `*` for all. */
  organizationId: text("organization_id"),
  dimension: oneOf("dimension", ["model", "token", "organization", "first_token"]),
  /** Its first millisecond, in UTC. */
  day: number("day"),
  /** The model, the token, the organization, or the bucket. */
  name: text("name"),
  ...USAGE_COUNTS,
});

export const USAGE_DAY_DONE = table("usage_day_done", ["day"], { day: number("day"), doneAtMs: number("done_at") });

/** The sum of an organization's statement entries before a time. */
export const STATEMENT_BALANCE = table("statement_balance", ["organizationId", "beforeAtMs"], {
  organizationId: text("organization_id"),
  beforeAtMs: number("before_at"),
  balance: amount("balance"),
});

/** See `queries/month-digests.ts`. */
export const MONTH_DIGEST = table("month_digest", ["organizationId", "month"], {
  organizationId: text("organization_id"),
  /** Its first millisecond, in UTC. */
  month: number("month"),
  /** In hexadecimal. */
  digest: text("digest"),
});

/** See `queries/closings.ts`. */
export const CLOSING = table("closing", ["organizationId"], {
  organizationId: text("organization_id"),
  beforeAtMs: number("before_at"),
  requests: number("requests"),
  cost: amount("cost"),
  shortfall: amount("shortfall"),
  price: amount("price"),
} satisfies Fields<ClosingRow>);

export const CLOSING_PART = table("closing_part", ["organizationId", "dimension", "name"], {
  organizationId: text("organization_id"),
  dimension: oneOf("dimension", ["token", "grant"]),
  name: text("name"),
  amount: amount("amount"),
} satisfies Fields<ClosingPartRow>);

/** Prompt and answer of a request of an organization that stores them. The books do not depend on it. */
export const CONVERSATION = table("conversation", ["organizationId", "holdId"], {
  organizationId: text("organization_id"),
  holdId: text("hold_id"),
  endedAtMs: number("ended_at"),
  /** True if a part was too long to be stored. */
  isTruncated: flag("is_truncated"),
  /** JSON of the request. */
  request: text("request"),
  /** JSON of the delivered part of the answer; null if nothing was delivered. */
  answer: optionalText("answer"),
});

/** An item of a response or a whole one, for requests of its caller that refer to it. The books do not depend on it. */
export const RESPONSE_ITEM = table("response_item", ["organizationId", "callerId", "id"], {
  organizationId: text("organization_id"),
  callerId: text("caller_id"),
  /** The id of the item, or of the response. */
  id: text("id"),
  /** The id of its response. */
  answerId: text("answer_id"),
  keptAtMs: number("kept_at"),
  /** Size of the content. */
  bytes: number("bytes"),
  /** JSON: the item, or the list of all items of the response and of its input. */
  content: text("content"),
});

/** A request of a known organization that was refused before credits were held. The books do not depend on it. */
export const REFUSAL = table("refusal", ["organizationId", "id"], {
  organizationId: text("organization_id"),
  /** UUIDv7 of the time of the refusal. */
  id: text("id"),
  tokenId: text("token_id"),
  requestId: text("request_id"),
  /** Method and route. */
  endpoint: text("endpoint"),
  model: optionalText("model"),
  status: number("status"),
  code: text("code"),
  /** The message that the caller received. */
  message: text("message"),
  durationMs: number("duration_ms"),
  /** Number of requests that the row represents; its details are those of the first. */
  count: number("count"),
});

/** Number of refusals of a day by code, of an organization or of all ('*'). The books do not depend on it. */
export const REFUSAL_DAY = table("refusal_day", ["organizationId", "day", "code"], {
  organizationId: text("organization_id"),
  day: number("day"),
  code: text("code"),
  requests: number("requests"),
});

/** All tables, for a copy of a whole store. */
export const ALL_TABLES: readonly TableShape[] = [
  ...[ORGANIZATION, TOKEN, ADMIN_TOKEN, ADMIN_SESSION, SHORT_TOKEN, ADMIN_KEY],
  ...[BALANCE, TOKEN_BALANCE, GRANT, ALLOWANCE, HOLD, KEY, REQUEST, ADJUSTMENT, STATEMENT_BALANCE, AUDIT_ENTRY],
  ...[MONTH_DIGEST, CLOSING, CLOSING_PART, USAGE_DAY, USAGE_DAY_DONE, CONVERSATION, RESPONSE_ITEM],
  ...[REFUSAL, REFUSAL_DAY],
  // The last one: to copy the others changes it.
  ACCOUNT_VERSION,
];
