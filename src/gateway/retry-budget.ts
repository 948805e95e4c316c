import { RollingCount } from "./rolling-count.ts";

const WINDOW_SECONDS = 10;
const PART_OF_REQUESTS = 0.2;
/** In a window, however few requests there are: a quiet service can still turn to another route. */
const RETRIES_LEAST = 100;

/**
 * Bounds how much further attempts add to the load on upstreams that fail already: a fifth of the requests of the last ten
 * seconds, and ten a second at the least. First attempts are never bounded by it.
 */
export class RetryBudget {
  readonly #requests = new RollingCount(WINDOW_SECONDS, 1_000);
  readonly #retries = new RollingCount(WINDOW_SECONDS, 1_000);

  /** A request has begun. */
  count(nowMs: number): void {
    this.#requests.add(nowMs);
  }

  /** Takes one further attempt out of the budget, or refuses it. */
  takes(nowMs: number): boolean {
    const allowed = Math.max(RETRIES_LEAST, Math.floor(this.#requests.total(nowMs) * PART_OF_REQUESTS));
    if (this.#retries.total(nowMs) >= allowed) return false;
    this.#retries.add(nowMs);
    return true;
  }
}
