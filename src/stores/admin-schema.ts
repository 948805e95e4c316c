import { crc32 } from "node:zlib";
import type { MonthlyStatement } from "../api/admin/credits.ts";
import { DELIVERY_STATES, EVENT_KINDS, type EventKind, RECEIVER_FORMATS } from "../api/admin/event-kinds.ts";
import { ACTOR_KINDS, type Role, SERVICE_ROLES } from "../api/admin/roles.ts";
import type { JsonObject } from "../api/json.ts";
import type { Pins } from "../api/principal.ts";
import {
  amount,
  bytes,
  draws,
  flag,
  json,
  nullable,
  number,
  oneOf,
  past,
  requiredText,
  signedAmount,
  statementTotals,
} from "./fields.ts";
import { declareTable, type RowOf } from "./table.ts";

/* As in `schema.ts`: people and their sessions, what they did, payments, vouchers, statements, warnings, refusals, and what callers sent. */

/** A change, or a sign-in. Holds no secret. */
export const AUDIT_ENTRY = declareTable("audit_entry", ["id"], {
  /** UUIDv7. */
  id: requiredText("id"),
  madeAtMs: number("made_at"),
  actorKind: oneOf("actor_kind", ACTOR_KINDS),
  /** Id of the operator, or of the token that was presented. */
  actorId: nullable(requiredText("actor_id")),
  /** Name of the operator or the token, as it was then. */
  actorName: nullable(requiredText("actor_name")),
  address: nullable(requiredText("address")),
  requestId: nullable(requiredText("request_id")),
  /** Such as `token.revoke`. */
  action: requiredText("action"),
  organizationId: nullable(requiredText("organization_id")),
  subjectId: nullable(requiredText("subject_id")),
  before: nullable(json<Record<string, unknown>>("before")),
  after: nullable(json<Record<string, unknown>>("after")),
  /** The rows that its transaction wrote, as they were stored. */
  rows: nullable(json<WrittenRows>("written_rows", (rows) => plainJson(rows))),
  /** CRC-32 of all else. */
  checksum: number("checksum"),
});

/** Rows that a transaction wrote, by their table: their ids, with the properties that were written. */
export type WrittenRows = Record<string, readonly ({ id: string; isDeleted?: true } & Record<string, unknown>)[]>;
type AuditOfRows = Omit<RowOf<typeof AUDIT_ENTRY>, "checksum">;

/** Returns an audit record as it is stored. */
export function withChecksum(audit: AuditOfRows): RowOf<typeof AUDIT_ENTRY> {
  return { ...audit, checksum: checksumOf(audit) };
}

/** Throws an error for an audit record that has changed since it was written. */
export function expectUnchanged({ checksum, ...audit }: RowOf<typeof AUDIT_ENTRY>): void {
  if (checksumOf(audit) !== checksum) throw new Error("its checksum is that of another record");
}

function checksumOf(audit: AuditOfRows): number {
  return crc32(plainJson(Object.entries(audit).sort(([one], [other]) => (one < other ? -1 : 1))));
}

/** Returns JSON with amounts in decimal, and without bytes, which are hashes of secrets. */
export function plainJson(value: unknown): string {
  return JSON.stringify(value ?? null, function (this: Record<string, unknown>, name, part: unknown) {
    if (typeof part === "bigint") return String(part);
    // A buffer has been converted already.
    return this[name] instanceof Uint8Array ? undefined : part;
  });
}

export const OPERATOR = declareTable("operator", ["id"], {
  id: requiredText("id"),
  /** SHA-256 of the whole token. */
  hash: bytes("hash"),
  /** First characters, for display. */
  prefix: requiredText("prefix"),
  name: requiredText("name"),
  role: oneOf("role", SERVICE_ROLES),
  createdAtMs: number("created_at"),
  revokedAtMs: nullable(number("revoked_at")),
});

export const IDENTITY = declareTable("identity", ["id"], {
  id: requiredText("id"),
  issuer: requiredText("issuer"),
  subject: requiredText("subject"),
  /** Name or address, as the issuer stated it last. */
  name: nullable(requiredText("name")),
  createdAtMs: number("created_at"),
  blockedAtMs: nullable(number("blocked_at")),
});

export const ISSUER_KEYS = declareTable("issuer_keys", ["issuer"], {
  issuer: requiredText("issuer"),
  keys: json<JsonObject[]>("keys"),
  fetchedAtMs: number("fetched_at"),
  askedAtMs: number("asked_at"),
});

export const ADMIN_SESSION = declareTable("admin_session", ["hash"], {
  /** SHA-256 of the cookie's value. */
  hash: bytes("hash"),
  operatorId: nullable(requiredText("operator_id")),
  tokenId: nullable(requiredText("token_id")),
  /** Who signed in with an identity provider, with the access that their claims gave. */
  person: nullable(
    json<{
      issuer: string;
      subject: string;
      name: string;
      role: Role;
      organizationId: string | null;
      /** Those of their playground tokens. */
      pins: Pins;
      /** The settings of the issuer that gave this access. */
      basis: string;
      /** Address at which the provider ends its own session; null if it has none. */
      signOutUrl: string | null;
    }>("person"),
  ),
  createdAtMs: number("created_at"),
  /** Time of the last use, to the minute. */
  seenAtMs: number("seen_at"),
  expiresAtMs: number("expires_at"),
});

export const SHORT_TOKEN = declareTable("short_token", ["hash"], {
  hash: bytes("hash"),
  tokenId: requiredText("token_id"),
  expiresAtMs: number("expires_at"),
  /** The session that created it, with which it ends. Null: created without a session. */
  sessionHash: nullable(bytes("session_hash")),
  /** The operator or the person who created it, with whom it ends. */
  operatorId: nullable(requiredText("operator_id")),
});

export const ADMIN_KEY = declareTable("admin_idempotency_key", ["scope", "key"], {
  /** Id of the operator, or the caller that a member's token identifies. */
  scope: requiredText("scope"),
  key: requiredText("key"),
  /** Fingerprint of the request: the same key with another request is refused. */
  fingerprint: requiredText("fingerprint"),
  /** Interrupted: it failed without a known outcome. */
  state: oneOf("state", ["running", "answered", "interrupted"]),
  /** HTTP status, and JSON text, which holds no secret. */
  status: nullable(number("status")),
  answer: nullable(requiredText("answer")),
  createdAtMs: number("created_at"),
  expiresAtMs: number("expires_at"),
});

/** An event for receivers of warnings. A second event with the key of an earlier one is not written. */
export const EVENT = declareTable("event", ["key"], {
  /** Names the kind, the subject and the period of which the event tells once. */
  key: requiredText("event_key"),
  kind: oneOf("kind", EVENT_KINDS),
  /** Null: it concerns the whole service. */
  organizationId: nullable(requiredText("organization_id")),
  madeAtMs: number("made_at"),
  /** Its fields in the admin API's notation. */
  data: json<Record<string, unknown>>("data"),
  /** True if its deliveries are written. */
  isRouted: flag("is_routed"),
});

/** A webhook or a mail address that receives events. */
export const RECEIVER = declareTable("receiver", ["id"], {
  id: requiredText("id"),
  /** The organization whose events it receives; null: all events of the service. */
  organizationId: nullable(requiredText("organization_id")),
  name: requiredText("name"),
  format: oneOf("format", RECEIVER_FORMATS),
  /** Its URL or mail address. */
  target: requiredText("target"),
  /** Null: every kind. */
  kinds: nullable(json<EventKind[]>("kinds")),
  /** Those that sign its deliveries, the newest first; none for mail. */
  secrets: json<{ secret: string; endsAtMs: number | null }[]>("secrets"),
  createdAtMs: number("created_at"),
  /** Time of the first failure since its last success. */
  failingSinceMs: nullable(number("failing_since")),
  disabledAtMs: nullable(number("disabled_at")),
});

/** An event on its way to a receiver. */
export const DELIVERY = declareTable("delivery", ["id"], {
  id: requiredText("id"),
  receiverId: requiredText("receiver_id"),
  eventKey: requiredText("event_key"),
  state: oneOf("state", DELIVERY_STATES),
  attempts: number("attempt_count"),
  /** Time of the next attempt. A node that attempts it sets a later time first, so that no other node does the same. */
  nextAtMs: number("next_at"),
  createdAtMs: number("created_at"),
  attemptedAtMs: nullable(number("attempted_at")),
  result: nullable(requiredText("result")),
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

/**
 * Payments by PaymentIntent, as Stripe last reported them, with the credits that they bought. Always
 * `credits + debt = granted - revoked + covered + returned + withheld`.
 */
export const PAYMENT = declareTable("payment", ["organizationId", "id"], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  currency: requiredText("currency"),
  /** Money in the currency's smallest unit: paid with taxes, refunded so far, and withdrawn by disputes now. */
  amount: amount("amount"),
  refunded: amount("refunded"),
  disputed: amount("disputed"),
  credits: amount("credits"),
  /** Granted, by this number of grants: one when it was paid, and one each time that a dispute was won or a refund failed. */
  granted: amount("granted"),
  grants: number("grants"),
  /** The part of these grants that was revoked. */
  revoked: amount("revoked"),
  /** The part that covered debts of these payments, in the form of draws. */
  covered: amount("covered"),
  covers: draws("covers"),
  /** The share of the credits that was refunded or disputed. */
  returned: amount("returned"),
  /** Not granted, because the organization is closed: the operator refunds it. */
  withheld: amount("withheld"),
  /** The part of `returned` that was already spent, and how much of it later payments covered. */
  debt: amount("debt"),
  debtCovered: amount("debt_covered"),
  /** Number of changes; a change that was decided on an older revision is refused. */
  revision: number("revision"),
  createdAtMs: past(number("created_at")),
});

/** Vouchers that were made together. Its terms never change. */
export const VOUCHER_BATCH = declareTable("voucher_batch", ["id"], {
  id: requiredText("id"),
  name: requiredText("name"),
  count: number("count"),
  /** Terms of the grant that each of them makes. Its credits expire after some days; null: never. */
  amount: amount("amount"),
  priority: number("priority"),
  creditDays: nullable(number("credit_days")),
  /** Expiry of the vouchers themselves; null: never. */
  expiresAtMs: nullable(number("expires_at")),
  createdAtMs: past(number("created_at")),
  revokedAtMs: past(nullable(number("revoked_at"))),
});

/** A voucher. The grant that it makes has `voucherGrantId` as its id and the voucher's id as its reference. */
export const VOUCHER = declareTable("voucher", ["id"], {
  id: requiredText("id"),
  batchId: requiredText("batch_id"),
  /** SHA-256 of its code. */
  hash: bytes("hash"),
  /** First characters of the code, to recognize it by. */
  prefix: requiredText("prefix"),
  /** True if its batch was revoked before it was redeemed. */
  isRevoked: flag("is_revoked"),
  /** The organization that has redeemed it. */
  organizationId: nullable(requiredText("organization_id")),
  redeemedAtMs: past(nullable(number("redeemed_at"))),
});

/** Prompt and answer of a request of an organization that stores them. The books do not depend on it. */
export const CONVERSATION = declareTable("conversation", ["organizationId", "holdId"], {
  organizationId: requiredText("organization_id"),
  holdId: requiredText("hold_id"),
  endedAtMs: number("ended_at"),
  /** True if a part was too long to be stored. */
  isTruncated: flag("is_truncated"),
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
  answerId: requiredText("answer_id"),
  keptAtMs: number("kept_at"),
  bytes: number("bytes"),
  /** Fingerprint of the request of a whole response whose delivery broke: its retry gets it. */
  undelivered: nullable(requiredText("undelivered")),
  /** JSON: the item, or the list of all items of the response and of its input. */
  content: requiredText("content"),
});

/** The automatic top-up that an organization has set, with the saved card at Stripe. */
export const TOP_UP = declareTable("top_up", ["id"], {
  /** Id of the organization. */
  id: requiredText("organization_id"),
  /** Paused: a charge failed, or was refunded or disputed. */
  status: oneOf("status", ["on", "paused", "off"]),
  /** Why it is paused: a code of Stripe, or of this service. */
  reason: nullable(requiredText("reason")),
  /** Begins when fewer credits are available. */
  threshold: amount("threshold"),
  /** Money in the currency's smallest unit: of each charge, and of all charges of a month at most. */
  price: amount("price"),
  monthlyMaximum: amount("monthly_maximum"),
  currency: requiredText("currency"),
  card: nullable(json<{ customerId: string; id: string; brand: string; last4: string; savedAtMs: number }>("card")),
  /** When it was last switched on or resumed: refunds of earlier charges do not pause it again. */
  setAtMs: past(number("set_at")),
  /** Time before which nothing is attempted. A node that attempts something moves it first. */
  nextAtMs: number("next_at"),
  /** Number of changes of this row and its charges; a change that was decided on an older revision is refused. */
  revision: number("revision"),
});

/** An intent to charge a card for a top-up, written before Stripe is asked. An organization has at most one that is pending. */
export const TOP_UP_CHARGE = declareTable("top_up_charge", ["organizationId", "id"], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  price: amount("price"),
  currency: requiredText("currency"),
  credits: amount("credits"),
  /** Its PaymentIntent, stored before it is confirmed, so that no other one is. */
  paymentId: nullable(requiredText("payment_id")),
  state: oneOf("state", ["paid", "failed", "unbooked", "pending"]),
  createdAtMs: past(number("created_at")),
});

/** Monthly statements, which never change, stored with the month's digest. A month without bookings and balance has none. */
export const MONTHLY_STATEMENT = declareTable("monthly_statement", ["organizationId", "month"], {
  organizationId: requiredText("organization_id"),
  /** Its first millisecond, in UTC. */
  month: number("month"),
  /** Unique over all organizations, and without gaps. */
  number: number("number"),
  numberPrefix: requiredText("number_prefix"),
  madeAtMs: past(number("made_at")),
  opening: signedAmount("opening"),
  totals: statementTotals(),
  digest: requiredText("digest"),
  /** True for the last statement of a closed organization. */
  isFinal: flag("is_final"),
  details: json<Pick<MonthlyStatement, "letterhead" | "customer" | "bookings" | "models" | "tokens">>("details"),
});

/** One row with the id 1. A transaction that makes a statement locks it by adding 1. */
export const STATEMENT_SERIES = declareTable("statement_series", ["id"], {
  id: number("id"),
  lastNumber: number("last_number"),
});
