import { setTimeout as sleep } from "node:timers/promises";
import { mixedCalls } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const REQUESTS = 200;
const KILL_WITHIN_MS = 3_000;

/**
 * Kills the service with SIGKILL at a random moment under 200 requests, streamed and unstreamed, and starts it again. In
 * half of the trials, the requests with a key are repeated.
 */
export async function killAtRandomMoment(site: Site, random: Random, trial: string): Promise<void> {
  const sent = site.send(mixedCalls(random, trial, REQUESTS, site));
  await sleep(random.between(0, KILL_WITHIN_MS * site.options.streamShare));
  // The charges in the books now must not change later.
  await site.judge();
  const killedAt = await site.kill();
  await Promise.all(sent.map(({ ended }) => ended));
  await site.restart();
  if (random.chance(0.5)) await site.repeat(sent);
  site.addTrial(trial, { killedAt });
  await site.judge();
}
