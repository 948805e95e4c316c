import { type CompiledQuery, Kysely, sql } from "kysely";
import type { Transition } from "../../credits/books.ts";
import { decide } from "../../credits/decide.ts";
import { OperatorError, OrganizationsLockedError, StoreUnavailableError } from "../../errors.ts";
import { readMigrations } from "../migrations.ts";
import { accountRows } from "../queries/accounts.ts";
import { adminRows } from "../queries/admin.ts";
import { allowanceRows } from "../queries/allowances.ts";
import { bookReads } from "../queries/books.ts";
import { conversationRows } from "../queries/conversations.ts";
import { directoryRows } from "../queries/directory.ts";
import { refusalRows } from "../queries/refusals.ts";
import { requestRows } from "../queries/requests.ts";
import { usageRows } from "../queries/usage.ts";
import type { Books, Durability, Store } from "../store.ts";
import type { PortableDatabase, Tables } from "../tables.ts";
import { readRows, writeRows } from "./book-rows.ts";
import { poolDialect } from "./dialect.ts";
import { openingFailure, PostgresFailure } from "./failure.ts";
import { lockedOrganizations } from "./locked.ts";
import { expectSchema, migrate } from "./migrate.ts";
import { keepPartitions } from "./partitions.ts";
import { closePools, openPools, type Pools, type PoolTimeouts } from "./pools.ts";
import { query, transact } from "./transact.ts";
import { inTurn } from "./turn.ts";

export interface PostgresOptions {
  /** postgres://… */
  url: string;
  /** A service keeps the partitions of the months to come. A command, which has no queues, waits longer for locks. */
  role: "service" | "command";
  /** Whether the tables are created where there are none, and an older schema brought up to date. Absent: yes. */
  creates?: boolean;
  timeouts?: PoolTimeouts;
}

const MIGRATIONS = new URL("./migrations/", import.meta.url);
const OLDEST_MAJOR = 15;
const COMMAND_LOCK_TIMEOUT_MS = 4_000;
/** A look over all of an organization's holds may take longer than a batch. */
const SNAPSHOT_TIMEOUT_MS = 60_000;

/**
 * Opens a PostgreSQL database (15 or later) as a store, its schema brought up to date. Rejects with OperatorError when it
 * cannot be reached, does not fit or holds another schema: one line, which never tells the password.
 */
export async function openPostgresStore({ url, role, creates = true, timeouts }: PostgresOptions): Promise<Store> {
  const pools = openPools(url, role === "command" ? { lockMs: COMMAND_LOCK_TIMEOUT_MS, ...timeouts } : timeouts);
  try {
    await checkServer(pools);
    const migrations = readMigrations(MIGRATIONS);
    if (creates) await migrate(pools.durable, migrations);
    else await expectSchema(pools, migrations);
    return storeOver(pools, role === "service" ? await keepPartitions(pools.durable) : () => {});
  } catch (error) {
    await closePools(pools);
    throw openingFailure(pools.place, error);
  }
}

async function checkServer({ durable, place }: Pools): Promise<void> {
  const { rows } = await query<{ version: number; encoding: string }>(durable, {
    text: `SELECT current_setting('server_version_num')::integer AS version,
             current_setting('server_encoding') AS encoding`,
    isRepeatable: true,
  });
  const { version = 0, encoding = "" } = rows[0] ?? {};
  const major = Math.floor(version / 10_000);
  if (major < OLDEST_MAJOR) {
    throw new OperatorError(`The server at ${place} is PostgreSQL ${major}; allowed: ${OLDEST_MAJOR} or later`);
  }
  if (encoding !== "UTF8") {
    throw new OperatorError(`The database at ${place} has the encoding ${encoding}; allowed: UTF8`);
  }
}

function storeOver(pools: Pools, stopPartitions: () => void): Store {
  const database = portableDatabase(pools);
  let closed: Promise<void> | undefined;
  return {
    kind: "postgres",
    books: books(pools, database),
    accounts: accountRows(database),
    allowances: allowanceRows(database),
    admin: adminRows(database),
    directory: directoryRows(database),
    requests: requestRows(database),
    usage: usageRows(database),
    conversations: conversationRows(database),
    refusals: refusalRows(database),
    inTurn: (work) => inTurn(pools.durable, work),
    async ping() {
      const text = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS refuses";
      const { rows } = await query<{ refuses: boolean }>(pools.durable, { text, isRepeatable: true });
      if (rows[0]?.refuses !== false) throw new StoreUnavailableError("The database takes no writes.");
    },
    close() {
      stopPartitions();
      closed ??= closePools(pools);
      return closed;
    },
  };
}

function books(pools: Pools, database: PortableDatabase): Books {
  // Repeatable, because a transition repeated gives its first outcome.
  const book = (durability: Durability, transitions: Transition[]) =>
    transact(pools[durability], { kind: "booking", isRepeatable: true, beginsWithReads: true }, async (transaction) => {
      const rows = await readRows(transaction, transitions);
      const { outcomes, writes } = decide(rows, transitions);
      await writeRows(transaction, writes);
      return outcomes;
    });
  const apply = (durability: Durability, transitions: Transition[]) =>
    book(durability, transitions).catch(async (error: unknown) => {
      if (!(error instanceof PostgresFailure) || error.kind !== "locked") throw error;
      const locked = await lockedOrganizations(pools[durability], transitions);
      if (locked.length > 0) throw new OrganizationsLockedError(locked, { cause: error });
      // The lock was given up since.
      return book(durability, transitions);
    });
  return { ...bookReads(database), apply: apply as Books["apply"] };
}

function portableDatabase({ durable: pool, holds, reports }: Pools): PortableDatabase {
  const kysely = new Kysely<Tables>({ dialect: poolDialect(pool) });
  return {
    kysely,
    // Rows that are made twice, because the first COMMIT's answer was lost, would look like a defect.
    write: (queries: CompiledQuery[], durability = "durable") =>
      transact(durability === "durable" ? pool : holds, { kind: "booking", isRepeatable: false }, async (client) => {
        const changed: number[] = [];
        for (const { sql: text, parameters } of queries) {
          changed.push((await client.query(text, [...parameters])).rowCount ?? 0);
        }
        return changed;
      }),
    writeIf: (required, rest) => writeIf(pool, required, rest),
    // Reads change nothing, so they need not wait for the answer to BEGIN.
    snapshot: (queries: CompiledQuery[]) =>
      transact(reports, { kind: "snapshot", isRepeatable: true, beginsWithReads: true }, async (transaction) => {
        const query_timeout = queries.length * SNAPSHOT_TIMEOUT_MS + 2_000;
        const results = await Promise.all([
          transaction.query(`SET LOCAL statement_timeout = ${SNAPSHOT_TIMEOUT_MS}`),
          ...queries.map(({ sql: text, parameters }) => {
            const config = { text, values: [...parameters], query_timeout };
            return transaction.query<Record<string, unknown>>(config);
          }),
        ]);
        return results.slice(1).map(({ rows }) => rows);
      }),
    now: () => sql<bigint>`floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint`,
    sharedLock: () => sql`for share`,
    idsWithin(column, { from, to }) {
      const name = sql.ref(column);
      return to === null ? sql`${name} >= ${from}` : sql`(${name} >= ${from} AND ${name} < ${to})`;
    },
  };
}

/** Undoes the transaction of a `writeIf` of which a required write changed no row. */
class UnmetRequirement extends Error {}

async function writeIf(pool: Pools["durable"], required: CompiledQuery[], rest: CompiledQuery[]): Promise<boolean> {
  try {
    await transact(pool, { kind: "booking", isRepeatable: false }, async (client) => {
      for (const { sql: text, parameters } of required) {
        if ((await client.query(text, [...parameters])).rowCount === 0) throw new UnmetRequirement();
      }
      for (const { sql: text, parameters } of rest) await client.query(text, [...parameters]);
    });
    return true;
  } catch (error) {
    if (error instanceof UnmetRequirement) return false;
    throw error;
  }
}
