import { appendFileSync, cpSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { makePostgresServer, PASSWORD, type PostgresServer } from "./postgres-server.ts";

const SLOT = "standby";
const STATE_INTERVAL_MS = 20;
/** Files of a running server, and contents of folders, that a base backup leaves out. */
const LEFT_OUT = /^(postmaster\.(pid|opts)|(pg_wal|pg_replslot|pg_notify|pg_stat_tmp|pg_subtrans)\/.+)$/;

/**
 * Makes a streaming replica of a server from a base backup, as pg_basebackup makes it (PostgreSQL's documentation, 25.3.3),
 * and makes the server wait for it at each durable commit.
 */
export async function makeSynchronousStandby(primary: PostgresServer): Promise<PostgresServer> {
  const client = await connect(primary.url);
  try {
    await client.query("SELECT pg_create_physical_replication_slot($1, true)", [SLOT]);
    const standby = await makePostgresServer({
      fill: async (data) => {
        await client.query("SELECT pg_backup_start('standby', fast => true)");
        cpSync(primary.data, data, {
          recursive: true,
          filter: (path) => !LEFT_OUT.test(relative(primary.data, path)),
        });
        const { rows } = await client.query<{ labelfile: string }>("SELECT labelfile FROM pg_backup_stop()");
        writeFileSync(join(data, "backup_label"), rows[0]?.labelfile ?? "");
        writeFileSync(join(data, "standby.signal"), "");
        const target = `host=127.0.0.1 port=${primary.port} user=postgres password=${PASSWORD} application_name=${SLOT}`;
        const settings = [`primary_conninfo = '${target}'`, `primary_slot_name = '${SLOT}'`];
        appendFileSync(join(data, "postgresql.auto.conf"), `${settings.join("\n")}\n`);
      },
    });
    await client.query(`ALTER SYSTEM SET synchronous_standby_names = '${SLOT}'`);
    await client.query("SELECT pg_reload_conf()");
    await until(async () => {
      const { rows } = await client.query("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'");
      return rows.length === 1;
    });
    return standby;
  } finally {
    await client.end();
  }
}

/** Makes a replica the server that takes writes. Resolves when it does. */
export async function promote(standby: PostgresServer): Promise<void> {
  const client = await connect(standby.url);
  try {
    await client.query("SELECT pg_promote(wait => true)");
  } finally {
    await client.end();
  }
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  return client;
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await sleep(STATE_INTERVAL_MS);
}
