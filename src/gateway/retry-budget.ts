import { RollingCount } from "./rolling-count.ts";

const WINDOW_SECONDS = 10;
const PART_OF_REQUESTS = 0.2;
/** In a window, however few requests there are: a quiet model can still turn to another route. */
const RETRIES_LEAST = 100;

interface Traffic {
  requests: RollingCount;
  retries: RollingCount;
}

/**
 * Bounds how much further attempts add to the load on upstreams that fail already: for each model a fifth of its requests of
 * the last ten seconds, and ten a second at the least. First attempts are never bounded by it, and no model uses up
 * another's.
 */
export class RetryBudget {
  readonly #models = new Map<string, Traffic>();

  /** A request for a model has begun. */
  count(model: string, nowMs: number): void {
    this.#of(model).requests.add(nowMs);
  }

  /** Takes one further attempt out of a model's budget, or refuses it. */
  takes(model: string, nowMs: number): boolean {
    const { requests, retries } = this.#of(model);
    const allowed = Math.max(RETRIES_LEAST, Math.floor(requests.total(nowMs) * PART_OF_REQUESTS));
    if (retries.total(nowMs) >= allowed) return false;
    retries.add(nowMs);
    return true;
  }

  #of(model: string): Traffic {
    const known = this.#models.get(model);
    if (known !== undefined) return known;
    const made = {
      requests: new RollingCount(WINDOW_SECONDS, 1_000),
      retries: new RollingCount(WINDOW_SECONDS, 1_000),
    };
    this.#models.set(model, made);
    return made;
  }
}
