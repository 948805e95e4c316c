import type { Histogram } from "../api/latency.ts";
import type { LimitSettings, Pins, Scope, TokenBoundSettings } from "../api/principal.ts";
import {
  amount,
  amounts,
  bytes,
  callerKey,
  chargeLines,
  details,
  draws,
  flag,
  json,
  nullable,
  number,
  oneOf,
  past,
  recordedBudgets,
  remaining,
  requiredText,
  retry,
  settlement,
  signedAmount,
  trace,
} from "./fields.ts";
import { declareTable } from "./table.ts";

/*
 * Every column is declared here once, for both databases. The types of rows, column lists, parameter types and conversions
 * follow from it. Times are milliseconds since 1970, amounts micro-credits, prices pico-credits per token. Texts compare by bytes.
 */

export const BALANCE = declareTable("balance", ["organizationId"], {
  organizationId: requiredText("organization_id"),
  granted: amount("granted"),
  available: amount("available"),
  held: amount("held"),
  spent: amount("spent"),
  expired: amount("expired"),
  /** When a grant next takes effect or expires; null if none will. */
  nextChangeAtMs: nullable(number("next_change_at")),
  /** Requests that began before are closed: nothing more is booked for them. Null: none is closed. */
  closedBeforeMs: nullable(number("closed_before")),
  /** Counts the changes of its budgets; 0: it never had one. */
  budgetVersion: number("budget_version"),
  /** Amount of the last grant that took effect; 0: none has. */
  topUp: amount("top_up"),
  /** The organization's own thresholds for warnings of few credits; null: none. */
  warnAt: nullable(amounts("warn_at")),
  /** The lowest threshold of which a warning was written since the last top-up; null: none. */
  announced: nullable(amount("announced")),
});

/** Limits of some requests of an organization: what they may spend in each window of time. Selector, `each` and window never change. */
export const BUDGET = declareTable("budget", ["organizationId", "id"], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  name: requiredText("name"),
  /** The callers that it covers, each by the first token of its rotations; null: all. */
  callerIds: nullable(json<string[]>("caller_ids")),
  /** The models that it covers, with `*` at the end for all that begin so; null: all. */
  models: nullable(json<string[]>("models")),
  /** The values that a request must have of each of these metadata keys; null: any. */
  metadata: nullable(json<Record<string, string[]>>("metadata")),
  /** `token`, `model` or `metadata.` and a key: each value has the whole amount and the limits for itself. Null: all share them. */
  each: nullable(requiredText("each")),
  window: oneOf("time_window", ["day", "week", "month", "lifetime"]),
  /** Null: it has limits only, and counts nothing. */
  amount: nullable(amount("amount")),
  limits: nullable(json<Partial<LimitSettings>>("limits")),
  /** The caller whose spending cap it is; null: it is none. */
  capOf: nullable(requiredText("cap_of")),
  createdAtMs: past(number("created_at")),
});

/** A counter of a budget; locked after the balances. It may exceed an amount that was lowered: a settlement is never refused. */
export const BUDGET_USE = declareTable("budget_use", ["organizationId", "budgetId", "windowAtMs", "value"], {
  organizationId: requiredText("organization_id"),
  budgetId: requiredText("budget_id"),
  windowAtMs: number("window_at"),
  value: requiredText("value"),
  held: amount("held"),
  /** The opening amount and the charges of the requests that recorded it, less the credits that corrected them. */
  spent: amount("spent"),
  /** The part that was spent before a cap was set, or by requests that are closed. */
  opening: amount("opening"),
  /** The amount that raises add in this window. */
  raised: amount("raised"),
  /** The limit and the percentage of it that the last warning named; 0: there was none. */
  warnedLimit: amount("warned_limit"),
  warnedPercent: number("warned_percent"),
});

/** Requests of a caller in a minute, of those that had a value of metadata which a budget had not counted in its window. */
export const NEW_VALUES = declareTable("new_values", ["organizationId", "callerId"], {
  organizationId: requiredText("organization_id"),
  callerId: requiredText("caller_id"),
  beganAtMs: number("began_at"),
  requests: number("requests"),
});

export const GRANT = declareTable("credit_grant", ["organizationId", "id"], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  /** A `credit` is a refund of spent credits: it is not counted as granted again. */
  source: oneOf("source", ["grant", "credit"]),
  amount: amount("amount"),
  revoked: amount("revoked"),
  /** Part that is neither held nor spent nor expired: 0 while pending, so that the sum over all grants is the available amount. */
  remaining: remaining(),
  state: oneOf("state", ["pending", "active", "expired"]),
  effectiveAtMs: number("effective_at"),
  expiresAtMs: nullable(number("expires_at")),
  /** Lower is drawn first. */
  priority: number("priority"),
  reference: nullable(requiredText("reference")),
  createdAtMs: past(number("created_at")),
});

export const HOLD = declareTable("hold", ["organizationId", "holdId"], {
  organizationId: requiredText("organization_id"),
  holdId: requiredText("id"),
  tokenId: requiredText("token_id"),
  amount: amount("amount"),
  /** Amounts reserved of each grant; they add up to `amount`. */
  draws: draws("draws"),
  /** The counters that its amount, its charge and all corrections count in. */
  budgets: recordedBudgets("budgets"),
  /** The process that renews it. */
  owner: requiredText("owner"),
  madeAtMs: past(number("made_at")),
  expiresAtMs: number("expires_at"),
  details: details("details"),
});

const ENDED = ["complete", "client_disconnected", "upstream_failed", "timed_out", "service_failed"] as const;

export const REQUEST = declareTable("request", ["organizationId", "holdId"], {
  organizationId: requiredText("organization_id"),
  holdId: requiredText("id"),
  tokenId: requiredText("token_id"),
  requestId: requiredText("request_id"),
  model: requiredText("model"),
  upstream: requiredText("upstream"),
  charge: chargeLines("charge"),
  /** Sums of these tokens. */
  inputTokens: number("input_tokens"),
  outputTokens: number("output_tokens"),
  /** Amount that was held when it ended. */
  amount: amount("amount"),
  cost: amount("cost"),
  /** Part of the price that the credits did not cover. */
  shortfall: amount("shortfall"),
  /** Amounts spent of each grant; they add up to `cost`. */
  draws: draws("draws"),
  budgets: recordedBudgets("budgets"),
  /** Null for a released request. */
  basis: nullable(oneOf("basis", ["reported", "counted", "bounded", "estimated"])),
  end: oneOf("ending", [...ENDED, "recovered", "released"]),
  madeAtMs: number("made_at"),
  endedAtMs: past(number("ended_at")),
  /** True if it was booked more than a day away from the time in its id. */
  isLate: flag("is_late"),
  trace: trace(),
  idempotencyKey: callerKey(),
  metadata: nullable(json<Record<string, string>>("metadata")),
  retry: retry("retry"),
});

/** A request that broke after a part of its answer, and that no retry has repeated yet. */
export const BROKEN_ATTEMPT = declareTable("broken_attempt", ["organizationId", "callerId", "fingerprint", "holdId"], {
  organizationId: requiredText("organization_id"),
  callerId: requiredText("caller_id"),
  /** Hash of its endpoint and body. */
  fingerprint: requiredText("fingerprint"),
  holdId: requiredText("hold_id"),
  expiresAtMs: number("expires_at"),
});

export const KEY = declareTable("idempotency_key", ["organizationId", "callerId", "key"], {
  organizationId: requiredText("organization_id"),
  callerId: requiredText("caller_id"),
  key: requiredText("key"),
  fingerprint: requiredText("fingerprint"),
  holdId: requiredText("hold_id"),
  /** JSON text of the answer, once there is one. */
  answer: nullable(requiredText("answer")),
  createdAtMs: number("created_at"),
  expiresAtMs: number("expires_at"),
});

export const ADJUSTMENT = declareTable("adjustment", ["organizationId", "id"], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  kind: oneOf("kind", ["revoke", "credit", "lapse", "late_settlement"]),
  /** Signed for a late settlement: the difference to the cost that the request was charged. */
  amount: signedAmount("amount"),
  /**
   * Revoked or expired: from these grants. Credited: to the grant that was made for it. Late settlement: signed, below 0
   * if it returned to the grant.
   */
  draws: draws("draws"),
  /** True for a revocation of all available credits instead of an amount. */
  isAll: flag("is_all"),
  /** The grant that a revocation named. */
  grantId: nullable(requiredText("grant_id")),
  /** Expiry of a credit, or the time at which an expiry was due. */
  expiresAtMs: nullable(number("expires_at")),
  /** The request that a credit or a late settlement corrects. */
  holdId: nullable(requiredText("hold_id")),
  tokenId: nullable(requiredText("token_id")),
  /** The counters that this request recorded. */
  budgets: recordedBudgets("budgets"),
  reference: nullable(requiredText("reference")),
  note: nullable(requiredText("note")),
  madeAtMs: past(number("made_at")),
  /** Set for late settlements only. */
  settlement: settlement(),
});

export const ALLOWANCE = declareTable("allowance", ["organizationId", "id"], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  amount: amount("amount"),
  priority: number("priority"),
  /** True if the rest of a month's grant expires when the next month begins. */
  lapses: flag("lapses"),
  /** Purpose; unique in its organization. */
  reference: nullable(requiredText("reference")),
  /** Beginning of the first month; the others begin on the same day of the month at the same time, in UTC. */
  anchorAtMs: number("anchor_at"),
  /** Beginning of the first month without a grant. */
  nextAtMs: number("next_at"),
  createdAtMs: past(number("created_at")),
  endedAtMs: past(nullable(number("ended_at"))),
});

export const ORGANIZATION = declareTable("organization", ["id"], {
  id: requiredText("id"),
  name: requiredText("name"),
  kind: oneOf("kind", ["standard", "playground"]),
  /** Paused: its tokens are refused; running requests continue. Closed: the same for good. */
  status: oneOf("status", ["active", "paused", "closed"]),
  /** Limits that differ from those of the service. */
  limits: nullable(json<Partial<LimitSettings>>("limits")),
  createdAtMs: past(number("created_at")),
  /** True if prompts and answers are stored for some time. */
  keepsConversations: flag("keeps_conversations"),
  /** True if items of its responses are kept for a short time, so that requests can refer to them. */
  keepsResponses: flag("keeps_responses"),
  /** True if it is paused or closed, and no month of its allowances is granted until it is resumed. */
  pausesAllowances: flag("pauses_allowances"),
  /** Null: only operators create tokens. */
  tokenBounds: nullable(json<TokenBoundSettings>("token_bounds")),
  /** Models that its tokens can call at most; null: all. */
  models: nullable(json<string[]>("models")),
  /** Further names of models for its requests, in front of those of the service: the id of a model by each. */
  aliases: nullable(json<Record<string, string>>("aliases")),
  /** Name of the list of the configuration whose prices its requests have; null: those of the models. */
  priceList: nullable(requiredText("price_list")),
  /** Its id in another system, such as a billing system; unique. */
  externalId: nullable(requiredText("external_id")),
  /** Mail addresses. */
  contacts: nullable(json<string[]>("contacts")),
  note: nullable(requiredText("note")),
  /** When its names and texts were erased; see `queries/erasure.ts`. */
  erasedAtMs: past(nullable(number("erased_at"))),
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
  /** Identity: it stands for a caller whom an issuer identifies, and has no secret. */
  kind: oneOf("kind", ["secret", "identity"]),
  /** Ids of who created the first one of its rotations, and who rotated it: an operator, identity or token; null: nobody, or a command. */
  createdBy: nullable(requiredText("created_by")),
  rotatedBy: nullable(requiredText("rotated_by")),
  /** Values of `metadata` that its requests have, and cannot choose; see `Pins`. */
  pinned: nullable(json<Pins>("pinned")),
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
  /** Costs that providers reported, as integers of `10^-PROVIDER_COST_DIGITS` of their unit. */
  providerCost: signedAmount("provider_cost"),
  /** Charges of the requests whose provider reported a cost. */
  chargedWithCost: signedAmount("charged_with_cost"),
};

export const USAGE_DAY = declareTable("usage_day", ["organizationId", "dimension", "day", "name"], {
  /** `*` for all. */
  organizationId: requiredText("organization_id"),
  dimension: oneOf("dimension", ["model", "route", "token", "organization", "first_token"]),
  /** Its first millisecond, in UTC. */
  day: number("day"),
  /** The model, the route, the token, the organization, or the bucket. */
  name: requiredText("name"),
  ...USAGE_COUNTS,
});

/** Times from the hold on of a day's requests of all organizations, as counts by bucket; durations of complete answers only. */
export const LATENCY_DAY = declareTable("latency_day", ["day", "model", "route"], {
  /** Its first millisecond, in UTC. */
  day: number("day"),
  model: requiredText("model"),
  route: requiredText("route"),
  firstTokens: json<Histogram>("first_tokens"),
  durations: json<Histogram>("durations"),
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

/** The sum of the closed requests of an organization, whose rows are removed. See `queries/closings.ts`. */
export const CLOSING = declareTable("closing", ["organizationId"], {
  organizationId: requiredText("organization_id"),
  /** They began, and all that was booked for them was booked, before this time. */
  beforeAtMs: number("before_at"),
  requests: number("requests"),
  cost: amount("cost"),
  shortfall: amount("shortfall"),
  /** Their tokens at their prices. */
  price: amount("price"),
});

/** The cost of closed requests by the token that made them, or by the grant that it was drawn from. */
export const CLOSING_PART = declareTable("closing_part", ["organizationId", "dimension", "name"], {
  organizationId: requiredText("organization_id"),
  dimension: oneOf("dimension", ["token", "grant"]),
  name: requiredText("name"),
  amount: amount("amount"),
});
