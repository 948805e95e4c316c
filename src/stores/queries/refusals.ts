import { idAt } from "../../credits/request-id.ts";
import { REFUSAL, REFUSAL_DAY } from "../admin-schema.ts";
import type { Database } from "../database.ts";
import { allOf, equal, type Sql, sql } from "../sql.ts";
import type { RowOf } from "../table.ts";
import type { RequestFilter } from "./request-filter.ts";
import { namesIn, type RowNames } from "./requests.ts";

export type RefusalRow = RowOf<typeof REFUSAL>;
export type RefusalDayRow = RowOf<typeof REFUSAL_DAY>;

/** A refusal with the names that a list shows. */
export interface RefusalEntry extends RefusalRow {
  organizationName: string;
  /** Null for a token that no longer exists. */
  tokenName: string | null;
}

export interface RefusalSearch
  extends Pick<
    RequestFilter,
    "organizationId" | "tokenId" | "model" | "id" | "requestId" | "failure" | "fromMs" | "toMs"
  > {
  /** Ids below this one. */
  before: string | null;
  limit: number;
}

/** Refused requests. They are removed after some days, and the books do not depend on them. */
export function refusalRows({ read, readRows, remove, write }: Database) {
  const search = async (condition: Sql, limit: number): Promise<RefusalEntry[]> => {
    const rows = await read<RowNames>(sql`
      select refusal.*, organization.name as organization_name, token.name as token_name from refusal
      join organization on organization.id = refusal.organization_id
      left join token on token.organization_id = refusal.organization_id and token.id = refusal.token_id
      where ${condition} order by refusal.id desc limit ${limit}`);
    return rows.map((row) => ({ ...REFUSAL.fromRecord(row), ...namesIn(row) }));
  };
  return {
    /** Writes rows in one transaction, which may be lost in a crash of the store. */
    async insert(rows: readonly RefusalRow[]) {
      // One statement per row, so that the text is always the same.
      await write(
        rows.map((row) => REFUSAL.insert({ ...row, durationMs: Math.round(row.durationMs) })),
        { isDurable: false, isDroppable: true },
      );
    },
    /** Adds refusals to the counts of their days; a crash of the store may lose them. */
    async addToDays(rows: readonly RefusalDayRow[]) {
      const statements = rows.map(
        (row) => sql`${REFUSAL_DAY.insert(row)}
          on conflict (organization_id, day, code) do update set requests = refusal_day.requests + excluded.requests`,
      );
      await write(statements, { isDurable: false });
    },
    /** Returns the counts of an organization, or of all ('*'), for the days from `fromDay` to `toDay` inclusive. */
    days: (organizationId: string, fromDay: number, toDay: number): Promise<RefusalDayRow[]> =>
      readRows(REFUSAL_DAY)`select * from refusal_day
          where organization_id = ${organizationId} and day >= ${fromDay} and day <= ${toDay}`,
    /** Returns the organizations with the most refusals with a code in the days from `fromDay` to `toDay` inclusive. */
    async organizations(code: string, { fromDay, toDay }: { fromDay: number; toDay: number }, limit: number) {
      const rows = await read<{ id: string; name: string; requests: bigint }>(sql`
        select organization.id, organization.name, cast(sum(refusal_day.requests) as bigint) as requests
        from organization cross join refusal_day
        where refusal_day.organization_id = organization.id and day >= ${fromDay} and day <= ${toDay} and code = ${code}
        group by organization.id, organization.name order by requests desc, organization.id limit ${limit}`);
      return rows.map(({ id, name, requests }) => ({ organization_id: id, name, requests: Number(requests) }));
    },
    search({ organizationId, tokenId, model, id, requestId, failure, fromMs, toMs, before, limit }: RefusalSearch) {
      const wanted = allOf(
        equal({ "refusal.organization_id": organizationId, "refusal.token_id": tokenId }),
        equal({ "refusal.id": id, "refusal.request_id": requestId }),
        equal({ "refusal.model": model, "refusal.code": failure }),
        before !== null && sql`refusal.id < ${before}`,
        toMs !== null && sql`refusal.id < ${idAt(toMs)}`,
        fromMs !== null && sql`refusal.id >= ${idAt(fromMs)}`,
      );
      return search(wanted, limit);
    },
    async find(id: string): Promise<RefusalEntry | undefined> {
      return (await search(sql`refusal.id = ${id}`, 1))[0];
    },
    /** Removes refusals from before a time, at most `limit`; returns their number. */
    removeBefore: (timeMs: number, limit: number) =>
      remove(REFUSAL, sql`id < ${idAt(timeMs)}`, limit, { isDurable: false }),
  };
}
