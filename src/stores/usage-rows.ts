import { type CompiledQuery, sql } from "kysely";
import { FIRST_TOKEN_BOUNDS_MS } from "../contract/first-token.ts";
import { read } from "./directory-rows.ts";
import { firstHoldId, idAt, timeOf } from "./request-rows.ts";
import type { PortableDatabase } from "./tables.ts";
import type { HoldSum, UsageCounts, UsageDayRow, UsageRange, UsageRows } from "./usage-store.ts";

const ROWS_A_STATEMENT = 200;
const STATEMENTS_A_WRITE = 5;

/** Sums over holds, and the sums that are kept of whole days; the same for both stores, and beside the writes. */
export function usageRows(database: PortableDatabase): UsageRows {
  return { ...holdSums(database), ...days(database), ...standing(database) };
}

function holdSums(database: PortableDatabase) {
  return {
    async holds(fromMs, toMs) {
      return (await read<SumRow>(database, holdSumQuery(database, fromMs, toMs))).map(sumFromTable);
    },
    async firstHoldMs() {
      const first = await firstHoldId(database, null);
      return first === undefined ? null : timeOf(first);
    },
  } satisfies Partial<UsageRows>;
}

interface SumRow {
  organization_id: string;
  token_id: string;
  model: string;
  bucket: bigint | null;
  requests: bigint;
  open: bigint;
  errors: bigint;
  charged: bigint;
  input_tokens: bigint;
  output_tokens: bigint;
}

/** By the key of the holds, organization by organization: a stretch of time is a range of their ids. */
function holdSumQuery({ kysely }: PortableDatabase, fromMs: number, toMs: number) {
  const sum = (expression: string) => sql<bigint>`CAST(sum(${sql.raw(expression)}) AS bigint)`;
  return kysely
    .selectFrom("organization")
    .crossJoin("hold")
    .whereRef("hold.organization_id", "=", "organization.id")
    .where("hold.id", ">=", idAt(fromMs))
    .where("hold.id", "<", idAt(toMs))
    .select([
      "hold.organization_id",
      "hold.token_id",
      "hold.model",
      BUCKET.as("bucket"),
      sql<bigint>`count(*)`.as("requests"),
      sum("CASE WHEN hold.state = 'open' THEN 1 ELSE 0 END").as("open"),
      sum("CASE WHEN hold.failure IS NULL THEN 0 ELSE 1 END").as("errors"),
      sum("hold.charged").as("charged"),
      sum("hold.input_tokens + hold.cached_input_tokens + hold.cache_write_tokens").as("input_tokens"),
      sum("hold.output_tokens + hold.reasoning_tokens").as("output_tokens"),
    ])
    .groupBy(["hold.organization_id", "hold.token_id", "hold.model", sql.ref("bucket")]);
}

const BUCKET = sql<bigint | null>`CASE ${sql.join(
  [
    sql`WHEN hold.first_token_ms IS NULL THEN NULL`,
    ...FIRST_TOKEN_BOUNDS_MS.map((bound, index) => sql.raw(`WHEN hold.first_token_ms < ${bound} THEN ${index}`)),
    sql.raw(`ELSE ${FIRST_TOKEN_BOUNDS_MS.length} END`),
  ],
  sql` `,
)}`;

function sumFromTable(row: SumRow): HoldSum {
  return {
    organizationId: row.organization_id,
    tokenId: row.token_id,
    model: row.model,
    bucket: row.bucket === null ? null : Number(row.bucket),
    open: Number(row.open),
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

function days(database: PortableDatabase) {
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
    async doneDays(fromMs, toMs) {
      const query = kysely
        .selectFrom("usage_day_done")
        .select("day")
        .where("day", ">=", BigInt(fromMs))
        .where("day", "<", BigInt(toMs))
        .orderBy("day");
      return (await read<{ day: bigint }>(database, query)).map(({ day }) => Number(day));
    },
    async finishDay(day, rows, nowMs) {
      const statements = chunksOf(rows, ROWS_A_STATEMENT).map((chunk) => upsert(kysely, chunk));
      // Several short transactions, so that no settlement waits long for one.
      for (const chunk of chunksOf(statements, STATEMENTS_A_WRITE)) await write(chunk);
      const done = kysely.insertInto("usage_day_done").values({ day, done_at: nowMs });
      await write([done.onConflict((conflict) => conflict.doNothing()).compile()]);
    },
    async byDay(dimension, range) {
      const columns = ["day", "name", "requests", "errors", "charged", "input_tokens", "output_tokens"] as const;
      const query = within(range, dimension).select(columns);
      return (await read<CountColumns & { day: bigint; name: string }>(database, query)).map(rowFrom(range, dimension));
    },
    async together(dimension, range) {
      const query = within(range, dimension)
        .select(["name", sql<bigint>`min(day)`.as("day"), ...SUMS])
        .groupBy("name");
      return (await read<CountColumns & { day: bigint; name: string }>(database, query)).map(rowFrom(range, dimension));
    },
  } satisfies Partial<UsageRows>;
}

const SUMS = (["requests", "errors", "charged", "input_tokens", "output_tokens"] as const).map((name) =>
  sql<bigint>`CAST(sum(${sql.ref(name)}) AS bigint)`.as(name),
);

function upsert(kysely: PortableDatabase["kysely"], rows: readonly UsageDayRow[]): CompiledQuery {
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

function standing(database: PortableDatabase) {
  const { kysely } = database;
  return {
    async credits(organizationId) {
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
    async names({ tokens, organizations }) {
      const tokenQuery = kysely
        .selectFrom("token")
        .select(["id", "name", "organization_id as organizationId"])
        .where("id", "in", [...tokens, ""]);
      const organizationQuery = kysely
        .selectFrom("organization")
        .select(["id", "name"])
        .where("id", "in", [...organizations, ""]);
      return {
        tokens: await read(database, tokenQuery),
        organizations: await read(database, organizationQuery),
      };
    },
  } satisfies Partial<UsageRows>;
}
