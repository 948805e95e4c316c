import type pg from "pg";
import { idAt } from "../../credits/request-id.ts";
import { CLOCK, query, transact } from "./transact.ts";

/**
 * Begins a transaction of several reads. Its snapshot is taken after the lock, so that no partition is dropped between them:
 * its rows, removed or not, are missing in an older snapshot, too.
 */
export const LOCK_REQUESTS = "LOCK TABLE ONLY request IN ACCESS SHARE MODE";

const MONTHS_AHEAD = 2;
const EVERY_MS = 3_600_000;
/** Reads of requests queue behind a partition that waits to be attached. */
const ATTACH_LOCK_TIMEOUT_MS = 500;
/** Time for which transactions of requests may queue behind a partition that is to be dropped. */
const DROP_LOCK_TIMEOUT_MS = 30;
/** Passing over many rows that were deleted a moment ago takes time, for which requests would wait. */
const DROP_READ_TIMEOUT_MS = 100;
/** Partitions of the months before that of $1. */
const EARLIER = `
  SELECT relname AS name FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
  WHERE inhparent = 'request'::regclass AND relname ~ '^request_[0-9]{6}$' AND relname < $1 ORDER BY relname`;

/**
 * Creates the partitions of this month and of the next ones, and drops empty ones of past months, now and every hour. Requests
 * of a month without a partition go to the default one, and stay there. Returns a function that stops it.
 */
export async function keepPartitions(pool: pg.Pool): Promise<() => void> {
  const keep = async () => {
    await makePartitions(pool).catch(() => {});
    await dropEmptyPartitions(pool).catch(() => {});
  };
  await keep();
  const timer = setInterval(keep, EVERY_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** Creates the missing partitions. Rejects if the store cannot be reached. */
export async function makePartitions(pool: pg.Pool): Promise<void> {
  const today = await readToday(pool);
  for (let ahead = 0; ahead <= MONTHS_AHEAD; ahead += 1) {
    const { name, fromMs, toMs } = partitionOf(today, ahead);
    const text = "SELECT to_regclass($1) IS NOT NULL AS exists";
    const [found] = await query<{ exists: boolean }>(pool, text, [name]);
    // A failure for one month must not prevent the partitions of later months.
    if (found?.exists === false) await makePartition(pool, name, fromMs, toMs).catch(() => {});
  }
}

/** Drops partitions that retention has emptied, unless one is in use or may not be dropped. Rejects if the store is away. */
export async function dropEmptyPartitions(pool: pg.Pool): Promise<void> {
  // Requests of the last month may still be running.
  const { name: lastMonth } = partitionOf(await readToday(pool), -1);
  for (const { name } of await query<{ name: string }>(pool, EARLIER, [lastMonth]))
    await dropIfEmpty(pool, name).catch(() => {});
}

function dropIfEmpty(pool: pg.Pool, name: string): Promise<void> {
  return transact(pool, { kind: "booking", isRepeatable: false }, async (transaction) => {
    const hasRows = async () => {
      const { rows } = await transaction.query(`SELECT EXISTS (SELECT 1 FROM ${name}) AS found`);
      return rows[0]?.found !== false;
    };
    await transaction.query(`SET LOCAL statement_timeout = ${DROP_READ_TIMEOUT_MS}`);
    if (await hasRows()) return;
    await transaction.query(`SET LOCAL lock_timeout = ${DROP_LOCK_TIMEOUT_MS}`);
    // From now on, nothing is inserted into the partition, and what was inserted before is committed.
    await transaction.query("LOCK TABLE ONLY request IN ACCESS EXCLUSIVE MODE");
    if (await hasRows()) return;
    await transaction.query(`DROP TABLE ${name}`);
  });
}

async function readToday(pool: pg.Pool): Promise<Date> {
  const [clock] = await query<{ now: bigint }>(pool, CLOCK);
  return new Date(Number(clock?.now));
}

/** Returns the partition of the month that is `ahead` months after a time. */
export function partitionOf(time: Date, ahead = 0): { name: string; fromMs: number; toMs: number } {
  const month = (more: number) => Date.UTC(time.getUTCFullYear(), time.getUTCMonth() + ahead + more);
  const name = `request_${new Date(month(0)).toISOString().slice(0, 7).replace("-", "")}`;
  return { name, fromMs: month(0), toMs: month(1) };
}

/** Creates a table and attaches it: unlike CREATE TABLE … PARTITION OF, this does not block charges. */
function makePartition(pool: pg.Pool, name: string, fromMs: number, toMs: number): Promise<void> {
  return transact(pool, { kind: "booking", isRepeatable: false }, async (client) => {
    await client.query(`SET LOCAL lock_timeout = ${ATTACH_LOCK_TIMEOUT_MS}`);
    await client.query(`CREATE TABLE ${name} (LIKE request INCLUDING ALL)`);
    await client.query(
      `ALTER TABLE request ATTACH PARTITION ${name} FOR VALUES FROM ('${idAt(fromMs)}') TO ('${idAt(toMs)}')`,
    );
  });
}
