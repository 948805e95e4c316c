import { randomBytes } from "node:crypto";
import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { expect, test } from "vitest";
import { noFile } from "../test/support/config.ts";
import { createTestDatabase, hasPostgres } from "../test/support/postgres.ts";
import { startService } from "./app.ts";
import { loadConfig } from "./config.ts";
import { createLog } from "./telemetry/logger.ts";

const NODES = 3;
const TIMES = 4;

test.skipIf(!hasPostgres)(
  "of nodes that first start at once on PostgreSQL one makes the organization, its token and the admin token",
  async () => {
    for (let times = 0; times < TIMES; times += 1) await startAtOnce();
  },
);

async function startAtOnce(): Promise<void> {
  const database = await createTestDatabase();
  const directory = await mkdtemp(join(tmpdir(), "tollgate-nodes-"));
  const starts = Array.from({ length: NODES }, (_none, node) => startNode(database.url, join(directory, String(node))));
  const nodes = await Promise.all(starts);
  try {
    const ready = await Promise.all(nodes.map(({ url }) => fetch(`${url}/readyz`)));
    expect(ready.map(({ status }) => status)).toEqual(Array(NODES).fill(200));
    expect(new Set(nodes.map(({ facts }) => facts.organizationId)).size).toBe(1);
    const makers = nodes.filter(({ facts }) => facts.token !== null);
    expect(makers.length).toBe(1);
    expect(nodes.filter(({ facts }) => facts.adminToken !== null)).toEqual(makers);
    expect(await rowsIn(database.url)).toEqual({ organizations: 1, tokens: 1, grants: 1, adminTokens: 1 });
  } finally {
    await Promise.all(nodes.map((node) => node.stop({ delayMs: 0, drainMs: 0 })));
    await database.drop();
    rmSync(directory, { recursive: true });
  }
}

async function rowsIn(databaseUrl: string): Promise<object> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  const { rows } = await client.query(`
    SELECT (SELECT count(*)::int FROM organization WHERE kind = 'standard') AS organizations,
      (SELECT count(*)::int FROM token) AS tokens, (SELECT count(*)::int FROM credit_grant) AS grants,
      (SELECT count(*)::int FROM operator) AS "adminTokens"`);
  await client.end();
  return rows[0];
}

function startNode(databaseUrl: string, dataDir: string) {
  const environment = { DATABASE_URL: databaseUrl, TOLLGATE_DATA_DIR: dataDir };
  const config = loadConfig({ environment, flags: { port: "0" }, readFile: noFile });
  const options = {
    workers: 1,
    version: "0.0.0",
    log: createLog("silent"),
    accessLog: { record: () => undefined },
    out: () => {},
    clock: Date.now,
    random: randomBytes,
    source: { load: async () => config, files: new Set<string>(), apply: () => {} },
  };
  return startService(config, options);
}
