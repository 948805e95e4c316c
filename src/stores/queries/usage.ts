import { type CompiledQuery, sql } from "kysely";
import { FIRST_TOKEN_BOUNDS_MS } from "../../api/first-token.ts";
import type { MicroCredits } from "../../credits/amount.ts";
import type { BalanceRow } from "../../credits/books.ts";
import { idAt, timeOfId } from "../../credits/request-id.ts";
import { type Database, read } from "../database.ts";
import { HOLD } from "../schema.ts";
import type { UsageDayTable } from "../tables.ts";
import { firstRequestId } from "./requests.ts";

export interface UsageCounts {
  requests: number;
  errors: number;
  charged: MicroCredits;
  inputTokens: number;
  outputTokens: number;
}

export interface RequestSum extends UsageCounts {
  organizationId: string;
  tokenId: string;
  model: string;
  /** Index of the time to the first chunk in `FIRST_TOKEN_BOUNDS_MS`; null if there was none. */
  bucket: number | null;
  /** Number of requests that are still running. */
  open: number;
}

export interface UsageRange {
  organizationId: string;
  /** First milliseconds of days whose sums are stored. */
  days: readonly number[];
}

export interface UsageDayRow extends UsageCounts {
  organizationId: string;
  dimension: UsageDayTable["dimension"];
  /** Its first millisecond, in UTC. */
  day: number;
  /** The model, the token, the organization, or the bucket. */
  name: string;
}

const ROWS_A_STATEMENT = 200;
const STATEMENTS_A_WRITE = 5;

export type UsageRows = ReturnType<typeof usageRows>;

/** Sums over requests, and stored sums of whole days. The books do not depend on them; they run beside the writes. */
export function usageRows(database: Database) {
  return { ...requestSums(database), ...days(database), ...totals(database) };
}

function requestSums(database: Database) {
  return {
    /**
     * Adds up the requests that began in a period, by organization, token, model and bucket. A combination may come
     * several times.
     */
    async requests(fromMs: number, toMs: number): Promise<RequestSum[]> {
      const range = { from: idAt(fromMs), to: idAt(toMs) };
      const parts = [endedQuery(range), lateQuery(range)].map((query) => read<SumRow>(database, query));
      return [...(await Promise.all(parts)).flat().map(sumFromTable), ...(await openSums(database, range))];
    },
    /** Returns when the first request began. */
    async firstRequestMs(): Promise<number | null> {
      const first = await firstRequestId(database, null);
      const open = await read<{ id: string | null }>(database, sql`select min(id) as id from hold`);
      const times = [first, open[0]?.id].flatMap((id) => (id ? (timeOfId(id) ?? []) : []));
      return times.length === 0 ? null : Math.min(...times);
    },
  };
}

interface IdRange {
  from: string;
  to: string;
}

interface SumRow {
  organization_id: string;
  token_id: string;
  model: string;
  bucket: bigint | null;
  requests: bigint;
  errors: bigint;
  charged: bigint;
  input_tokens: bigint;
  output_tokens: bigint;
}

/** Reads requests by key, organization by organization: a period is a range of ids. */
function endedQuery({ from, to }: IdRange) {
  return sql`
    select request.organization_id, request.token_id, request.model, ${BUCKET} as bucket, count(*) as requests,
      ${sum("case when request.failure is null then 0 else 1 end")} as errors, ${sum("request.cost")} as charged,
      ${sum("request.input_tokens + request.cached_input_tokens + request.cache_write_tokens")} as input_tokens,
      ${sum("request.output_tokens + request.reasoning_tokens")} as output_tokens
    from organization cross join request
    where request.organization_id = organization.id and request.id >= ${from} and request.id < ${to}
    group by request.organization_id, request.token_id, request.model, bucket`;
}

/** Adds up the differences of late settlements, at the time of their requests. */
function lateQuery({ from, to }: IdRange) {
  return sql`
    select request.organization_id, request.token_id, request.model, ${BUCKET} as bucket, 0 as requests, 0 as errors,
      ${sum("late.amount")} as charged,
      ${sum("late.input_tokens + late.cached_input_tokens + late.cache_write_tokens")} as input_tokens,
      ${sum("late.output_tokens + late.reasoning_tokens")} as output_tokens
    from organization cross join adjustment as late
    join request on request.organization_id = late.organization_id and request.id = late.hold_id
    where late.organization_id = organization.id and late.hold_id >= ${from} and late.hold_id < ${to}
      and late.kind = 'late_settlement'
    group by request.organization_id, request.token_id, request.model, bucket`;
}

function sum(expression: string) {
  return sql`cast(sum(${sql.raw(expression)}) as bigint)`;
}

/** Open holds are few; their tokens and models are in their details. */
async function openSums(database: Database, { from, to }: IdRange): Promise<RequestSum[]> {
  const query = database.kysely.selectFrom("hold").selectAll().where("id", ">=", from).where("id", "<", to);
  return (await read<object>(database, query)).map(HOLD.fromRecord).map(({ organizationId, details }) => {
    const { tokenId, model, tokens } = details;
    const input = tokens.input + tokens.cachedInput + tokens.cacheWrite;
    const counts = { requests: 1, errors: 0, charged: 0n, inputTokens: input };
    const outputTokens = tokens.output + tokens.reasoning;
    return { organizationId, tokenId, model, bucket: null, open: 1, ...counts, outputTokens };
  });
}

const BUCKET = sql<bigint | null>`CASE ${sql.join(
  [
    sql`WHEN request.first_token_ms IS NULL THEN NULL`,
    ...FIRST_TOKEN_BOUNDS_MS.map((bound, index) => sql.raw(`WHEN request.first_token_ms < ${bound} THEN ${index}`)),
    sql.raw(`ELSE ${FIRST_TOKEN_BOUNDS_MS.length} END`),
  ],
  sql` `,
)}`;

function sumFromTable(row: SumRow): RequestSum {
  return {
    organizationId: row.organization_id,
    tokenId: row.token_id,
    model: row.model,
    bucket: row.bucket === null ? null : Number(row.bucket),
    open: 0,
    ...countsFromTable(row),
  };
}

type CountColumns = Pick<SumRow, "requests" | "errors" | "charged" | "input_tokens" | "output_tokens">;

function countsFromTable(row: CountColumns): UsageCounts {
  return {
    requests: Number(row.requests),
    errors: Number(row.errors),
    charged: row.charged,
    inputTokens: Number(row.input_tokens),
    outputTokens: Number(row.output_tokens),
  };
}

function days(database: Database) {
  const { kysely, write } = database;
  const within = ({ organizationId, days }: UsageRange, dimension: UsageDayRow["dimension"]) =>
    kysely
      .selectFrom("usage_day")
      .where("organization_id", "=", organizationId)
      .where("dimension", "=", dimension)
      .where("day", "in", days.map(BigInt));
  const rowFrom = ({ organizationId }: UsageRange, dimension: UsageDayRow["dimension"]) => {
    return (row: CountColumns & { day: bigint; name: string }): UsageDayRow => {
      return { organizationId, dimension, day: Number(row.day), name: row.name, ...countsFromTable(row) };
    };
  };
  return {
    /** Returns the days that begin in a period and whose sums are stored. */
    async doneDays(fromMs: number, toMs: number): Promise<number[]> {
      const query = kysely
        .selectFrom("usage_day_done")
        .select("day")
        .where("day", ">=", BigInt(fromMs))
        .where("day", "<", BigInt(toMs))
        .orderBy("day");
      return (await read<{ day: bigint }>(database, query)).map(({ day }) => Number(day));
    },
    /** Stores the sums of a day. A second call replaces the first. */
    async finishDay(day: number, rows: readonly UsageDayRow[], nowMs: number) {
      const statements = chunksOf(rows, ROWS_A_STATEMENT).map((chunk) => upsert(kysely, chunk));
      // Several short transactions, so that no settlement waits long.
      for (const chunk of chunksOf(statements, STATEMENTS_A_WRITE)) await write(chunk);
      const done = kysely.insertInto("usage_day_done").values({ day, done_at: nowMs });
      await write([done.onConflict((conflict) => conflict.doNothing()).compile()]);
    },
    /** Returns the stored sums day by day. */
    async byDay(dimension: "model" | "first_token", range: UsageRange): Promise<UsageDayRow[]> {
      const columns = ["day", "name", "requests", "errors", "charged", "input_tokens", "output_tokens"] as const;
      const query = within(range, dimension).select(columns);
      return (await read<CountColumns & { day: bigint; name: string }>(database, query)).map(rowFrom(range, dimension));
    },
    /** Returns the stored sums over all days of a range; `day` is the first of them. */
    async together(dimension: "token" | "organization", range: UsageRange): Promise<UsageDayRow[]> {
      const query = within(range, dimension)
        .select(["name", sql<bigint>`min(day)`.as("day"), ...SUMS])
        .groupBy("name");
      return (await read<CountColumns & { day: bigint; name: string }>(database, query)).map(rowFrom(range, dimension));
    },
  };
}

const SUMS = (["requests", "errors", "charged", "input_tokens", "output_tokens"] as const).map((name) =>
  sql<bigint>`CAST(sum(${sql.ref(name)}) AS bigint)`.as(name),
);

function upsert(kysely: Database["kysely"], rows: readonly UsageDayRow[]): CompiledQuery {
  const values = rows.map((row) => ({
    organization_id: row.organizationId,
    dimension: row.dimension,
    day: row.day,
    name: row.name,
    requests: row.requests,
    errors: row.errors,
    charged: row.charged,
    input_tokens: row.inputTokens,
    output_tokens: row.outputTokens,
  }));
  return kysely
    .insertInto("usage_day")
    .values(values)
    .onConflict((conflict) =>
      conflict.columns(["organization_id", "dimension", "day", "name"]).doUpdateSet((eb) => ({
        requests: eb.ref("excluded.requests"),
        errors: eb.ref("excluded.errors"),
        charged: eb.ref("excluded.charged"),
        input_tokens: eb.ref("excluded.input_tokens"),
        output_tokens: eb.ref("excluded.output_tokens"),
      })),
    )
    .compile();
}

function chunksOf<T>(items: readonly T[], size: number): T[][] {
  const chunks: T[][] = [];
  for (let at = 0; at < items.length; at += size) chunks.push(items.slice(at, at + size));
  return chunks;
}

function totals(database: Database) {
  const { kysely } = database;
  return {
    /** Returns all credits of an organization, or of all organizations (null). */
    async credits(organizationId: string | null): Promise<Omit<BalanceRow, "organizationId" | "nextChangeAtMs">> {
      let query = kysely
        .selectFrom("balance")
        .select(
          (["granted", "available", "held", "spent", "expired"] as const).map((name) =>
            sql<bigint>`CAST(coalesce(sum(${sql.ref(name)}), 0) AS bigint)`.as(name),
          ),
        );
      if (organizationId !== null) query = query.where("organization_id", "=", organizationId);
      const [row] = await read<Record<"granted" | "available" | "held" | "spent" | "expired", bigint>>(database, query);
      if (row === undefined) throw new Error("A sum without a row");
      return row;
    },
    /** Returns the names of tokens, with their organizations, and of organizations, by id. */
    async names({ tokens, organizations }: { tokens: readonly string[]; organizations: readonly string[] }) {
      const tokenQuery = kysely
        .selectFrom("token")
        .select(["id", "name", "organization_id as organizationId"])
        .where("id", "in", [...tokens, ""]);
      const organizationQuery = kysely
        .selectFrom("organization")
        .select(["id", "name"])
        .where("id", "in", [...organizations, ""]);
      return {
        tokens: await read<{ id: string; name: string; organizationId: string }>(database, tokenQuery),
        organizations: await read<{ id: string; name: string }>(database, organizationQuery),
      };
    },
  };
}
