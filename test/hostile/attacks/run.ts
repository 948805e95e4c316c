import { once } from "node:events";
import { Worker } from "node:worker_threads";
import type { Attack, Target } from "./attack.ts";

/** Result of an attack: its title held, failed, or the required credential is missing. */
export interface Result {
  area: string;
  attack: Attack;
  outcome: "held" | "did not hold" | "not played";
  /** Reason of the failure. */
  reason?: string;
}

/** Runs attacks one after another against a service. */
export async function playAll(
  attacks: Readonly<Record<string, readonly Attack[]>>,
  target: Target,
  report: (result: Result) => void = () => {},
): Promise<Result[]> {
  const results: Result[] = [];
  for (const [area, list] of Object.entries(attacks)) {
    for (const attack of list) {
      const result = { area, attack, ...(await play(attack, target)) };
      results.push(result);
      report(result);
    }
  }
  return results;
}

async function play(attack: Attack, target: Target): Promise<Pick<Result, "outcome" | "reason">> {
  if (attack.needs === "token" && target.token === undefined) return { outcome: "not played" };
  if (attack.needs === "admin token" && target.adminToken === undefined) return { outcome: "not played" };
  if (attack.alsoNeeds?.some((name) => target[name] === undefined) === true) return { outcome: "not played" };
  try {
    await attack.play(target);
    return { outcome: "held" };
  } catch (error) {
    return { outcome: "did not hold", reason: error instanceof Error ? error.message : String(error) };
  }
}

/** The cells of the table in `docs/attacks.md`. */
export function tableRows(results: readonly Result[]): string[][] {
  return results.map(({ area, attack, outcome }) => [attack.title, area, attack.needs, outcome]);
}

/** Longest wait for a response of `/healthz`, and the number of missing ones. */
export interface Health {
  longestMs: number;
  failures: number;
}

/** Watches `/healthz` from another thread until it is stopped. */
export async function watchHealth({ url }: Target): Promise<{ stop(): Promise<Health> }> {
  const worker = new Worker(new URL("./health-worker.ts", import.meta.url), { workerData: { url } });
  await once(worker, "message");
  return {
    stop: async () => {
      worker.postMessage("stop");
      const [health] = (await once(worker, "message")) as [Health];
      await worker.terminate();
      return health;
    },
  };
}
