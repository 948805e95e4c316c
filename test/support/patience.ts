import { setTimeout as sleep } from "node:timers/promises";
import type { RunningService } from "./service.ts";
import type { UpstreamRequest } from "./upstream.ts";

const STEP_MS = 10;
const DAY_MS = 86_400_000;
/** Longer than any test takes whose bookings must fall on the same day. */
const DAY_ENDS_WITHIN_MS = 30_000;

/**
 * Resolves when this process has had so many milliseconds for other work: a delay on a busy machine
 * counts as one step, after which pending work runs.
 */
export async function served(ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += STEP_MS) await sleep(STEP_MS);
}

/**
 * Disconnects, and returns the milliseconds until the upstream's connection is closed, less those of another request to the
 * service at the same moment: a delay of a busy machine does not count.
 */
export async function cutOffMs(
  { url }: Pick<RunningService, "url">,
  request: UpstreamRequest | undefined,
  leave: () => void,
): Promise<number> {
  if (request === undefined) throw new Error("The upstream was not asked");
  leave();
  const answered = fetch(`${url}/healthz`).then(async (answer) => {
    await answer.arrayBuffer();
    return Date.now();
  });
  const [goneAtMs, answeredAtMs] = await Promise.all([request.closed, answered]);
  return goneAtMs - answeredAtMs;
}

/** Waits for the next day (UTC) where this one is about to end, so that what follows falls on one. */
export async function onOneDay(): Promise<void> {
  const leftMs = DAY_MS - (Date.now() % DAY_MS);
  if (leftMs < DAY_ENDS_WITHIN_MS) await sleep(leftMs + STEP_MS);
}
