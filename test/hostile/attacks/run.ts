import { setTimeout as sleep } from "node:timers/promises";
import type { Attack, Target } from "./attack.ts";

/** The result of one attack: whether its title held, or that the credential that it needs was not given. */
export interface Result {
  area: string;
  attack: Attack;
  outcome: "held" | "did not hold" | "not played";
  /** Why it did not hold. */
  reason?: string;
}

const HEALTH_EVERY_MS = 20;

/** Plays attacks one after another against one service. */
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
  try {
    await attack.play(target);
    return { outcome: "held" };
  } catch (error) {
    return { outcome: "did not hold", reason: error instanceof Error ? error.message : String(error) };
  }
}

/** The cells of the table in `docs/reliability.md`. */
export function tableRows(results: readonly Result[]): string[][] {
  return results.map(({ area, attack, outcome }) => [attack.title, area, attack.needs, outcome]);
}

/** Asks `/healthz` again and again and measures the longest wait for an answer, until it is stopped. */
export function watchHealth({ url }: Target): { stop(): Promise<{ longestMs: number; failures: number }> } {
  let isOver = false;
  let longestMs = 0;
  let failures = 0;
  const watching = (async () => {
    while (!isOver) {
      const start = performance.now();
      try {
        const answer = await fetch(`${url}/healthz`);
        await answer.arrayBuffer();
      } catch {
        failures += 1;
      }
      longestMs = Math.max(longestMs, performance.now() - start);
      await sleep(HEALTH_EVERY_MS);
    }
  })();
  return {
    stop: async () => {
      isOver = true;
      await watching;
      return { longestMs: Math.round(longestMs), failures };
    },
  };
}
