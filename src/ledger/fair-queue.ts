import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";

const NOBODY: ReadonlySet<string> = new Set();

/** Queue that serves its owners in turn: the first item of one waits for one item of another at most, however many it has. */
export class FairQueue<Item> {
  readonly #ownerOf: (item: Item) => string;
  /** Items of each owner that has some, in the order of the owners' turns. */
  readonly #owners = new Map<string, Item[]>();
  #size = 0;

  constructor(ownerOf: (item: Item) => string) {
    this.#ownerOf = ownerOf;
  }

  get size(): number {
    return this.#size;
  }

  /** Adds an item behind the others of its owner. */
  push(item: Item): void {
    this.#itemsOf(item).push(item);
    this.#size += 1;
  }

  /** Puts items back before the others of their owners, in their order. */
  unshift(items: readonly Item[]): void {
    for (const item of items.toReversed()) this.#itemsOf(item).unshift(item);
    this.#size += items.length;
  }

  /** Returns the owner whose turn it is. Owners that are busy are passed over. */
  nextOwner(busy: { has(owner: string): boolean } = NOBODY): string | undefined {
    return this.#owners.keys().find((owner) => !busy.has(owner));
  }

  /** Takes the first item of the owner whose turn it is. Owners that are busy are passed over. */
  shift(busy: { has(owner: string): boolean } = NOBODY): Item | undefined {
    const owner = this.nextOwner(busy);
    return owner === undefined ? undefined : this.shiftOf(owner);
  }

  /** Takes the first item of an owner, whose next turn comes after those of all others. */
  shiftOf(owner: string): Item | undefined {
    const items = this.#owners.get(owner);
    const item = items?.shift();
    if (items === undefined || item === undefined) return undefined;
    if (this.#owners.size > 1 || items.length === 0) this.#owners.delete(owner);
    if (items.length > 0) this.#owners.set(owner, items);
    this.#size -= 1;
    return item;
  }

  /** Takes all items of an owner. */
  takeOwner(owner: string): Item[] {
    const items = this.#owners.get(owner) ?? [];
    this.#owners.delete(owner);
    this.#size -= items.length;
    return items;
  }

  /** Takes all items, owner by owner. */
  takeAll(): Item[] {
    const items = [...this.#owners.values()].flat();
    this.#owners.clear();
    this.#size = 0;
    return items;
  }

  #itemsOf(item: Item): Item[] {
    const owner = this.#ownerOf(item);
    const items = this.#owners.get(owner) ?? [];
    this.#owners.set(owner, items);
    return items;
  }
}

/** A shorter task needs no pause after it. */
const SHORT_MS = 2;
/** Longest pause: the clock also counts the time for which a process was stopped. */
const PAUSE_MS_MAX = 1_000;

/**
 * Runs tasks of a few owners at a time, and one of each, with a turn of the event loop after it. However many tasks one owner
 * has, others wait for one of them at most. With a clock, a synchronous task that takes long, with what it sets off in the same
 * turn, is followed by a pause as long: a request needs about ten turns, and would wait for ten tasks.
 */
export class FairTurns {
  readonly #ownersMax: number;
  readonly #now: () => number;
  readonly #waiting = new FairQueue<{ owner: string; run(): Promise<void> }>(({ owner }) => owner);
  readonly #busy = new Set<string>();

  /** `now` returns a monotonic time in milliseconds. */
  constructor(ownersMax: number, now = () => 0) {
    this.#ownersMax = ownersMax;
    this.#now = now;
  }

  /** Resolves or rejects as the task does. */
  run<Result>(owner: string, task: () => Result | Promise<Result>): Promise<Result> {
    return new Promise((resolve, reject) => {
      const run = async () => {
        const startedAtMs = this.#now();
        let isSynchronous = true;
        try {
          const result = task();
          isSynchronous = !(result instanceof Promise);
          resolve(isSynchronous ? result : await result);
        } catch (error) {
          reject(error);
        }
        await nextTurn();
        const tookMs = this.#now() - startedAtMs;
        if (isSynchronous && tookMs > SHORT_MS) await sleep(Math.min(tookMs, PAUSE_MS_MAX));
      };
      this.#waiting.push({ owner, run });
      this.#start();
    });
  }

  #start(): void {
    while (this.#busy.size < this.#ownersMax) {
      const next = this.#waiting.shift(this.#busy);
      if (next === undefined) return;
      const { owner, run } = next;
      this.#busy.add(owner);
      void run().then(() => {
        this.#busy.delete(owner);
        this.#start();
      });
    }
  }
}
