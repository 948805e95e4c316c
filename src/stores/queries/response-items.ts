import { RESPONSE_ITEM } from "../admin-schema.ts";
import type { Database } from "../database.ts";
import { join, type Sql, sql } from "../sql.ts";
import type { RowOf } from "../table.ts";

export type ResponseItemRow = RowOf<typeof RESPONSE_ITEM>;
/** The caller that rows belong to: a token, with those that a rotation made of it. */
export type ItemOwner = Pick<ResponseItemRow, "organizationId" | "callerId">;

/** Times for which items are kept: usually, and for organizations that store their conversations. */
export interface ResponseTimes {
  usualMs: number;
  storedMs: number;
}

/** Items of responses, to which later requests refer. One kept `retentionMs` ago, by the store's clock, counts as absent. */
export function responseItemRows(database: Database) {
  const { read, write, writeIf } = database;
  const since = (retentionMs: number) => sql`${database.now()} - cast(${retentionMs} as bigint)`;
  const named = (owner: ItemOwner, ids: readonly string[], retentionMs: number) =>
    sql`from response_item where ${isOf(owner)} and id in (${join(ids)}) and kept_at > ${since(retentionMs)}`;
  const storing = sql`select id from organization where keeps_conversations = 1`;
  const isOld = ({ usualMs, storedMs }: ResponseTimes) =>
    sql`kept_at <= ${since(usualMs)} and (kept_at <= ${since(storedMs)} or organization_id not in (${storing}))`;
  return {
    /**
     * Writes or replaces rows of one caller, if its organization keeps responses when it commits. With `keptBytesMax`, the
     * oldest rows beyond these bytes are removed: whole responses before items, to which clients refer for longer.
     */
    async insert(owner: ItemOwner, rows: readonly ResponseItemRow[], keptBytesMax?: number): Promise<void> {
      const excess = keptBytesMax === undefined ? [] : [excessQuery(owner, keptBytesMax)];
      const inserts = rows.map((row) => insertQuery(database, row));
      await write([...inserts, ...excess], { isDurable: false, isDroppable: true });
    },
    /** Returns the rows with these ids, without their contents. */
    sizes: (owner: ItemOwner, ids: readonly string[], retentionMs: number) =>
      read<{ id: string; bytes: bigint }>(sql`select id, bytes ${named(owner, ids, retentionMs)}`),
    contents: (owner: ItemOwner, ids: readonly string[], retentionMs: number) =>
      read<Pick<ResponseItemRow, "id" | "content">>(sql`select id, content ${named(owner, ids, retentionMs)}`),
    /** Offers a whole response whose delivery broke to the retry with this fingerprint. */
    async offer(owner: ItemOwner, id: string, fingerprint: string): Promise<void> {
      await write([sql`update response_item set undelivered = ${fingerprint} where ${isOf(owner)} and id = ${id}`]);
    },
    /** Takes the content of a response that was offered to a retry, so that no other one gets it. `reserve` may throw before it is read. */
    async take(owner: ItemOwner, fingerprint: string, retentionMs: number, reserve: (bytes: number) => void) {
      const isOffered = sql`${isOf(owner)} and undelivered = ${fingerprint} and kept_at > ${since(retentionMs)}`;
      for (;;) {
        const [found] = await read<{ id: string; bytes: bigint }>(sql`
          select id, bytes from response_item where ${isOffered} order by kept_at, id limit 1`);
        if (found === undefined) return undefined;
        reserve(Number(found.bytes));
        const [row] = await read<Pick<ResponseItemRow, "content">>(sql`
          select content from response_item where ${isOf(owner)} and id = ${found.id}`);
        const taking = sql`update response_item set undelivered = null where ${isOffered} and id = ${found.id}`;
        if (await writeIf([taking], [])) return row?.content;
      }
    },
    /** Counts the rows that `removeOld` removes. */
    countOld: (times: ResponseTimes) => database.count(sql`response_item where ${isOld(times)}`),
    /** Removes rows that count as absent, at most `limit`; returns their number. */
    removeOld: (times: ResponseTimes, limit: number) => database.remove(RESPONSE_ITEM, isOld(times), limit),
    async hasAnswer(owner: ItemOwner, answerId: string): Promise<boolean> {
      const some = sql`select id from response_item where ${isOf(owner)} and answer_id = ${answerId} limit 1`;
      return (await read(some)).length > 0;
    },
    /** Removes rows of one response, at most `limit`; returns their number. */
    removeAnswer: (owner: ItemOwner, answerId: string, limit: number) =>
      database.remove(RESPONSE_ITEM, sql`${isOf(owner)} and answer_id = ${answerId}`, limit),
    /** Removes rows of an organization that were kept by `untilMs`, at most `limit`; returns their number. */
    removeOf: (organizationId: string, untilMs: number, limit: number) =>
      database.remove(RESPONSE_ITEM, sql`organization_id = ${organizationId} and kept_at <= ${untilMs}`, limit),
  };
}

function isOf({ organizationId, callerId }: ItemOwner): Sql {
  return sql`organization_id = ${organizationId} and caller_id = ${callerId}`;
}

/** Locks the row of the organization against changes, so that turning the switch off waits for this insert or precedes it. */
function insertQuery(database: Database, row: ResponseItemRow): Sql {
  const keeps = sql`from organization where id = ${row.organizationId} and keeps_responses = 1`;
  return sql`
    ${RESPONSE_ITEM.insertFrom(sql`${keeps} ${database.sharedLock()}`, row)}
    on conflict (organization_id, caller_id, id) do update set
      answer_id = excluded.answer_id, kept_at = excluded.kept_at, bytes = excluded.bytes, content = excluded.content`;
}

function excessQuery(owner: ItemOwner, keptBytesMax: number): Sql {
  return sql`
    delete from response_item where ${isOf(owner)} and id in (
      select id from (
        select id, sum(bytes) over (order by id = answer_id, kept_at desc, id) as total
        from response_item where ${isOf(owner)}) as kept
      where total > cast(${keptBytesMax} as bigint))`;
}
