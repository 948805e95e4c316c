import type { LimitSettings, Scope } from "../api/principal.ts";
import type { AllowanceRow } from "../credits/allowance.ts";
import type {
  AdjustmentRow,
  BalanceRow,
  BudgetRow,
  BudgetUseRow,
  GrantRow,
  HoldRow,
  IdempotencyKeyRow,
  RequestRow,
} from "../credits/books.ts";
import type { ClosingPartRow, ClosingRow } from "../credits/closing.ts";
import {
  amount,
  budgetUses,
  bytes,
  callerKey,
  details,
  draws,
  flag,
  json,
  nullable,
  number,
  oneOf,
  past,
  remaining,
  requiredText,
  settlement,
  signedAmount,
  trace,
} from "./fields.ts";
import { declareTable, type Fields } from "./table.ts";

/*
 * Every column is declared here once, for both databases. The types of rows, the column lists and parameter types, and
 * the conversions follow from it. Times are milliseconds since 1970, amounts micro-credits, prices pico-credits
 * per token. SQL never looks into JSON text. Texts compare by their bytes.
 */

export const BALANCE = declareTable("balance", ["organizationId"], {
  organizationId: requiredText("organization_id"),
  granted: amount("granted"),
  available: amount("available"),
  held: amount("held"),
  spent: amount("spent"),
  expired: amount("expired"),
  nextChangeAtMs: nullable(number("next_change_at")),
  closedBeforeMs: nullable(number("closed_before")),
  budgetVersion: number("budget_version"),
} satisfies Fields<BalanceRow>);

export const BUDGET = declareTable("budget", ["organizationId", "id"], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  name: requiredText("name"),
  callerIds: nullable(json<string[]>("caller_ids")),
  models: nullable(json<string[]>("models")),
  metadata: nullable(json<Record<string, string[]>>("metadata")),
  each: nullable(requiredText("each")),
  window: oneOf("time_window", ["day", "week", "month", "lifetime"]),
  amount: amount("amount"),
  capOf: nullable(requiredText("cap_of")),
  createdAtMs: number("created_at"),
} satisfies Fields<BudgetRow>);

export const BUDGET_USE = declareTable("budget_use", ["organizationId", "budgetId", "windowAtMs", "value"], {
  organizationId: requiredText("organization_id"),
  budgetId: requiredText("budget_id"),
  windowAtMs: number("window_at"),
  value: requiredText("value"),
  held: amount("held"),
  spent: amount("spent"),
  opening: amount("opening"),
  raised: amount("raised"),
} satisfies Fields<BudgetUseRow>);

export const GRANT = declareTable("credit_grant", ["organizationId", "id"], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  source: oneOf("source", ["grant", "credit"]),
  amount: amount("amount"),
  revoked: amount("revoked"),
  remaining: remaining(),
  state: oneOf("state", ["pending", "active", "expired"]),
  effectiveAtMs: number("effective_at"),
  expiresAtMs: nullable(number("expires_at")),
  priority: number("priority"),
  reference: nullable(requiredText("reference")),
  createdAtMs: past(number("created_at")),
} satisfies Fields<GrantRow>);

export const HOLD = declareTable("hold", ["organizationId", "holdId"], {
  organizationId: requiredText("organization_id"),
  holdId: requiredText("id"),
  tokenId: requiredText("token_id"),
  amount: amount("amount"),
  draws: draws("draws"),
  budgets: budgetUses("budgets"),
  owner: requiredText("owner"),
  madeAtMs: past(number("made_at")),
  expiresAtMs: number("expires_at"),
  details: details("details"),
} satisfies Fields<HoldRow>);

const ENDED = ["complete", "client_disconnected", "upstream_failed", "timed_out", "service_failed"] as const;

export const REQUEST = declareTable("request", ["organizationId", "holdId"], {
  organizationId: requiredText("organization_id"),
  holdId: requiredText("id"),
  tokenId: requiredText("token_id"),
  requestId: requiredText("request_id"),
  model: requiredText("model"),
  upstream: requiredText("upstream"),
  charge: requiredText("charge"),
  inputTokens: number("input_tokens"),
  outputTokens: number("output_tokens"),
  amount: amount("amount"),
  cost: amount("cost"),
  shortfall: amount("shortfall"),
  draws: draws("draws"),
  budgets: budgetUses("budgets"),
  basis: nullable(oneOf("basis", ["reported", "counted", "bounded", "estimated"])),
  end: oneOf("ending", [...ENDED, "recovered", "released"]),
  madeAtMs: number("made_at"),
  endedAtMs: past(number("ended_at")),
  isLate: flag("is_late"),
  trace: trace(),
  idempotencyKey: callerKey(),
  metadata: nullable(json<Record<string, string>>("metadata")),
} satisfies Fields<RequestRow>);

export const KEY = declareTable("idempotency_key", ["organizationId", "callerId", "key"], {
  organizationId: requiredText("organization_id"),
  callerId: requiredText("caller_id"),
  key: requiredText("key"),
  fingerprint: requiredText("fingerprint"),
  holdId: requiredText("hold_id"),
  answer: nullable(requiredText("answer")),
  createdAtMs: number("created_at"),
  expiresAtMs: number("expires_at"),
} satisfies Fields<IdempotencyKeyRow>);

export const ADJUSTMENT = declareTable("adjustment", ["organizationId", "id"], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  kind: oneOf("kind", ["revoke", "credit", "lapse", "late_settlement"]),
  amount: signedAmount("amount"),
  draws: draws("draws"),
  isAll: flag("is_all"),
  grantId: nullable(requiredText("grant_id")),
  expiresAtMs: nullable(number("expires_at")),
  holdId: nullable(requiredText("hold_id")),
  tokenId: nullable(requiredText("token_id")),
  budgets: budgetUses("budgets"),
  reference: nullable(requiredText("reference")),
  note: nullable(requiredText("note")),
  madeAtMs: past(number("made_at")),
  settlement: settlement(),
} satisfies Fields<AdjustmentRow>);

export const ALLOWANCE = declareTable("allowance", ["organizationId", "id"], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  amount: amount("amount"),
  priority: number("priority"),
  lapses: flag("lapses"),
  reference: nullable(requiredText("reference")),
  anchorAtMs: number("anchor_at"),
  nextAtMs: number("next_at"),
  createdAtMs: past(number("created_at")),
  endedAtMs: past(nullable(number("ended_at"))),
} satisfies Fields<AllowanceRow>);

export const ORGANIZATION = declareTable("organization", ["id"], {
  id: requiredText("id"),
  name: requiredText("name"),
  kind: oneOf("kind", ["standard", "playground"]),
  /** Paused: its tokens are refused; running requests continue. */
  status: oneOf("status", ["active", "paused"]),
  /** Limits that differ from those of the service. */
  limits: nullable(json<Partial<LimitSettings>>("limits")),
  createdAtMs: past(number("created_at")),
  /** True if prompts and answers are stored for some time. */
  keepsConversations: flag("keeps_conversations"),
  /** True if items of its responses are kept for a short time, so that requests can refer to them. */
  keepsResponses: flag("keeps_responses"),
  /** True if it is paused, and no month of its allowances is granted until it is resumed. */
  pausesAllowances: flag("pauses_allowances"),
});

export const TOKEN = declareTable("token", ["id"], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  name: requiredText("name"),
  /** SHA-256 of the whole token. */
  hash: bytes("hash"),
  /** First characters of the token, to recognize it by. */
  prefix: requiredText("prefix"),
  scopes: json<Scope[]>("scopes"),
  /** Null: every model. */
  models: nullable(json<string[]>("models")),
  /** Limits that differ from those of the service. */
  limits: nullable(json<Partial<LimitSettings>>("limits")),
  createdAtMs: past(number("created_at")),
  expiresAtMs: nullable(number("expires_at")),
  revokedAtMs: past(nullable(number("revoked_at"))),
  /** Time of the first use, later updated about once a minute. */
  lastUsedAtMs: past(nullable(number("last_used_at"))),
  /** The token that replaced this one in a rotation. */
  successorId: nullable(requiredText("successor_id")),
  /** The caller that the token identifies: the first token of the rotations to this one. */
  callerId: requiredText("caller_id"),
});

/** One row with the id 1, or none: a random number that triggers replace at every change of what a token may do. */
export const ACCOUNT_VERSION = declareTable("account_version", ["id"], {
  id: number("id"),
  version: number("version"),
});

/** `UsageCounts` in a table or in the result of a query. */
export const USAGE_COUNTS = {
  requests: number("requests"),
  errors: number("errors"),
  charged: signedAmount("charged"),
  inputTokens: number("input_tokens"),
  outputTokens: number("output_tokens"),
  providerCost: signedAmount("provider_cost"),
  chargedWithCost: signedAmount("charged_with_cost"),
};

export const USAGE_DAY = declareTable("usage_day", ["organizationId", "dimension", "day", "name"], {
  /** `*` for all. */
  organizationId: requiredText("organization_id"),
  dimension: oneOf("dimension", ["model", "token", "organization", "first_token"]),
  /** Its first millisecond, in UTC. */
  day: number("day"),
  /** The model, the token, the organization, or the bucket. */
  name: requiredText("name"),
  ...USAGE_COUNTS,
});

export const USAGE_DAY_DONE = declareTable("usage_day_done", ["day"], {
  day: number("day"),
  doneAtMs: past(number("done_at")),
});

/** The sum of an organization's statement entries before a time. */
export const STATEMENT_BALANCE = declareTable("statement_balance", ["organizationId", "beforeAtMs"], {
  organizationId: requiredText("organization_id"),
  beforeAtMs: number("before_at"),
  balance: signedAmount("balance"),
});

/** See `queries/month-digests.ts`. */
export const MONTH_DIGEST = declareTable("month_digest", ["organizationId", "month"], {
  organizationId: requiredText("organization_id"),
  /** Its first millisecond, in UTC. */
  month: number("month"),
  /** In hexadecimal. */
  digest: requiredText("digest"),
});

/** See `queries/closings.ts`. */
export const CLOSING = declareTable("closing", ["organizationId"], {
  organizationId: requiredText("organization_id"),
  beforeAtMs: number("before_at"),
  requests: number("requests"),
  cost: amount("cost"),
  shortfall: amount("shortfall"),
  price: amount("price"),
} satisfies Fields<ClosingRow>);

export const CLOSING_PART = declareTable("closing_part", ["organizationId", "dimension", "name"], {
  organizationId: requiredText("organization_id"),
  dimension: oneOf("dimension", ["token", "grant"]),
  name: requiredText("name"),
  amount: amount("amount"),
} satisfies Fields<ClosingPartRow>);

/** Prompt and answer of a request of an organization that stores them. The books do not depend on it. */
export const CONVERSATION = declareTable("conversation", ["organizationId", "holdId"], {
  organizationId: requiredText("organization_id"),
  holdId: requiredText("hold_id"),
  endedAtMs: number("ended_at"),
  /** True if a part was too long to be stored. */
  isTruncated: flag("is_truncated"),
  /** JSON of the request. */
  request: requiredText("request"),
  /** JSON of the delivered part of the answer; null if nothing was delivered. */
  answer: nullable(requiredText("answer")),
});

/** An item of a response or a whole one, for requests of its caller that refer to it. The books do not depend on it. */
export const RESPONSE_ITEM = declareTable("response_item", ["organizationId", "callerId", "id"], {
  organizationId: requiredText("organization_id"),
  callerId: requiredText("caller_id"),
  /** The id of the item, or of the response. */
  id: requiredText("id"),
  /** The id of its response. */
  answerId: requiredText("answer_id"),
  keptAtMs: number("kept_at"),
  /** Size of the content. */
  bytes: number("bytes"),
  /** JSON: the item, or the list of all items of the response and of its input. */
  content: requiredText("content"),
});

/** A request of a known organization that was refused before credits were held. The books do not depend on it. */
export const REFUSAL = declareTable("refusal", ["organizationId", "id"], {
  organizationId: requiredText("organization_id"),
  /** UUIDv7 of the time of the refusal. */
  id: requiredText("id"),
  tokenId: requiredText("token_id"),
  requestId: requiredText("request_id"),
  /** Method and route. */
  endpoint: requiredText("endpoint"),
  model: nullable(requiredText("model")),
  status: number("status"),
  code: requiredText("code"),
  /** The message that the caller received. */
  message: requiredText("message"),
  durationMs: number("duration_ms"),
  /** Number of requests that the row represents; its details are those of the first. */
  count: number("count"),
});

/** Number of refusals of a day by code, of an organization or of all ('*'). The books do not depend on it. */
export const REFUSAL_DAY = declareTable("refusal_day", ["organizationId", "day", "code"], {
  organizationId: requiredText("organization_id"),
  day: number("day"),
  code: requiredText("code"),
  requests: number("requests"),
});
