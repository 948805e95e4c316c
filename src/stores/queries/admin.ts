import type { CompiledQuery, Selectable } from "kysely";
import type { AuditRow } from "../../credits/audit.ts";
import type { Database } from "../database.ts";
import { AUDIT_ENTRY, toOptionalNumber } from "../schema.ts";
import type { AdminSessionTable, AdminTokenTable } from "../tables.ts";
import { adminKeyRows } from "./idempotency-keys.ts";

/** A token with all permissions. */
export interface AdminTokenRow {
  id: string;
  /** SHA-256 of the whole token. */
  hash: Uint8Array;
  /** First characters, for display. */
  prefix: string;
  createdAtMs: number;
  revokedAtMs: number | null;
}

/** A session of the console: of an operator, or of a member by a token of an organization. */
export interface SessionRow {
  /** SHA-256 of the cookie's value. */
  hash: Uint8Array;
  adminTokenId: string | null;
  tokenId: string | null;
  createdAtMs: number;
  /** Time of the last use, to the minute. */
  seenAtMs: number;
  expiresAtMs: number;
}

/** Stands for a token until it expires, with that token's rights and limits but no other scope than `SHORT_TOKEN_SCOPES`. */
export interface ShortTokenRow {
  hash: Uint8Array;
  tokenId: string;
  expiresAtMs: number;
  /** The session that created it, with which it ends. Null: created without a session. */
  sessionHash: Uint8Array | null;
  /** The admin token that authorized it, with which it ends. */
  adminTokenId: string | null;
}

export interface AuditPage {
  organizationId: string | null;
  action: string | null;
  /** Id of the last entry seen. */
  before: string | null;
  limit: number;
}

/** A fixed id, so that the key refuses a second process that creates a first token. */
const FIRST_ADMIN_TOKEN_ID = "adm_first";

/** The same value as in the index of the migration. */
const FAILED_SIGN_IN = "session.sign_in_failed";

export type AdminRows = ReturnType<typeof adminRows>;

/** Operators, their sessions, the audit log and the idempotency keys of the admin API. */
export function adminRows(database: Database) {
  return { ...adminTokens(database), ...sessions(database), ...auditEntries(database), ...adminKeyRows(database) };
}

function adminTokens({ kysely, write, writeIf }: Database) {
  const insert = (token: AdminTokenRow) => kysely.insertInto("admin_token").values(adminTokenToTable(token));
  const find = () => kysely.selectFrom("admin_token").selectAll();
  return {
    /** Writes the first admin token of a store, under a fixed id. Returns false if the store has one. */
    async insertFirstAdminToken(token: AdminTokenRow, audit?: AuditRow): Promise<boolean> {
      if ((await find().limit(1).executeTakeFirst()) !== undefined) return false;
      const first = insert({ ...token, id: FIRST_ADMIN_TOKEN_ID }).onConflict((conflict) => conflict.doNothing());
      return writeIf(
        [first.compile()],
        audit ? [insertAuditQuery(kysely, { ...audit, subjectId: FIRST_ADMIN_TOKEN_ID })] : [],
      );
    },
    /** Writes an admin token and revokes all others at its creation time. */
    async replaceAdminTokens(token: AdminTokenRow, audit: AuditRow) {
      await write([
        kysely
          .updateTable("admin_token")
          .set({ revoked_at: token.createdAtMs })
          .where("revoked_at", "is", null)
          .compile(),
        insert(token).compile(),
        insertAuditQuery(kysely, audit),
      ]);
    },
    async adminTokenByHash(hash: Uint8Array): Promise<AdminTokenRow | undefined> {
      const row = await find().where("hash", "=", hash).executeTakeFirst();
      return row && adminTokenFromTable(row);
    },
    async adminToken(id: string): Promise<AdminTokenRow | undefined> {
      const row = await find().where("id", "=", id).executeTakeFirst();
      return row && adminTokenFromTable(row);
    },
  };
}

function sessions({ kysely, write, writeIf }: Database) {
  return {
    /** Writes a session and removes those that have expired. */
    async insertSession(session: SessionRow, audit?: AuditRow) {
      await write([
        kysely.deleteFrom("admin_session").where("expires_at", "<", BigInt(session.createdAtMs)).compile(),
        kysely
          .insertInto("admin_session")
          .values({
            hash: session.hash,
            admin_token_id: session.adminTokenId,
            token_id: session.tokenId,
            created_at: session.createdAtMs,
            seen_at: session.seenAtMs,
            expires_at: session.expiresAtMs,
          })
          .compile(),
        ...recordOf(kysely, audit),
      ]);
    },
    async session(hash: Uint8Array): Promise<SessionRow | undefined> {
      const row = await kysely.selectFrom("admin_session").selectAll().where("hash", "=", hash).executeTakeFirst();
      return row && sessionFromTable(row);
    },
    async touchSession(hash: Uint8Array, seenAtMs: number) {
      await kysely.updateTable("admin_session").set({ seen_at: seenAtMs }).where("hash", "=", hash).execute();
    },
    /** Removes a session. Returns false if it does not exist; then nothing is written. */
    async deleteSession(hash: Uint8Array, audit?: AuditRow): Promise<boolean> {
      return writeIf([kysely.deleteFrom("admin_session").where("hash", "=", hash).compile()], recordOf(kysely, audit));
    },
    /** Writes a short token and removes those that expired before `nowMs`. */
    async insertShortToken(
      { hash, tokenId, expiresAtMs, sessionHash, adminTokenId }: ShortTokenRow,
      nowMs: number,
      audit?: AuditRow,
    ) {
      const values = { session_hash: sessionHash, admin_token_id: adminTokenId, expires_at: expiresAtMs };
      await write([
        kysely.deleteFrom("short_token").where("expires_at", "<", BigInt(nowMs)).compile(),
        kysely
          .insertInto("short_token")
          .values({ hash, token_id: tokenId, ...values })
          .compile(),
        ...recordOf(kysely, audit),
      ]);
    },
  };
}

function auditEntries({ kysely, write }: Database) {
  const failedSignIns = () => kysely.selectFrom("audit_entry").where("action", "=", FAILED_SIGN_IN);
  return {
    /** Writes a `session.sign_in_failed` record and removes all but the newest `keep` of them. */
    async insertFailedSignIn(entry: AuditRow, keep: number) {
      const newestTooMany = failedSignIns().select("id").orderBy("id", "desc").limit(1).offset(keep);
      await write([
        insertAuditQuery(kysely, { ...entry, action: FAILED_SIGN_IN }),
        kysely
          .deleteFrom("audit_entry")
          .where("action", "=", FAILED_SIGN_IN)
          .where("id", "<=", newestTooMany)
          .compile(),
      ]);
    },
    async insertAudit(entry: AuditRow) {
      await write([insertAuditQuery(kysely, entry)]);
    },
    /** Returns audit records, the newest first. */
    async audit({ organizationId, action, before, limit }: AuditPage): Promise<AuditRow[]> {
      let query = kysely.selectFrom("audit_entry").selectAll().orderBy("id", "desc").limit(limit);
      if (organizationId !== null) query = query.where("organization_id", "=", organizationId);
      if (action !== null) query = query.where("action", "=", action);
      if (before !== null) query = query.where("id", "<", before);
      return (await query.execute()).map(AUDIT_ENTRY.fromRecord);
    },
  };
}

/** Returns the insert of an audit record, if there is one. */
export function recordOf(kysely: Database["kysely"], audit: AuditRow | undefined): CompiledQuery[] {
  return audit === undefined ? [] : [insertAuditQuery(kysely, audit)];
}

/** Returns the insert of an audit record, which belongs into the transaction of its change. */
export function insertAuditQuery(kysely: Database["kysely"], entry: AuditRow) {
  return kysely.insertInto("audit_entry").values(AUDIT_ENTRY.toRecord(entry)).compile();
}

function adminTokenFromTable(row: Selectable<AdminTokenTable>): AdminTokenRow {
  const { id, hash, prefix } = row;
  return { id, hash, prefix, createdAtMs: Number(row.created_at), revokedAtMs: toOptionalNumber(row.revoked_at) };
}

function adminTokenToTable({ id, hash, prefix, createdAtMs, revokedAtMs }: AdminTokenRow) {
  return { id, hash, prefix, created_at: createdAtMs, revoked_at: revokedAtMs };
}

function sessionFromTable(row: Selectable<AdminSessionTable>): SessionRow {
  return {
    hash: row.hash,
    adminTokenId: row.admin_token_id,
    tokenId: row.token_id,
    createdAtMs: Number(row.created_at),
    seenAtMs: Number(row.seen_at),
    expiresAtMs: Number(row.expires_at),
  };
}
