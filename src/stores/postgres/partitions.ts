import type pg from "pg";

const DAY_MS = 86_400_000;
const DAYS_AHEAD = 7;
const EVERY_MS = 3_600_000;

/**
 * Makes the partitions of today and of the days to come, now and every hour. Nodes that do it at once do no harm. Where
 * it fails the events of that day go to the default partition, which is no loss. Returns how to stop.
 */
export async function keepPartitions(pool: pg.Pool): Promise<() => void> {
  const make = () => makePartitions(pool).catch(() => {});
  await make();
  const timer = setInterval(make, EVERY_MS);
  timer.unref();
  return () => clearInterval(timer);
}

async function makePartitions(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ now: bigint }>(
    "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now",
  );
  const today = Math.floor(Number(rows[0]?.now) / DAY_MS) * DAY_MS;
  for (let ahead = 0; ahead <= DAYS_AHEAD; ahead += 1) {
    const from = today + ahead * DAY_MS;
    const name = `usage_event_${new Date(from).toISOString().slice(0, 10).replaceAll("-", "")}`;
    const found = await pool.query("SELECT to_regclass($1) AS made", [name]);
    if (found.rows[0]?.made !== null) continue;
    await pool.query(
      `CREATE TABLE IF NOT EXISTS ${name} PARTITION OF usage_event FOR VALUES FROM (${from}) TO (${from + DAY_MS})`,
    );
  }
}
