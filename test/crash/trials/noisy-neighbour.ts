import { makeVictim, playNoise, REQUESTS_THAT_DIFFER, type Served } from "../../hostile/attacks/neighbours.ts";
import { NOISES, type Noise } from "../../hostile/attacks/noises.ts";
import { startAttackedService } from "../../hostile/attacks/service.ts";
import type { Random } from "../random.ts";
import { type Site, ViolationError } from "../site.ts";
import { createDatabase } from "../stores.ts";

/** Requests during a noise, twenty seconds at the victim's rate: with fewer, the 99th percentile is the longest wait. */
const REQUESTS = 100;
/** A victim may wait twice as long as without the noise, and always this long. */
const SLOWER_AT_MOST = 2;
const P99_MS_ALLOWED = 100;

/**
 * Lets one customer do its worst on each shared resource, one after the other, while another sends five requests a second.
 * Prints what each noise cost the victim in time. It needs a provider of its own, so it starts a service beside the site's.
 */
export async function playNoisyNeighbour(site: Site, _random: Random, trial: string): Promise<void> {
  const databaseUrl = await createDatabase(site.postgres?.server.url, trial);
  const place = databaseUrl === undefined ? {} : { databaseUrl };
  const { service, target, end } = await startAttackedService({ ...place, overload: {} });
  const faults: string[] = [];
  const play = async (noise: Noise) => {
    const victim = await makeVictim(target, noise, REQUESTS_THAT_DIFFER);
    const { noisy, statuses } = await playNoise(target, noise, victim, REQUESTS);
    site.answers.set("200", (site.answers.get("200") ?? 0) + noisy.length);
    const [quietMs, noisyMs] = [p99Of(victim.quiet), p99Of(noisy)];
    const seen = [...statuses].map(([status, count]) => `${count} ${status}`).join(", ");
    console.log(`| ${noise.does} | ${seen} | ${quietMs} | ${noisyMs} |`);
    const allowedMs = Math.max(P99_MS_ALLOWED, SLOWER_AT_MOST * quietMs);
    if (noisyMs > allowedMs) throw new Error(`p99 of the victim was ${noisyMs} ms, allowed ${allowedMs} ms`);
  };
  try {
    console.log(
      "\n| a customer that … | its answers | p99 ms of another, alone | p99 ms meanwhile |\n|---|---|--:|--:|",
    );
    for (const noise of NOISES) {
      await play(noise).catch((error: Error) => {
        // The error of the trial names the first ones only.
        console.log(`${noise.does}: ${error.message}`);
        faults.push(`A customer that ${noise.does}: ${error.message}`);
      });
    }
    await service.tollgate("ledger", "verify");
  } finally {
    await end();
  }
  if (faults.length > 0) throw new ViolationError(faults);
}

function p99Of(served: readonly Served[]): number {
  const times = served.map(({ ms }) => ms).toSorted((a, b) => a - b);
  return Math.round(times[Math.ceil(times.length * 0.99) - 1] ?? 0);
}
