import { type CompiledQuery, sql } from "kysely";
import type { AuditRow } from "../../credits/audit.ts";
import type { Database } from "../database.ts";
import { ADMIN_KEY, ADMIN_SESSION, ADMIN_TOKEN, AUDIT_ENTRY, SHORT_TOKEN } from "../schema.ts";
import type { RowOf } from "../table.ts";

/** A token with all permissions. */
export type AdminTokenRow = RowOf<typeof ADMIN_TOKEN>;
/** A session of the console: of an operator, or of a member by a token of an organization. */
export type SessionRow = RowOf<typeof ADMIN_SESSION>;
/** Represents a token until it expires, with that token's rights and limits but no other scope than `SHORT_TOKEN_SCOPES`. */
export type ShortTokenRow = RowOf<typeof SHORT_TOKEN>;

type AdminKey = RowOf<typeof ADMIN_KEY>;
/** Names a request of an administrator that carries an Idempotency-Key. */
export type AdminKeyName = Pick<AdminKey, "scope" | "key">;
export type AdminKeyClaim = AdminKeyName & Pick<AdminKey, "fingerprint"> & { keepMs: number };
export interface AdminKeyAnswer {
  /** HTTP status. */
  status: number;
  /** JSON text. Holds no secret. */
  answer: string;
}
export interface AdminKeyRow extends Pick<AdminKey, "fingerprint" | "state" | "status" | "answer"> {
  /** Time since the claim, by the store's clock. */
  ageMs: number;
}

export interface AuditPage {
  organizationId: string | null;
  action: string | null;
  /** Only entries with a greater id. */
  after?: string;
  /** Id of the last entry seen. */
  before: string | null;
  limit: number;
}

/** A fixed id, so that the key refuses a second process that creates a first token. */
const FIRST_ADMIN_TOKEN_ID = "adm_first";

/** The same value as in the index of the migration. */
const FAILED_SIGN_IN = "session.sign_in_failed";

export type AdminKeyRows = ReturnType<typeof adminKeys>;
export type AdminRows = ReturnType<typeof adminRows>;

/** Operators, their sessions, the audit log and the idempotency keys of the admin API. */
export function adminRows(database: Database) {
  return { ...adminTokens(database), ...sessions(database), ...auditEntries(database), ...adminKeys(database) };
}

function adminTokens({ kysely, write, writeIf }: Database) {
  const insert = (token: AdminTokenRow) => kysely.insertInto("admin_token").values(ADMIN_TOKEN.toRecord(token));
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
      return row && ADMIN_TOKEN.fromRecord(row);
    },
    async adminToken(id: string): Promise<AdminTokenRow | undefined> {
      const row = await find().where("id", "=", id).executeTakeFirst();
      return row && ADMIN_TOKEN.fromRecord(row);
    },
  };
}

function sessions({ kysely, write, writeIf }: Database) {
  return {
    /** Writes a session and removes those that have expired. */
    async insertSession(session: SessionRow, audit?: AuditRow) {
      await write([
        kysely.deleteFrom("admin_session").where("expires_at", "<", BigInt(session.createdAtMs)).compile(),
        kysely.insertInto("admin_session").values(ADMIN_SESSION.toRecord(session)).compile(),
        ...recordOf(kysely, audit),
      ]);
    },
    async session(hash: Uint8Array): Promise<SessionRow | undefined> {
      const row = await kysely.selectFrom("admin_session").selectAll().where("hash", "=", hash).executeTakeFirst();
      return row && ADMIN_SESSION.fromRecord(row);
    },
    async touchSession(hash: Uint8Array, seenAtMs: number) {
      await kysely.updateTable("admin_session").set({ seen_at: seenAtMs }).where("hash", "=", hash).execute();
    },
    /** Removes a session. Returns false if it does not exist; then nothing is written. */
    async deleteSession(hash: Uint8Array, audit?: AuditRow): Promise<boolean> {
      return writeIf([kysely.deleteFrom("admin_session").where("hash", "=", hash).compile()], recordOf(kysely, audit));
    },
    /** Writes a short token and removes those that expired before `nowMs`. */
    async insertShortToken(token: ShortTokenRow, nowMs: number, audit?: AuditRow) {
      await write([
        kysely.deleteFrom("short_token").where("expires_at", "<", BigInt(nowMs)).compile(),
        kysely.insertInto("short_token").values(SHORT_TOKEN.toRecord(token)).compile(),
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
    async audit({ organizationId, action, after, before, limit }: AuditPage): Promise<AuditRow[]> {
      let query = kysely.selectFrom("audit_entry").selectAll().orderBy("id", "desc").limit(limit);
      if (organizationId !== null) query = query.where("organization_id", "=", organizationId);
      if (action !== null) query = query.where("action", "=", action);
      if (after !== undefined) query = query.where("id", ">", after);
      if (before !== null) query = query.where("id", "<", before);
      return (await query.execute()).map(AUDIT_ENTRY.fromRecord);
    },
  };
}

/** Requests of the admin API by their Idempotency-Key. */
function adminKeys(database: Database) {
  const { kysely } = database;
  const change = ({ scope, key }: AdminKeyName) =>
    kysely.updateTable("admin_idempotency_key").where("scope", "=", scope).where("key", "=", key);
  return {
    /** Claims a key durably. Returns false if it is claimed and has not expired. */
    async claimAdminKey({ scope, key, fingerprint, keepMs }: AdminKeyClaim): Promise<boolean> {
      const now = database.now();
      const times = { created_at: now, expires_at: sql<bigint>`${now} + ${BigInt(keepMs)}` };
      const { numInsertedOrUpdatedRows } = await kysely
        .insertInto("admin_idempotency_key")
        .values({ scope, key, fingerprint, state: "running", status: null, answer: null, ...times })
        .onConflict((conflict) =>
          conflict
            .columns(["scope", "key"])
            .doUpdateSet({ fingerprint, state: "running", status: null, answer: null, ...times })
            .where("admin_idempotency_key.expires_at", "<=", now),
        )
        .executeTakeFirstOrThrow();
      return numInsertedOrUpdatedRows === 1n;
    },
    async adminKey({ scope, key }: AdminKeyName): Promise<AdminKeyRow | undefined> {
      const row = await kysely
        .selectFrom("admin_idempotency_key")
        .selectAll()
        .select(sql<bigint>`${database.now()} - created_at`.as("age"))
        .where("scope", "=", scope)
        .where("key", "=", key)
        .executeTakeFirst();
      return row && { ...ADMIN_KEY.fromRecord(row), ageMs: Number(row.age) };
    },
    async answerAdminKey(name: AdminKeyName, { status, answer }: AdminKeyAnswer) {
      await change(name).set({ state: "answered", status, answer }).execute();
    },
    async interruptAdminKey(name: AdminKeyName) {
      await change(name).set({ state: "interrupted" }).execute();
    },
    async freeAdminKey({ scope, key }: AdminKeyName) {
      await kysely.deleteFrom("admin_idempotency_key").where("scope", "=", scope).where("key", "=", key).execute();
    },
  };
}

/** Returns the insert of an audit record, if there is one. */
export function recordOf(kysely: Database["kysely"], audit: AuditRow | undefined): CompiledQuery[] {
  return audit === undefined ? [] : [insertAuditQuery(kysely, audit)];
}

/** Returns the insert of an audit record, which belongs in the transaction of its change. */
export function insertAuditQuery(kysely: Database["kysely"], entry: AuditRow) {
  return kysely.insertInto("audit_entry").values(AUDIT_ENTRY.toRecord(entry)).compile();
}
