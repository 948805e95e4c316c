import { sql } from "kysely";
import { BALANCE } from "../schema.ts";
import type { Books, HoldSearch, SeenHold } from "../store.ts";
import type { PortableDatabase } from "../tables.ts";
import { read } from "./directory.ts";
import { openingBalance, recordBalances } from "./opening-balances.ts";
import { statementPage } from "./statement.ts";
import { verifyOrganization, verifyOwners } from "./verify.ts";

/** What is read beside the transitions, the same for both stores. */
export function bookReads(database: PortableDatabase): Omit<Books, "apply"> {
  const { kysely } = database;
  return {
    recoverableHolds: (search) => recoverableHolds(database, search),
    async balance(organizationId) {
      const row = await kysely
        .selectFrom("balance")
        .selectAll()
        .where("organization_id", "=", organizationId)
        .executeTakeFirst();
      return row && BALANCE.fromRecord(row);
    },
    async dueOrganizations({ after, limit }) {
      let query = kysely
        .selectFrom("balance")
        .select("organization_id")
        .where("next_change_at", "is not", null)
        .where("next_change_at", "<=", database.now())
        .orderBy("organization_id")
        .limit(limit);
      if (after !== null) query = query.where("organization_id", ">", after);
      return (await read<{ organization_id: string }>(database, query)).map((row) => row.organization_id);
    },
    statement: (organizationId, page) => statementPage(database, organizationId, page),
    openingBalance: (organizationId, beforeMs) => openingBalance(database, organizationId, beforeMs),
    recordBalances: (organizationId) => recordBalances(database, organizationId),
    async pendingCredits(organizationId) {
      const row = await kysely
        .selectFrom("credit_grant")
        .select(sql<bigint>`cast(coalesce(sum(amount - revoked), 0) as bigint)`.as("pending"))
        .where("organization_id", "=", organizationId)
        .where("state", "=", sql.lit("pending"))
        .executeTakeFirst();
      return row?.pending ?? 0n;
    },
    async removeOldKeys(limit) {
      const now = database.now();
      const remove = async (table: "idempotency_key" | "admin_idempotency_key", owner: "organization_id" | "scope") => {
        const [from, columns] = [sql.table(table), sql`${sql.ref(owner)}, key`];
        const old = sql`select ${columns} from ${from} where expires_at <= ${now} limit ${sql.lit(limit)}`;
        // Tested again: another process may have claimed the key again since the look.
        const removal = sql`delete from ${from} where (${columns}) in (${old}) and expires_at <= ${now}`;
        return Number((await removal.execute(kysely)).numAffectedRows ?? 0n);
      };
      return (await remove("idempotency_key", "organization_id")) + (await remove("admin_idempotency_key", "scope"));
    },
    verify: (organizationId) => verifyOrganization(database, organizationId),
    verifyOwners: () => verifyOwners(database),
  };
}

async function recoverableHolds(
  database: PortableDatabase,
  { lifeMs, owners, afterHoldId, limit }: HoldSearch,
): Promise<{ nowMs: number; holds: SeenHold[] }> {
  const now = database.now();
  let query = database.kysely
    .selectFrom("hold")
    .select(["organization_id", "id", "owner", "expires_at", now.as("now")])
    .where((where) => {
      const either = [
        where("expires_at", "<=", now),
        where("expires_at", ">", sql<bigint>`${now} + ${sql.lit(lifeMs)}`),
      ];
      if ("allBut" in owners) either.push(where("owner", "<>", owners.allBut));
      else if (owners.only.length > 0) either.push(where("owner", "in", owners.only));
      return where.or(either);
    })
    .orderBy("id")
    .limit(limit);
  if (afterHoldId !== null) query = query.where("id", ">", afterHoldId);
  const rows = await query.execute();
  const holds = rows.map(({ organization_id: organizationId, id: holdId, owner, expires_at }) => {
    return { organizationId, holdId, owner, expiresAtMs: Number(expires_at) };
  });
  return { nowMs: Number(rows[0]?.now ?? 0), holds };
}
