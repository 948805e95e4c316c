import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { makeSynchronousStandby, promote } from "../../support/postgres-standby.ts";
import { keepCalling, mixedCalls, waitingStreams } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const REQUESTS = 200;
const KILL_WITHIN_MS = 2_000;
const CUT_REQUESTS = 100;
const CUTS = 20;
const PAUSE_MS = 100;

function serverOf(site: Site): NonNullable<Site["postgres"]> {
  if (site.postgres === undefined) throw new Error("this trial is for PostgreSQL");
  return site.postgres;
}

/**
 * Kills PostgreSQL with SIGKILL under 200 requests: the whole server, which is then started again, or one of its sessions,
 * after which it restarts by itself.
 */
export async function killPostgres(site: Site, random: Random, trial: string): Promise<void> {
  const { server } = serverOf(site);
  const sent = site.send(mixedCalls(random, trial, REQUESTS, site));
  await sleep(random.between(0, KILL_WITHIN_MS * site.options.streamShare));
  await site.judge();
  if (random.chance(0.5)) {
    await server.kill();
    sent.push(...site.send(mixedCalls(random, `${trial}.away`, 20, site)));
    await sleep(random.between(0, 1_500));
    await server.start();
  } else {
    await killSession(server.url);
    sent.push(...site.send(mixedCalls(random, `${trial}.away`, 20, site)));
  }
  await Promise.all(sent.map(({ ended }) => ended));
  await site.untilReady();
  site.addTrial(trial, { storeWasUnavailable: true });
  site.addTrial(`${trial}.away`, { storeWasUnavailable: true });
  await site.judge({ mayForgetOpenHolds: true });
}

/**
 * Kills PostgreSQL under 200 requests while a synchronous replica follows it, and promotes the replica. The killed server
 * never comes back.
 */
export async function failOver(site: Site, random: Random, trial: string): Promise<void> {
  const place = serverOf(site);
  const primary = place.server;
  const standby = await makeSynchronousStandby(primary);
  const sent = site.send(mixedCalls(random, trial, REQUESTS, site));
  await sleep(random.between(0, KILL_WITHIN_MS * site.options.streamShare));
  await site.judge();
  await primary.kill();
  sent.push(...site.send(mixedCalls(random, `${trial}.away`, 20, site)));
  await promote(standby);
  place.server = standby;
  place.proxy.target = new URL(standby.url);
  await Promise.all(sent.map(({ ended }) => ended));
  await site.untilReady();
  site.addTrial(trial, { storeWasUnavailable: true });
  site.addTrial(`${trial}.away`, { storeWasUnavailable: true });
  await site.judge({ mayForgetOpenHolds: true });
  await primary.remove();
}

async function killSession(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  const { rows } = await client.query<{ pid: number }>(
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'tollgate' LIMIT 1",
  );
  const [session] = rows;
  if (session !== undefined) killIfThere(session.pid);
  await client.end().catch(() => {});
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/**
 * Cuts the service's connection at twenty COMMITs, under waiting streams and successive requests. No transaction is cut twice
 * in a row, because five times would be an outage.
 */
export function cutCommits(cuts: "before" | "during" | "after") {
  return async (site: Site, random: Random, trial: string): Promise<void> => {
    const { proxy } = serverOf(site);
    const running = site.send(waitingStreams(random, trial, CUT_REQUESTS / 2, site));
    const mixed = `${trial}.mixed`;
    const stopCalling = keepCalling(site, random, mixed, CUT_REQUESTS / 2);
    Object.assign(proxy, { cuts, sparesNext: true });
    for (let made = 0; made < CUTS; made += 1) {
      proxy.commitsToCut = 1;
      while (proxy.commitsToCut > 0) await sleep(5);
      await sleep(random.between(0, PAUSE_MS));
    }
    await stopCalling();
    await site.letGo(trial);
    await Promise.all(running.map(({ ended }) => ended));
    site.addTrial(trial, {});
    site.addTrial(mixed, {});
    await site.judge();
  };
}
