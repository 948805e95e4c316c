import { LATENCY_BOUNDS_MS } from "../../api/latency.ts";
import { DAY_MS } from "../../api/time.ts";
import type { BalanceRow } from "../../credits/books.ts";
import { decodeLines } from "../../credits/charge-lines.ts";
import { tokenTotals } from "../../credits/price.ts";
import { idAt, timeOfId } from "../../credits/request-id.ts";
import { NO_USAGE } from "../../credits/usage-counts.ts";
import { type Database, listsOf } from "../database.ts";
import { nullable, number, requiredText } from "../fields.ts";
import { HOLD, LATENCY_DAY, USAGE_COUNTS, USAGE_DAY, USAGE_DAY_DONE } from "../schema.ts";
import { equal, join, raw, type Sql, sql } from "../sql.ts";
import { declareTable, type RowOf } from "../table.ts";
import { firstRequestId, type IdRange, isWithin } from "./requests.ts";

/** Requests of one organization, token, model, route and bucket, as a query adds them up. */
const REQUEST_SUM = declareTable("request_sum", [], {
  organizationId: requiredText("organization_id"),
  tokenId: requiredText("token_id"),
  model: requiredText("model"),
  route: requiredText("route"),
  /** Index of the time to the first chunk in `LATENCY_BOUNDS_MS`; null if there was none. */
  bucket: nullable(number("bucket")),
  ...USAGE_COUNTS,
});

/** Number of requests of one model and route whose times are in the same buckets; null: without such a time. */
const LATENCY_COUNT = declareTable("latency_count", [], {
  ...{ model: requiredText("model"), route: requiredText("route"), requests: number("requests") },
  ...{ firstToken: nullable(number("first_token")), duration: nullable(number("duration")) },
});

export type LatencyCount = RowOf<typeof LATENCY_COUNT>;
export type LatencyDayRow = RowOf<typeof LATENCY_DAY>;
export type UsageDayRow = RowOf<typeof USAGE_DAY>;

export interface RequestSum extends RowOf<typeof REQUEST_SUM> {
  /** Number of requests that are still running. */
  open: number;
}

export interface UsageRange {
  organizationId: string;
  /** First milliseconds of days whose sums are stored. */
  days: readonly number[];
}

const ROWS_A_STATEMENT = 200;
const STATEMENTS_A_WRITE = 5;

/** Sums over requests, and stored sums of whole days. The books do not depend on them; they run concurrently with writes. */
export function usageRows(database: Database) {
  return { ...requestSums(database), ...days(database), ...totals(database) };
}

function requestSums(database: Database) {
  return {
    /** Adds up the requests of a period by organization, token, model, route and bucket. A combination may come several times. */
    async requests(fromMs: number, toMs: number): Promise<RequestSum[]> {
      const range = { from: idAt(fromMs), to: idAt(toMs) };
      const parts = [endedQuery(range), lateQuery(range)].map((query) => database.readRows(REQUEST_SUM)`${query}`);
      const ended = (await Promise.all(parts)).flat();
      return [...ended.map((sum) => ({ ...sum, open: 0 })), ...(await openSums(database, range))];
    },
    /** Counts the requests that began in a period, by model, route and times. A duration includes an outage of the store. */
    latencyCounts: (fromMs: number, toMs: number): Promise<LatencyCount[]> =>
      database.readRows(LATENCY_COUNT)`
        select model, route, ${bucketOf("first_token_ms")} as first_token, ${bucketOf("duration_ms")} as duration,
          count(*) as requests
        from (
          select model, upstream as route, first_token_ms,
            case when ending = 'complete' then ended_at - made_at end as duration_ms
          from organization cross join request
          where request.organization_id = organization.id and ${isWithin({ from: idAt(fromMs), to: idAt(toMs) })}
        ) as times
        group by 1, 2, 3, 4`,
    async firstRequestMs(): Promise<number | null> {
      const first = await firstRequestId(database, null);
      const open = await database.read<{ id: string | null }>(sql`select min(id) as id from hold`);
      const times = [first, open[0]?.id].flatMap((id) => (id ? (timeOfId(id) ?? []) : []));
      return times.length === 0 ? null : Math.min(...times);
    },
  };
}

/** Reads requests by key, organization by organization: a period is a range of ids. */
function endedQuery({ from, to }: IdRange) {
  return sql`
    select request.organization_id, request.token_id, request.model, request.upstream as route, ${BUCKET} as bucket, count(*) as requests,
      ${sum("case when request.failure is null then 0 else 1 end")} as errors, ${sum("request.cost")} as charged,
      ${sum("request.input_tokens")} as input_tokens,
      ${sum("request.output_tokens")} as output_tokens,
      ${sum("coalesce(request.provider_cost, 0)")} as provider_cost,
      ${sum("case when request.provider_cost is null then 0 else request.cost end")} as charged_with_cost,
      max(request.ended_at) as booked_at
    from organization cross join request
    where request.organization_id = organization.id and request.id >= ${from} and request.id < ${to}
    group by request.organization_id, request.token_id, request.model, request.upstream, bucket`;
}

/** Adds up the differences of late settlements, at the time of their requests. Their providers' costs are in JSON text. */
function lateQuery({ from, to }: IdRange) {
  return sql`
    select request.organization_id, request.token_id, request.model, request.upstream as route, ${BUCKET} as bucket, 0 as requests, 0 as errors,
      ${sum("late.amount")} as charged,
      ${sum("late.input_tokens")} as input_tokens,
      ${sum("late.output_tokens")} as output_tokens, cast(0 as bigint) as provider_cost,
      cast(0 as bigint) as charged_with_cost, max(late.made_at) as booked_at
    from organization cross join adjustment as late
    join request on request.organization_id = late.organization_id and request.id = late.hold_id
    where late.organization_id = organization.id and late.hold_id >= ${from} and late.hold_id < ${to}
      and late.kind = 'late_settlement'
    group by request.organization_id, request.token_id, request.model, request.upstream, bucket`;
}

/** Finds sums of a day that differ from those of its requests, where these are not closed and none was booked after a time. */
export function differencesOfDay(day: number, bookedMs: number): Sql {
  const { counts, negative, differs } = USAGE_SUMS;
  const range = { from: idAt(day), to: idAt(day + DAY_MS) };
  return sql`
    with sums as (${endedQuery(range)} union all ${lateQuery(range)})
    select organization_id, dimension, name from (
      select organization_id, 'model' as dimension, model as name, ${counts} from sums
      union all select organization_id, 'route', route, ${counts} from sums
      union all select organization_id, 'token', token_id, ${counts} from sums
      union all select organization_id, 'first_token', cast(bucket as text), ${counts} from sums where bucket is not null
      union all select organization_id, dimension, usage_day.name, ${negative}
      from organization cross join usage_day where organization_id = organization.id and day = ${day}
    ) as parts
    where organization_id not in (select organization_id from sums where booked_at > ${bookedMs})
      and organization_id not in (select organization_id from closing where before_at > ${day})
    group by organization_id, dimension, name having ${differs}`;
}

function sum(expression: string) {
  return sql`cast(sum(${raw(expression)}) as bigint)`;
}

/** Open holds are few; their tokens and models are in their details. */
async function openSums(database: Database, { from, to }: IdRange): Promise<RequestSum[]> {
  const rows = await database.readRows(HOLD)`select * from hold where id >= ${from} and id < ${to}`;
  return rows.map(({ organizationId, tokenId, details }) => {
    const { model, upstream: route, charge } = details;
    const { input, output } = tokenTotals(decodeLines(charge).tokens);
    const counts = { ...NO_USAGE, requests: 1, inputTokens: input, outputTokens: output };
    return { organizationId, tokenId, model, route, bucket: null, open: 1, ...counts };
  });
}

function bucketOf(time: string): Sql {
  const search = (first: number, last: number, middle = Math.floor((first + last) / 2)): string =>
    first === last
      ? `${first}`
      : `case when ${time} < ${LATENCY_BOUNDS_MS[middle]} then ${search(first, middle)} else ${search(middle + 1, last)} end`;
  return raw(`case when ${time} is not null then ${search(0, LATENCY_BOUNDS_MS.length)} end`);
}

const BUCKET = bucketOf("request.first_token_ms");

function days({ read, readRows, write }: Database) {
  const within = ({ organizationId, days }: UsageRange, dimension: UsageDayRow["dimension"]) => sql`
    from usage_day where ${equal({ organization_id: organizationId, dimension })} and day in (${join([...days, -1])})`;
  return {
    /** Returns the days that begin in a period and whose sums are stored. */
    async doneDays(fromMs: number, toMs: number): Promise<number[]> {
      const query = sql`select day from usage_day_done where day >= ${fromMs} and day < ${toMs} order by day`;
      return (await read<{ day: bigint }>(query)).map(({ day }) => Number(day));
    },
    /** Stores the sums and the latencies of a day. A second call replaces them. */
    async finishDay(day: number, rows: readonly UsageDayRow[], nowMs: number, latencies: readonly LatencyDayRow[]) {
      const statements = listsOf(rows, ROWS_A_STATEMENT).map(upsert);
      for (const list of listsOf(latencies, ROWS_A_STATEMENT)) {
        const replaced = sql`first_tokens = excluded.first_tokens, durations = excluded.durations`;
        statements.push(sql`${LATENCY_DAY.insert(...list)} on conflict (day, model, route) do update set ${replaced}`);
      }
      // Several short transactions, so that no settlement waits long.
      for (const chunk of listsOf(statements, STATEMENTS_A_WRITE)) await write(chunk);
      await write([sql`${USAGE_DAY_DONE.insert({ day, doneAtMs: nowMs })} on conflict do nothing`]);
    },
    /** Returns the stored sums day by day. */
    byDay: (dimension: "model" | "route" | "first_token", range: UsageRange): Promise<UsageDayRow[]> =>
      readRows(USAGE_DAY)`select * ${within(range, dimension)}`,
    /** Returns the stored latencies of a model, day by day and by route. */
    latencies: (model: string, days: readonly number[]): Promise<LatencyDayRow[]> =>
      readRows(LATENCY_DAY)`select * from latency_day where day in (${join([...days, -1])}) and model = ${model}`,
    /** Returns the stored sums over all days of a range; `day` is the first of them. */
    together: (dimension: "token" | "organization", range: UsageRange): Promise<UsageDayRow[]> =>
      readRows(USAGE_DAY)`
          select cast(${range.organizationId} as text) as organization_id, cast(${dimension} as text) as dimension, name,
            min(day) as day, ${SUMS} ${within(range, dimension)} group by name`,
  };
}

const USAGE_COLUMNS = Object.values(USAGE_COUNTS).flatMap(({ columns }) => Object.keys(columns));
/** Lists of the columns of counts, and the condition that the sum of one of them is not 0. */
export const USAGE_SUMS = {
  counts: raw(USAGE_COLUMNS.join(", ")),
  negative: raw(USAGE_COLUMNS.map((name) => `-${name}`).join(", ")),
  differs: raw(USAGE_COLUMNS.map((name) => `sum(${name}) <> 0`).join(" or ")),
};
const SUMS = raw(USAGE_COLUMNS.map((name) => `cast(sum(${name}) as bigint) as ${name}`).join(", "));

function upsert(rows: readonly UsageDayRow[]): Sql {
  const replaced = raw(USAGE_COLUMNS.map((name) => `${name} = excluded.${name}`).join(", "));
  return sql`
    ${USAGE_DAY.insert(...rows)}
    on conflict (organization_id, dimension, day, name) do update set ${replaced}`;
}

const CREDITS = ["granted", "available", "held", "spent", "expired"] as const;

function totals({ read }: Database) {
  return {
    /** Returns all credits of an organization, or of all organizations (null), and when it, or the first of them, was created. */
    async credits(
      organizationId: string | null,
    ): Promise<Pick<BalanceRow, (typeof CREDITS)[number]> & { createdAtMs: number }> {
      const sums = CREDITS.map((name) => `cast(coalesce(sum(${name}), 0) as bigint) as ${name}`).join(", ");
      const [row] = await read<BalanceRow & { created_at: bigint }>(sql`
        select ${raw(sums)}, (select min(created_at) from organization where ${equal({ id: organizationId })}) as created_at
        from balance where ${equal({ organization_id: organizationId })}`);
      if (row === undefined) throw new Error("A sum without a row");
      const { created_at: createdAt, ...credits } = row;
      return { ...credits, createdAtMs: Number(createdAt) };
    },
    /** Counts the active organizations, and those that have at most a thousandth of their granted credits left. */
    async solvency(): Promise<{ active: number; outOfCredits: number }> {
      const [row] = await read<{ active: bigint; empty: bigint | null }>(sql`
        select count(*) as active,
          cast(sum(case when balance.available * 1000 <= balance.granted then 1 else 0 end) as bigint) as empty
        from organization join balance on balance.organization_id = organization.id
        where organization.kind = 'standard' and organization.status = 'active'`);
      return { active: Number(row?.active ?? 0), outOfCredits: Number(row?.empty ?? 0) };
    },
    /** Returns what is available to organizations, without paused ones and the playground. */
    async available(
      ids: readonly string[],
    ): Promise<{ id: string; name: string; created: bigint; available: bigint }[]> {
      if (ids.length === 0) return [];
      return read(sql`
        select organization.id, organization.name, organization.created_at as created, balance.available
        from organization join balance on balance.organization_id = organization.id
        where organization.kind = 'standard' and organization.status = 'active' and organization.id in (${join(ids)})`);
    },
    /** Returns the names of tokens, with their organizations, and of organizations, by id. */
    async names({ tokens, organizations }: { tokens: readonly string[]; organizations: readonly string[] }) {
      return {
        tokens: await read<{ id: string; name: string; organizationId: string }>(
          sql`select id, name, organization_id as "organizationId" from token where id in (${join([...tokens, ""])})`,
        ),
        organizations: await read<{ id: string; name: string }>(
          sql`select id, name from organization where id in (${join([...organizations, ""])})`,
        ),
      };
    },
  };
}
