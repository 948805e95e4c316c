import { setTimeout as sleep } from "node:timers/promises";
import { longStreams, mixedCalls } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const STREAMS = 50;
const LASTING_MS = 3_000;

/** Slows the store down while streams run and requests come, and lets it go again. */
export function slowStore(eachMs: number) {
  return async (site: Site, random: Random, trial: string): Promise<void> => {
    const running = site.send(
      longStreams(random, trial, STREAMS, { lastingMs: LASTING_MS, organizations: site.organizations }),
    );
    await Promise.all(running.map(({ status }) => status));
    const letGo = site.slowStore(eachMs);
    const sent = site.send(mixedCalls(random, `${trial}.slow`, STREAMS, site.organizations));
    await Promise.all([...running, ...sent].map(({ ended }) => ended));
    await letGo();
    await site.untilReady();
    site.addTrial(trial, { storeWasAway: false });
    site.addTrial(`${trial}.slow`, { storeWasAway: true });
    await site.judge();
  };
}

/** What /readyz says may be a tenth of a second old. */
const READINESS_AGE_MS = 150;

/** Takes PostgreSQL away while streams run; kills the service then, and starts it while the store is still away. */
export async function absentStore(site: Site, random: Random, trial: string): Promise<void> {
  const { proxy } = site.postgres ?? {};
  if (proxy === undefined) throw new Error("this trial is for PostgreSQL");
  const running = site.send(
    longStreams(random, trial, STREAMS, { lastingMs: LASTING_MS, organizations: site.organizations }),
  );
  await Promise.all(running.map(({ status }) => status));
  await proxy.leave();
  await refuses(site, random, `${trial}.away`);
  await Promise.all(running.map(({ ended }) => ended));
  site.addTrial(trial, {});
  await site.kill();
  await site.start({ awaits: "/healthz" });
  await refuses(site, random, `${trial}.start`);
  await proxy.comeBack();
  await site.untilReady();
  await site.judge();
}

/** The service says that it cannot work, and refuses requests with 503. */
async function refuses(site: Site, random: Random, trial: string): Promise<void> {
  await sleep(READINESS_AGE_MS);
  const answer = await fetch(`${site.service.url}/readyz`);
  if (answer.status !== 503) throw new Error(`/readyz is ${answer.status} while the store is away`);
  const sent = site.send(mixedCalls(random, trial, 10, site.organizations));
  const statuses = await Promise.all(sent.map(({ status }) => status));
  if (statuses.some((status) => status !== 503)) throw new Error(`answered ${statuses.join()} while the store is away`);
  await Promise.all(sent.map(({ ended }) => ended));
  site.addTrial(trial, { storeWasAway: true });
}
