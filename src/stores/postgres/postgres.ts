import { type CompiledQuery, Kysely, sql } from "kysely";
import type { Transition } from "../../credits/books.ts";
import { decide } from "../../credits/decide.ts";
import { accountRows } from "../accounts.ts";
import { readMigrations } from "../migrations.ts";
import { bookReads } from "../queries.ts";
import type { Books, Lane, Store } from "../store.ts";
import type { PortableDatabase, Tables } from "../tables.ts";
import { readRows, writeRows } from "./book-rows.ts";
import { poolDialect } from "./dialect.ts";
import { migrate } from "./migrate.ts";
import { keepPartitions } from "./partitions.ts";
import { closePools, openPools, type Pools, reach, transact } from "./pools.ts";

export interface PostgresOptions {
  /** postgres://… */
  url: string;
  /** A service keeps the partitions of the days to come. */
  role: "service" | "command";
}

const MIGRATIONS = new URL("./migrations/", import.meta.url);
/** How far the clocks of nodes, which make the ids of holds, may be apart from the store's. */
const CLOCK_SKEW_MS = 60_000;

/**
 * Opens a PostgreSQL database (15 or later) as a store, its schema brought up to date. Rejects with OperatorError when it
 * cannot be reached or holds another schema.
 */
export async function openPostgresStore({ url, role }: PostgresOptions): Promise<Store> {
  const pools = openPools(url);
  try {
    await reach(pools, url);
    await migrate(pools.durable, readMigrations(MIGRATIONS));
    const stopPartitions = role === "service" ? await keepPartitions(pools.durable) : () => {};
    const database = portableDatabase(pools);
    let closed: Promise<void> | undefined;
    return {
      kind: "postgres",
      books: books(pools, database),
      accounts: accountRows(database),
      async ping() {
        await database.kysely.selectFrom("schema_migration").select("version").limit(1).execute();
      },
      close() {
        stopPartitions();
        closed ??= closePools(pools);
        return closed;
      },
    };
  } catch (error) {
    await closePools(pools);
    throw error;
  }
}

function books(pools: Pools, database: PortableDatabase): Books {
  const apply = (lane: Lane, transitions: Transition[]) =>
    transact(lane === "holds" ? pools.holds : pools.durable, "BEGIN", async (client) => {
      const rows = await readRows(client, transitions);
      const { outcomes, writes } = decide(rows, transitions);
      await writeRows(client, writes);
      return outcomes;
    });
  const reads = bookReads(database);
  return { ...reads, overdueHolds: sweepFromOldest(database, reads), apply: apply as Books["apply"] };
}

/**
 * The index on a hold's id also holds all that have ended. Ids are in the order of time, so a sweep begins at the oldest
 * that was still open at the sweep before.
 */
function sweepFromOldest({ kysely, now }: PortableDatabase, reads: Omit<Books, "apply">): Books["overdueHolds"] {
  let from = "";
  return async ({ afterHoldId, limit }) => {
    if (afterHoldId === null) {
      const oldest = kysely
        .selectFrom("hold")
        .select("id")
        .where("state", "=", "open")
        .where("id", ">", from)
        .orderBy("id")
        .limit(1);
      const [open, clock] = await Promise.all([
        oldest.executeTakeFirst(),
        kysely.selectNoFrom(now().as("now")).executeTakeFirstOrThrow(),
      ]);
      const recent = firstIdAt(Number(clock.now) - CLOCK_SKEW_MS);
      from = open === undefined || open.id > recent ? recent : firstIdAt(timeOf(open.id));
    }
    return reads.overdueHolds({ afterHoldId: afterHoldId ?? from, limit });
  };
}

/** What comes before every UUIDv7 of a millisecond (RFC 9562, section 5.7: the first 48 bits). */
function firstIdAt(milliseconds: number): string {
  const hex = Math.max(0, milliseconds).toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}`;
}

function timeOf(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
}

function portableDatabase(pools: Pools): PortableDatabase {
  const pool = pools.durable;
  const kysely = new Kysely<Tables>({ dialect: poolDialect(pool) });
  return {
    kysely,
    write: (queries: CompiledQuery[]) =>
      transact(pool, "BEGIN", async (client) => {
        const changed: number[] = [];
        for (const { sql: text, parameters } of queries) {
          changed.push((await client.query(text, [...parameters])).rowCount ?? 0);
        }
        return changed;
      }),
    snapshot: (queries: CompiledQuery[]) =>
      transact(pool, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", async (client) => {
        const found: Record<string, unknown>[][] = [];
        for (const { sql: text, parameters } of queries) found.push((await client.query(text, [...parameters])).rows);
        return found;
      }),
    now: () => sql<bigint>`floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint`,
    drawsSum: () => sql<bigint>`(
      SELECT coalesce(sum((draw.value ->> 1)::bigint), 0)::bigint FROM json_array_elements(hold.draws::json) AS draw (value)
    )`,
  };
}
