import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { longStreams } from "../load.ts";
import type { Random } from "../random.ts";
import type { Site } from "../site.ts";

const STREAMS = 200;
const LASTING_MS = 3_000;

/** Asks the service to stop under 200 streams: every one of them comes to its end, and the service ends with 0. */
export async function terminateUnderStreams(site: Site, random: Random, trial: string): Promise<void> {
  const { organizations } = site;
  const stopped = join(site.directory, `${trial}.stopped`);
  const calls = longStreams(random, trial, STREAMS, { lastingMs: LASTING_MS, organizations });
  const sent = site.send(calls.map((call) => ({ ...call, script: { ...call.script, waitsFor: stopped } })));
  await Promise.all(sent.map(({ status }) => status));
  await sleep(random.between(0, LASTING_MS / 3));
  const ending = site.terminate();
  // None has ended by now, however long a busy machine took until here.
  await writeFile(stopped, "");
  const exitCode = await ending;
  if (exitCode !== 0) throw new Error(`the service ended with ${exitCode}`);
  const ends = await Promise.all(sent.map(({ ended }) => ended));
  const cut = ends.filter((end) => end !== "all").length;
  if (cut > 0) throw new Error(`${cut} of ${STREAMS} streams were cut`);
  await site.start();
  site.addTrial(trial, {});
  await site.judge();
}
