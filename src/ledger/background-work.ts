import { OrganizationsLockedError, StoreUnavailableError } from "../errors.ts";
import type { Log } from "../telemetry/logger.ts";
import type { Recovery } from "./recovery.ts";

/** Small, so that new holds, which share the queue with these transitions, wait for one chunk at most. */
const CHUNK = 500;
const FAILURE_LOGGED_EVERY_MS = 60_000;

/** Runs work that is repeated later if it fails: tells the recovery where the store is away, and logs a failure once a minute. */
export class BackgroundWork {
  readonly #options: { recovery: Recovery; clock: () => number; log: Log };
  #loggedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: { recovery: Recovery; clock: () => number; log: Log }) {
    this.#options = options;
  }

  /** Never rejects. */
  async run(work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      const { clock, log, recovery } = this.#options;
      if (error instanceof StoreUnavailableError && !(error instanceof OrganizationsLockedError)) recovery.lost();
      if (clock() - this.#loggedAtMs < FAILURE_LOGGED_EVERY_MS) return;
      this.#loggedAtMs = clock();
      log.error({ err: error }, "renewing or sweeping holds failed: it is retried");
    }
  }
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
