import { RecentMap, RollingCount } from "./recent.ts";

const RETRY_WINDOW_SECONDS = 10;
const PART_OF_REQUESTS = 0.2;
/** Retries in a window that are always allowed, so that a quiet organization can use another route. */
const RETRIES_LEAST = 100;
const BUDGETS_MAX = 10_000;

interface Traffic {
  requests: RollingCount;
  retries: RollingCount;
}

/**
 * Bounds the load that retries add to failing upstreams: for each organization and model to a fifth of the requests of the
 * last ten seconds, and at least ten per second. First attempts are not bounded. Neither organizations nor models share a
 * budget.
 */
export class RetryBudget {
  readonly #traffic = new RecentMap<Traffic>({ idleMs: RETRY_WINDOW_SECONDS * 1000, entriesMax: BUDGETS_MAX });

  /** Counts a request of an organization for a model. */
  count(organizationId: string, model: string, nowMs: number): void {
    this.#of(organizationId, model, nowMs).requests.add(nowMs);
  }

  /** Takes one retry from a budget; false where none is left. */
  takes(organizationId: string, model: string, nowMs: number): boolean {
    const { requests, retries } = this.#of(organizationId, model, nowMs);
    const allowed = Math.max(RETRIES_LEAST, Math.floor(requests.total(nowMs) * PART_OF_REQUESTS));
    if (retries.total(nowMs) >= allowed) return false;
    retries.add(nowMs);
    return true;
  }

  #of(organizationId: string, model: string, nowMs: number): Traffic {
    const key = `${organizationId} ${model}`;
    const known = this.#traffic.get(key, nowMs);
    if (known !== undefined) return known;
    const made = {
      requests: new RollingCount(RETRY_WINDOW_SECONDS, 1_000),
      retries: new RollingCount(RETRY_WINDOW_SECONDS, 1_000),
    };
    this.#traffic.set(key, made, nowMs);
    return made;
  }
}
