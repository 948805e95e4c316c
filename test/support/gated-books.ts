import type { Transition } from "../../src/credits/books.ts";
import type { Durability } from "../../src/stores/driver.ts";
import type { OutcomesOf } from "../../src/stores/queries/books.ts";
import { MemoryBooks } from "./memory-books.ts";

/** Books in memory that can be held up and made to fail, and that remember what was asked of them. */
export class GatedBooks extends MemoryBooks {
  readonly batches: { durability: Durability; transitions: Transition[] }[] = [];
  /** The most batches that were in flight at once, by durability. */
  readonly inFlightMost: Record<Durability, number> = { holds: 0, durable: 0 };
  /** Says how a batch fails, or undefined where it does not. */
  failWith: (transitions: Transition[], durability: Durability) => Error | undefined = () => undefined;
  readonly #inFlight: Record<Durability, number> = { holds: 0, durable: 0 };
  #gate: PromiseWithResolvers<void> | undefined;

  /** Holds up every batch from now on until `open`. */
  close(): void {
    this.#gate ??= Promise.withResolvers();
  }

  open(): void {
    this.#gate?.resolve();
    this.#gate = undefined;
  }

  override async apply<T extends Transition[]>(durability: Durability, transitions: [...T]): Promise<OutcomesOf<T>> {
    this.batches.push({ durability, transitions });
    this.#inFlight[durability] += 1;
    this.inFlightMost[durability] = Math.max(this.inFlightMost[durability], this.#inFlight[durability]);
    try {
      await (this.#gate?.promise ?? new Promise((resolve) => setImmediate(resolve)));
      const failure = this.failWith(transitions, durability);
      if (failure !== undefined) throw failure;
      return this.book(transitions);
    } finally {
      this.#inFlight[durability] -= 1;
    }
  }

  sizes(durability: Durability): number[] {
    return this.batches.filter((batch) => batch.durability === durability).map(({ transitions }) => transitions.length);
  }
}
