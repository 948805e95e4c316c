/** Random numbers that a seed repeats (xorshift128 of George Marsaglia, seeded through a multiplicative hash). */
export class Random {
  readonly #state: Uint32Array;

  constructor(seed: number) {
    this.#state = new Uint32Array(4);
    let value = seed >>> 0;
    for (let index = 0; index < 4; index += 1) {
      value = (Math.imul(value ^ (value >>> 16), 0x45d9f3b) + 0x9e3779b9) >>> 0;
      this.#state[index] = value;
    }
    for (let skipped = 0; skipped < 16; skipped += 1) this.#next();
  }

  /** An integer from `least` to `most`, both included. */
  between(least: number, most: number): number {
    return least + Math.floor((this.#next() / 2 ** 32) * (most - least + 1));
  }

  /** True in about this share of all calls. */
  chance(share: number): boolean {
    return this.#next() / 2 ** 32 < share;
  }

  pick<T>(values: readonly [T, ...T[]]): T {
    return values[this.between(0, values.length - 1)] ?? values[0];
  }

  #next(): number {
    const [x = 0, y = 0, z = 0, w = 0] = this.#state;
    const mixed = x ^ (x << 11);
    this.#state.set([y, z, w, w ^ (w >>> 19) ^ mixed ^ (mixed >>> 8)]);
    return this.#state[3] ?? 0;
  }
}
