import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";

/** Takes SQLite's write lock as another process would. Returns its release. */
export function lockFile(path: string): () => void {
  const database = new DatabaseSync(path, { timeout: 60_000 });
  database.exec("BEGIN IMMEDIATE");
  return () => database.close();
}

/** Locks the balances of organizations in a separate session. Returns the release. */
export async function lockBalances(url: string, organizationIds: string[]): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query("BEGIN");
  await client.query("SELECT FROM balance WHERE organization_id = ANY ($1) ORDER BY organization_id FOR UPDATE", [
    organizationIds,
  ]);
  return () => client.end();
}

/** SQLite polls for a lock at most every 100 ms. */
const OPEN_MS = 150;

/** Holds SQLite's write lock most of the time, for `eachMs` at a time, until it is stopped. */
export function slowFile(path: string, eachMs: number): () => Promise<void> {
  let isOver = false;
  const work = async () => {
    while (!isOver) {
      const unlock = lockFile(path);
      await sleep(eachMs);
      unlock();
      await sleep(OPEN_MS);
    }
  };
  const working = work();
  return () => {
    isOver = true;
    return working;
  };
}

/** Creates a database on a server, with a name like this, and returns its address; undefined without a server. */
export async function createDatabase(server: string | undefined, name: string): Promise<string | undefined> {
  if (server === undefined) return undefined;
  const url = new URL(server);
  url.pathname = `/${name.toLowerCase().replaceAll(/\W/g, "_")}`;
  const client = new pg.Client({ connectionString: server });
  await client.connect();
  await client.query(`CREATE DATABASE ${url.pathname.slice(1)}`);
  await client.end();
  return url.href;
}
