const WINDOW_SECONDS = 10;
const PART_OF_REQUESTS = 0.2;
/** Retries in a window that are always allowed, so that a quiet model can use another route. */
const RETRIES_LEAST = 100;

interface Traffic {
  requests: RollingCount;
  retries: RollingCount;
}

/**
 * Bounds the load that retries add to failing upstreams: for each model to a fifth of its requests of the last ten seconds,
 * and at least ten per second. First attempts are not bounded, and models do not share a budget.
 */
export class RetryBudget {
  readonly #models = new Map<string, Traffic>();

  /** Counts a request for a model. */
  count(model: string, nowMs: number): void {
    this.#of(model).requests.add(nowMs);
  }

  /** Takes one retry from a model's budget; false where none is left. */
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

/** Counts the events of a recent period in a ring of equal spans of time. The oldest span is dropped as a whole. */
export class RollingCount {
  readonly #spanMs: number;
  readonly #counts: number[];
  #newest = 0;

  /** Counts `spans` spans of `spanMs` each, the current one included. */
  constructor(spans: number, spanMs: number) {
    this.#spanMs = spanMs;
    this.#counts = Array<number>(spans).fill(0);
  }

  add(nowMs: number): void {
    const place = this.#advance(nowMs);
    this.#counts[place] = (this.#counts[place] ?? 0) + 1;
  }

  total(nowMs: number): number {
    this.#advance(nowMs);
    return this.#counts.reduce((sum, count) => sum + count, 0);
  }

  /** Clears the spans that have passed and returns the index of the newest. */
  #advance(nowMs: number): number {
    const span = Math.floor(nowMs / this.#spanMs);
    const { length } = this.#counts;
    // After the clock was set back, old counts would remain until it has caught up.
    const isSetBack = this.#newest - span >= length;
    if (isSetBack || span > this.#newest) {
      const passed = isSetBack ? length : Math.min(span - this.#newest, length);
      for (let step = 0; step < passed; step += 1) this.#counts[(span - step) % length] = 0;
      this.#newest = span;
    }
    return this.#newest % length;
  }
}
