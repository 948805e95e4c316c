import { isDeepStrictEqual } from "node:util";
import type { AuditRow, StoredAuditRow } from "../../credits/audit.ts";
import * as admin from "../admin-schema.ts";
import { type Database, listsOf } from "../database.ts";
import * as schema from "../schema.ts";
import { join, raw, type Sql, sql } from "../sql.ts";
import type { Table, TableShape } from "../table.ts";
import { recordOf } from "./admin.ts";
import { budgetsChange } from "./budgets.ts";

const { ADMIN_SESSION, AUDIT_ENTRY, DELIVERY, MONTHLY_STATEMENT, withChecksum } = admin;
const { ADJUSTMENT, ALLOWANCE, BALANCE, GRANT, ORGANIZATION, TOKEN } = schema;

/** Requests and the answers of an `Idempotency-Key` are not among them: retention removes those by itself. */
const REMOVED = [
  ...[schema.NEW_VALUES, schema.BUDGET_USE, admin.CONVERSATION, admin.RESPONSE_ITEM],
  ...[admin.REFUSAL, admin.EVENT, admin.RECEIVER],
];
/** In place of a name. */
const ERASED = "Erased";
/** Rows that are read or removed at once: few, because some are large and all other writers wait. */
const CHUNK_ROWS = 100;

/**
 * Erasure of a closed organization: names, texts and what people sent go; ids, amounts, times and digests stay. `mark` is one
 * transaction; `scrub` works in small steps, each of which can be repeated.
 */
export function erasureRows(database: Database) {
  return {
    /** Returns the last id of a stored request, and the times of the last other booking and of the last month with a digest. */
    async lastRows(organizationId: string) {
      const of = sql`where organization_id = ${organizationId}`;
      const [row] = await database.read<Record<string, unknown>>(sql`
        select (select max(id) from (select id from request ${of} union all select id from hold ${of}) as rows) as request_id,
          (select max(at) from (select created_at as at from credit_grant ${of}
            union all select made_at from adjustment ${of}) as bookings) as booked_at,
          (select max(month) from month_digest ${of}) as month`);
      const time = (cell: unknown) => (cell === null || cell === undefined ? null : Number(cell));
      const { request_id = null, booked_at, month } = row ?? {};
      return { requestId: request_id as string | null, bookedAtMs: time(booked_at), month: time(month) };
    },
    /** Yields the ids of the organizations that were erased since a time. */
    recent: (sinceMs: number) => database.organizationIds(sql`erased_at >= ${sinceMs}`),
    /** Erases the organization's own rows. Returns false if that was done before, or it is not closed; then nothing is written. */
    mark(id: string, erasedAtMs: number, audit: AuditRow): Promise<boolean> {
      const terms = { limits: null, tokenBounds: null, models: null, aliases: null, priceList: null };
      const erased = { name: ERASED, ...terms, externalId: null, contacts: null, note: null, erasedAtMs };
      const changes = [
        sql`update organization set ${ORGANIZATION.set(erased)} where id = ${id} and status = 'closed' and erased_at is null`,
        sql`update balance set ${BALANCE.set({ warnAt: null })} where organization_id = ${id}`,
      ];
      const rows = { organization: [{ id, ...erased }], balance: [{ id, warnAt: null }] };
      return database.writeIf(changes, recordOf(audit, rows));
    },
    /** Erases everything else. A repetition writes nothing, except for what was written since. */
    async scrub(organizationId: string): Promise<void> {
      const of = sql`organization_id = ${organizationId}`;
      // First, because the tokens and audit records that lead to them lose their names later.
      await scrubIdentities(database, of);
      await scrubAudit(database, sql`${of} and action <> 'organization.erase' and (${HAS_DETAILS} or ${IS_BY_PEOPLE})`);
      await removeRows(database, of, organizationId);
      await updateRows(database, of);
      await scrubStatements(database, of);
    },
  };
}

/** Those whom audit records still name after an erasure. */
const OF_SERVICE: readonly string[] = ["operator", "auditor", "command", "service"];
const HAS_DETAILS = sql`before is not null or after is not null or written_rows is not null`;
const IS_BY_PEOPLE = sql`(
  actor_kind not in (${join(OF_SERVICE)}) and coalesce(actor_id, actor_name, address) is not null)`;

/**
 * Erases the people and callers who used the organization, unless another organization or the service refers to them. Blocked
 * ones stay blocked.
 */
async function scrubIdentities(database: Database, of: Sql): Promise<void> {
  const rows = await database.read<{ id: string }>(sql`
    select id from identity
    where id in (
        select created_by from token where ${of} union select rotated_by from token where ${of}
        union select actor_id from audit_entry where ${of} and ${IS_BY_PEOPLE})
      and not exists (select 1 from token where created_by = identity.id and not ${of})
      and not exists (select 1 from token where rotated_by = identity.id and not ${of})
      and not exists (
        select 1 from audit_entry
        where actor_id = identity.id and (organization_id is null or not (${of} and ${IS_BY_PEOPLE})))`);
  for (const some of listsOf(rows, CHUNK_ROWS)) {
    const named = sql`id in (${join(some.map(({ id }) => id))})`;
    const isRemoved = sql`${named} and blocked_at is null`;
    // Before the identities, which a repetition after a failure could not find any more.
    const ofRemoved = sql`subject_id in (select id from identity where ${isRemoved}) and (${HAS_DETAILS})`;
    await scrubAudit(database, sql`action in ('identity.block', 'identity.unblock') and ${ofRemoved}`);
    await database.write([
      sql`update identity set name = null where ${named} and blocked_at is not null and name is not null`,
      sql`delete from identity where ${isRemoved}`,
    ]);
  }
}

/** Erases the details of audit records, and who of the organization made the change. */
async function scrubAudit(database: Database, condition: Sql): Promise<void> {
  await rewrite(database, AUDIT_ENTRY, condition, (entries) =>
    entries.map((entry) => {
      return sql`update audit_entry set ${AUDIT_ENTRY.set(withoutDetails(entry))} where id = ${entry.id}`;
    }),
  );
}

/** Reads the rows that meet a condition in the order of their ids, some at once, and writes what `writesOf` makes of these. */
async function rewrite<Row extends { id: string }>(
  database: Database,
  table: Table<Row>,
  condition: Sql,
  writesOf: (rows: readonly Row[]) => Sql[],
): Promise<void> {
  for (let after = ""; ; ) {
    const rows = await database.readRows(table)`
      select * from ${raw(table.name)} where ${condition} and id > ${after} order by id limit ${CHUNK_ROWS}`;
    if (rows.length === 0) return;
    after = rows.at(-1)?.id ?? after;
    await database.write(writesOf(rows));
  }
}

function withoutDetails({ checksum: _, ...entry }: StoredAuditRow): StoredAuditRow {
  const { actorKind, actorId, subjectId } = entry;
  const erasedActor = {
    actorId: null,
    actorName: null,
    address: null,
    subjectId: subjectId === actorId ? null : subjectId,
  };
  const actor = OF_SERVICE.includes(actorKind) ? {} : erasedActor;
  return withChecksum({ ...entry, ...actor, before: null, after: null, rows: null });
}

async function removeRows(database: Database, of: Sql, organizationId: string): Promise<void> {
  const events = sql`event_key in (select event_key from event where ${of})`;
  await removeAll(database, DELIVERY, sql`(${events} or receiver_id in (select id from receiver where ${of}))`);
  for (const table of REMOVED) await removeAll(database, table, of);
  await database.writeIf([budgetsChange(organizationId), sql`delete from budget where ${of}`], []);
  await removeAll(database, ADMIN_SESSION, sql`token_id in (select id from token where ${of})`);
  const sessions = await database.readRows(ADMIN_SESSION)`select * from admin_session where person is not null`;
  for (const { hash } of sessions.filter(({ person }) => person?.organizationId === organizationId)) {
    await database.write([sql`delete from admin_session where hash = ${hash}`]);
  }
}

async function removeAll(database: Database, table: TableShape, condition: Sql): Promise<void> {
  while ((await database.remove(table, condition, CHUNK_ROWS)) >= CHUNK_ROWS);
}

async function updateRows(database: Database, of: Sql): Promise<void> {
  const none = { createdBy: null, rotatedBy: null, pinned: null, models: null, limits: null };
  // Those of vouchers and allowances consist of ids, by which a verification finds what the grants belong to.
  const isOwn = sql`id in ('grant_' || reference, replace(replace(reference, 'allowance/', ''), '/', '_'))`;
  const isEnd = sql`id = reference || '_ended'`;
  const adjusted = sql`note = null, budgets = null, reference = case when ${isEnd} then reference end`;
  const named = sql`(name <> ${ERASED} or coalesce(created_by, rotated_by, pinned, models, limits) is not null)`;
  const update = <Row extends { id: string }>(table: Table<Row>, change: Sql, left: Sql) => {
    const condition = sql`${of} and ${left}`;
    return rewrite(database, table, condition, (rows) => {
      const ids = join(rows.map(({ id }) => id));
      return [sql`update ${raw(table.name)} set ${change} where ${condition} and id in (${ids})`];
    });
  };
  await update(TOKEN, TOKEN.set({ name: ERASED, ...none }), named);
  await update(GRANT, sql`reference = null`, sql`reference is not null and not ${isOwn}`);
  const noted = sql`(coalesce(note, budgets) is not null or (reference is not null and not ${isEnd}))`;
  await update(ADJUSTMENT, adjusted, noted);
  await update(ALLOWANCE, sql`reference = null`, sql`reference is not null`);
  await database.write([sql`update top_up set card = null, revision = revision + 1 where ${of} and card is not null`]);
}

async function scrubStatements(database: Database, of: Sql): Promise<void> {
  for (const { number, details } of await database.readRows(MONTHLY_STATEMENT)`
      select * from monthly_statement where ${of}`) {
    const withoutNames = {
      ...details,
      customer: { name: ERASED, external_id: null, contacts: [] },
      bookings: details.bookings.map((line) => ({ ...line, reference: null, note: null })),
      tokens: details.tokens.map((line) => ({ ...line, token_name: null })),
    };
    if (isDeepStrictEqual(withoutNames, details)) continue;
    const change = MONTHLY_STATEMENT.set({ details: withoutNames });
    await database.write([sql`update monthly_statement set ${change} where number = ${number}`]);
  }
}
