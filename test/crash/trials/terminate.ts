import { setTimeout as sleep } from "node:timers/promises";
import { longStreams } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const STREAMS = 200;
const LASTING_MS = 3_000;

/** Asks the service to stop under 200 streams: every one of them comes to its end, and the service ends with 0. */
export async function terminateUnderStreams(site: Site, random: Random, trial: string): Promise<void> {
  const sent = site.send(
    longStreams(random, trial, STREAMS, { lastingMs: LASTING_MS, organizations: site.organizations }),
  );
  await Promise.all(sent.map(({ status }) => status));
  await sleep(random.between(0, LASTING_MS / 3));
  const running = sent.filter(({ words, call }) => words() < call.script.words).length;
  if (running < STREAMS / 2) throw new Error(`only ${running} streams ran when the service was told to stop`);
  const exitCode = await site.terminate();
  if (exitCode !== 0) throw new Error(`the service ended with ${exitCode}`);
  const ends = await Promise.all(sent.map(({ ended }) => ended));
  const cut = ends.filter((end) => end !== "all").length;
  if (cut > 0) throw new Error(`${cut} of ${STREAMS} streams were cut`);
  await site.start();
  site.addTrial(trial, {});
  await site.judge();
}
