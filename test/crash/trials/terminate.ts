import { setTimeout as sleep } from "node:timers/promises";
import { waitingStreams } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const STREAMS = 200;
const LET_GO_WITHIN_MS = 500;

/**
 * Stops the service gracefully during 200 streams: all of them must complete, and the service must exit with 0.
 */
export async function terminateUnderStreams(site: Site, random: Random, trial: string): Promise<void> {
  const sent = site.send(waitingStreams(random, trial, STREAMS, site));
  await Promise.all(sent.map(({ status }) => status));
  const { url } = site.service;
  const ended = site.terminate();
  await untilStopping(url);
  await sleep(random.between(0, LET_GO_WITHIN_MS));
  await site.letGo(trial);
  const exitCode = await ended;
  if (exitCode !== 0) throw new Error(`the service ended with ${exitCode}`);
  const ends = await Promise.all(sent.map((one) => one.ended));
  const cut = ends.filter((end) => end !== "all").length;
  if (cut > 0) throw new Error(`${cut} of ${STREAMS} streams were cut`);
  await site.start();
  site.addTrial(trial, {});
  await site.judge();
}

/** Resolves when the service is draining or unreachable. */
async function untilStopping(url: string): Promise<void> {
  for (;;) {
    const answer = await fetch(`${url}/readyz`).catch(() => undefined);
    await answer?.arrayBuffer().catch(() => undefined);
    if (answer?.status !== 200) return;
    await sleep(20);
  }
}
