import type pg from "pg";
import { idAt } from "../../credits/request-id.ts";
import { query, transact } from "./transact.ts";

const MONTHS_AHEAD = 2;
const EVERY_MS = 3_600_000;
/** Reads of requests queue behind a partition that waits to be attached. */
const LOCK_TIMEOUT_MS = 500;

/**
 * Creates the partitions of this month and of the months to come, now and every hour. Nodes may do it at the same time.
 * If a partition cannot be created, the requests of its month go to the default partition, where they stay; nothing is
 * lost, and that month gets no partition of its own. Returns a function that stops it.
 */
export async function keepPartitions(pool: pg.Pool): Promise<() => void> {
  const make = () => makePartitions(pool).catch(() => {});
  await make();
  const timer = setInterval(make, EVERY_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** Creates the missing partitions. Rejects if the store cannot be reached. */
export async function makePartitions(pool: pg.Pool): Promise<void> {
  const { rows } = await query<{ now: bigint }>(pool, {
    text: "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now",
    isRepeatable: true,
  });
  const today = new Date(Number(rows[0]?.now));
  for (let ahead = 0; ahead <= MONTHS_AHEAD; ahead += 1) {
    const month = (more: number) => Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + ahead + more);
    const name = `request_${new Date(month(0)).toISOString().slice(0, 7).replace("-", "")}`;
    const text = "SELECT to_regclass($1) IS NOT NULL AS made";
    const found = await query<{ made: boolean }>(pool, { text, values: [name], isRepeatable: true });
    // A failure for one month must not prevent the partitions of later months.
    if (found.rows[0]?.made === false) await makePartition(pool, name, month(0), month(1)).catch(() => {});
  }
}

/** Creates a table and attaches it: unlike CREATE TABLE … PARTITION OF, this does not block charges. */
function makePartition(pool: pg.Pool, name: string, fromMs: number, toMs: number): Promise<void> {
  return transact(pool, { kind: "booking", isRepeatable: false }, async (client) => {
    await client.query(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
    await client.query(`CREATE TABLE ${name} (LIKE request INCLUDING ALL)`);
    await client.query(
      `ALTER TABLE request ATTACH PARTITION ${name} FOR VALUES FROM ('${idAt(fromMs)}') TO ('${idAt(toMs)}')`,
    );
  });
}
