import type pg from "pg";
import { query, transact } from "./transact.ts";

const DAY_MS = 86_400_000;
const DAYS_AHEAD = 7;
const EVERY_MS = 3_600_000;
/** Reads of the events wait behind a partition that waits to be attached. */
const LOCK_TIMEOUT_MS = 500;

/**
 * Makes the partitions of today and of the days to come, now and every hour. Nodes that do it at once do no harm. Where
 * it fails the events of that day go to the default partition, which is no loss; once there, they stay there, and their
 * day gets no partition of its own. Returns how to stop.
 */
export async function keepPartitions(pool: pg.Pool): Promise<() => void> {
  const make = () => makePartitions(pool).catch(() => {});
  await make();
  const timer = setInterval(make, EVERY_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** Makes the partitions that are missing. Rejects when the store cannot be reached. */
export async function makePartitions(pool: pg.Pool): Promise<void> {
  const { rows } = await query<{ now: bigint }>(pool, {
    text: "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now",
    isRepeatable: true,
  });
  const today = Math.floor(Number(rows[0]?.now) / DAY_MS) * DAY_MS;
  for (let ahead = 0; ahead <= DAYS_AHEAD; ahead += 1) {
    const from = today + ahead * DAY_MS;
    const name = `usage_event_${new Date(from).toISOString().slice(0, 10).replaceAll("-", "")}`;
    const text = "SELECT to_regclass($1) IS NOT NULL AS made";
    const found = await query<{ made: boolean }>(pool, { text, values: [name], isRepeatable: true });
    // One day that cannot be made must not keep the later ones from being made in time.
    if (found.rows[0]?.made === false) await makePartition(pool, name, from).catch(() => {});
  }
}

/** Attached and not made in its place: charges go on meanwhile, which CREATE TABLE … PARTITION OF would lock out. */
function makePartition(pool: pg.Pool, name: string, from: number): Promise<void> {
  return transact(pool, { kind: "booking", isRepeatable: false }, async (client) => {
    await client.query(`SET LOCAL lock_timeout = ${LOCK_TIMEOUT_MS}`);
    await client.query(`CREATE TABLE ${name} (LIKE usage_event INCLUDING ALL)`);
    await client.query(
      `ALTER TABLE usage_event ATTACH PARTITION ${name} FOR VALUES FROM (${from}) TO (${from + DAY_MS})`,
    );
  });
}
