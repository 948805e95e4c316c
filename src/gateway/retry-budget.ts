import { RecentMap } from "./recent-map.ts";

const WINDOW_SECONDS = 10;
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
  readonly #traffic = new RecentMap<Traffic>({ idleMs: WINDOW_SECONDS * 1000, entriesMax: BUDGETS_MAX });

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
      requests: new RollingCount(WINDOW_SECONDS, 1_000),
      retries: new RollingCount(WINDOW_SECONDS, 1_000),
    };
    this.#traffic.set(key, made, nowMs);
    return made;
  }
}

/** Counts the events of a recent period by equal spans of time. The oldest span is dropped as a whole. */
export class RollingCount {
  readonly #spans: number;
  readonly #spanMs: number;
  readonly #counts = new Map<number, number>();

  /** Counts `spans` spans of `spanMs` each, the current one included. */
  constructor(spans: number, spanMs: number) {
    this.#spans = spans;
    this.#spanMs = spanMs;
  }

  add(nowMs: number): void {
    const span = this.#advance(nowMs);
    this.#counts.set(span, (this.#counts.get(span) ?? 0) + 1);
  }

  total(nowMs: number): number {
    this.#advance(nowMs);
    return this.#counts.values().reduce((sum, count) => sum + count, 0);
  }

  /** Drops the spans that have passed, and after the clock was set back those that it has not reached, and returns the current one. */
  #advance(nowMs: number): number {
    const now = Math.floor(nowMs / this.#spanMs);
    for (const span of this.#counts.keys()) if (span <= now - this.#spans || span > now) this.#counts.delete(span);
    return now;
  }
}
