/** Whose bodies a budget counts: an organization or administrator, or all callers that are not known yet. */
export const ANONYMOUS = "anonymous";

/** One organization cannot take all of the budget from the others, and unknown callers can take little of it. */
const SHARE_OF_ONE = 1 / 2;
const SHARE_OF_ANONYMOUS = 1 / 16;

/** Bounds the bytes of all request bodies that the process holds, from their arrival until their requests end. */
export class BodyBudget {
  readonly #limitBytes: number;
  readonly #byOwner = new Map<string, number>();
  #usedBytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** Bytes that are held now. */
  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Begins to count a request's body. */
  reserve(owner: string): BodyReservation {
    return new BodyReservation(this, owner);
  }

  /** Counts bytes for an owner; false where the budget has no room for them. */
  take(owner: string, bytes: number): boolean {
    const share = owner === ANONYMOUS ? SHARE_OF_ANONYMOUS : SHARE_OF_ONE;
    const held = (this.#byOwner.get(owner) ?? 0) + bytes;
    if (held > this.#limitBytes * share || this.#usedBytes + bytes > this.#limitBytes) return false;
    this.#byOwner.set(owner, held);
    this.#usedBytes += bytes;
    return true;
  }

  /** Ends the count of bytes that were taken. */
  giveBack(owner: string, bytes: number): void {
    const held = (this.#byOwner.get(owner) ?? 0) - bytes;
    if (held > 0) this.#byOwner.set(owner, held);
    else this.#byOwner.delete(owner);
    this.#usedBytes -= bytes;
  }
}

/** The share of one request's body in the budget. */
export class BodyReservation {
  readonly #budget: BodyBudget;
  readonly #owner: string;
  #heldBytes = 0;

  constructor(budget: BodyBudget, owner: string) {
    this.#budget = budget;
    this.#owner = owner;
  }

  /** Counts further bytes; false where the budget has no room for them. */
  add(bytes: number): boolean {
    if (!this.#budget.take(this.#owner, bytes)) return false;
    this.#heldBytes += bytes;
    return true;
  }

  /** Gives all of them back. */
  release(): void {
    if (this.#heldBytes > 0) this.#budget.giveBack(this.#owner, this.#heldBytes);
    this.#heldBytes = 0;
  }
}
