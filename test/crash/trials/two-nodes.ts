import { setTimeout as sleep } from "node:timers/promises";
import { startProcess } from "../../support/service.ts";
import { mixedCalls } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const REQUESTS = 100;
const KILL_WITHIN_MS = 3_000;

/** Kills one of two services on the same PostgreSQL. The other expires its holds, and its own requests are not affected. */
export async function killOneOfTwo(site: Site, random: Random, trial: string): Promise<void> {
  const other = await startProcess({ ...site.serviceOptions, dataDir: site.otherDataDir });
  try {
    // The service that will be killed expires the holds of earlier trials first.
    await site.judge({ all: true });
    const living = mixedCalls(random, `${trial}.living`, REQUESTS, site);
    const notice = living.map((call) => site.clients.send(other.baseUrl, call));
    const sent = site.send(mixedCalls(random, trial, REQUESTS, site));
    await sleep(random.between(0, KILL_WITHIN_MS * site.options.streamShare));
    const killedAt = await site.kill();
    await Promise.all([...sent, ...notice].map(({ ended }) => ended));
    site.addTrial(trial, { killedAt, isAbandoned: true });
    site.addTrial(`${trial}.living`, {});
    // Before the killed service is started again.
    await site.judge({ all: true });
  } finally {
    await other.end("SIGTERM");
    await site.start();
  }
}
