import { sql } from "kysely";
import type { Database } from "../database.ts";
import type { AdminIdempotencyKeyTable } from "../tables.ts";

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
  state: AdminIdempotencyKeyTable["state"];
  status: number | null;
  answer: string | null;
  /** Time since the claim, by the store's clock. */
  ageMs: number;
}

export type AdminKeyRows = ReturnType<typeof adminKeyRows>;

/** Requests of the admin API by their Idempotency-Key. */
export function adminKeyRows(database: Database) {
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
        .select(["fingerprint", "state", "status", "answer"])
        .select(sql<bigint>`${database.now()} - created_at`.as("age"))
        .where("scope", "=", scope)
        .where("key", "=", key)
        .executeTakeFirst();
      if (row === undefined) return undefined;
      const { fingerprint, state, status, answer, age } = row;
      return { fingerprint, state, status: status === null ? null : Number(status), answer, ageMs: Number(age) };
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
