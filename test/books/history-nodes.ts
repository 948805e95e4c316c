import { AsyncLocalStorage } from "node:async_hooks";
import type { Transition } from "../../src/credits/books.ts";
import type { Outcome } from "../../src/credits/outcomes.ts";
import type { Durability } from "../../src/stores/driver.ts";
import type { Books } from "../../src/stores/queries/books.ts";

/** By how much the clock of a second node is ahead. */
export const AHEAD_MS = 5_000;

/** By how much the clock of the node that runs is ahead. */
const ahead = new AsyncLocalStorage<number>();

/** Lets `Date.now` be the clock of the node that calls it. Returns a function that undoes it. */
export function setClocks(): () => void {
  const now = Date.now;
  Date.now = () => now() + (ahead.getStore() ?? 0);
  return () => {
    Date.now = now;
  };
}

export type Node = Record<Durability, Together>;

/** Makes a node on books, with a clock of its own. */
export function nodeOf(books: Books, aheadMs: number): Node {
  return { holds: new Together(books, "holds", aheadMs), durable: new Together(books, "durable", aheadMs) };
}

interface QueuedStep {
  transitions: Transition[];
  outcomes: PromiseWithResolvers<Outcome[]>;
}

/** Books the steps of several players in one batch, as a service does for several clients. */
class Together {
  readonly #books: Books;
  readonly #durability: Durability;
  readonly #aheadMs: number;
  #waiting: QueuedStep[] = [];
  #isRunning = false;

  constructor(books: Books, durability: Durability, aheadMs: number) {
    this.#books = books;
    this.#durability = durability;
    this.#aheadMs = aheadMs;
  }

  apply(transitions: Transition[]): Promise<Outcome[]> {
    const outcomes = Promise.withResolvers<Outcome[]>();
    this.#waiting.push({ transitions, outcomes });
    void this.#run();
    return outcomes.promise;
  }

  async #run(): Promise<void> {
    if (this.#isRunning) return;
    this.#isRunning = true;
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0);
      // A failed batch books nothing. Booked alone, each step gets its own failure.
      await this.#book(batch).catch(() =>
        Promise.all(batch.map((one) => this.#book([one]).catch(one.outcomes.reject))),
      );
    }
    this.#isRunning = false;
  }

  async #book(batch: QueuedStep[]): Promise<void> {
    const all = batch.flatMap(({ transitions }) => transitions);
    const apply = () => this.#books.apply<Transition[]>(this.#durability, all);
    const outcomes = await ahead.run(this.#aheadMs, apply);
    for (const { transitions, outcomes: own } of batch) own.resolve(outcomes.splice(0, transitions.length));
  }
}
