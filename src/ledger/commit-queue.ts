import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import type { Outcome, Outcomes, Transition } from "../credits/books.ts";
import { OrganizationsLockedError, StoreUnavailableError } from "../errors.ts";
import type { Durability } from "../stores/driver.ts";
import type { Books } from "../stores/queries/books.ts";
import type { Log } from "../telemetry/logger.ts";
import { LockedOrganizations, type QueuedTransition, rejectAll, takeBatch } from "./locked-organizations.ts";

/** A share that is smaller would not pay for its transaction. */
const SHARE_SIZE_LEAST = 8;
const BACKOFF_FIRST_MS = 50;
const BACKOFF_MAX_MS = 1_000;
/** A frozen node loses its locks after a second without a statement. */
const LOCKED_MS_MAX = 2_000;

export interface CommitQueueOptions {
  books: Pick<Books, "apply">;
  durability: Durability;
  /** How long an absent store is asked again before all that waits for it is rejected; 0: not at all. */
  retryMs: number;
  /** What part of the transitions that wait one batch takes. */
  batchShare: number;
  clock: () => number;
  /** Numbers from 0 up to 1. */
  random: () => number;
  log: Log;
}

/**
 * Gathers transitions into batches for one of the store's lanes, in their order of arrival. One batch is in flight; the
 * next gathers meanwhile. An idle lane sends what comes within one turn of the event loop. Transitions of an organization
 * whose rows another transaction has locked, or whose rows are broken, wait apart, so that they delay no others.
 */
export class CommitQueue {
  readonly #options: CommitQueueOptions;
  #waiting: QueuedTransition[] = [];
  #running: Promise<void> | undefined;
  readonly #apart: LockedOrganizations;
  #failuresInARow = 0;
  /** When the store was first found absent; null while it answers. */
  #awaySinceMs: number | null = null;
  /** Tells that what waits may have been booked before the store was lost. */
  #mayBeBooked = false;

  constructor(options: CommitQueueOptions) {
    this.#options = options;
    this.#apart = new LockedOrganizations({
      attempt: (batch) => this.#attempt(batch),
      giveBack: (entries) => {
        this.#waiting = entries.concat(this.#waiting);
        if (entries.length > 0) this.#start();
      },
      refuse: (entry, error) => this.#refuse(entry, error),
      longestMs: LOCKED_MS_MAX,
      clock: options.clock,
    });
  }

  /**
   * Resolves when the transition is booked. Rejects with StoreUnavailableError when the store cannot be reached, after
   * trying again for as long as the lane does; any other rejection is this transition's own.
   */
  push<T extends Transition>(transition: T): Promise<Outcomes[T["kind"]]> {
    const promise = new Promise<Outcome>((resolve, reject) => {
      const [organizationId, holdId] = [organizationIdOf(transition), holdIdOf(transition)];
      const entry = { transition, organizationId, holdId, resolve, reject };
      if (!this.#apart.takes(entry)) this.#waiting.push(entry);
    });
    if (this.#waiting.length > 0) this.#start();
    return promise as Promise<Outcomes[T["kind"]]>;
  }

  /** Resolves when nothing is in flight or waiting. */
  async idle(): Promise<void> {
    while (this.#running !== undefined || this.#apart.isBusy) {
      await this.#running;
      await this.#apart.idle();
    }
  }

  #start(): void {
    this.#running ??= this.#run();
  }

  async #run(): Promise<void> {
    await nextTurn();
    while (this.#waiting.length > 0) await this.#send(this.#nextBatch());
    this.#running = undefined;
  }

  #nextBatch(): QueuedTransition[] {
    const share = Math.max(SHARE_SIZE_LEAST, Math.ceil(this.#waiting.length * this.#options.batchShare));
    const { batch, rest } = takeBatch(this.#waiting, share);
    this.#waiting = rest;
    return batch;
  }

  async #send(batch: QueuedTransition[]): Promise<void> {
    const failure = await this.#attempt(batch);
    if (failure === undefined) return;
    if (failure.error instanceof OrganizationsLockedError) return this.#setApart(batch, failure.error);
    if (failure.error instanceof StoreUnavailableError) return this.#postpone(batch, failure.error);
    if (batch.length > 1) return this.#sendSingly(batch);
    for (const entry of batch) this.#refuseBroken(entry, failure.error, []);
  }

  /** A failure that no retry cures is one transition's: those before it are booked alone, those after it wait again. */
  async #sendSingly(batch: QueuedTransition[]): Promise<void> {
    for (const [index, entry] of batch.entries()) {
      const failure = await this.#attempt([entry]);
      if (failure === undefined) continue;
      if (failure.error instanceof OrganizationsLockedError) {
        return this.#setApart(batch.slice(index), failure.error);
      }
      if (failure.error instanceof StoreUnavailableError) return this.#postpone(batch.slice(index), failure.error);
      return this.#refuseBroken(entry, failure.error, batch.slice(index + 1));
    }
  }

  /** Refuses a transition; others of its organization may fail for the same reason, so they wait apart. */
  #refuseBroken(entry: QueuedTransition, error: unknown, behind: readonly QueuedTransition[]): void {
    this.#refuse(entry, error);
    const isOfSame = ({ organizationId }: QueuedTransition) => organizationId === entry.organizationId;
    const all = behind.concat(this.#waiting);
    this.#waiting = all.filter((other) => !isOfSame(other));
    this.#apart.addBroken(entry.organizationId, all.filter(isOfSame));
  }

  /** Lets what waits for locked organizations wait apart, and sends the rest again. */
  #setApart(batch: QueuedTransition[], { organizationIds }: OrganizationsLockedError): void {
    const isLocked = ({ organizationId }: QueuedTransition) => organizationIds.has(organizationId);
    const all = batch.concat(this.#waiting);
    this.#options.log.warn(
      { organizationIds: [...organizationIds] },
      "credits are locked by another transaction: their organizations wait apart",
    );
    this.#waiting = all.filter((entry) => !isLocked(entry));
    this.#apart.addLocked(all.filter(isLocked));
  }

  async #attempt(batch: QueuedTransition[]): Promise<{ error: unknown } | undefined> {
    const { books, durability } = this.#options;
    try {
      const outcomes = await books.apply<Transition[]>(
        durability,
        batch.map(({ transition }) => transition),
      );
      if (outcomes.length !== batch.length) throw new Error("the store answered another number of transitions");
      for (const [index, outcome] of outcomes.entries()) batch[index]?.resolve(outcome);
      this.#failuresInARow = 0;
      this.#awaySinceMs = null;
      this.#mayBeBooked = false;
      return undefined;
    } catch (error) {
      return { error };
    }
  }

  /** Puts back what may be tried again, and waits; rejects the rest. */
  async #postpone(batch: QueuedTransition[], error: StoreUnavailableError): Promise<void> {
    const { retryMs, clock, random } = this.#options;
    error.mayBeBooked ||= this.#mayBeBooked;
    this.#mayBeBooked = error.mayBeBooked;
    if (retryMs === 0) return rejectAll(batch, error);
    this.#awaySinceMs ??= clock();
    const awayMs = clock() - this.#awaySinceMs;
    // Less than nothing is from a clock that was set back, which would keep all waiting for as long.
    const isOver = awayMs >= retryMs || awayMs < 0;
    // Only a look: whoever asks is better told at once. And what came meanwhile would wait for the rest in vain.
    const isGivenUp = ({ transition }: QueuedTransition) => isOver || transition.kind === "refresh";
    rejectAll(batch.concat(this.#waiting).filter(isGivenUp), error);
    this.#waiting = batch.concat(this.#waiting).filter((entry) => !isGivenUp(entry));
    if (this.#waiting.length === 0) {
      this.#awaySinceMs = null;
      return;
    }
    const backoffMs = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** this.#failuresInARow);
    this.#failuresInARow += 1;
    await sleep(backoffMs * (0.5 + random() / 2));
  }

  #refuse({ transition, organizationId, holdId, reject }: QueuedTransition, error: unknown): void {
    this.#options.log.error({ kind: transition.kind, organizationId, holdId, defect: error }, "transition not booked");
    reject(error);
  }
}

function holdIdOf(transition: Transition): string | null {
  if ("facts" in transition) return transition.facts.holdId;
  return "holdId" in transition ? transition.holdId : null;
}

function organizationIdOf(transition: Transition): string {
  return "facts" in transition ? transition.facts.organizationId : transition.organizationId;
}
