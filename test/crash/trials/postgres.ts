import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { longStreams, mixedCalls } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const REQUESTS = 200;
const CUT_REQUESTS = 100;
const CUTS = 20;
/** Between two cuts: the attempt after the first comes through. */
const COMMITS_BETWEEN = 3;
const LASTING_MS = 4_000;

function serverOf(site: Site): NonNullable<Site["postgres"]> {
  if (site.postgres === undefined) throw new Error("this trial is for PostgreSQL");
  return site.postgres;
}

/**
 * Kills PostgreSQL with SIGKILL under 200 requests: the whole server, which is started again a moment later, or one of its
 * sessions, after which it starts again by itself.
 */
export async function killPostgres(site: Site, random: Random, trial: string): Promise<void> {
  const { server } = serverOf(site);
  const sent = site.send(mixedCalls(random, trial, REQUESTS, site.organizations));
  await sleep(random.between(0, 2_000));
  await site.judge();
  if (random.chance(0.5)) {
    await server.kill();
    sent.push(...site.send(mixedCalls(random, `${trial}.away`, 20, site.organizations)));
    await sleep(random.between(0, 1_500));
    await server.start();
  } else {
    await killSession(server.url);
    sent.push(...site.send(mixedCalls(random, `${trial}.away`, 20, site.organizations)));
  }
  await Promise.all(sent.map(({ ended }) => ended));
  await site.untilReady();
  site.addTrial(trial, { storeWasAway: true });
  site.addTrial(`${trial}.away`, { storeWasAway: true });
  await site.judge({ mayForgetOpenHolds: true });
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

/** Cuts the service's connection at twenty COMMITs under a steady load. */
export function cutCommits(cuts: "before" | "during" | "after") {
  return async (site: Site, random: Random, trial: string): Promise<void> => {
    const { proxy } = serverOf(site);
    let isOver = false;
    const loaded = load(site, random, trial, () => !isOver);
    for (let made = 0; made < CUTS; made += 1) {
      Object.assign(proxy, { cuts, commitsToCut: 1 });
      while (proxy.commitsToCut > 0) await sleep(5);
      // Five attempts in a row that are cut would be an outage.
      const { commitsPassed } = proxy;
      await sleep(random.between(80, 160));
      while (proxy.commitsPassed < commitsPassed + COMMITS_BETWEEN) await sleep(5);
    }
    isOver = true;
    for (const name of await loaded) site.addTrial(name, {});
    await site.judge();
  };
}

/** Sends a hundred requests, and as many again when they have ended, while that is wanted; gives the trials that they are logged under. */
async function load(site: Site, random: Random, trial: string, isWanted: () => boolean): Promise<string[]> {
  const { organizations } = site;
  const names: string[] = [];
  while (isWanted()) {
    const [long, mixed] = [`${trial}.${names.length}`, `${trial}.${names.length}.mixed`];
    names.push(long, mixed);
    const calls = longStreams(random, long, CUT_REQUESTS / 2, { lastingMs: LASTING_MS, organizations });
    const sent = site.send([...calls, ...mixedCalls(random, mixed, CUT_REQUESTS / 2, organizations)]);
    await Promise.all(sent.map(({ ended }) => ended));
  }
  return names;
}
