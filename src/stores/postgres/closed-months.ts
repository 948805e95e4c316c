import type pg from "pg";
import { idAt } from "../../credits/request-id.ts";
import { PostgresFailure, sqlStateOf } from "./failure.ts";
import { query, type Transaction, transact } from "./transact.ts";

/**
 * Begins a transaction of several reads. Its snapshot is taken after the lock, so that no partition is replaced between
 * them: a dropped table is missing in an older snapshot, too.
 */
export const LOCK_REQUESTS = "LOCK TABLE ONLY request IN ACCESS SHARE MODE";

/** Longer than the time after which autovacuum gives way. Only bookings of organizations with old open holds wait for it. */
const MONTH_LOCK_TIMEOUT_MS = 1_500;
/** Time for which transactions of requests may queue behind the replacement of a partition. */
const LOCK_TIMEOUT_MS = 30;
/** Limit of each statement that keeps them waiting; all of them together take milliseconds. */
const REPLACE_TIMEOUT_MS = 1_000;
/** Reading a partition of hundreds of millions of rows, which blocks nothing. */
const READ_TIMEOUT_MS = 600_000;

/** Partitions of whole months, by their bounds: the default partition has none. */
const PARTITIONS = `
  SELECT relname AS name, pg_get_expr(relpartbound, pg_class.oid) AS bounds
  FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
  WHERE inhparent = 'request'::regclass AND relname ~ '^request_[0-9]{6}$' ORDER BY relname`;
const BOUNDS = /FROM \('([0-9a-f-]{13})'\) TO \('([0-9a-f-]{13})'\)/;
/** Another process has dropped the partition. */
const UNDEFINED_TABLE = "42P01";
/** The user of the service may not create or drop tables. */
const INSUFFICIENT_PRIVILEGE = "42501";

/** As `isClosed` of queries/closings.ts. Every id of the partition is smaller than $1, the end of its month. */
const IS_CLOSED = `
  closing.before_at >= $1 AND request.ended_at < closing.before_at AND NOT EXISTS (
    SELECT 1 FROM adjustment AS later WHERE later.organization_id = request.organization_id
      AND later.hold_id = request.id AND later.made_at >= closing.before_at)`;
const WITH_CLOSING = "LEFT JOIN closing ON closing.organization_id = request.organization_id";

interface Month {
  name: string;
  /** The first id of the month, and that of the next month. */
  from: string;
  to: string;
}

/**
 * Replaces a partition of one month before a time by one with its open requests, or drops it if there is none. One
 * transaction does it, so it is done or not, and a second process finds nothing left to do. A partition is left alone if it
 * has no closed requests, or more open ones, or one of an organization that can still book for it, and if the user of the
 * service may not drop tables. Returns `none` if no other is left.
 */
export async function removeClosedMonth(pool: pg.Pool, beforeMs: number): Promise<"removed" | "locked" | "none"> {
  const { rows } = await query<{ name: string; bounds: string }>(pool, { text: PARTITIONS, isRepeatable: true });
  for (const { name, bounds } of rows) {
    const [, from, to] = BOUNDS.exec(bounds) ?? [];
    if (from === undefined || to === undefined || to > idAt(beforeMs)) continue;
    const outcome = await removeFrom(pool, { name, from, to }).catch((error: unknown) => {
      if (sqlStateOf(error) === UNDEFINED_TABLE) return "removed" as const;
      if (sqlStateOf(error) === INSUFFICIENT_PRIVILEGE) return "none" as const;
      if (error instanceof PostgresFailure && error.kind === "locked") return "locked" as const;
      throw error;
    });
    if (outcome !== "none") return outcome;
  }
  return "none";
}

async function removeFrom(pool: pg.Pool, month: Month): Promise<"removed" | "none"> {
  if (!(await transact(pool, { kind: "booking", isRepeatable: true }, (reads) => isDue(reads, month)))) return "none";
  return transact(pool, { kind: "booking", isRepeatable: false }, async (transaction) => {
    await transaction.query(`SET LOCAL lock_timeout = ${MONTH_LOCK_TIMEOUT_MS}`);
    // Nothing is inserted into the partition from now on, and no other process replaces it.
    await transaction.query(`LOCK TABLE ONLY ${month.name} IN SHARE ROW EXCLUSIVE MODE`);
    if (!(await isDue(transaction, month))) return "none";
    await replace(transaction, month);
    return "removed";
  });
}

/**
 * Tells whether most requests of a partition are closed, and the others frozen: a transition that could read such a request
 * at the moment of the replacement would miss it.
 */
async function isDue(transaction: Transaction, { name, to }: Month): Promise<boolean> {
  const text = `
    SELECT count(*) AS requests, count(*) FILTER (WHERE ${IS_CLOSED}) AS closed,
      EXISTS (
        SELECT 1 FROM balance WHERE coalesce(closed_before, 0) < $1
          AND EXISTS (SELECT 1 FROM ${name} AS own WHERE own.organization_id = balance.organization_id)
      ) AS "isInUse"
    FROM ${name} AS request ${WITH_CLOSING}`;
  const { rows } = await read(transaction, text, to);
  const { requests, closed, isInUse } = rows[0] as { requests: bigint; closed: bigint; isInUse: boolean };
  return !isInUse && (requests === 0n || closed > requests - closed);
}

async function replace(transaction: Transaction, { name, from, to }: Month): Promise<void> {
  const rest = `${name}_rest`;
  // With the constraint, the attachment need not read the rows.
  const isWithin = `CHECK (id >= '${from}' AND id < '${to}')`;
  await transaction.query(`CREATE TABLE ${rest} (LIKE request INCLUDING ALL, ${isWithin})`);
  // Read through the parent, rows have its order of columns, as the new table does.
  const insertion = `
    INSERT INTO ${rest} SELECT request.* FROM request ${WITH_CLOSING}
    WHERE request.id >= '${from}' AND request.id < '${to}' AND (${IS_CLOSED}) IS NOT TRUE`;
  const { rowCount } = await read(transaction, insertion, to);
  const attachment = `
    ALTER TABLE ${rest} RENAME TO ${name};
    ALTER TABLE request ATTACH PARTITION ${name} FOR VALUES FROM ('${from}') TO ('${to}')`;
  // In one message, because requests wait from the lock to the end of the transaction.
  await transaction.query(`
    SET LOCAL statement_timeout = ${REPLACE_TIMEOUT_MS};
    SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS};
    LOCK TABLE ONLY request IN ACCESS EXCLUSIVE MODE;
    DROP TABLE ${name};
    ${rowCount === 0 ? `DROP TABLE ${rest}` : attachment}`);
}

async function read(transaction: Transaction, text: string, to: string): Promise<pg.QueryResult> {
  await transaction.query(`SET LOCAL statement_timeout = ${READ_TIMEOUT_MS}`);
  const config: pg.QueryConfig & { query_timeout: number } = { text, query_timeout: READ_TIMEOUT_MS };
  return transaction.query({ ...config, values: [Number.parseInt(to.replace("-", ""), 16)] });
}
