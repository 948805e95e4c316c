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
