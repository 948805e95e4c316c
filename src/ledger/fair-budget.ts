const OWNER_SHARE_MAX = 1 / 2;

/** A limited amount, such as of memory. One owner takes half of it at most, so that others find the rest. */
export class FairBudget {
  readonly #limit: number;
  readonly #byOwner = new Map<string, number>();
  #used = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** The sum that is taken now. */
  get used(): number {
    return this.#used;
  }

  /** Returns the amount that an owner may still take: of its own share, and of what is left. */
  room(owner: string, share = OWNER_SHARE_MAX): number {
    return Math.min(this.#limit * share - (this.#byOwner.get(owner) ?? 0), this.#limit - this.#used);
  }

  /** Takes an amount for an owner. Returns false, and takes nothing, if the owner has not as much room. */
  take(owner: string, amount: number, share = OWNER_SHARE_MAX): boolean {
    if (amount > this.room(owner, share)) return false;
    this.#byOwner.set(owner, (this.#byOwner.get(owner) ?? 0) + amount);
    this.#used += amount;
    return true;
  }

  /** Returns an amount that an owner has taken. */
  putBack(owner: string, amount: number): void {
    const held = (this.#byOwner.get(owner) ?? 0) - amount;
    if (held > 0) this.#byOwner.set(owner, held);
    else this.#byOwner.delete(owner);
    this.#used -= amount;
  }
}
