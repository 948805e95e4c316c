import { StoreUnavailableError } from "../errors.ts";

/** Share of a hold's life without a renewal after which no more is read from the upstream. */
const PAUSED_FROM = 0.5;
/** Share of a hold's life without a renewal after which nothing more is sent to the client. */
const OVER_FROM = 0.9;

/** A moment on two clocks: the monotonic one stands still while the machine is suspended, the other one can be set. */
export interface Moment {
  monotonicMs: number;
  wallMs: number;
}

/**
 * How long this process may go on with a request without hearing from the store. Another process may end a hold that was
 * not renewed for its life and charge less than is delivered later, so the owner stops before that. The age is the larger
 * one on two clocks since the hold, or its last successful renewal, was queued.
 */
export class Lease {
  readonly #lifeMs: number;
  readonly #now: () => Moment;
  #renewedAt: Moment;
  #isEnded = false;
  #waiting: PromiseWithResolvers<void> | undefined;
  #onOver: ((error: StoreUnavailableError) => void) | undefined;

  /** `lifeMs` is infinite where nobody else can end the hold; `queuedAt` is when the hold was queued. */
  constructor(lifeMs: number, now: () => Moment, queuedAt: Moment) {
    this.#lifeMs = lifeMs;
    this.#now = now;
    this.#renewedAt = queuedAt;
  }

  /** Notes that a renewal was booked, and when it was queued. A lease that was found over stays over. */
  renew(queuedAt: Moment): void {
    if (this.#isEnded || queuedAt.monotonicMs < this.#renewedAt.monotonicMs) return;
    this.#renewedAt = queuedAt;
    if (this.#share() >= PAUSED_FROM) return;
    this.#waiting?.resolve();
    this.#waiting = undefined;
  }

  /** Notes that the hold was ended by another process. */
  end(): void {
    this.#isEnded = true;
    this.check();
  }

  /** Throws StoreUnavailableError where nothing more may be sent to the client. */
  require(): void {
    if (!this.#isOver()) return;
    this.#isEnded = true;
    throw overdue();
  }

  /**
   * Resolves when more may be read from the upstream; undefined where that is now. Rejects, and throws, with
   * StoreUnavailableError where the time is over.
   */
  ready(): Promise<void> | undefined {
    this.require();
    if (this.#share() < PAUSED_FROM) return undefined;
    this.#waiting ??= Promise.withResolvers();
    return this.#waiting.promise;
  }

  /** Forgets the listener: the request has ended. */
  close(): void {
    this.#onOver = undefined;
  }

  /** Calls `listener` at most once, when a check finds the time over. */
  onOver(listener: (error: StoreUnavailableError) => void): void {
    this.#onOver = listener;
  }

  /** Ends what waits where the time is over. To be called from time to time. */
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

  /** Age as a share of the hold's life. */
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
