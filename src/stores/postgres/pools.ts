import pg from "pg";
import { OperatorError, StoreUnavailableError } from "../../errors.ts";
import { isTransient, toStoreError } from "./failure.ts";

export interface Pools {
  /** Holds guard against what runs beside them and need not survive the server's crash. */
  holds: pg.Pool;
  /** Everything else, on disk before it is answered. */
  durable: pg.Pool;
}

const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 5_000;
const LOCK_TIMEOUT_MS = 2_000;
/** A little more than the server's own limit: only a server that no longer speaks reaches it. */
const QUERY_TIMEOUT_MS = 7_000;
const HOLD_CONNECTIONS = 4;
const DURABLE_CONNECTIONS = 8;
const ATTEMPTS = 5;
const BACKOFF_MS = 20;

const INT8 = 20;
const NUMERIC = 1700;

/** Integers of 64 bits, and sums of them, are read exactly. */
const types = {
  getTypeParser(oid: number, format?: "text" | "binary") {
    if (oid === INT8 || oid === NUMERIC) return (text: string) => BigInt(text);
    return format === "binary" ? pg.types.getTypeParser(oid, "binary") : pg.types.getTypeParser(oid, "text");
  },
} as pg.CustomTypesConfig;

/** Opens the pools; connects only when something is asked. Throws OperatorError for an address that is none. */
export function openPools(url: string): Pools {
  const open = (max: number, options: string) => {
    const pool = new pg.Pool({
      connectionString: url,
      max,
      types,
      options,
      application_name: "tollgate",
      keepAlive: true,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      statement_timeout: STATEMENT_TIMEOUT_MS,
      lock_timeout: LOCK_TIMEOUT_MS,
      query_timeout: QUERY_TIMEOUT_MS,
    });
    // A connection that breaks while it is idle: the pool has dropped it, and the next query opens another.
    pool.on("error", () => {});
    return pool;
  };
  return {
    holds: open(HOLD_CONNECTIONS, "-c synchronous_commit=off"),
    durable: open(DURABLE_CONNECTIONS, "-c synchronous_commit=on"),
  };
}

export async function closePools({ holds, durable }: Pools): Promise<void> {
  await Promise.all([holds.end(), durable.end()]);
}

type Begin = "BEGIN" | "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/**
 * Runs `work` in a transaction, again where it failed by 40001, 40P01 or a lost connection. A COMMIT whose answer was lost
 * is repeated too, so `work` must be safe to repeat: a transition repeated gives its first outcome. Rejects with
 * StoreUnavailableError when the server is away or too slow.
 */
export async function transact<T>(
  pool: pg.Pool,
  begin: Begin,
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await transactOnce(pool, begin, work);
    } catch (error) {
      if (attempt === ATTEMPTS || !isTransient(error)) throw toStoreError(error);
      const waitMs = BACKOFF_MS * 2 ** (attempt - 1) * (0.5 + Math.random());
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }
}

async function transactOnce<T>(pool: pg.Pool, begin: string, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect();
  // A connection lost between two queries is told here; the next query fails, and that is handled.
  const ignore = () => {};
  client.on("error", ignore);
  let broken: unknown;
  try {
    await client.query(begin);
    const result = await work(client);
    await client.query("COMMIT");
    return result;
  } catch (error) {
    broken = error;
    await client.query("ROLLBACK").then(
      () => {
        broken = undefined;
      },
      () => {},
    );
    throw error;
  } finally {
    client.off("error", ignore);
    client.release(broken !== undefined);
  }
}

/** Connects once. Rejects with OperatorError: one line that names the server and the reason, never the password. */
export async function reach({ durable }: Pools, url: string): Promise<void> {
  try {
    await durable.query("SELECT 1");
  } catch (error) {
    throw new OperatorError(`The database at ${placeOf(url)} cannot be used: ${reasonOf(error)}`, { cause: error });
  }
}

function placeOf(url: string): string {
  const { hostname, port, pathname } = new URL(url);
  return `${hostname || "localhost"}:${port || 5432}${pathname}`;
}

function reasonOf(error: unknown): string {
  if (error instanceof StoreUnavailableError) return error.message;
  if (error instanceof AggregateError && error.errors[0] instanceof Error) return error.errors[0].message;
  return error instanceof Error ? error.message : String(error);
}
