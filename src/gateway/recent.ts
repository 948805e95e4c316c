export interface RecentMapLimits {
  /** An entry that was not used for this long is removed. */
  idleMs: number;
  /** Beyond this number, the entries are removed that were not used for longest. */
  entriesMax: number;
}

/** Map of what was used recently, such as a state for each organization. Its memory is bounded, whatever the number of keys. */
export class RecentMap<Value> {
  readonly #limits: RecentMapLimits;
  /** The least recently used entry comes first. */
  readonly #entries = new Map<string, { value: Value; usedAtMs: number }>();

  constructor(limits: RecentMapLimits) {
    this.#limits = limits;
  }

  /** Number of entries, without those that were idle at the last use of the map. */
  get size(): number {
    return this.#entries.size;
  }

  /** Returns the value of a key, which counts as a use of it. */
  get(key: string, nowMs: number): Value | undefined {
    if (this.#entries.size === 0) return undefined;
    this.#removeIdle(nowMs);
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.set(key, entry.value, nowMs);
    return entry.value;
  }

  set(key: string, value: Value, nowMs: number): void {
    this.#entries.delete(key);
    this.#entries.set(key, { value, usedAtMs: nowMs });
    this.#removeIdle(nowMs);
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }

  clear(): void {
    this.#entries.clear();
  }

  /** Returns all values, those that were not used for longest first. */
  values(nowMs: number): Value[] {
    this.#removeIdle(nowMs);
    return [...this.#entries.values()].map(({ value }) => value);
  }

  #removeIdle(nowMs: number): void {
    const { idleMs, entriesMax } = this.#limits;
    for (const [key, { usedAtMs }] of this.#entries) {
      // After the clock was set back, entries that it has not reached yet would remain.
      const isInUse = usedAtMs <= nowMs && nowMs - usedAtMs < idleMs;
      if (isInUse && this.#entries.size <= entriesMax) return;
      this.#entries.delete(key);
    }
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
