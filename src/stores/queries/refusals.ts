import { type Selectable, sql } from "kysely";
import { idAt } from "../../credits/request-id.ts";
import type { RefusalEntry, RefusalRow, RefusalRows, RefusalSearch } from "../refusal-store.ts";
import type { PortableDatabase, RefusalTable } from "../tables.ts";
import { read } from "./directory.ts";

type RefusalWithNames = Selectable<RefusalTable> & { organization_name: string; token_name: string | null };

/** The rows of refusals, the same for both stores. */
export function refusalRows(database: PortableDatabase): RefusalRows {
  const { kysely, write } = database;
  return {
    async insert(rows) {
      // A statement a row: its text is always the same.
      await write(
        rows.map((row) => kysely.insertInto("refusal").values(toTable(row)).compile()),
        "lazy",
      );
    },
    async search(search) {
      return (await read<RefusalWithNames>(database, searchQuery(database, search))).map(fromTable);
    },
    async find(id) {
      const [row] = await read<RefusalWithNames>(database, refusalQuery(database).where("refusal.id", "=", id));
      return row && fromTable(row);
    },
    async removeBefore(timeMs, limit) {
      const some = sql`select organization_id, id from refusal where id < ${idAt(timeMs)} limit ${sql.lit(limit)}`;
      const query = sql`delete from refusal where (organization_id, id) in (${some})`;
      const [removed = 0] = await write([query.compile(kysely)], "lazy");
      return removed;
    },
  };
}

function searchQuery(database: PortableDatabase, search: RefusalSearch) {
  let query = refusalQuery(database).orderBy("refusal.id", "desc").limit(search.limit);
  if (search.before !== null) query = query.where("refusal.id", "<", search.before);
  if (search.toMs !== null) query = query.where("refusal.id", "<", idAt(search.toMs));
  if (search.fromMs !== null) query = query.where("refusal.id", ">=", idAt(search.fromMs));
  if (search.organizationId !== null) query = query.where("refusal.organization_id", "=", search.organizationId);
  if (search.tokenId !== null) query = query.where("refusal.token_id", "=", search.tokenId);
  if (search.model !== null) query = query.where("refusal.model", "=", search.model);
  if (search.requestId !== null) query = query.where("refusal.request_id", "=", search.requestId);
  return query;
}

function refusalQuery({ kysely }: PortableDatabase) {
  return kysely
    .selectFrom("refusal")
    .innerJoin("organization", "organization.id", "refusal.organization_id")
    .leftJoin("token", (join) =>
      join.onRef("token.organization_id", "=", "refusal.organization_id").onRef("token.id", "=", "refusal.token_id"),
    )
    .selectAll("refusal")
    .select(["organization.name as organization_name", "token.name as token_name"]);
}

function toTable(row: RefusalRow) {
  return {
    organization_id: row.organizationId,
    id: row.id,
    token_id: row.tokenId,
    request_id: row.requestId,
    endpoint: row.endpoint,
    model: row.model,
    status: row.status,
    code: row.code,
    message: row.message,
    duration_ms: Math.round(row.durationMs),
    count: row.count,
  };
}

function fromTable(row: RefusalWithNames): RefusalEntry {
  return {
    id: row.id,
    organizationId: row.organization_id,
    organizationName: row.organization_name,
    tokenId: row.token_id,
    tokenName: row.token_name,
    requestId: row.request_id,
    endpoint: row.endpoint,
    model: row.model,
    status: Number(row.status),
    code: row.code,
    message: row.message,
    durationMs: Number(row.duration_ms),
    count: Number(row.count),
  };
}
