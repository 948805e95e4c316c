import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import type { Transition } from "../credits/books.ts";
import { holdIdOf, organizationIdOf } from "../credits/names.ts";
import type { Outcome, Outcomes } from "../credits/outcomes.ts";
import { OrganizationsLockedError, StoreUnavailableError, TablesLockedError } from "../errors.ts";
import type { Durability } from "../stores/driver.ts";
import type { Books } from "../stores/queries/books.ts";
import type { Log } from "../telemetry/logger.ts";
import type { FairQueue } from "./fair-queue.ts";
import { LockedOrganizations, type QueuedTransition, queueOf, rejectAll, takeBatch } from "./locked-organizations.ts";

const BACKOFF_FIRST_MS = 50;
const BACKOFF_MAX_MS = 1_000;
/** A frozen node loses its locks after a second without a statement. */
const LOCKED_MS_MAX = 2_000;

/** Why the store did not commit a batch. */
export const COMMIT_FAILURES = ["organization_locked", "table_locked", "unavailable", "defect"] as const;
export type CommitOutcome = "booked" | (typeof COMMIT_FAILURES)[number];

export interface CommitQueueOptions {
  books: Pick<Books, "apply">;
  durability: Durability;
  /** Time for which an unavailable store is retried before all waiting transitions are rejected; 0 for no retry. */
  retryMs: number;
  clock: () => number;
  /** Numbers from 0 up to 1. */
  random: () => number;
  log: Log;
  /** Called before each batch with its size; the function that it returns is called when the batch is booked or has failed. */
  onSend?: ((size: number) => (outcome: CommitOutcome) => void) | undefined;
}

/**
 * Gathers transitions into batches and books them with one durability: those of each organization in their order of arrival,
 * and the organizations in turn, so that none fills the batches. One batch is in flight while the next gathers. An idle queue
 * sends what arrives within one turn of the event loop. Transitions of an organization whose rows are locked by another
 * transaction, or broken, wait in a queue of their own, so that they delay no others.
 */
export class CommitQueue {
  readonly #options: CommitQueueOptions;
  readonly #waiting: FairQueue<QueuedTransition> = queueOf([]);
  #running: Promise<void> | undefined;
  readonly #lockedOrganizations: LockedOrganizations;
  #failuresInARow = 0;
  /** When the store was first found unavailable; null while it answers. */
  #unavailableSinceMs: number | null = null;
  /** True if waiting transitions may have been booked before the connection to the store was lost. */
  #mayBeBooked = false;

  constructor(options: CommitQueueOptions) {
    this.#options = options;
    this.#lockedOrganizations = new LockedOrganizations({
      attempt: (batch) => this.#attempt(batch),
      requeue: (entries) => {
        this.#waiting.unshift(entries);
        if (entries.length > 0) this.#start();
      },
      refuse: (entry, error) => this.#refuse(entry, error),
      retryMsMax: LOCKED_MS_MAX,
      clock: options.clock,
    });
  }

  /**
   * Resolves when the transition is booked. Rejects with StoreUnavailableError when the store stays unavailable for
   * `retryMs`. Any other error concerns this transition alone.
   */
  push<T extends Transition>(transition: T): Promise<Outcomes[T["kind"]]> {
    const promise = new Promise<Outcome>((resolve, reject) => {
      const [organizationId, holdId] = [organizationIdOf(transition), holdIdOf(transition)];
      const entry = { transition, organizationId, holdId, resolve, reject };
      if (!this.#lockedOrganizations.enqueue(entry)) this.#waiting.push(entry);
    });
    if (this.#waiting.size > 0) this.#start();
    return promise as Promise<Outcomes[T["kind"]]>;
  }

  /** Resolves when no transition is waiting or in flight. */
  async idle(): Promise<void> {
    while (this.#running !== undefined || this.#lockedOrganizations.isBusy) {
      await this.#running;
      await this.#lockedOrganizations.idle();
    }
  }

  #start(): void {
    this.#running ??= this.#run();
  }

  async #run(): Promise<void> {
    await nextTurn();
    while (this.#waiting.size > 0) await this.#send(takeBatch(this.#waiting));
    this.#running = undefined;
  }

  async #send(batch: QueuedTransition[]): Promise<void> {
    const failure = await this.#attempt(batch);
    if (failure === undefined) return;
    if (failure.error instanceof OrganizationsLockedError) return this.#separateLocked(batch, failure.error);
    if (failure.error instanceof StoreUnavailableError) return this.#postpone(batch, failure.error);
    if (batch.length > 1) return this.#sendSingly(batch);
    for (const entry of batch) this.#refuseBroken(entry, failure.error, []);
  }

  /** Finds the transition that failed the batch. Transitions before it are booked one by one; those after it wait again. */
  async #sendSingly(batch: QueuedTransition[]): Promise<void> {
    for (const [index, entry] of batch.entries()) {
      const failure = await this.#attempt([entry]);
      if (failure === undefined) continue;
      if (failure.error instanceof OrganizationsLockedError) {
        return this.#separateLocked(batch.slice(index), failure.error);
      }
      if (failure.error instanceof StoreUnavailableError) return this.#postpone(batch.slice(index), failure.error);
      return this.#refuseBroken(entry, failure.error, batch.slice(index + 1));
    }
  }

  /** Refuses a transition. Others of its organization may fail for the same reason, so they get a queue of their own. */
  #refuseBroken(entry: QueuedTransition, error: unknown, behind: readonly QueuedTransition[]): void {
    this.#refuse(entry, error);
    this.#waiting.unshift(behind);
    const { organizationId } = entry;
    this.#lockedOrganizations.addBroken(organizationId, this.#waiting.takeOwner(organizationId));
  }

  /** Moves the transitions of locked organizations to queues of their own, and sends the rest again. */
  #separateLocked(batch: QueuedTransition[], { organizationIds }: OrganizationsLockedError): void {
    this.#options.log.warn(
      { organizationIds: [...organizationIds] },
      "balances are locked by another transaction: their organizations wait in queues of their own",
    );
    this.#waiting.unshift(batch);
    this.#lockedOrganizations.addLocked([...organizationIds].flatMap((id) => this.#waiting.takeOwner(id)));
  }

  async #attempt(batch: QueuedTransition[]): Promise<{ error: unknown } | undefined> {
    const { books, durability, onSend } = this.#options;
    const onSent = onSend?.(batch.length);
    let outcome: CommitOutcome = "booked";
    try {
      const outcomes = await books.apply<Transition[]>(
        durability,
        batch.map(({ transition }) => transition),
      );
      if (outcomes.length !== batch.length)
        throw new Error("the store returned a different number of outcomes than transitions");
      for (const [index, outcome] of outcomes.entries()) batch[index]?.resolve(outcome);
      this.#failuresInARow = 0;
      this.#unavailableSinceMs = null;
      this.#mayBeBooked = false;
      return undefined;
    } catch (error) {
      outcome = failureOf(error);
      return { error };
    } finally {
      onSent?.(outcome);
    }
  }

  /** Puts back the transitions to retry, and waits; rejects the rest. */
  async #postpone(batch: QueuedTransition[], error: StoreUnavailableError): Promise<void> {
    const { retryMs, clock, random } = this.#options;
    error.mayBeBooked ||= this.#mayBeBooked;
    this.#mayBeBooked = error.mayBeBooked;
    if (retryMs === 0) return rejectAll(batch, error);
    this.#unavailableSinceMs ??= clock();
    const unavailableMs = clock() - this.#unavailableSinceMs;
    // A negative duration means that the clock was set back: waiting for it to catch up could take as long.
    const isOver = unavailableMs >= retryMs || unavailableMs < 0;
    // A refresh only reads the balance, so it fails immediately. After the time limit, everything that waits fails.
    this.#waiting.unshift(batch);
    for (const entry of this.#waiting.takeAll()) {
      if (isOver || entry.transition.kind === "refresh") entry.reject(error);
      else this.#waiting.push(entry);
    }
    if (this.#waiting.size === 0) {
      this.#unavailableSinceMs = null;
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

function failureOf(error: unknown): CommitOutcome {
  if (error instanceof OrganizationsLockedError) return "organization_locked";
  if (error instanceof TablesLockedError) return "table_locked";
  return error instanceof StoreUnavailableError ? "unavailable" : "defect";
}
