import { type CompiledQuery, sql } from "kysely";
import { type AllowanceRow, periodAt } from "../../credits/allowance.ts";
import type { AuditRow } from "../../credits/audit.ts";
import type { Database, IdPage } from "../database.ts";
import { ALLOWANCE } from "../schema.ts";
import { recordOf } from "./admin.ts";

type AllowanceKey = Pick<AllowanceRow, "organizationId" | "id">;
export type AllowanceRows = ReturnType<typeof allowanceRows>;

/** Monthly allowances. Their grants are made through the books. */
export function allowanceRows(database: Database) {
  const { kysely, write, writeIf } = database;
  return {
    /**
     * Returns the organization's allowance of the same reference if there is one; otherwise writes this one with its
     * audit record and returns it.
     */
    async insert(row: AllowanceRow, audit?: AuditRow): Promise<AllowanceRow> {
      const { organizationId, reference } = row;
      const insertion = kysely.insertInto("allowance").values(ALLOWANCE.toRecord(row));
      if (reference === null) {
        await write([insertion.compile(), ...recordOf(kysely, audit)]);
        return row;
      }
      const once = insertion.onConflict((conflict) =>
        conflict.columns(["organization_id", "reference"]).where("reference", "is not", null).doNothing(),
      );
      await writeIf([once.compile()], recordOf(kysely, audit));
      const query = kysely.selectFrom("allowance").selectAll().where("organization_id", "=", organizationId);
      return ALLOWANCE.fromRecord(await query.where("reference", "=", reference).executeTakeFirstOrThrow());
    },
    /** Returns the allowances of an organization, or of all (null), in the order of their ids. */
    async list({ organizationId, after, limit }: IdPage & { organizationId: string | null }): Promise<AllowanceRow[]> {
      let query = kysely.selectFrom("allowance").selectAll().orderBy("id").limit(limit);
      if (organizationId !== null) query = query.where("organization_id", "=", organizationId);
      if (after !== null) query = query.where("id", ">", after);
      return (await query.execute()).map(ALLOWANCE.fromRecord);
    },
    /** Ends an allowance. Returns false if it does not exist or has ended; then nothing is written. */
    async end({ organizationId, id }: AllowanceKey, atMs: number, audit?: AuditRow): Promise<boolean> {
      const end = kysely
        .updateTable("allowance")
        .set({ ended_at: atMs })
        .where("organization_id", "=", organizationId)
        .where("id", "=", id)
        .where("ended_at", "is", null);
      return writeIf([end.compile()], recordOf(kysely, audit));
    },
    /**
     * Finds allowances whose next month begins within `aheadMs` by the store's clock or has begun; the most overdue
     * first. None of an organization that pauses them.
     */
    async due({ aheadMs, limit }: { aheadMs: number; limit: number }) {
      const now = database.now();
      const paused = kysely.selectFrom("organization").select("id").where("pauses_allowances", "=", 1n);
      const rows = await kysely
        .selectFrom("allowance")
        .selectAll()
        .select(now.as("now"))
        .where("ended_at", "is", null)
        .where("next_at", "<=", sql<bigint>`${now} + ${BigInt(aheadMs)}`)
        .where("organization_id", "not in", paused)
        .orderBy("next_at")
        .limit(limit)
        .execute();
      return { nowMs: Number(rows[0]?.now ?? 0n), rows: rows.map(ALLOWANCE.fromRecord) };
    },
    /** Moves the beginning of the next month, unless another process has moved it. */
    async advance({ organizationId, id, nextAtMs }: AllowanceKey & Pick<AllowanceRow, "nextAtMs">, toMs: number) {
      await kysely
        .updateTable("allowance")
        .set({ next_at: toMs })
        .where("organization_id", "=", organizationId)
        .where("id", "=", id)
        .where("next_at", "=", BigInt(nextAtMs))
        .execute();
    },
  };
}

/** Returns the writes with which the allowances of an organization skip the months that have begun and were not granted. */
export async function skipsOfMonths(database: Database, organizationId: string): Promise<CompiledQuery[]> {
  const { kysely } = database;
  const query = kysely
    .selectFrom("allowance")
    .selectAll()
    .select(database.now().as("now"))
    .where("organization_id", "=", organizationId);
  return (await query.execute()).flatMap(({ now, ...row }) => {
    const { id, anchorAtMs, nextAtMs } = ALLOWANCE.fromRecord(row);
    if (nextAtMs > Number(now)) return [];
    const skip = kysely.updateTable("allowance").set({ next_at: periodAt(anchorAtMs, Number(now)).endMs });
    return [skip.where("organization_id", "=", organizationId).where("id", "=", id).compile()];
  });
}
