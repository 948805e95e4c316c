import { OrganizationsLockedError, StoreUnavailableError } from "../errors.ts";
import type { Log } from "../telemetry/logger.ts";
import type { Recovery } from "./recovery.ts";

/** Small, so that new holds, which share the queue with these transitions, wait for one chunk at most. */
const CHUNK = 500;
const FAILURE_LOGGED_EVERY_MS = 60_000;

export type RunInBackground = ReturnType<typeof backgroundOf>;

/**
 * Returns a function that runs work which is repeated later if it fails. It never rejects: it tells the recovery where the store
 * is away, and logs a failure of each work once a minute. All fail while the store is away: that is logged as one.
 */
export function backgroundOf({ recovery, clock, log }: { recovery: Recovery; clock: () => number; log: Log }) {
  const loggedAtMs = new Map<string, number>();
  return (name: string, work: () => Promise<void>): Promise<void> =>
    work().catch((err: unknown) => {
      const isAway = err instanceof StoreUnavailableError;
      if (isAway && !(err instanceof OrganizationsLockedError)) recovery.lost();
      const failed = isAway ? "renewing or sweeping holds" : name;
      if (clock() - (loggedAtMs.get(failed) ?? Number.NEGATIVE_INFINITY) < FAILURE_LOGGED_EVERY_MS) return;
      loggedAtMs.set(failed, clock());
      log.error({ err }, `${failed} failed: it is retried`);
    });
}

/** Does something for each item, for a chunk of them at a time. Rejects with the first failure when all have been tried. */
export async function forEachInChunks<Item>(
  items: readonly Item[],
  work: (item: Item) => Promise<unknown>,
): Promise<void> {
  let failure: PromiseRejectedResult | undefined;
  for (let start = 0; start < items.length; start += CHUNK) {
    const results = await Promise.allSettled(items.slice(start, start + CHUNK).map(work));
    failure ??= results.find((result) => result.status === "rejected");
  }
  if (failure !== undefined) throw failure.reason;
}
