import { type Selectable, sql } from "kysely";
import type { AllowanceRow } from "../../credits/allowance.ts";
import { toOptionalNumber } from "../schema.ts";
import type { AllowanceRows } from "../store.ts";
import type { AllowanceTable, PortableDatabase } from "../tables.ts";
import { recordOf } from "./admin.ts";

/** The rows of allowances, the same for both stores. */
export function allowanceRows(database: PortableDatabase): AllowanceRows {
  const { kysely, write, writeIf } = database;
  return {
    async insert(row, audit) {
      const { organizationId, reference } = row;
      const insertion = kysely.insertInto("allowance").values(toTable(row));
      if (reference === null) {
        await write([insertion.compile(), ...recordOf(kysely, audit)]);
        return row;
      }
      const once = insertion.onConflict((conflict) =>
        conflict.columns(["organization_id", "reference"]).where("reference", "is not", null).doNothing(),
      );
      await writeIf([once.compile()], recordOf(kysely, audit));
      const first = await kysely
        .selectFrom("allowance")
        .selectAll()
        .where("organization_id", "=", organizationId)
        .where("reference", "=", reference)
        .executeTakeFirstOrThrow();
      return fromTable(first);
    },
    async list({ organizationId, after, limit }) {
      let query = kysely.selectFrom("allowance").selectAll().orderBy("id").limit(limit);
      if (organizationId !== null) query = query.where("organization_id", "=", organizationId);
      if (after !== null) query = query.where("id", ">", after);
      return (await query.execute()).map(fromTable);
    },
    async end({ organizationId, id }, atMs, audit) {
      const end = kysely
        .updateTable("allowance")
        .set({ ended_at: atMs })
        .where("organization_id", "=", organizationId)
        .where("id", "=", id)
        .where("ended_at", "is", null);
      return writeIf([end.compile()], recordOf(kysely, audit));
    },
    async due({ aheadMs, limit }) {
      const now = database.now();
      const rows = await kysely
        .selectFrom("allowance")
        .selectAll()
        .select(now.as("now"))
        .where("ended_at", "is", null)
        .where("next_at", "<=", sql<bigint>`${now} + ${BigInt(aheadMs)}`)
        .orderBy("next_at")
        .limit(limit)
        .execute();
      return { nowMs: Number(rows[0]?.now ?? 0n), rows: rows.map(fromTable) };
    },
    async advance({ organizationId, id, nextAtMs }, toMs) {
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

function fromTable(row: Selectable<AllowanceTable>): AllowanceRow {
  return {
    organizationId: row.organization_id,
    id: row.id,
    amount: row.amount,
    priority: Number(row.priority),
    lapses: row.lapses === 1n,
    reference: row.reference,
    anchorAtMs: Number(row.anchor_at),
    nextAtMs: Number(row.next_at),
    createdAtMs: Number(row.created_at),
    endedAtMs: toOptionalNumber(row.ended_at),
  };
}

function toTable(row: AllowanceRow) {
  return {
    organization_id: row.organizationId,
    id: row.id,
    amount: row.amount,
    priority: row.priority,
    lapses: row.lapses ? 1 : 0,
    reference: row.reference,
    anchor_at: row.anchorAtMs,
    next_at: row.nextAtMs,
    created_at: row.createdAtMs,
    ended_at: row.endedAtMs,
  };
}
