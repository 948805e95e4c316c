import { CONVERSATION } from "../admin-schema.ts";
import type { Database } from "../database.ts";
import { equal, sql } from "../sql.ts";
import type { RowOf } from "../table.ts";

export type ConversationRow = RowOf<typeof CONVERSATION>;
type ConversationKey = Pick<ConversationRow, "organizationId" | "holdId">;

/** Stored conversations. One that ended `retentionMs` ago or earlier, by the store's clock, counts as absent. */
export function conversationRows(database: Database) {
  const present = ({ organizationId, holdId }: ConversationKey, retentionMs: number) => sql`
    from conversation
    where organization_id = ${organizationId} and hold_id = ${holdId} and ended_at > ${since(database, retentionMs)}`;
  return {
    /**
     * Writes the conversations of organizations whose storage is enabled when it commits; an existing row stays unchanged.
     * Locks the organizations, so that disabling storage waits for this insert or precedes it.
     */
    async insert(rows: readonly ConversationRow[]) {
      const inserts = rows.map((row) => {
        const keeps = sql`from organization where id = ${row.organizationId} and keeps_conversations = 1`;
        return sql`${CONVERSATION.insertFrom(sql`${keeps} ${database.sharedLock()}`, row)} on conflict do nothing`;
      });
      await database.write(inserts, { isDroppable: true });
    },
    find: (key: ConversationKey, retentionMs: number): Promise<ConversationRow | undefined> =>
      database.findRow(CONVERSATION)`select * ${present(key, retentionMs)}`,
    /** Returns whether the organization stores conversations now, and whether this one is stored. */
    async status(key: ConversationKey, retentionMs: number) {
      const [organizations = [], stored = []] = await database.snapshot([
        sql`select keeps_conversations from organization where id = ${key.organizationId}`,
        sql`select hold_id ${present(key, retentionMs)}`,
      ]);
      return { isEnabled: organizations[0]?.keeps_conversations === 1n, isStored: stored.length > 0 };
    },
    count: (organizationId: string) => database.count(sql`conversation where organization_id = ${organizationId}`),
    /** Counts the conversations that `removeOld` removes. */
    countOld: (retentionMs: number) =>
      database.count(sql`conversation where ended_at <= ${since(database, retentionMs)}`),
    /** Removes conversations that count as absent, at most `limit`; returns their number. */
    removeOld: (retentionMs: number, limit: number) =>
      database.remove(CONVERSATION, sql`ended_at <= ${since(database, retentionMs)}`, limit),
    async removeOne({ organizationId, holdId }: ConversationKey): Promise<boolean> {
      const isOne = equal({ organization_id: organizationId, hold_id: holdId });
      return (await database.remove(CONVERSATION, isOne, 1)) > 0;
    },
    /** Removes conversations of an organization that ended by `untilMs`, at most `limit`; returns their number. */
    removeOf: (organizationId: string, untilMs: number, limit: number) =>
      database.remove(CONVERSATION, sql`organization_id = ${organizationId} and ended_at <= ${untilMs}`, limit),
  };
}

function since(database: Database, retentionMs: number) {
  return sql`${database.now()} - cast(${retentionMs} as bigint)`;
}
