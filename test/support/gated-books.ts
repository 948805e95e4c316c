import type { Transition } from "../../src/credits/books.ts";
import type { Lane } from "../../src/stores/driver.ts";
import type { OutcomesOf } from "../../src/stores/queries/books.ts";
import { MemoryBooks } from "./memory-books.ts";

/** Books in memory that can be held up and made to fail, and that remember what was asked of them. */
export class GatedBooks extends MemoryBooks {
  readonly batches: { lane: Lane; transitions: Transition[] }[] = [];
  /** The most batches that were in flight at once, by lane. */
  readonly inFlightMost: Record<Lane, number> = { holds: 0, durable: 0 };
  /** Says how a batch fails, or undefined where it does not. */
  failWith: (transitions: Transition[], lane: Lane) => Error | undefined = () => undefined;
  readonly #inFlight: Record<Lane, number> = { holds: 0, durable: 0 };
  #gate: PromiseWithResolvers<void> | undefined;

  /** Holds up every batch from now on until `open`. */
  close(): void {
    this.#gate ??= Promise.withResolvers();
  }

  open(): void {
    this.#gate?.resolve();
    this.#gate = undefined;
  }

  override async apply<T extends Transition[]>(lane: Lane, transitions: [...T]): Promise<OutcomesOf<T>> {
    this.batches.push({ lane, transitions });
    this.#inFlight[lane] += 1;
    this.inFlightMost[lane] = Math.max(this.inFlightMost[lane], this.#inFlight[lane]);
    try {
      await (this.#gate?.promise ?? new Promise((resolve) => setImmediate(resolve)));
      const failure = this.failWith(transitions, lane);
      if (failure !== undefined) throw failure;
      return this.book(transitions);
    } finally {
      this.#inFlight[lane] -= 1;
    }
  }

  sizes(lane: Lane): number[] {
    return this.batches.filter((batch) => batch.lane === lane).map(({ transitions }) => transitions.length);
  }
}
