import { type RawBuilder, type Selectable, sql } from "kysely";
import { type Database, read } from "../database.ts";
import type { ConversationTable } from "../tables.ts";

/** Prompt and answer of a request of an organization that keeps them. The books do not depend on it. */
export interface ConversationRow {
  organizationId: string;
  holdId: string;
  endedAtMs: number;
  /** True if a part was too long to be stored. */
  isTruncated: boolean;
  /** JSON of the request. */
  request: string;
  /** JSON of the delivered part of the answer; null if nothing was delivered. */
  answer: string | null;
}

type ConversationKey = Pick<ConversationRow, "organizationId" | "holdId">;

export type ConversationRows = ReturnType<typeof conversationRows>;

/** Kept conversations. One that ended `retentionMs` ago or earlier, by the store's clock, counts as absent. */
export function conversationRows(database: Database) {
  const { kysely, write } = database;
  const find = (organizationId: string, holdId: string, retentionMs: number) =>
    kysely
      .selectFrom("conversation")
      .where("organization_id", "=", organizationId)
      .where("hold_id", "=", holdId)
      .where("ended_at", ">", since(database, retentionMs));
  return {
    /**
     * Writes, in one transaction, the conversations of organizations that keep them when it commits: none is written
     * after keeping has ended. An existing row stays unchanged.
     */
    async insert(rows: readonly ConversationRow[]) {
      await write(
        rows.map((row) => insertQuery(database, row).compile(kysely)),
        { isDroppable: true },
      );
    },
    async find({ organizationId, holdId }: ConversationKey, retentionMs: number): Promise<ConversationRow | undefined> {
      const query = find(organizationId, holdId, retentionMs).selectAll();
      const [row] = await read<Selectable<ConversationTable>>(database, query);
      return row && conversationFromTable(row);
    },
    /** Tells if the organization keeps conversations now, and if this one is kept. */
    async status({ organizationId, holdId }: ConversationKey, retentionMs: number) {
      const flag = kysely.selectFrom("organization").select("keeps_conversations").where("id", "=", organizationId);
      const [organizations = [], kept = []] = await database.snapshot([
        flag.compile(),
        find(organizationId, holdId, retentionMs).select("hold_id").compile(),
      ]);
      return { isEnabled: organizations[0]?.keeps_conversations === 1n, isStored: kept.length > 0 };
    },
    async count(organizationId: string): Promise<number> {
      const query = kysely
        .selectFrom("conversation")
        .select(({ fn }) => fn.countAll<bigint>().as("count"))
        .where("organization_id", "=", organizationId);
      const [row] = await read<{ count: bigint }>(database, query);
      return Number(row?.count ?? 0);
    },
    /** Removes conversations that count as absent, at most `limit`; returns their number. */
    async removeOld(retentionMs: number, limit: number): Promise<number> {
      return remove(database, sql`ended_at <= ${since(database, retentionMs)}`, limit);
    },
    /** Removes one conversation; returns false if there is none. */
    async removeOne({ organizationId, holdId }: ConversationKey): Promise<boolean> {
      return (await remove(database, sql`organization_id = ${organizationId} and hold_id = ${holdId}`, 1)) > 0;
    },
    /** Removes conversations of an organization that ended by `untilMs`, at most `limit`; returns their number. */
    async removeOf(organizationId: string, untilMs: number, limit: number): Promise<number> {
      return remove(database, sql`organization_id = ${organizationId} and ended_at <= ${BigInt(untilMs)}`, limit);
    },
  };
}

/** Locks the row of the organization against changes, so that ending the storage waits for this insert or precedes it. */
function insertQuery(database: Database, row: ConversationRow) {
  const text = (value: string | null) => sql`cast(${value} as text)`;
  const integer = (value: number) => sql`cast(${value} as bigint)`;
  return sql`
    insert into conversation (organization_id, hold_id, ended_at, is_truncated, request, answer)
    select organization.id, ${text(row.holdId)}, ${integer(row.endedAtMs)}, ${integer(row.isTruncated ? 1 : 0)},
      ${text(row.request)}, ${text(row.answer)}
    from organization where id = ${row.organizationId} and keeps_conversations = 1 ${database.sharedLock()}
    on conflict do nothing`;
}

async function remove({ write, kysely }: Database, condition: RawBuilder<unknown>, limit: number) {
  const some = sql`select organization_id, hold_id from conversation where ${condition} limit ${sql.lit(limit)}`;
  const query = sql`delete from conversation where (organization_id, hold_id) in (${some})`;
  const [removed = 0] = await write([query.compile(kysely)]);
  return removed;
}

function since(database: Database, retentionMs: number) {
  return sql<bigint>`${database.now()} - cast(${retentionMs} as bigint)`;
}

function conversationFromTable(row: Selectable<ConversationTable>): ConversationRow {
  const { organization_id, hold_id, ended_at, is_truncated, request, answer } = row;
  const times = { endedAtMs: Number(ended_at), isTruncated: is_truncated === 1n };
  return { organizationId: organization_id, holdId: hold_id, ...times, request, answer };
}
