import { setTimeout as sleep } from "node:timers/promises";
import type { Sent } from "../client.ts";
import { mixedCalls, waitingStreams } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const STREAMS = 50;

/**
 * Slows the store down while streams run and requests arrive, until the streams and half of the requests have ended.
 */
export function slowStore(eachMs: number) {
  return async (site: Site, random: Random, trial: string): Promise<void> => {
    const running = site.send(waitingStreams(random, trial, STREAMS, site));
    await Promise.all(running.map(({ status }) => status));
    const makeFast = site.slowStore(eachMs);
    const sent = site.send(mixedCalls(random, `${trial}.slow`, STREAMS, site));
    await site.letGo(trial);
    await Promise.all([...running.map(({ ended }) => ended), ended(sent, STREAMS / 2)]);
    await makeFast();
    await Promise.all(sent.map(({ ended }) => ended));
    await site.untilReady();
    site.addTrial(trial, { storeWasUnavailable: false });
    site.addTrial(`${trial}.slow`, { storeWasUnavailable: true });
    await site.judge();
  };
}

/** Resolves when this number of requests has ended. */
function ended(sent: Sent[], count: number): Promise<void> {
  const enough = Promise.withResolvers<void>();
  let found = 0;
  for (const one of sent) {
    void one.ended.then(() => {
      found += 1;
      if (found === count) enough.resolve();
    });
  }
  return enough.promise;
}

/** Makes PostgreSQL unavailable while streams run, kills the service, and starts it while the store is still unavailable. */
export async function absentStore(site: Site, random: Random, trial: string): Promise<void> {
  const { proxy } = site.postgres ?? {};
  if (proxy === undefined) throw new Error("this trial is for PostgreSQL");
  const running = site.send(waitingStreams(random, trial, STREAMS, site));
  await Promise.all(running.map(({ status }) => status));
  await proxy.leave();
  await refuses(site, random, `${trial}.away`);
  await site.letGo(trial);
  await Promise.all(running.map(({ ended }) => ended));
  site.addTrial(trial, {});
  await site.kill();
  await site.start({ awaits: "/healthz" });
  await refuses(site, random, `${trial}.start`);
  await proxy.comeBack();
  await site.untilReady();
  await site.judge();
}

/** Checks that the service reports itself as not ready, and refuses requests with 503. */
async function refuses(site: Site, random: Random, trial: string): Promise<void> {
  await untilNotReady(site);
  const sent = site.send(mixedCalls(random, trial, 10, site));
  const statuses = await Promise.all(sent.map(({ status }) => status));
  if (statuses.some((status) => status !== 503))
    throw new Error(`answered ${statuses.join()} while the store is unavailable`);
  await Promise.all(sent.map(({ ended }) => ended));
  site.addTrial(trial, { storeWasUnavailable: true });
}

/** The result of /readyz may be a moment old. */
async function untilNotReady({ service, options }: Site): Promise<void> {
  const until = Date.now() + options.patienceMs;
  for (;;) {
    const { status } = await fetch(`${service.url}/readyz`);
    if (status === 503) return;
    if (Date.now() > until) throw new Error(`/readyz is ${status} while the store is unavailable`);
    await sleep(20);
  }
}
