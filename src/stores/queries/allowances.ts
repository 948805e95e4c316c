import { type AllowanceRow, periodAt } from "../../credits/allowance.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { Database, IdPage } from "../database.ts";
import { ALLOWANCE } from "../schema.ts";
import { equal, type Sql, sql } from "../sql.ts";
import { recordOf } from "./admin.ts";

type AllowanceKey = Pick<AllowanceRow, "organizationId" | "id">;
/** Monthly allowances. Their grants are made through the books. */
export function allowanceRows({ find, findRow, findRows, now, write, writeIf }: Database) {
  return {
    /** Writes an allowance with its audit record and returns it, or returns the organization's allowance of the same reference. */
    async insert(row: AllowanceRow, audit?: AuditRow): Promise<AllowanceRow> {
      const { organizationId, reference } = row;
      const record = recordOf(audit, { allowance: [row] });
      if (reference === null) {
        await write([ALLOWANCE.insert(row), ...record]);
        return row;
      }
      const conflict = sql`on conflict (organization_id, reference) where reference is not null do nothing`;
      await writeIf([sql`${ALLOWANCE.insert(row)} ${conflict}`], record);
      const found = await findRow(ALLOWANCE)`
        select * from allowance where ${equal({ organization_id: organizationId, reference })}`;
      if (found === undefined) throw new Error("the allowance that was written is missing");
      return found;
    },
    /** Returns an allowance of an organization, or of any (null). */
    find: (organizationId: string | null, id: string) =>
      findRow(ALLOWANCE)`select * from allowance where ${equal({ organization_id: organizationId, id })}`,
    /** Returns the allowances of an organization, or of all (null), in the order of their ids. */
    async list({ organizationId, after, limit }: IdPage & { organizationId: string | null }): Promise<AllowanceRow[]> {
      const wanted = sql`id > ${after ?? ""} and ${equal({ organization_id: organizationId })}`;
      return findRows(ALLOWANCE)`select * from allowance where ${wanted} order by id limit ${limit}`;
    },
    /** Ends an allowance. Returns false if it does not exist or has ended; then nothing is written. */
    async end({ organizationId, id }: AllowanceKey, atMs: number, audit?: AuditRow): Promise<boolean> {
      const end = sql`
        update allowance set ended_at = ${atMs}
        where organization_id = ${organizationId} and id = ${id} and ended_at is null`;
      return writeIf([end], recordOf(audit, { allowance: [{ id, endedAtMs: atMs }] }));
    },
    /** Finds allowances whose next month begins within `aheadMs` by the store's clock, the most overdue first; none paused. */
    async due({ aheadMs, limit }: { aheadMs: number; limit: number }) {
      const rows = await find(sql`
        select *, ${now()} as now from allowance
        where ended_at is null and next_at <= ${now()} + ${aheadMs}
          and organization_id not in (select id from organization where pauses_allowances = 1)
        order by next_at limit ${limit}`);
      return { nowMs: Number(rows[0]?.now ?? 0n), rows: rows.map(ALLOWANCE.fromRecord) };
    },
    /** Moves the beginning of the next month, unless another process has moved it. */
    async advance({ organizationId, id, nextAtMs }: AllowanceKey & Pick<AllowanceRow, "nextAtMs">, toMs: number) {
      await write([
        sql`
          update allowance set next_at = ${toMs}
          where organization_id = ${organizationId} and id = ${id} and next_at = ${nextAtMs}`,
      ]);
    },
  };
}

/** Returns the writes with which the allowances of an organization skip the months that have begun and were not granted. */
export async function skipsOfMonths({ find, now }: Database, organizationId: string): Promise<Sql[]> {
  const rows = await find(sql`select *, ${now()} as now from allowance where organization_id = ${organizationId}`);
  return rows.flatMap((row) => {
    const nowMs = Number(row.now);
    const { id, anchorAtMs, nextAtMs } = ALLOWANCE.fromRecord(row);
    if (nextAtMs > nowMs) return [];
    const { endMs } = periodAt(anchorAtMs, nowMs);
    return [sql`update allowance set next_at = ${endMs} where organization_id = ${organizationId} and id = ${id}`];
  });
}
