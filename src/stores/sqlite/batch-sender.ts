import { setImmediate as nextTurn } from "node:timers/promises";
import type { Transition } from "../../credits/books.ts";
import type { Outcome } from "../../credits/outcomes.ts";
import { StoreUnavailableError } from "../../errors.ts";
import type { Durability } from "../driver.ts";
import type { WorkerLink } from "./link.ts";

export interface BatchSenderOptions {
  writer: Pick<WorkerLink, "request">;
  /** Milliseconds since 1970. */
  clock: () => number;
  onBooked(): void;
}

interface WaitingBatch {
  durability: Durability;
  transitions: Transition[];
  resolve: (outcomes: Outcome[]) => void;
  reject: (error: unknown) => void;
}

/**
 * Sends batches to the thread that writes. Those that arrive while it works are sent together and booked in one
 * transaction, so that holds and settlements share a message in each direction, a commit and a sync. An idle thread gets
 * a batch at once.
 */
export class BatchSender {
  readonly #options: BatchSenderOptions;
  #waiting: WaitingBatch[] = [];
  #running: Promise<void> | undefined;

  constructor(options: BatchSenderOptions) {
    this.#options = options;
  }

  /** Number of batches that wait for the thread. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Books a batch as `StoreDriver.apply` says. */
  apply(durability: Durability, transitions: Transition[]): Promise<Outcome[]> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ durability, transitions, resolve, reject });
      this.#running ??= this.#run();
    });
  }

  /** Resolves when no batch is waiting or in flight. */
  async idle(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batches = this.#waiting;
      this.#waiting = [];
      await this.#send(batches);
      // The senders of these batches have the next ones ready only when they have handled the outcomes.
      await nextTurn();
    }
    this.#running = undefined;
  }

  async #send(batches: WaitingBatch[]): Promise<void> {
    const { writer, clock, onBooked } = this.#options;
    try {
      const sent = batches.map(({ durability, transitions }) => ({ isDurable: durability === "durable", transitions }));
      const outcomes = await writer.request({ kind: "apply", nowMs: clock(), batches: sent });
      onBooked();
      for (const [index, batch] of batches.entries()) batch.resolve(outcomes[index] ?? []);
    } catch (error) {
      // Nothing was booked. A defect concerns one of them, so that each gets a transaction of its own.
      const isCommon = batches.length === 1 || error instanceof StoreUnavailableError;
      for (const batch of batches) {
        if (isCommon) batch.reject(error);
        else await this.#send([batch]);
      }
    }
  }
}
