import { type RawBuilder, type Selectable, sql } from "kysely";
import type { ConversationRow, ConversationRows } from "../conversation-store.ts";
import type { ConversationTable, PortableDatabase } from "../tables.ts";
import { read } from "./directory.ts";

/** The rows of kept conversations, the same for both stores. */
export function conversationRows(database: PortableDatabase): ConversationRows {
  const { kysely, write } = database;
  const find = (organizationId: string, holdId: string, retentionMs: number) =>
    kysely
      .selectFrom("conversation")
      .where("organization_id", "=", organizationId)
      .where("hold_id", "=", holdId)
      .where("ended_at", ">", since(database, retentionMs));
  return {
    async insert(rows) {
      await write(rows.map((row) => insertQuery(database, row).compile(kysely)));
    },
    async find({ organizationId, holdId }, retentionMs) {
      const query = find(organizationId, holdId, retentionMs).selectAll();
      const [row] = await read<Selectable<ConversationTable>>(database, query);
      return row && conversationFromTable(row);
    },
    async status({ organizationId, holdId }, retentionMs) {
      const flag = kysely.selectFrom("organization").select("keeps_conversations").where("id", "=", organizationId);
      const [organizations = [], kept = []] = await database.snapshot([
        flag.compile(),
        find(organizationId, holdId, retentionMs).select("hold_id").compile(),
      ]);
      return { isEnabled: organizations[0]?.keeps_conversations === 1n, isStored: kept.length > 0 };
    },
    async count(organizationId) {
      const query = kysely
        .selectFrom("conversation")
        .select(({ fn }) => fn.countAll<bigint>().as("count"))
        .where("organization_id", "=", organizationId);
      const [row] = await read<{ count: bigint }>(database, query);
      return Number(row?.count ?? 0);
    },
    async removeOld(retentionMs, limit) {
      return remove(database, sql`ended_at <= ${since(database, retentionMs)}`, limit);
    },
    async removeOf(organizationId, untilMs, limit) {
      return remove(database, sql`organization_id = ${organizationId} and ended_at <= ${BigInt(untilMs)}`, limit);
    },
  };
}

/** The row of the organization is locked against changes: whoever ends its keeping waits for this, or comes first. */
function insertQuery(database: PortableDatabase, row: ConversationRow) {
  const text = (value: string | null) => sql`cast(${value} as text)`;
  const integer = (value: number) => sql`cast(${value} as bigint)`;
  return sql`
    insert into conversation (organization_id, hold_id, ended_at, is_truncated, request, answer)
    select organization.id, ${text(row.holdId)}, ${integer(row.endedAtMs)}, ${integer(row.isTruncated ? 1 : 0)},
      ${text(row.request)}, ${text(row.answer)}
    from organization where id = ${row.organizationId} and keeps_conversations = 1 ${database.sharedLock()}
    on conflict do nothing`;
}

async function remove({ write, kysely }: PortableDatabase, condition: RawBuilder<unknown>, limit: number) {
  const some = sql`select organization_id, hold_id from conversation where ${condition} limit ${sql.lit(limit)}`;
  const query = sql`delete from conversation where (organization_id, hold_id) in (${some})`;
  const [removed = 0] = await write([query.compile(kysely)]);
  return removed;
}

function since(database: PortableDatabase, retentionMs: number) {
  return sql<bigint>`${database.now()} - cast(${retentionMs} as bigint)`;
}

function conversationFromTable(row: Selectable<ConversationTable>): ConversationRow {
  const { organization_id, hold_id, ended_at, is_truncated, request, answer } = row;
  const times = { endedAtMs: Number(ended_at), isTruncated: is_truncated === 1n };
  return { organizationId: organization_id, holdId: hold_id, ...times, request, answer };
}
