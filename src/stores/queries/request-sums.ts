import { timeOfId } from "../../credits/request-id.ts";
import type { Database } from "../database.ts";
import { flag, nullable, number, requiredText, signedAmount } from "../fields.ts";
import { allOf, raw, type Sql, sql } from "../sql.ts";
import { declareTable, type RowOf } from "../table.ts";
import { isMatch, type RequestFilter, type RequestValues, requestValues } from "./request-filter.ts";
import { type IdRange, isWithin, listed, type RowNames, requestQuery, walkBack } from "./requests.ts";

/** Orders of ended requests, highest first. */
export type RequestOrder = "charged" | "duration" | "tokens";
/** Key by which requests are added up. The sums by hour and by day are those of the times in their ids, in UTC. */
export type RequestGrouping =
  | { by: "organization" | "token" | "model" | "route" | "budget" | "hour" | "day" }
  | { by: "metadata"; key: string };

const GROUP_SUM = declareTable("group_sum", [], {
  /** The id, the name or the value of the group, or the beginning of its time; null for requests without one. */
  key: nullable(requiredText("key")),
  /** Name of an organization, a token or a budget. */
  name: nullable(requiredText("name")),
  /** The organization of a token or a budget. */
  organizationId: nullable(requiredText("organization_id")),
  /** True for the sums of all groups beyond the first ones. */
  isRest: flag("is_rest"),
  requests: number("requests"),
  failed: number("failed"),
  charged: signedAmount("charged"),
  inputTokens: number("input_tokens"),
  outputTokens: number("output_tokens"),
});
export type RequestGroupSum = RowOf<typeof GROUP_SUM>;

const COUNTS = ["requests", "failed", "charged", "input_tokens", "output_tokens"];
/** Groups of one stretch, those with the highest charges. */
const GROUPS_MAX = 500;
const STEPS_MS = { hour: 3_600_000, day: 86_400_000 };

/** Lists by value, and sums over requests that have ended. Both cover a period stretch by stretch, see `walkBack`. */
export function requestSumRows(database: Database) {
  const values = requestValues(database);
  return {
    /** Returns the first requests of a stretch in an order, and `next`, where the stretch before it begins. */
    async ranked(search: RequestFilter & { order: RequestOrder; before: string | null; limit: number }) {
      const { order, limit } = search;
      const { charged, durationMs: duration, inputTokens, outputTokens } = values;
      const measure = { charged, duration, tokens: sql`${inputTokens} + ${outputTokens}` }[order];
      let found: (RowNames & { measure: bigint })[] = [];
      const next = await walkBack(database, search, search, async (range) => {
        const wanted = requestQuery(allOf(isWithin(range), isMatch(values, search)), sql`, ${measure} as measure`);
        const rows = await database.read<(typeof found)[number]>(
          sql`${wanted} order by measure desc, request.id desc limit ${limit}`,
        );
        // The stretches come with the newest first, so equal ones stay in the order of their ids.
        found = [...found, ...rows].sort((a, b) => Number(b.measure - a.measure)).slice(0, limit);
      });
      return { rows: await listed(database, found), next };
    },
    /** Adds up the requests of a stretch by group, highest charge first. A group may come several times. */
    async sums(filter: RequestFilter, grouping: RequestGrouping, before: string | null) {
      const stepMs = grouping.by === "hour" || grouping.by === "day" ? STEPS_MS[grouping.by] : undefined;
      const found: RequestGroupSum[] = [];
      const next = await walkBack(database, filter, { before, stepMs }, async (range) => {
        const key = stepMs === undefined ? keyOf(database, values, grouping) : stepOf(range, stepMs);
        const rows = sql`
          select ${key.key} as key, ${key.name} as name, ${key.organizationId} as organization_id,
            case when ${values.failure} is null then 0 else 1 end as failed, ${values.charged} as charged,
            ${values.inputTokens} as input_tokens, ${values.outputTokens} as output_tokens
          from organization cross join request ${key.joined}
          where request.organization_id = organization.id and ${isWithin(range)} and ${isMatch(values, filter)}`;
        found.push(...(await database.readRows(GROUP_SUM)`${groupQuery(rows)}`));
      });
      return { groups: found, next };
    },
  };
}

interface GroupKey {
  key: Sql;
  name: Sql;
  organizationId: Sql;
  /** Further tables of the query. */
  joined: Sql;
}

const NONE = raw("cast(null as text)");

function stepOf({ to }: IdRange, stepMs: number): GroupKey {
  const startMs = Math.floor(((timeOfId(to) ?? 0) - 1) / stepMs) * stepMs;
  return { key: sql`cast(${String(startMs)} as text)`, name: NONE, organizationId: NONE, joined: sql`` };
}

function keyOf(database: Database, values: RequestValues, grouping: RequestGrouping): GroupKey {
  const owned = raw("request.organization_id");
  const named = { name: NONE, organizationId: owned, joined: sql`` };
  if (grouping.by === "organization") return { ...named, key: owned, name: raw("organization.name") };
  if (grouping.by === "token") {
    const joined = sql`left join token on token.organization_id = ${owned} and token.id = request.token_id`;
    return { ...named, key: raw("request.token_id"), name: raw("token.name"), joined };
  }
  if (grouping.by === "budget") {
    const { from, head } = database.jsonHeads(raw("request.budgets"), "used");
    const joined = sql`cross join ${from} left join budget on budget.organization_id = ${owned} and budget.id = ${head}`;
    return { ...named, key: head, name: raw("budget.name"), joined };
  }
  const own = grouping.by === "route" ? values.route : raw("request.model");
  const key = grouping.by === "metadata" ? values.metadata(grouping.key) : own;
  return { ...named, key, organizationId: NONE };
}

/** Adds up rows by group. The groups beyond the first ones are added up as one, so that the answer is bounded. */
function groupQuery(rows: Sql): Sql {
  return sql`
    with matching as (${rows}),
      sums as (select key, max(name) as name, organization_id, count(*) as requests, ${sumsOf(COUNTS.slice(1))}
        from matching group by key, organization_id),
      places as (select sums.*, row_number() over (order by charged desc, key) as place from sums)
    select key, name, organization_id, 0 as is_rest, ${raw(COUNTS.join(", "))} from places where place <= ${GROUPS_MAX}
    union all
    select ${NONE}, ${NONE}, ${NONE}, 1, ${sumsOf(COUNTS)} from places where place > ${GROUPS_MAX} having count(*) > 0`;
}

function sumsOf(columns: readonly string[]): Sql {
  return raw(columns.map((name) => `cast(sum(${name}) as bigint) as ${name}`).join(", "));
}
