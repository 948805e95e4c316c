import { sql } from "kysely";
import { balanceFromTable, eventFromTable, grantFromTable } from "./rows.ts";
import type { Books, StatementEntry } from "./store.ts";
import type { PortableDatabase } from "./tables.ts";
import { verifyOrganization } from "./verify.ts";

/** What is read beside the transitions, the same for both stores. */
export function bookReads(database: PortableDatabase): Omit<Books, "apply"> {
  const { kysely } = database;
  return {
    async overdueHolds({ afterHoldId, limit }) {
      let query = kysely
        .selectFrom("hold")
        .select(["organization_id", "id"])
        .where("state", "=", sql.lit("open"))
        .where("expires_at", "<", database.now())
        .orderBy("id")
        .limit(limit);
      if (afterHoldId !== null) query = query.where("id", ">", afterHoldId);
      return (await query.execute()).map((row) => ({ organizationId: row.organization_id, holdId: row.id }));
    },
    async balance(organizationId) {
      const row = await kysely
        .selectFrom("balance")
        .selectAll()
        .where("organization_id", "=", organizationId)
        .executeTakeFirst();
      return row && balanceFromTable(row);
    },
    async lastClosedDay(organizationId) {
      const row = await kysely
        .selectFrom("closing")
        .select("charged_day")
        .where("organization_id", "=", organizationId)
        .orderBy("charged_day", "desc")
        .limit(1)
        .executeTakeFirst();
      return row && Number(row.charged_day);
    },
    async statement(organizationId, { after, limit }) {
      const from = after === null ? undefined : parsePosition(after);
      const [grants, charges] = await Promise.all([
        grantEntries(database, organizationId, from, limit),
        chargeEntries(database, organizationId, from, limit),
      ]);
      return [...grants, ...charges].sort(byTimeAndKind).slice(0, limit);
    },
    async removeOldKeys(limit) {
      const old = sql`(
        select organization_id, key from idempotency_key where expires_at <= ${database.now()} limit ${sql.lit(limit)}
      )`;
      // Tested again: another process may have begun to use the key anew since the look.
      const result = await kysely
        .deleteFrom("idempotency_key")
        .where(sql<boolean>`(organization_id, key) in ${old}`)
        .where("expires_at", "<=", database.now())
        .executeTakeFirst();
      return Number(result.numDeletedRows);
    },
    verify: (organizationId) => verifyOrganization(database, organizationId),
  };
}

/** Where an entry stands: its time, grants before charges of the same millisecond, then its key. */
interface Position {
  atMs: bigint;
  kind: StatementEntry["kind"];
  sequence: number;
  id: string;
}

const POSITION = /^(\d{1,16}):(grant|charge):([01]):(.+)$/s;

function parsePosition(text: string): Position {
  const match = POSITION.exec(text);
  if (match === null) throw new RangeError(`"${text}" is not a position in a statement.`);
  const [, atMs = "", kind, sequence, id = ""] = match;
  return { atMs: BigInt(atMs), kind: kind === "grant" ? "grant" : "charge", sequence: Number(sequence), id };
}

async function grantEntries(
  { kysely }: PortableDatabase,
  organizationId: string,
  from: Position | undefined,
  limit: number,
): Promise<StatementEntry[]> {
  let query = kysely
    .selectFrom("credit_grant")
    .selectAll()
    .where("organization_id", "=", organizationId)
    .orderBy("created_at")
    .orderBy("id")
    .limit(limit);
  if (from?.kind === "grant") query = query.where(sql<boolean>`(created_at, id) > (${from.atMs}, ${from.id})`);
  else if (from !== undefined) query = query.where("created_at", ">", from.atMs);
  return (await query.execute()).map((row) => ({
    kind: "grant",
    position: `${row.created_at}:grant:0:${row.id}`,
    atMs: Number(row.created_at),
    grant: grantFromTable(row),
  }));
}

async function chargeEntries(
  { kysely }: PortableDatabase,
  organizationId: string,
  from: Position | undefined,
  limit: number,
): Promise<StatementEntry[]> {
  let query = kysely
    .selectFrom("usage_event")
    .selectAll()
    .where("organization_id", "=", organizationId)
    .orderBy("charged_at")
    .orderBy("hold_id")
    .orderBy("sequence")
    .limit(limit);
  if (from !== undefined) query = query.where("charged_at", ">=", from.atMs);
  if (from?.kind === "charge") {
    query = query.where(
      sql<boolean>`(charged_at, hold_id, sequence) > (${from.atMs}, ${from.id}, ${BigInt(from.sequence)})`,
    );
  }
  return (await query.execute()).map((row) => ({
    kind: "charge",
    position: `${row.charged_at}:charge:${row.sequence}:${row.hold_id}`,
    atMs: Number(row.charged_at),
    event: eventFromTable(row),
  }));
}

/** Either kind is sorted already, by the store; the sort is stable. */
function byTimeAndKind(a: StatementEntry, b: StatementEntry): number {
  if (a.atMs !== b.atMs) return a.atMs - b.atMs;
  if (a.kind === b.kind) return 0;
  return a.kind === "grant" ? -1 : 1;
}
