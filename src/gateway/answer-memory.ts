import { FairBudget } from "../ledger/fair-budget.ts";
import { FairQueue } from "../ledger/fair-queue.ts";
import type { AnswerRoom } from "../providers/provider.ts";

/** Bytes of all long answers in memory. */
const BUDGET_BYTES = 512 * 1024 * 1024;
/** Share of an organization: the longest answer, which is being read, and as much that its clients have not received yet. */
const OWNER_SHARE_MAX = 1 / 4;

interface Waiting {
  owner: string;
  /** Takes the room if there is some. Returns false if the answer has to wait on. */
  take(): boolean;
}

/**
 * Divides the memory for long answers among organizations. An answer without room waits for those of its organization, and for
 * others only where all of the memory is taken. Its upstream waits meanwhile, because its connection is not read.
 */
export class AnswerMemory {
  readonly #budget: FairBudget;
  readonly #waiting = new FairQueue<Waiting>(({ owner }) => owner);

  constructor(bytes = BUDGET_BYTES) {
    this.#budget = new FairBudget(bytes);
  }

  /**
   * Returns the room of an answer. `onReserved` is called when the answer first needs it, with the function that ends it when
   * nobody needs the answer any more: most answers are short, and need none.
   */
  roomFor(owner: string, onReserved: (release: () => void) => void): AnswerRoom {
    let heldBytes = 0;
    let isReserved = false;
    let isReleased = false;
    let stopWaiting = () => {};
    const keep = (bytes: number) => {
      if (heldBytes === 0) return;
      const keptBytes = Math.min(bytes, heldBytes);
      this.#budget.putBack(owner, heldBytes - keptBytes);
      heldBytes = keptBytes;
      this.#serve();
    };
    const release = () => {
      isReleased = true;
      keep(0);
      stopWaiting();
    };
    return {
      keep,
      reserve: (bytes) => {
        if (!isReserved) onReserved(release);
        isReserved = true;
        keep(0);
        if (isReleased) return Promise.resolve();
        return new Promise((resolve) => {
          stopWaiting = resolve;
          const take = () => {
            if (isReleased) return true;
            if (!this.#budget.take(owner, bytes, OWNER_SHARE_MAX)) return false;
            heldBytes = bytes;
            resolve();
            return true;
          };
          this.#waiting.push({ owner, take });
          this.#serve();
        });
      },
    };
  }

  #serve(): void {
    const full = new Set<string>();
    for (let next = this.#waiting.shift(full); next !== undefined; next = this.#waiting.shift(full)) {
      if (next.take()) continue;
      this.#waiting.unshift([next]);
      full.add(next.owner);
    }
  }
}
