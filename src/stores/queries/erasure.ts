import type { AuditRow, StoredAuditRow } from "../../credits/audit.ts";
import * as admin from "../admin-schema.ts";
import { type Database, listsOf } from "../database.ts";
import * as schema from "../schema.ts";
import { join, type Sql, sql } from "../sql.ts";
import { MONTHLY_STATEMENT } from "../statement-schema.ts";
import type { TableShape } from "../table.ts";
import { recordOf } from "./admin.ts";
import { budgetsChange } from "./budgets.ts";

const { ADMIN_SESSION, AUDIT_ENTRY, DELIVERY, SHORT_TOKEN, withChecksum } = admin;
const { BALANCE, ORGANIZATION, TOKEN } = schema;

const REMOVED = [
  ...[schema.KEY, schema.BROKEN_ATTEMPT, schema.NEW_VALUES, schema.BUDGET_USE, schema.BUDGET],
  ...[admin.CONVERSATION, admin.RESPONSE_ITEM, admin.REFUSAL, admin.EVENT, admin.RECEIVER],
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
          (select max(created_at) from credit_grant ${of}) as granted_at,
          (select max(made_at) from adjustment ${of}) as adjusted_at,
          (select max(month) from month_digest ${of}) as month`);
      const time = (...cells: unknown[]) => Math.max(...cells.map(Number)) || null;
      const { request_id = null, granted_at, adjusted_at, month } = row ?? {};
      return { requestId: request_id as string | null, bookedAtMs: time(granted_at, adjusted_at), month: time(month) };
    },
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
    async scrub(organizationId: string): Promise<void> {
      const of = sql`organization_id = ${organizationId}`;
      // First, because the rows that follow lead to them.
      await scrubIdentities(database, of);
      await scrubAudit(database, sql`${of} and action <> 'organization.erase'`);
      await scrubAudit(database, sql`action like 'identity.%' and subject_id not in (select id from identity)`);
      await removeRows(database, of, organizationId);
      await database.write(updatesOf(of, organizationId));
      await scrubStatements(database, of);
    },
  };
}

/** Erases people and callers whom nothing of another organization, or of the whole service, refers to. Blocked ones stay blocked. */
async function scrubIdentities(database: Database, of: Sql): Promise<void> {
  const rows = await database.read<{ id: string }>(sql`
    select id from identity
    where id not in (select created_by from token where created_by is not null and not ${of})
      and id not in (select rotated_by from token where rotated_by is not null and not ${of})
      and id not in (select actor_id from audit_entry where actor_id is not null and (organization_id is null or not ${of}))`);
  for (const some of listsOf(rows, CHUNK_ROWS)) {
    const named = sql`id in (${join(some.map(({ id }) => id))})`;
    await database.write([
      sql`update identity set name = null where ${named} and blocked_at is not null`,
      sql`delete from identity where ${named} and blocked_at is null`,
    ]);
  }
}

/** Erases the details of audit records, and who of the organization made the change. */
async function scrubAudit(database: Database, condition: Sql): Promise<void> {
  for (let after = ""; ; ) {
    const found = await database.findRows(AUDIT_ENTRY)`
      select * from audit_entry where ${condition} and id > ${after} order by id limit ${CHUNK_ROWS}`;
    if (found.length === 0) return;
    after = found.at(-1)?.id ?? after;
    const update = (entry: StoredAuditRow) =>
      sql`update audit_entry set ${AUDIT_ENTRY.set(withoutDetails(entry))} where id = ${entry.id}`;
    await database.write(found.map(update));
  }
}

const OF_SERVICE: readonly string[] = ["operator", "auditor", "command", "service"];

function withoutDetails({ checksum: _, ...entry }: StoredAuditRow): StoredAuditRow {
  const { actorKind, actorId, subjectId } = entry;
  const nobody = { actorId: null, actorName: null, address: null, subjectId: subjectId === actorId ? null : subjectId };
  const actor = OF_SERVICE.includes(actorKind) ? {} : nobody;
  return withChecksum({ ...entry, ...actor, before: null, after: null, rows: null });
}

async function removeRows(database: Database, of: Sql, organizationId: string): Promise<void> {
  const events = sql`event_key in (select event_key from event where ${of})`;
  await removeAll(database, DELIVERY, sql`(${events} or receiver_id in (select id from receiver where ${of}))`);
  for (const table of REMOVED) await removeAll(database, table, of);
  const tokens = sql`token_id in (select id from token where ${of})`;
  await removeAll(database, SHORT_TOKEN, tokens);
  const person = `%"organizationId":"${organizationId}"%`;
  await removeAll(database, ADMIN_SESSION, sql`(${tokens} or person like ${person})`);
}

async function removeAll(database: Database, table: TableShape, condition: Sql): Promise<void> {
  while ((await database.remove(table, condition, CHUNK_ROWS)) >= CHUNK_ROWS);
}

function updatesOf(of: Sql, organizationId: string): Sql[] {
  const none = { createdBy: null, rotatedBy: null, pinned: null, models: null, limits: null };
  // Those of vouchers and allowances consist of ids, by which a verification finds what the grants belong to.
  const isOwn = sql`id in ('grant_' || reference, replace(replace(reference, 'allowance/', ''), '/', '_'))`;
  return [
    budgetsChange(organizationId),
    sql`update token set ${TOKEN.set({ name: ERASED, ...none })} where ${of}`,
    sql`update credit_grant set reference = case when ${isOwn} then reference end where ${of}`,
    sql`update adjustment set note = null, budgets = null,
      reference = case when id = reference || '_ended' then reference end where ${of}`,
    sql`update allowance set reference = null where ${of}`,
    sql`update top_up set card = null, revision = revision + 1 where ${of}`,
    sql`update admin_idempotency_key set state = 'interrupted', status = null, answer = null
      where state = 'answered' and answer like ${`%${organizationId}%`}`,
  ];
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
    const change = MONTHLY_STATEMENT.set({ details: withoutNames });
    await database.write([sql`update monthly_statement set ${change} where number = ${number}`]);
  }
}
