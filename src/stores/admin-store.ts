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
}

export type ActorKind = "operator" | "member" | "command" | "service";

/** What somebody changed. Holds no secret. */
export interface AuditRow {
  /** UUIDv7. */
  id: string;
  madeAtMs: number;
  actorKind: ActorKind;
  /** Id of the token that they came with. */
  actorId: string | null;
  address: string | null;
  requestId: string | null;
  /** Such as `token.revoke`. */
  action: string;
  organizationId: string | null;
  subjectId: string | null;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
}

export interface AuditPage {
  organizationId: string | null;
  action: string | null;
  /** Id of the last entry seen. */
  before: string | null;
  limit: number;
}

/** Operators, sessions and the record of changes. */
export interface AdminRows {
  /** Writes the first admin token of a store; false where there was one before. */
  insertFirstAdminToken(token: AdminTokenRow): Promise<boolean>;
  /** Writes an admin token and ends all others at its time. */
  replaceAdminTokens(token: AdminTokenRow, audit: AuditRow): Promise<void>;
  adminTokenByHash(hash: Uint8Array): Promise<AdminTokenRow | undefined>;
  adminToken(id: string): Promise<AdminTokenRow | undefined>;
  /** Writes a session, and takes away those that have expired. */
  insertSession(session: SessionRow): Promise<void>;
  session(hash: Uint8Array): Promise<SessionRow | undefined>;
  touchSession(hash: Uint8Array, seenAtMs: number): Promise<void>;
  deleteSession(hash: Uint8Array): Promise<void>;
  /** Writes a short token, and takes away those that expired before `nowMs`. */
  insertShortToken(token: ShortTokenRow, nowMs: number): Promise<void>;
  insertAudit(entry: AuditRow): Promise<void>;
  /** The newest first. */
  audit(page: AuditPage): Promise<AuditRow[]>;
}
