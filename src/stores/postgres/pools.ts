import pg from "pg";
import { OperatorError } from "../../errors.ts";
import type { PoolUse } from "../driver.ts";

export type Pools = ReturnType<typeof openPools>;

const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 5_000;
/** Short, because a batch waits for the locks of all its organizations. Afterwards the locked one is booked separately. */
const LOCK_TIMEOUT_MS = 250;
/** A little more than the server's own limit: only a server that no longer answers reaches it. */
const QUERY_TIMEOUT_MS = 7_000;
/** Ends the transaction of a process that is frozen or disconnected, so that its locks are released. */
const IDLE_IN_TRANSACTION_TIMEOUT_MS = 1_000;
const IDLE_IN_REPORT_TIMEOUT_MS = 10_000;
const CONNECTIONS_A_POOL = 4;
/**
 * Batches find all rows by their keys, so one plan fits all values, whatever the size of a table was when it was made. Reads
 * of whole tables, which it never contains, would count as so expensive that the server compiles it.
 */
const KEPT_PLANS =
  "plan_cache_mode=force_generic_plan enable_seqscan=off enable_hashjoin=off enable_mergejoin=off jit=off";

const INT8 = 20;
const NUMERIC = 1700;

/** Reads 64-bit integers and sums of them exactly. */
export const types = {
  getTypeParser(oid: number, format?: "text" | "binary") {
    if (oid === INT8 || oid === NUMERIC) return (text: string) => BigInt(text);
    return format === "binary" ? pg.types.getTypeParser(oid, "binary") : pg.types.getTypeParser(oid, "text");
  },
} as pg.CustomTypesConfig;

export interface PoolOptions extends PoolTimeouts {
  /** Returns the address with the current password, for a new connection. */
  currentUrl?: () => string;
}

export interface PoolTimeouts {
  /** Time for which a query waits for a connection. Absent: 5 s, after which the store counts as unavailable. */
  connectMs?: number;
  /** Time for which a statement waits for a lock. Absent: 250 ms. */
  lockMs?: number;
}

/** Opens the pools, which connect on first use. Throws OperatorError for an invalid address. */
export function openPools(
  url: string,
  { currentUrl = () => url, connectMs = CONNECT_TIMEOUT_MS, lockMs = LOCK_TIMEOUT_MS }: PoolOptions = {},
) {
  const open = (settings: string, idleInTransactionMs = IDLE_IN_TRANSACTION_TIMEOUT_MS) => {
    const pool = new pg.Pool({
      // Created for each connection, so that a changed password needs no new pool.
      Client: class extends pg.Client {
        constructor(config: pg.ClientConfig) {
          super({ ...config, connectionString: withSettings(currentUrl(), settings) });
        }
      } as unknown as new () => pg.ClientBase,
      max: CONNECTIONS_A_POOL,
      types,
      application_name: "tollgate",
      keepAlive: true,
      connectionTimeoutMillis: connectMs,
      statement_timeout: STATEMENT_TIMEOUT_MS,
      lock_timeout: lockMs,
      idle_in_transaction_session_timeout: idleInTransactionMs,
      query_timeout: QUERY_TIMEOUT_MS,
      pipeline: true,
    });
    // The pool drops a connection that breaks while it is idle; the next query opens another.
    pool.on("error", () => {});
    // A connection can break before the pool has handed it over, when nothing else listens for its errors.
    pool.on("connect", (client) => client.on("error", (error) => connectionErrors.set(client, error)));
    return pool;
  };
  return {
    /** host:port/database */
    place: placeOf(url),
    /** For holds, which need not survive a crash of the server. */
    holds: open(`synchronous_commit=off ${KEPT_PLANS}`),
    /** For all other batches, which are on disk before the server answers. */
    settlements: open(`synchronous_commit=on ${KEPT_PLANS}`),
    /** For everything else, which is on disk before the server answers, too. */
    durable: open("synchronous_commit=on"),
    /** For reports, so that they never use the connections of settlements. */
    reports: open("default_transaction_read_only=on", IDLE_IN_REPORT_TIMEOUT_MS),
  };
}

/** The client lets options in an address override others, so the settings follow the address's own options. */
function withSettings(url: string, settings: string): string {
  const address = new URL(url);
  const options = settings.split(" ").map((setting) => `-c ${setting}`);
  const own = address.searchParams.get("options");
  address.searchParams.set("options", [...(own === null ? [] : [own]), ...options].join(" "));
  return address.href;
}

const connectionErrors = new WeakMap<pg.ClientBase, Error>();

/** Returns the error of a broken connection; undefined if it works. */
export function connectionErrorOf(client: pg.ClientBase): Error | undefined {
  return connectionErrors.get(client);
}

/** Returns host, port and database as the client reads them, with its defaults for missing parts. */
export function placeOf(url: string): string {
  try {
    new URL(url);
    const { host, port, database } = new pg.Client({ connectionString: url });
    return `${host}:${port}/${database ?? ""}`;
  } catch {
    // The error may contain the address, and with it the password.
    throw new OperatorError("The database's address cannot be read; expected postgres://user:password@host:port/name");
  }
}

/** Resolves when every connection is closed; running work is finished first. */
export async function closePools({ place: _, ...pools }: Pools): Promise<void> {
  await Promise.all(Object.values(pools).map((pool) => pool.end()));
}

/** Returns the use of each pool. */
export function usesOf({ place: _, ...pools }: Pools): PoolUse[] {
  return Object.entries(pools).map(([name, pool]) => {
    const { totalCount, idleCount: idle, waitingCount: waiting, options } = pool;
    return { name, max: options.max, used: totalCount - idle, idle, waiting };
  });
}
