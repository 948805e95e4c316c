import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { longStreams, mixedCalls } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const REQUESTS = 200;
const CUT_REQUESTS = 100;
const CUTS = 20;
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
  if (session !== undefined) process.kill(session.pid, "SIGKILL");
  await client.end().catch(() => {});
}

/** Cuts the service's connection at twenty COMMITs under a steady load. */
export function cutCommits(cuts: "before" | "during" | "after") {
  return async (site: Site, random: Random, trial: string): Promise<void> => {
    const { proxy } = serverOf(site);
    const { organizations } = site;
    const calls = longStreams(random, trial, CUT_REQUESTS / 2, { lastingMs: LASTING_MS, organizations });
    const sent = site.send([...calls, ...mixedCalls(random, `${trial}.mixed`, CUT_REQUESTS / 2, organizations)]);
    let isOver = false;
    const ended = Promise.all(sent.map((one) => one.ended)).then(() => {
      isOver = true;
    });
    for (let made = 0; made < CUTS && !isOver; made += 1) {
      Object.assign(proxy, { cuts, commitsToCut: 1 });
      while (proxy.commitsToCut > 0 && !isOver) await sleep(5);
      // Long enough for the next attempt: five in a row would be an outage.
      await sleep(random.between(80, 160));
    }
    if (proxy.commitsToCut > 0) throw new Error("the load ended before twenty COMMITs were cut");
    await ended;
    site.addTrial(trial, {});
    site.addTrial(`${trial}.mixed`, {});
    await site.judge();
  };
}
