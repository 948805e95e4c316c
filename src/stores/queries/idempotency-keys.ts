import { sql } from "kysely";
import type { AdminKeyClaim, AdminKeyRows } from "../admin-store.ts";
import type { PortableDatabase } from "../tables.ts";

/** The rows of requests of administrators that carry an Idempotency-Key, the same for both stores. */
export function adminKeyRows(database: PortableDatabase): AdminKeyRows {
  const { kysely } = database;
  const change = ({ scope, key }: Pick<AdminKeyClaim, "scope" | "key">) =>
    kysely.updateTable("admin_idempotency_key").where("scope", "=", scope).where("key", "=", key);
  return {
    async claimAdminKey({ scope, key, fingerprint, keepMs }) {
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
    async adminKey({ scope, key }) {
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
    async answerAdminKey(name, { status, answer }) {
      await change(name).set({ state: "answered", status, answer }).execute();
    },
    async interruptAdminKey(name) {
      await change(name).set({ state: "interrupted" }).execute();
    },
    async freeAdminKey({ scope, key }) {
      await kysely.deleteFrom("admin_idempotency_key").where("scope", "=", scope).where("key", "=", key).execute();
    },
  };
}
