import type { AuditRow } from "../../credits/audit.ts";
import { CONTACTS_ID, contactsOf, type EventRow, organizationOfContacts } from "../../credits/warnings.ts";
import { DELIVERY, EVENT, RECEIVER } from "../admin-schema.ts";
import { type Database, listsOf } from "../database.ts";
import { number, requiredText } from "../fields.ts";
import { ORGANIZATION } from "../schema.ts";
import { allOf, deleteSome, equal, isAsRead, join, type Sql, sql } from "../sql.ts";
import { declareTable, type RowOf } from "../table.ts";
import { roomIn } from "./accounts.ts";
import { recordOf } from "./admin.ts";
import { isBefore, type NewestFirst } from "./directory.ts";

export type ReceiverRow = RowOf<typeof RECEIVER>;
export type DeliveryRow = RowOf<typeof DELIVERY>;
export interface EventDelivery {
  delivery: DeliveryRow;
  event: EventRow;
}

export interface DeliveryPage extends NewestFirst {
  organizationId: string | null;
  receiverId: string | null;
  state: DeliveryRow["state"] | null;
}

/** Result of an attempt, and when to try again; null: never. */
export interface Attempted {
  receiverId: string;
  atMs: number;
  isDelivered: boolean;
  result: string;
  nextAtMs: number | null;
}

const EXPIRING_TOKEN = declareTable("token", [], {
  organizationId: requiredText("organization_id"),
  id: requiredText("id"),
  name: requiredText("name"),
  expiresAtMs: number("expires_at"),
});

/** Databases limit the parameters of a statement, and a service may have thousands of organizations. */
const INSERTED_AT_ONCE = 500;

/** Events, their receivers, and their deliveries. The books write events of their own, see `book-writes.ts`. */
export function eventRows(database: Database) {
  return { ...events(database), ...receivers(database), ...deliveries(database), ...watched(database) };
}

function events({ readRows, write, writeIf }: Database) {
  return {
    /** Writes the event of a change with its audit record. Returns false if its key is known: nothing is written. */
    insertEvent: (event: EventRow, audit: AuditRow): Promise<boolean> =>
      writeIf([sql`${EVENT.insert(event)} on conflict do nothing`], recordOf(audit)),
    /** Writes events that no transaction causes. Those whose keys are known are not written again. */
    async insertEvents(rows: readonly EventRow[]) {
      for (const some of listsOf(rows, INSERTED_AT_ONCE)) {
        await write([sql`${EVENT.insert(...some)} on conflict do nothing`]);
      }
    },
    /** Returns the oldest events whose deliveries are not written. */
    unroutedEvents: (limit: number): Promise<EventRow[]> =>
      readRows(EVENT)`select * from event where is_routed = 0 order by made_at limit ${limit}`,
    /** Writes the deliveries of events. Those that another node has written stay as they are. */
    async routeEvents(keys: readonly string[], rows: readonly DeliveryRow[]) {
      const inserts = rows.map((row) => sql`${DELIVERY.insert(row)} on conflict do nothing`);
      await write([...inserts, sql`update event set is_routed = 1 where event_key in (${join(keys)})`]);
    },
    /** Writes an event for one receiver alone. */
    insertDelivery: (event: EventRow, delivery: DeliveryRow, audit: AuditRow) =>
      write([EVENT.insert({ ...event, isRouted: true }), DELIVERY.insert(delivery), ...recordOf(audit)]),
    /** Removes events from before a time with their deliveries, at most `limit` of each; returns the larger number. */
    async removeOldEvents(beforeMs: number, limit: number): Promise<number> {
      const removed = await write([
        deleteSome(DELIVERY, sql`created_at < ${beforeMs}`, limit),
        deleteSome(EVENT, sql`made_at < ${beforeMs}`, limit),
      ]);
      return Math.max(...removed);
    },
  };
}

function watched({ read, readRows }: Database) {
  return {
    /** Returns what organizations spent in finished days, with their credits. */
    async pastSpending(fromDay: number, toDay: number) {
      const rows = await read<Record<string, unknown>>(sql`
        select balance.organization_id, available, held, granted, sum(charged) as charged, min(day) as first_day
        from usage_day join balance on balance.organization_id = usage_day.organization_id
        where dimension = 'model' and day >= ${fromDay} and day < ${toDay}
        group by balance.organization_id, available, held, granted having sum(charged) > 0`);
      return rows.map((row) => ({
        organizationId: row.organization_id as string,
        ...{ available: row.available as bigint, held: row.held as bigint, granted: row.granted as bigint },
        // PostgreSQL's sum is a decimal number.
        ...{ charged: BigInt(String(row.charged)), firstDay: Number(row.first_day) },
      }));
    },
    /** Returns the valid tokens that expire in a period, without those that were replaced. */
    expiringTokens: (fromMs: number, toMs: number) =>
      readRows(EXPIRING_TOKEN)`
          select organization_id, id, name, expires_at from token
          where expires_at > ${fromMs} and expires_at <= ${toMs} and revoked_at is null and successor_id is null`,
    /** Returns which open organizations used some models since a day, with their price lists. */
    async modelUsers(models: readonly string[], fromDay: number) {
      const rows = await read<{ organization_id: string; name: string; price_list: string | null }>(sql`
        select distinct organization_id, usage_day.name, price_list from usage_day join organization on organization.id = organization_id
        where dimension = 'model' and day >= ${fromDay} and usage_day.name in (${join(models)})
          and organization.status <> 'closed'`);
      return rows.map((row) => ({ organizationId: row.organization_id, model: row.name, priceList: row.price_list }));
    },
    eventsOf: (kinds: readonly EventRow["kind"][]): Promise<EventRow[]> =>
      readRows(EVENT)`select * from event where kind in (${join(kinds)}) order by made_at desc`,
  };
}

const failWaiting = (receiverId: string): Sql =>
  sql`update delivery set state = 'failed' where receiver_id = ${receiverId} and state = 'waiting'`;

function receivers({ find, findRow, findRows, readRows, writeIf }: Database) {
  return {
    receiver: (id: string) => findRow(RECEIVER)`select * from receiver where id = ${id}`,
    /** Returns all receivers, or those of an organization, in the order of their ids. */
    receivers: (organizationId: string | null): Promise<ReceiverRow[]> =>
      findRows(RECEIVER)`select * from receiver where ${equal({ organization_id: organizationId })} order by id`,
    /** Returns the contacts of an organization as a receiver; undefined for the id of any other receiver. */
    async contacts(receiverId: string): Promise<ReceiverRow | undefined> {
      const organizationId = organizationOfContacts(receiverId);
      if (organizationId === undefined) return undefined;
      const row = await findRow(ORGANIZATION)`select * from organization where id = ${organizationId}`;
      return row && contactsOf(row);
    },
    /** Returns contacts of organizations for which deliveries are due, each as a receiver. */
    async dueContacts(nowMs: number, limit: number): Promise<ReceiverRow[]> {
      // Up to the next prefix in the order of bytes.
      const end = CONTACTS_ID.replace("_", "`");
      const rows = await readRows(ORGANIZATION)`
        select * from organization where id in (
          select substr(receiver_id, ${CONTACTS_ID.length + 1}) from delivery
          where receiver_id > ${CONTACTS_ID} and receiver_id < ${end} and state = 'waiting' and next_at <= ${nowMs}
          limit ${limit})`;
      return rows.map(contactsOf);
    },
    /** Writes a receiver. Returns false if its organization, or the service, has `countMax`; then nothing is written. */
    insertReceiver(row: ReceiverRow, audit: AuditRow, countMax?: number): Promise<boolean> {
      const own = sql`select count(*) from receiver where organization_id is not distinct from ${row.organizationId}`;
      const room = countMax === undefined ? [] : roomIn(row.organizationId, own, countMax);
      return writeIf([...room, RECEIVER.insert(row)], recordOf(audit));
    },
    /** Writes properties of a receiver; what waits for a disabled one fails. Returns false if it has changed since it was read. */
    async changeReceiver(old: ReceiverRow, change: Partial<ReceiverRow>, audit: AuditRow): Promise<boolean> {
      const [row] = await find(sql`select * from receiver where id = ${old.id}`);
      if (row === undefined || JSON.stringify(RECEIVER.fromRecord(row)) !== JSON.stringify(old)) return false;
      const asRead = sql`id = ${old.id} and ${isAsRead(RECEIVER.columns, row)}`;
      const failing = typeof change.disabledAtMs === "number" ? [failWaiting(old.id)] : [];
      return writeIf(
        [sql`update receiver set ${RECEIVER.set(change)} where ${asRead}`],
        [...failing, ...recordOf(audit)],
      );
    },
    /** Deletes a receiver with its deliveries. Returns false if it does not exist. */
    deleteReceiver: (id: string, audit: AuditRow) =>
      writeIf(
        [sql`delete from receiver where id = ${id}`],
        [sql`delete from delivery where receiver_id = ${id}`, ...recordOf(audit)],
      ),
    /** Disables a receiver, fails what waits for it, and writes an event of it. Returns false if it is disabled already. */
    disableReceiver(id: string, atMs: number, event: EventRow): Promise<boolean> {
      const disabling = sql`update receiver set disabled_at = ${atMs} where id = ${id} and disabled_at is null`;
      return writeIf([disabling], [failWaiting(id), sql`${EVENT.insert(event)} on conflict do nothing`]);
    },
  };
}

function deliveries({ read, readRows, write, writeIf }: Database) {
  const withEvent = async (condition: Sql): Promise<EventDelivery[]> => {
    const rows = await read(sql`
      select delivery.*, event.kind, event.organization_id, event.made_at, event.data, event.is_routed
      from delivery join event on event.event_key = delivery.event_key where ${condition}`);
    return rows.map((row) => ({ delivery: DELIVERY.fromRecord(row), event: EVENT.fromRecord(row) }));
  };
  return {
    /** Returns the receivers for which deliveries are due, the longest waiting first, and those that fail last: they take long. */
    dueReceivers: (nowMs: number): Promise<ReceiverRow[]> =>
      readRows(RECEIVER)`
          select * from receiver where disabled_at is null and exists (
            select 1 from delivery where receiver_id = receiver.id and state = 'waiting' and next_at <= ${nowMs})
          order by case when failing_since is null then 0 else 1 end,
            (select min(next_at) from delivery where receiver_id = receiver.id and state = 'waiting')`,
    dueDeliveries: (receiverId: string, nowMs: number, limit: number) =>
      withEvent(sql`
        receiver_id = ${receiverId} and state = 'waiting' and next_at <= ${nowMs} order by next_at limit ${limit}`),
    /** Claims deliveries until a time, by counting an attempt. Returns those that no other node claimed before. */
    async claimDeliveries(due: readonly EventDelivery[], untilMs: number): Promise<EventDelivery[]> {
      const changed = await write(
        due.map(
          ({ delivery: { id, attempts, nextAtMs } }) => sql`
            update delivery set attempt_count = ${attempts + 1}, next_at = ${untilMs}
            where id = ${id} and state = 'waiting' and attempt_count = ${attempts} and next_at = ${nextAtMs}`,
        ),
      );
      return due.filter((_, index) => changed[index] === 1);
    },
    /** Writes the result of an attempt, and since when the receiver fails. */
    async recordAttempt(ids: readonly string[], { receiverId, atMs, isDelivered, result, nextAtMs }: Attempted) {
      const state = isDelivered ? "delivered" : nextAtMs === null ? "failed" : "waiting";
      const change = DELIVERY.set({ state, attemptedAtMs: atMs, result, ...(nextAtMs !== null && { nextAtMs }) });
      const failing = isDelivered ? sql`null` : sql`coalesce(failing_since, ${atMs})`;
      await write([
        sql`update delivery set ${change} where id in (${join(ids)}) and state = 'waiting'`,
        sql`update receiver set failing_since = ${failing} where id = ${receiverId}`,
      ]);
    },
    deliveries: ({ organizationId, receiverId, state, before, limit }: DeliveryPage) =>
      withEvent(
        sql`${allOf(
          equal({ receiver_id: receiverId, state }),
          organizationId !== null &&
            sql`(receiver_id in (select id from receiver where organization_id = ${organizationId})
              or receiver_id = ${`${CONTACTS_ID}${organizationId}`})`,
          isBefore("delivery", before),
        )} order by created_at desc, id desc limit ${limit}`,
      ),
    async delivery(id: string): Promise<EventDelivery | undefined> {
      return (await withEvent(sql`id = ${id}`))[0];
    },
    /** Lets a delivery begin again at a time. Returns false if it does not exist. */
    replayDelivery(id: string, atMs: number, audit: AuditRow): Promise<boolean> {
      const replay = DELIVERY.set({ state: "waiting", attempts: 0, nextAtMs: atMs });
      return writeIf([sql`update delivery set ${replay} where id = ${id}`], recordOf(audit));
    },
    /** Counts the deliveries to enabled receivers that wait or failed, with the creation time of the oldest that waits. */
    async deliveryState(): Promise<{ waiting: number; failed: number; oldestAtMs: number | null }> {
      const [row] = await read<Record<string, bigint | null>>(sql`
        select count(case when state = 'waiting' then 1 end) as waiting, count(case when state = 'failed' then 1 end) as failed,
          min(case when state = 'waiting' then created_at end) as oldest
        from delivery
        where state <> 'delivered' and receiver_id not in (select id from receiver where disabled_at is not null)`);
      const { waiting, failed, oldest = null } = row ?? {};
      return { waiting: Number(waiting), failed: Number(failed), oldestAtMs: oldest === null ? null : Number(oldest) };
    },
  };
}
