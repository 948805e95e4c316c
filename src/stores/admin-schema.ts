import { ACTOR_KINDS, type Role, SERVICE_ROLES } from "../api/admin/roles.ts";
import { bytes, json, nullable, number, oneOf, requiredText } from "./fields.ts";
import { declareTable } from "./table.ts";

/* The tables of people, their sessions, and the record of what they did; as in `schema.ts`. */

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
});

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
  /** The operator who created it, with whom it ends. */
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
