import { longStreams, mixedCalls } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const STREAMS = 50;
const LASTING_MS = 2_000;

/** Fills the disk under the data directory while streams run, lets requests come, and makes room again. Every one of the streams ends whole. */
export async function fillDisk(site: Site, random: Random, trial: string): Promise<void> {
  const { disk } = site;
  if (disk === undefined) throw new Error("this trial needs a disk that can be filled");
  // Its log begins anew: on a disk that is full, SQLite writes on as long as there is room in an old one.
  await site.terminate();
  await site.start();
  const streams = longStreams(random, trial, STREAMS, { lastingMs: LASTING_MS, organizations: site.organizations });
  const running = site.send(streams);
  await Promise.all(running.map(({ status }) => status));
  await disk.fill();
  const sent = site.send(mixedCalls(random, `${trial}.full`, 4 * STREAMS, site.organizations));
  await Promise.all(running.map(({ ended }) => ended));
  await Promise.all(sent.map(({ ended }) => ended));
  const statuses = await Promise.all(sent.map(({ status }) => status));
  if (!statuses.includes(503)) throw new Error("the disk was full, and nobody noticed");
  await tellsTheTruth(site, random, `${trial}.after`);
  await disk.free();
  await site.untilReady();
  site.addTrial(trial, {});
  site.addTrial(`${trial}.full`, { storeWasAway: true });
  await site.judge();
}

/** Whoever is answered 503 finds it said by /readyz too: a moment before, or a moment after. */
async function tellsTheTruth(site: Site, random: Random, trial: string): Promise<void> {
  const readiness = async () => (await fetch(`${site.service.url}/readyz`)).status;
  const before = await readiness();
  const [sent] = site.send(mixedCalls(random, trial, 1, site.organizations));
  const status = await sent?.status;
  const after = await readiness();
  await sent?.ended;
  site.addTrial(trial, { storeWasAway: true });
  if (status === 503 && before === 200 && after === 200) throw new Error("/readyz says ready, and requests get 503");
}
