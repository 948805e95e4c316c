import type { AuditRow } from "../credits/audit.ts";

/** Rows of those who look after the service, and of what they did. Times are milliseconds since 1970. */

/** Lets its holder do everything. */
export interface AdminTokenRow {
  id: string;
  /** SHA-256 of the whole token. */
  hash: Uint8Array;
  /** First characters, to recognize it by. */
  prefix: string;
  createdAtMs: number;
  revokedAtMs: number | null;
}

/** A session of the console: of an operator, or of a member by a token of an organization. */
export interface SessionRow {
  /** SHA-256 of what the cookie holds. */
  hash: Uint8Array;
  adminTokenId: string | null;
  tokenId: string | null;
  createdAtMs: number;
  /** When it was last used, to the minute. */
  seenAtMs: number;
  expiresAtMs: number;
}

/** Stands for a token until it expires, with that token's rights and limits but no other scope than `SHORT_TOKEN_SCOPES`. */
export interface ShortTokenRow {
  hash: Uint8Array;
  tokenId: string;
  expiresAtMs: number;
  /** The session that it was made in: it ends with it. Null: made without one. */
  sessionHash: Uint8Array | null;
  /** The admin token on whose authority it was made: it ends with it. */
  adminTokenId: string | null;
}

export interface AuditPage {
  organizationId: string | null;
  action: string | null;
  /** Id of the last entry seen. */
  before: string | null;
  limit: number;
}

/** Names a request of an administrator that carries an Idempotency-Key. */
export interface AdminKeyName {
  /** `operator`, or the id of a member's organization. */
  scope: string;
  key: string;
}
export interface AdminKeyClaim extends AdminKeyName {
  /** Fingerprint of the request: the same key with another request is refused. */
  fingerprint: string;
  keepMs: number;
}
export interface AdminKeyAnswer {
  /** HTTP status. */
  status: number;
  /** JSON text. Holds no secret. */
  answer: string;
}
export interface AdminKeyRow extends Pick<AdminKeyClaim, "fingerprint"> {
  /** Interrupted: it failed in a way that leaves open whether it changed anything. */
  state: "running" | "answered" | "interrupted";
  status: number | null;
  answer: string | null;
  /** Time since the claim, by the store's clock. */
  ageMs: number;
}

/** Requests of administrators by their Idempotency-Key. */
export interface AdminKeyRows {
  /** Claims a key durably; false where it is taken and its time is not over. */
  claimAdminKey(claim: AdminKeyClaim): Promise<boolean>;
  adminKey(name: AdminKeyName): Promise<AdminKeyRow | undefined>;
  answerAdminKey(name: AdminKeyName, answer: AdminKeyAnswer): Promise<void>;
  interruptAdminKey(name: AdminKeyName): Promise<void>;
  freeAdminKey(name: AdminKeyName): Promise<void>;
}

/** Operators, sessions and the record of changes. */
export interface AdminRows extends AdminKeyRows {
  /** Writes the first admin token of a store, under an id of its own; false where there was one before. */
  insertFirstAdminToken(token: AdminTokenRow, audit?: AuditRow): Promise<boolean>;
  /** Writes an admin token and ends all others at its time. */
  replaceAdminTokens(token: AdminTokenRow, audit: AuditRow): Promise<void>;
  adminTokenByHash(hash: Uint8Array): Promise<AdminTokenRow | undefined>;
  adminToken(id: string): Promise<AdminTokenRow | undefined>;
  /** Writes a session, and takes away those that have expired. */
  insertSession(session: SessionRow, audit?: AuditRow): Promise<void>;
  session(hash: Uint8Array): Promise<SessionRow | undefined>;
  touchSession(hash: Uint8Array, seenAtMs: number): Promise<void>;
  /** False where there is no such session; then nothing is written. */
  deleteSession(hash: Uint8Array, audit?: AuditRow): Promise<boolean>;
  /** Writes a short token, and takes away those that expired before `nowMs`. */
  insertShortToken(token: ShortTokenRow, nowMs: number, audit?: AuditRow): Promise<void>;
  insertAudit(entry: AuditRow): Promise<void>;
  /** Writes a `session.sign_in_failed` entry, and removes all but the newest `keep` of them. */
  insertFailedSignIn(entry: AuditRow, keep: number): Promise<void>;
  /** The newest first. */
  audit(page: AuditPage): Promise<AuditRow[]>;
}
