import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { readMigrations } from "../../../src/stores/migrations.ts";
import { migrate } from "../../../src/stores/postgres/migrate.ts";
import { closePools, openPools } from "../../../src/stores/postgres/pools.ts";
import { makeOrganization, makeToken } from "../../support/service.ts";
import type { Call } from "../client.ts";
import { Cluster } from "../cluster.ts";
import { Elsewhere, LIMIT } from "../elsewhere.ts";
import { keepCalling } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const NODES = 3;
const [KILLED, FROZEN, UPGRADED] = [0, 1, 2] as const;
/** Requests that run at once in a soak; in the tests, a share of them. */
const RUNNING = 12;
const PAUSE_MS = 3_000;
/** Number of pauses in the whole trial. */
const PAUSES = 10;
const MIGRATIONS = new URL("../../../src/stores/postgres/migrations/", import.meta.url);
const LATER = 9_999;
const TABLES = ["balance", "hold", "request", "token"];

interface Stage {
  site: Site;
  cluster: Cluster;
  pauseMs: number;
}

/** A time in which requests may fail. */
interface Span {
  from: number;
  until: number;
}

/**
 * Runs three nodes behind nginx under mixed load. One is frozen and goes on. One is stopped and replaced by one that
 * changes the tables, beside which the others work on; one of those is killed and started again, and the last one is
 * replaced too. Nothing but requests that the killed node had may fail.
 */
export async function loseNodes(site: Site, random: Random, trial: string): Promise<void> {
  const cluster = await Cluster.start(site, NODES);
  try {
    const { organizations, options, clients } = site;
    const stage = { site, cluster, pauseMs: (options.loadMs ?? PAUSES * PAUSE_MS * options.streamShare) / PAUSES };
    // Its requests go to models of the sandbox, whose prices the checker does not know.
    const other = await makeOrganization(site.service, "10000");
    const limits = { requests_per_minute: LIMIT };
    const { token: limited } = await makeToken(site.service, other.id, { limits });
    const elsewhere = new Elsewhere(cluster.baseUrl, other.token, limited);
    const send = (calls: Call[]) => calls.map((call) => clients.send(cluster.baseUrl, call));
    /** Has requests running under a name of their own, and ends those before. */
    let stopCalling = async () => {};
    const callAs = async (name: string) => {
      const stopEarlier = stopCalling;
      stopCalling = keepCalling({ organizations, options, send }, random, name, RUNNING * options.streamShare);
      await stopEarlier();
    };
    const [before, during, after] = [`${trial}.before`, `${trial}.kill`, `${trial}.after`] as const;
    await callAs(before);
    const frozen = await freezeNode(stage);
    await replaceNode(stage, UPGRADED, () => (options.before === undefined ? addColumns(site) : undefined));
    await callAs(during);
    const killed = await killNode(stage);
    await callAs(after);
    await replaceNode(stage, FROZEN);
    await stopCalling();
    await elsewhere.stop();
    checkProxy(cluster, killed);
    await checkElsewhere(site, other.id, elsewhere, { frozen, killed });
    site.answers.set("on other endpoints", elsewhere.complete);
    site.answers.set("of the limited token", elsewhere.passed.length);
    // Rejects where the books of any organization do not balance.
    await cluster.nodes[UPGRADED]?.tollgate("ledger", "verify");
    site.addTrial(before, { wasSuspended: true });
    site.addTrial(during, { killedAt: killed.from });
    site.addTrial(after, {});
    await site.judge({ all: true });
  } finally {
    cluster.nodes[FROZEN]?.child.kill("SIGCONT");
    await cluster.end();
  }
}

async function freezeNode({ site, cluster, pauseMs }: Stage): Promise<Span> {
  await sleep(pauseMs);
  const child = cluster.nodes[FROZEN]?.child;
  const from = Date.now();
  child?.kill("SIGSTOP");
  await sleep(Math.min(pauseMs, site.limits.holdLifeMs / 3));
  child?.kill("SIGCONT");
  await sleep(pauseMs);
  return { from, until: Date.now() };
}

async function killNode({ cluster, pauseMs }: Stage): Promise<Span> {
  await sleep(pauseMs);
  const from = Date.now();
  await cluster.endNode(KILLED, "SIGKILL");
  const until = Date.now();
  await sleep(pauseMs);
  await cluster.startNode(KILLED, { isUpgraded: true });
  await sleep(pauseMs);
  return { from, until };
}

/** Stops a node as an upgrade does, and starts this version in its place. */
async function replaceNode(
  { cluster, pauseMs }: Stage,
  index: number,
  meanwhile?: () => Promise<void> | undefined,
): Promise<void> {
  const exitCode = await cluster.endNode(index, "SIGTERM");
  if (exitCode !== 0) throw new Error(`the node that was stopped exited with ${exitCode}`);
  await sleep(pauseMs);
  await meanwhile?.();
  await cluster.startNode(index, { isUpgraded: true });
  await sleep(pauseMs);
}

/** Migrates tables that every request uses, as a later version would, and forgets it: this version is to start on them. */
async function addColumns({ postgres }: Site): Promise<void> {
  const url = postgres?.server.url ?? "";
  const pools = openPools(url);
  const changes = TABLES.map(
    (table) => `ALTER TABLE ${table} ADD COLUMN later_${Date.now()} integer NOT NULL DEFAULT 7`,
  );
  const later = { version: LATER, name: "later.sql", sql: changes.join(";"), checksum: "" };
  await migrate(pools, [...readMigrations(MIGRATIONS), later]);
  await pools.durable.query("DELETE FROM schema_migration WHERE version = $1", [LATER]);
  await closePools(pools);
}

const isWithin = ({ from, until }: Span, beganAt: number, endedAt: number) => beganAt <= until && endedAt >= from;

/** Throws where a request failed or was cut that no killed node had. */
function checkProxy(cluster: Cluster, killed: Span): void {
  const host = cluster.hostOf(KILLED);
  const failed = cluster.proxied().filter(({ status, nodes, beganAt, endedAt }) => {
    return status >= 500 && !(nodes.includes(host) && isWithin(killed, beganAt, endedAt));
  });
  if (failed.length > 0) throw new Error(`failed on living nodes: ${JSON.stringify(failed.slice(0, 5))}`);
  const cut = cluster.cut().filter((node) => node !== host);
  if (cut.length > 0) throw new Error(`${cut.length} answers of nodes that were not killed were cut: ${cut}`);
}

/** Throws where another request failed that no killed node had, was not charged once, or exceeded its limit. */
async function checkElsewhere(
  { postgres }: Site,
  organizationId: string,
  elsewhere: Elsewhere,
  { frozen, killed }: { frozen: Span; killed: Span },
): Promise<void> {
  const { failed, booked } = elsewhere;
  const unexpected = failed.filter(({ status, sentAt, endedAt }) => {
    return !isWithin(killed, sentAt, endedAt) && !(status === 408 && isWithin(frozen, sentAt, endedAt));
  });
  if (unexpected.length > 0) throw new Error(`failed on living nodes: ${JSON.stringify(unexpected.slice(0, 5))}`);
  elsewhere.checkLimit();
  const client = new pg.Client({ connectionString: postgres?.server.url });
  await client.connect();
  const { rows } = await client.query<{ count: string }>(
    "SELECT count(*) FROM request WHERE organization_id = $1 AND ending = 'complete'",
    [organizationId],
  );
  await client.end();
  const found = Number(rows[0]?.count);
  if (found < booked || found > booked + failed.length)
    throw new Error(`${booked} complete answers to other requests, ${failed.length} others, and ${found} are booked`);
}
