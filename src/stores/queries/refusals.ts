import { sql } from "kysely";
import { idAt } from "../../credits/request-id.ts";
import { type Database, read } from "../database.ts";
import { REFUSAL } from "../schema.ts";
import type { RowOf } from "../table.ts";

export type RefusalRow = RowOf<typeof REFUSAL>;

/** A refusal with the names that a list shows. */
export interface RefusalEntry extends RefusalRow {
  organizationName: string;
  /** Null for a token that no longer exists. */
  tokenName: string | null;
}

/** Null: any. */
export interface RefusalSearch {
  organizationId: string | null;
  tokenId: string | null;
  model: string | null;
  requestId: string | null;
  fromMs: number | null;
  toMs: number | null;
  /** Ids below this one. */
  before: string | null;
  limit: number;
}

interface Names {
  organization_name: string;
  token_name: string | null;
}

export type RefusalRows = ReturnType<typeof refusalRows>;

/** Refused requests. They are removed after some days, and the books do not depend on them. */
export function refusalRows(database: Database) {
  const { kysely, write } = database;
  return {
    /** Writes rows in one transaction, which may be lost in a crash of the store. */
    async insert(rows: readonly RefusalRow[]) {
      // One statement per row, so that the text is always the same.
      await write(
        rows.map((row) =>
          kysely
            .insertInto("refusal")
            .values(REFUSAL.toRecord({ ...row, durationMs: Math.round(row.durationMs) }))
            .compile(),
        ),
        { isDurable: false, isDroppable: true },
      );
    },
    /** Returns refusals, the newest first. */
    async search(search: RefusalSearch): Promise<RefusalEntry[]> {
      return (await read<Names>(database, searchQuery(database, search))).map(entryOf);
    },
    async find(id: string): Promise<RefusalEntry | undefined> {
      const [row] = await read<Names>(database, refusalQuery(database).where("refusal.id", "=", id));
      return row && entryOf(row);
    },
    /** Removes refusals from before a time, at most `limit`; returns their number. */
    async removeBefore(timeMs: number, limit: number): Promise<number> {
      const some = sql`select organization_id, id from refusal where id < ${idAt(timeMs)} limit ${sql.lit(limit)}`;
      const query = sql`delete from refusal where (organization_id, id) in (${some})`;
      const [removed = 0] = await write([query.compile(kysely)], { isDurable: false });
      return removed;
    },
  };
}

function searchQuery(database: Database, search: RefusalSearch) {
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

function refusalQuery({ kysely }: Database) {
  return kysely
    .selectFrom("refusal")
    .innerJoin("organization", "organization.id", "refusal.organization_id")
    .leftJoin("token", (join) =>
      join.onRef("token.organization_id", "=", "refusal.organization_id").onRef("token.id", "=", "refusal.token_id"),
    )
    .selectAll("refusal")
    .select(["organization.name as organization_name", "token.name as token_name"]);
}

function entryOf(row: Names): RefusalEntry {
  return { ...REFUSAL.fromRecord(row), organizationName: row.organization_name, tokenName: row.token_name };
}
