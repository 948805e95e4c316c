import type pg from "pg";
import type { Transition } from "../../credits/books.ts";
import { decide } from "../../credits/decide.ts";
import { namesOf } from "../../credits/names.ts";
import type { Outcome } from "../../credits/outcomes.ts";
import { OperatorError, OrganizationsLockedError, StoreUnavailableError, TablesLockedError } from "../../errors.ts";
import { BudgetCache } from "../budget-cache.ts";
import { type SqlDialect, type StatementBatch, type StoreDriver, UnmetRequirement } from "../driver.ts";
import type { Cell } from "../fields.ts";
import { type MigratedDriver, type OpenOptions, readMigrations } from "../migrations.ts";
import { raw, type Sql, sql, statementOf } from "../sql.ts";
import { type Store, storeOver } from "../store.ts";
import { readRows, writeRows } from "./book-rows.ts";
import { openingFailure, PostgresFailure } from "./failure.ts";
import { expectSchema, migrate } from "./migrate.ts";
import { keepPartitions, LOCK_REQUESTS } from "./partitions.ts";
import { closePools, openPools, type PoolOptions, type Pools, type PoolTimeouts, usesOf } from "./pools.ts";
import { query, runExclusively, transact } from "./transact.ts";

/** A service creates the partitions of future months. A command, which has no queues, waits longer for locks. */
export interface PostgresOptions extends OpenOptions, Pick<PoolOptions, "currentUrl"> {
  /** postgres://… */
  url: string;
  /** Opens an incomplete copy, too. Absent: no. */
  isCopyTarget?: boolean;
  timeouts?: PoolTimeouts;
}

const MIGRATIONS = new URL("./migrations/", import.meta.url);
const OLDEST_MAJOR = 15;
const COMMAND_LOCK_TIMEOUT_MS = 4_000;
/** Reads of all holds of an organization may take longer than a batch. */
const SNAPSHOT_TIMEOUT_MS = 60_000;
const LOCKED = `
  WITH free AS (
    SELECT organization_id FROM balance WHERE organization_id = ANY ($1) ORDER BY organization_id FOR UPDATE SKIP LOCKED
  )
  SELECT organization_id FROM balance
  WHERE organization_id = ANY ($1) AND organization_id NOT IN (SELECT organization_id FROM free)`;
/** Locks of whole tables in which a batch could not be written. Every user may read them. */
const TABLE_LOCKS = `
  SELECT DISTINCT relation::regclass || ' (' || mode || ' of process ' || pid || ')' AS lock
  FROM pg_locks JOIN pg_class ON pg_class.oid = relation
  WHERE locktype = 'relation' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace AND pid <> pg_backend_pid()
    AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  ORDER BY lock`;
const SERVER = `
  SELECT current_setting('server_version_num')::integer AS version, current_setting('server_encoding') AS encoding,
    to_regclass('incomplete_copy') IS NOT NULL AS incomplete`;
const REFUSES = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS refuses";
export const POSTGRES_DIALECT: SqlDialect = {
  now: () => sql`floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint`,
  sharedLock: () => sql`for share`,
  idsWithin(column, { from, to }) {
    const name = raw(column);
    return to === null ? sql`${name} >= ${from}` : sql`(${name} >= ${from} AND ${name} < ${to})`;
  },
  hasProviderResponse: (providerResponseId) => sql`provider_response_id = ${providerResponseId}`,
  // PostgreSQL refuses to read JSON with half of a surrogate pair, which only such an escape writes.
  jsonField: (json, key) => sql`(case when strpos(${json}, '\\ud') = 0 then ${json}::json ->> ${key}::text end)`,
  jsonHas: (json, key) =>
    sql`((case when strpos(${json}, '\\ud') = 0 then ${json}::json -> ${key}::text end) is not null)`,
  jsonHeads: (json, table) => ({
    from: sql`json_array_elements(${json}::json) as ${raw(table)}`,
    head: sql`(${raw(table)}.value ->> 0)`,
  }),
};

/** Opens a store over `openPostgresDriver`. */
export async function openPostgresStore(options: PostgresOptions): Promise<Store> {
  return storeOver(await openPostgresDriver(options));
}

/** Opens a PostgreSQL database and migrates its schema. Rejects with OperatorError, in one line without the password. */
export async function openPostgresDriver(options: PostgresOptions): Promise<MigratedDriver> {
  const { url, currentUrl, role, creates = true, isCopyTarget = false, timeouts } = options;
  const poolTimeouts = role === "command" ? { lockMs: COMMAND_LOCK_TIMEOUT_MS, ...timeouts } : timeouts;
  const pools = openPools(url, { ...poolTimeouts, ...(currentUrl && { currentUrl }) });
  try {
    await checkServer(pools, isCopyTarget);
    const migrations = readMigrations(MIGRATIONS);
    const schema = creates ? await migrate(pools, migrations) : await expectSchema(pools, migrations);
    const driver = driverOver(pools, role === "service" ? await keepPartitions(pools.durable) : () => {});
    return { ...driver, schema };
  } catch (error) {
    await closePools(pools);
    throw openingFailure(pools.place, error);
  }
}

async function checkServer({ durable, place }: Pools, isCopyTarget: boolean): Promise<void> {
  const [found] = await query<{ version: number; encoding: string; incomplete: boolean }>(durable, SERVER);
  const { version = 0, encoding = "", incomplete = false } = found ?? {};
  const major = Math.floor(version / 10_000);
  if (major < OLDEST_MAJOR) {
    throw new OperatorError(
      `The server at ${place} is PostgreSQL ${major}; version ${OLDEST_MAJOR} or later is required`,
    );
  }
  if (encoding !== "UTF8") {
    throw new OperatorError(`The database at ${place} has the encoding ${encoding}; UTF8 is required`);
  }
  if (incomplete && !isCopyTarget) {
    throw new OperatorError(
      `The database at ${place} is an incomplete copy of a store. Run tollgate store copy or restore again to complete it.`,
    );
  }
}

function driverOver(pools: Pools, stopPartitions: () => void): StoreDriver {
  let closed: Promise<void> | undefined;
  const budgets = new BudgetCache();
  return {
    kind: "postgres",
    dialect: POSTGRES_DIALECT,
    apply: (durability, transitions) =>
      apply(durability === "holds" ? pools.holds : pools.settlements, budgets, transitions),
    run: (statements) => run(pools, statements),
    find(statement) {
      const { text, values } = toQuery(statement);
      return query(pools.durable, text, values);
    },
    snapshot: (queries) => snapshot(pools.reports, queries),
    pools: () => usesOf(pools),
    // The pools close idle connections by themselves.
    runExclusively: (work) => runExclusively(pools.durable, work),
    async ping() {
      const [found] = await query<{ refuses: boolean }>(pools.durable, REFUSES);
      if (found?.refuses !== false) throw new StoreUnavailableError("The database does not accept writes.");
    },
    close() {
      stopPartitions();
      closed ??= closePools(pools);
      return closed;
    },
  };
}

async function apply(pool: pg.Pool, budgets: BudgetCache, transitions: Transition[]): Promise<Outcome[]> {
  try {
    return await book(pool, budgets, transitions);
  } catch (error) {
    if (!(error instanceof PostgresFailure) || error.kind !== "locked") throw error;
    // First, because a service that waits for a table holds the locks of its organizations meanwhile.
    const tables = (await query<{ lock: string }>(pool, TABLE_LOCKS)).map(({ lock }) => lock);
    if (tables.length > 0) {
      const message = `Other sessions have locked tables of the store: ${tables.join(", ")}.`;
      throw new TablesLockedError(message, { cause: error });
    }
    const { organizationIds } = namesOf(transitions);
    const locked = await query<{ organization_id: string }>(pool, LOCKED, [organizationIds]);
    const lockedIds = locked.map(({ organization_id: id }) => id);
    if (lockedIds.length > 0) throw new OrganizationsLockedError(lockedIds, { cause: error });
    // The lock has been released since.
    return book(pool, budgets, transitions);
  }
}

/** Repeatable, because a repeated transition has its first outcome. */
function book(pool: pg.Pool, budgets: BudgetCache, transitions: Transition[]): Promise<Outcome[]> {
  return transact(pool, { kind: "booking", isRepeatable: true, beginsWithReads: true }, async (transaction) => {
    const rows = await readRows(transaction, budgets, transitions);
    const { outcomes, writes } = decide(rows, transitions);
    await writeRows(transaction, writes);
    return outcomes;
  });
}

async function run(pools: Pools, { required, rest, isDurable }: StatementBatch): Promise<number[] | undefined> {
  const pool = isDurable ? pools.durable : pools.holds;
  try {
    // Rows that are written twice, because the answer to the first COMMIT was lost, would look like a defect.
    return await transact(pool, { kind: "booking", isRepeatable: false }, async (transaction) => {
      const changes: number[] = [];
      for (const [index, statement] of [...required, ...rest].entries()) {
        const changed = (await transaction.query(toQuery(statement))).rowCount ?? 0;
        if (index < required.length && changed === 0) throw new UnmetRequirement();
        changes.push(changed);
      }
      return changes;
    });
  } catch (error) {
    if (error instanceof UnmetRequirement) return undefined;
    throw error;
  }
}

/** Returns a statement as the client takes it. */
export function toQuery(statement: Sql): { text: string; values: Cell[] } {
  const { sql: text, parameters } = statementOf(statement, (index) => `$${index}`);
  return { text, values: [...parameters] };
}

/** Reads change nothing, so they need not wait for the answer to BEGIN. */
function snapshot(pool: pg.Pool, queries: readonly Sql[]): Promise<Record<string, unknown>[][]> {
  return transact(pool, { kind: "snapshot", isRepeatable: true, beginsWithReads: true }, async (transaction) => {
    const query_timeout = queries.length * SNAPSHOT_TIMEOUT_MS + 2_000;
    const results = await Promise.all([
      transaction.query(`SET LOCAL statement_timeout = ${SNAPSHOT_TIMEOUT_MS}; ${LOCK_REQUESTS}`),
      ...queries.map((statement) => {
        const config = { ...toQuery(statement), query_timeout };
        return transaction.query<Record<string, unknown>>(config);
      }),
    ]);
    return results.slice(1).map(({ rows }) => rows);
  });
}
