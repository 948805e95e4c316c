import { DAY_MS } from "../../api/time.ts";
import type { StoredAuditRow } from "../../credits/audit.ts";
import * as admin from "../admin-schema.ts";
import { ALL_TABLES } from "../all-tables.ts";
import type { Database } from "../database.ts";
import type { Cell } from "../fields.ts";
import { ACCOUNT_VERSION, LATENCY_DAY, ORGANIZATION, USAGE_DAY, USAGE_DAY_DONE } from "../schema.ts";
import { join, raw, sql } from "../sql.ts";
import type { Table } from "../table.ts";
import { checkNumbers } from "./monthly-statements.ts";
import { differencesOfDay, USAGE_SUMS } from "./usage.ts";
import { Records } from "./verify-records.ts";
import { checkEach, REPORTED_MAX, soundRows, Violations } from "./verify-report.ts";

const { AUDIT_ENTRY, VOUCHER_BATCH } = admin;
const CHUNK_ROWS = 2_000;
/** A day is summed up an hour after its end at the earliest. What is booked later than this before that may be missing. */
const SUMMED_WITHIN_MS = 600_000;
/** The sums over all organizations. */
const ALL = "*";

/** Checks what belongs to no single organization: rows of unknown ones, rows that all share, and the sums of days over all. */
export async function verifyStore(database: Database): Promise<Violations> {
  const found = new Violations(ALL);
  await checkOwners(database, found);
  for (const table of SHARED) await checkForm(database, table, found);
  await checkNumbers(database, found);
  await checkBatches(database, found);
  await checkSumsOfDays(database, found);
  await checkSumsOfAll(database, found);
  return found;
}

const OWNED = ALL_TABLES.filter((table) => table !== AUDIT_ENTRY && table.columns.includes("organization_id")).map(
  ({ name }) => name,
);

/** Tables that no organization's own verification reads in full. */
const SHARED = [
  ...[ORGANIZATION, ACCOUNT_VERSION, USAGE_DAY_DONE, USAGE_DAY, LATENCY_DAY, AUDIT_ENTRY],
  ...[admin.OPERATOR, admin.IDENTITY, admin.ISSUER_KEYS, admin.ADMIN_SESSION, admin.SHORT_TOKEN, admin.ADMIN_KEY],
  ...[admin.VOUCHER, VOUCHER_BATCH],
] as unknown as Table<object>[];

async function checkOwners(database: Database, found: Violations): Promise<void> {
  const queries = OWNED.map((table) => {
    const name = raw(table);
    return sql`
      select distinct organization_id from ${name}
      where organization_id <> ${ALL} and
        not exists (select 1 from organization where organization.id = ${name}.organization_id)
      limit ${REPORTED_MAX}`;
  });
  const results = (await database.snapshot(queries)) as { organization_id: string }[][];
  for (const [index, rows] of results.entries()) {
    for (const { organization_id: organizationId } of rows) {
      found.report(10, `The table ${OWNED[index]} has rows of an organization that does not exist.`, null, {
        organizationId,
      });
    }
  }
}

/** Reads a table in the order of its key, a chunk in each snapshot. */
async function checkForm(database: Database, table: Table<object>, found: Violations): Promise<void> {
  const key = raw(table.key.join(", "));
  for (let last: Record<string, unknown> | undefined; ; ) {
    const after =
      last === undefined ? sql`1 = 1` : sql`(${key}) > (${join(table.key.map((name) => last?.[name] as Cell))})`;
    const [rows = [], [clock] = []] = await database.snapshot([
      sql`select * from ${raw(table.name)} where ${after} order by ${key} limit ${CHUNK_ROWS}`,
      sql`select ${database.now()} as now`,
    ]);
    checkEach(
      table,
      rows,
      found.report,
      Number(clock?.now),
      table.name === AUDIT_ENTRY.name ? (row) => admin.expectUnchanged(row as StoredAuditRow) : undefined,
    );
    if (rows.length < CHUNK_ROWS) return;
    last = rows.at(-1);
  }
}

/** Compares batches of vouchers with their audit records and their vouchers. Those that are redeemed are checked with the grants. */
async function checkBatches(database: Database, { report }: Violations): Promise<void> {
  const [batches = [], records = [], wrong = []] = await database.snapshot([
    sql`select * from voucher_batch`,
    sql`select * from audit_entry where organization_id is null and written_rows is not null order by id`,
    sql`
      select id from voucher_batch as batch
      where count <> (select count(*) from voucher where batch_id = batch.id) or exists (
        select 1 from voucher where batch_id = batch.id and (
          (organization_id is null) <> (redeemed_at is null)
          or (is_revoked = 1) <> (organization_id is null and batch.revoked_at is not null)))
      order by id limit ${REPORTED_MAX}`,
  ]);
  new Records(soundRows(AUDIT_ENTRY, records), report).compare(VOUCHER_BATCH, soundRows(VOUCHER_BATCH, batches));
  for (const { id } of wrong) report(20, `The number or the states of the vouchers of the batch ${id} are wrong.`);
}

/** Compares the stored sums of each day with its requests, whose rows are read once more: an earlier sum may be wrong. */
async function checkSumsOfDays(database: Database, found: Violations): Promise<void> {
  for (const { day, doneAtMs } of soundRows(USAGE_DAY_DONE, await database.read(sql`select * from usage_day_done`))) {
    if (doneAtMs < day + DAY_MS) found.report(14, `The day ${day} was summed up at ${doneAtMs}, before it was over.`);
    const query = sql`${differencesOfDay(day, doneAtMs - SUMMED_WITHIN_MS)} limit ${REPORTED_MAX}`;
    type Difference = Record<"organization_id" | "dimension" | "name", string>;
    for (const { organization_id: organizationId, dimension, name } of await database.read<Difference>(query)) {
      const message = `The sums of the day ${day} by ${dimension} ${name} are not those of its requests.`;
      found.report(14, message, null, { organizationId });
    }
  }
}

async function checkSumsOfAll(database: Database, found: Violations): Promise<void> {
  const { counts, negative, differs } = USAGE_SUMS;
  // An organization's own sums by model are also its part of the sums by organization.
  const differences = await database.read<{ day: bigint; dimension: string; name: string }>(sql`
    select day, dimension, name from (
      select day, dimension, name, ${counts} from usage_day where organization_id = ${ALL}
      union all select day, dimension, name, ${negative} from usage_day where organization_id <> ${ALL}
      union all select day, 'organization', organization_id, ${negative} from usage_day
        where organization_id <> ${ALL} and dimension = 'model'
    ) as parts
    where day in (select day from usage_day_done)
    group by day, dimension, name having ${differs} limit ${REPORTED_MAX}`);
  for (const { day, dimension, name } of differences) {
    found.report(14, `The sum of the day ${day} over all organizations by ${dimension} ${name} is not that of each.`);
  }
}
