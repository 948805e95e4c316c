/** Counts what happened within the last while: a ring of equal spans of time, the oldest forgotten as a whole. */
export class RollingCount {
  readonly #spanMs: number;
  readonly #counts: number[];
  #newest = 0;

  /** `spans` spans of `spanMs` each, the one that has begun among them. */
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

  /** Forgets the spans that have passed; gives the place of the newest. */
  #advance(nowMs: number): number {
    const span = Math.floor(nowMs / this.#spanMs);
    const { length } = this.#counts;
    // A clock that was set back would keep what is counted until it has caught up.
    const isSetBack = this.#newest - span >= length;
    if (isSetBack || span > this.#newest) {
      const passed = isSetBack ? length : Math.min(span - this.#newest, length);
      for (let step = 0; step < passed; step += 1) this.#counts[(span - step) % length] = 0;
      this.#newest = span;
    }
    return this.#newest % length;
  }
}
