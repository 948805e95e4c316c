import { StoreUnavailableError } from "../errors.ts";

/** Share of a hold's life without a renewal after which reading from the upstream pauses. */
const PAUSED_FROM = 0.5;
/** Share of a hold's life without a renewal after which the request is aborted. */
const OVER_FROM = 0.9;

/** A moment on two clocks: the monotonic clock stops while the machine is suspended; the wall clock can be set. */
export interface Moment {
  monotonicMs: number;
  wallMs: number;
}

/**
 * Limits how long a request may run without a renewal of its hold, which another process may expire and charge for less than
 * is delivered later. Its age is the time since the hold or its last renewal was queued, on the clock that shows more.
 */
export class Lease {
  readonly #lifeMs: number;
  readonly #now: () => Moment;
  #renewedAt: Moment;
  #isEnded = false;
  #waiting: PromiseWithResolvers<void> | undefined;
  #onOver: ((error: StoreUnavailableError) => void) | undefined;

  /** `lifeMs` is infinite if no other process can end the hold; `queuedAt` is when the hold was queued. */
  constructor(lifeMs: number, now: () => Moment, queuedAt: Moment) {
    this.#lifeMs = lifeMs;
    this.#now = now;
    this.#renewedAt = queuedAt;
  }

  /** Records a booked renewal and when it was queued. A lease that has ended stays ended. */
  renew(queuedAt: Moment): void {
    if (this.#isEnded || queuedAt.monotonicMs < this.#renewedAt.monotonicMs) return;
    this.#renewedAt = queuedAt;
    if (this.#share() >= PAUSED_FROM) return;
    this.#waiting?.resolve();
    this.#waiting = undefined;
  }

  /** Records that another process has ended the hold. */
  end(): void {
    this.#isEnded = true;
    this.check();
  }

  /** Throws StoreUnavailableError if the lease has ended: nothing more may be sent to the client. */
  require(): void {
    if (!this.#isOver()) return;
    this.#isEnded = true;
    throw overdue();
  }

  /** Returns undefined if the upstream may be read, or a promise of that. Throws or rejects with StoreUnavailableError after the end. */
  ready(): Promise<void> | undefined {
    this.require();
    if (this.#share() < PAUSED_FROM) return undefined;
    this.#waiting ??= Promise.withResolvers();
    return this.#waiting.promise;
  }

  /** Removes the listener when the request has ended. */
  close(): void {
    this.#onOver = undefined;
  }

  /** Calls `listener` once, when a check finds that the lease has ended. */
  onOver(listener: (error: StoreUnavailableError) => void): void {
    this.#onOver = listener;
  }

  /** Rejects the waiting promise and calls the listener if the lease has ended. Must be called regularly. */
  check(): void {
    if (!this.#isOver()) return;
    this.#isEnded = true;
    const error = overdue();
    this.#waiting?.reject(error);
    this.#waiting = undefined;
    this.#onOver?.(error);
    this.#onOver = undefined;
  }

  #isOver(): boolean {
    return this.#isEnded || this.#share() >= OVER_FROM;
  }

  /** Returns the lease's age as a share of the hold's life. */
  #share(): number {
    if (this.#lifeMs === Number.POSITIVE_INFINITY) return 0;
    const { monotonicMs, wallMs } = this.#now();
    const ageMs = Math.max(monotonicMs - this.#renewedAt.monotonicMs, wallMs - this.#renewedAt.wallMs);
    return ageMs / this.#lifeMs;
  }
}

function overdue(): StoreUnavailableError {
  return new StoreUnavailableError("The hold could not be renewed in time.");
}
