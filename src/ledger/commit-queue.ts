import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import type { Transition } from "../credits/books.ts";
import { holdIdOf, organizationIdOf } from "../credits/names.ts";
import type { Outcome, Outcomes } from "../credits/outcomes.ts";
import { OrganizationsLockedError, StoreUnavailableError, TablesLockedError } from "../errors.ts";
import type { Durability } from "../stores/driver.ts";
import type { Books } from "../stores/queries/books.ts";
import type { Log } from "../telemetry/logger.ts";
import { FairQueue } from "./fair-queue.ts";

const BATCH_SIZE_MAX = 1_000;
const BACKOFF_FIRST_MS = 50;
const BACKOFF_MAX_MS = 1_000;
/** A frozen node loses its locks after a second without a statement. */
const LOCKED_MS_MAX = 2_000;
const LOCKED_PAUSE_MS = 20;

/** Why the store did not commit a batch. */
export const COMMIT_FAILURES = ["organization_locked", "table_locked", "unavailable", "defect"] as const;
export type CommitOutcome = "booked" | (typeof COMMIT_FAILURES)[number];

export interface CommitQueueOptions {
  books: Pick<Books, "apply">;
  /** Time for which an unavailable store is retried before all transitions that may be retried are rejected. */
  retryMs: number;
  clock: () => number;
  /** Numbers from 0 up to 1. */
  random: () => number;
  log: Log;
  /** Called before each batch; the function that it returns is called when the batch is booked or has failed. */
  onSend?: ((durability: Durability, size: number) => (outcome: CommitOutcome) => void) | undefined;
}

/** Durability of a transition, and whether it is retried while the store is unavailable. */
export interface BookingTerms {
  /** A batch is durable if one of its transitions must be. */
  durability: Durability;
  /** False: rejected as soon as the store is unavailable. */
  isRetried: boolean;
}

/** For a new request, which is refused at once while the store is unavailable, and for renewals, which are repeated. */
export const HOLDS: BookingTerms = { durability: "holds", isRetried: false };
export const DURABLE: BookingTerms = { durability: "durable", isRetried: true };
/** For what is repeated anyway, or only read. */
export const ONCE: BookingTerms = { durability: "durable", isRetried: false };

/** Books a change of credits, each reference once per organization, or refreshes a balance. Rejects with StoreUnavailableError. */
export type BookCredits = <
  T extends Extract<Transition, { kind: "grant" | "revoke" | "credit" | "payment" | "redeem" | "refresh" }>,
>(
  transition: T,
) => Promise<Outcomes[T["kind"]]>;

interface QueuedTransition {
  transition: Transition;
  terms: BookingTerms;
  organizationId: string;
  /** A batch names each hold only once. */
  holdId: string | null;
  /** True if it may have been booked before the connection to the store was lost. */
  mayBeBooked: boolean;
  resolve: (outcome: Outcome) => void;
  reject: (reason: unknown) => void;
}

/** An organization that shares no batch with others, because its rows are locked or broken. */
interface Isolation {
  /** When its rows were first found locked; null if they were not. */
  lockedSinceMs: number | null;
  /** Number of its first transitions to be tried one at a time, because a batch with them failed. */
  suspects: number;
  /** True while a batch of it is in flight, or a retry of its lock waits. */
  isTried: boolean;
}

/** Sends one batch at a time, of all organizations that share batches or of one that does not. */
interface Lane {
  isShared: boolean;
  running: Promise<void> | undefined;
}

/**
 * Gathers transitions into batches and books them: those of each organization in their order of arrival, and the
 * organizations in turn, so that none fills the batches. One batch is in flight while the next gathers. An idle queue sends
 * what arrives within one turn of the event loop. An organization whose rows are locked by another transaction, or broken,
 * gets batches of its own, two at a time of all such organizations, until one of its batches is booked. So it delays no
 * others, and no organization ever has two batches in flight.
 */
export class CommitQueue {
  readonly #options: CommitQueueOptions;
  readonly #waiting = new FairQueue<QueuedTransition>(({ organizationId }) => organizationId);
  readonly #isolated = new Map<string, Isolation>();
  /** Two for isolated organizations: each uses a connection while it waits for a lock. */
  readonly #lanes: readonly Lane[] = [true, false, false].map((isShared) => ({ isShared, running: undefined }));
  #failuresInARow = 0;
  /** When the store was first found unavailable; null while it answers, and while nothing is retried. */
  #unavailableSinceMs: number | null = null;
  /** Ends the pause before the next retry. */
  #pause: AbortController | undefined;

  constructor(options: CommitQueueOptions) {
    this.#options = options;
  }

  /** Resolves when it is booked. Rejects with StoreUnavailableError after `retryMs`; other errors concern this transition alone. */
  push<T extends Transition>(transition: T, terms: BookingTerms): Promise<Outcomes[T["kind"]]> {
    const promise = new Promise<Outcome>((resolve, reject) => {
      const [organizationId, holdId] = [organizationIdOf(transition), holdIdOf(transition)];
      this.#waiting.push({ transition, organizationId, holdId, terms, mayBeBooked: false, resolve, reject });
    });
    // The others wait for the next retry of the store.
    if (!terms.isRetried) this.#pause?.abort();
    this.#start();
    return promise as Promise<Outcomes[T["kind"]]>;
  }

  /** Resolves when no transition is waiting or in flight. */
  async idle(): Promise<void> {
    while (this.#lanes.some(({ running }) => running !== undefined)) {
      await Promise.all(this.#lanes.map(({ running }) => running));
    }
  }

  #start(): void {
    for (const lane of this.#lanes) {
      if (lane.isShared || this.#isolated.size > 0) lane.running ??= this.#run(lane);
    }
  }

  /** Also after a batch, those who waited for it can queue their next transitions within a turn. */
  async #run(lane: Lane): Promise<void> {
    for (;;) {
      await nextTurn();
      const batch = lane.isShared ? this.#takeBatch(() => this.#waiting.shift(this.#isolated)) : this.#takeIsolated();
      if (batch.length === 0) break;
      await this.#send(batch);
      this.#start();
    }
    lane.running = undefined;
  }

  /** Takes a batch in which no hold is named twice. */
  #takeBatch(next: () => QueuedTransition | undefined, sizeMax = BATCH_SIZE_MAX): QueuedTransition[] {
    const batch: QueuedTransition[] = [];
    const later: QueuedTransition[] = [];
    const holdIds = new Set<string>();
    while (batch.length < sizeMax) {
      const entry = next();
      if (entry === undefined) break;
      if (entry.holdId !== null && holdIds.has(entry.holdId)) later.push(entry);
      else batch.push(entry);
      if (entry.holdId !== null) holdIds.add(entry.holdId);
    }
    this.#waiting.unshift(later);
    return batch;
  }

  #takeIsolated(): QueuedTransition[] {
    const id = this.#waiting.nextOwner({ has: (owner) => this.#isolated.get(owner)?.isTried !== false });
    const isolation = id === undefined ? undefined : this.#isolated.get(id);
    if (id === undefined || isolation === undefined) return [];
    isolation.isTried = true;
    return this.#takeBatch(() => this.#waiting.shiftOf(id), isolation.suspects > 0 ? 1 : BATCH_SIZE_MAX);
  }

  async #send(batch: readonly QueuedTransition[]): Promise<void> {
    const failure = await this.#attempt(batch);
    const organizationId = batch[0]?.organizationId ?? "";
    // A batch with others has no isolated organization.
    const isolation = this.#isolated.get(organizationId);
    if (failure !== undefined) {
      const { error } = failure;
      if (error instanceof OrganizationsLockedError) return this.#awaitLock(batch, isolation, error);
      if (!(error instanceof StoreUnavailableError)) return this.#isolateBroken(batch, isolation, error);
      this.#isolated.delete(organizationId);
      return this.#postpone(batch, error);
    }
    if (isolation === undefined) return;
    isolation.isTried = false;
    isolation.suspects -= 1;
    if (isolation.suspects <= 0) this.#isolated.delete(organizationId);
  }

  async #attempt(batch: readonly QueuedTransition[]): Promise<{ error: unknown } | undefined> {
    const durability = batch.some(({ terms }) => terms.durability === "durable") ? "durable" : "holds";
    const onSent = this.#options.onSend?.(durability, batch.length);
    let outcome: CommitOutcome = "booked";
    try {
      const transitions = batch.map(({ transition }) => transition);
      const outcomes = await this.#options.books.apply<Transition[]>(durability, transitions);
      if (outcomes.length !== batch.length)
        throw new Error("the store returned a different number of outcomes than transitions");
      outcomes.forEach((outcome, index) => {
        batch[index]?.resolve(outcome);
      });
      this.#failuresInARow = 0;
      this.#unavailableSinceMs = null;
      return undefined;
    } catch (error) {
      outcome = failureOf(error);
      if (error instanceof StoreUnavailableError) {
        error.mayBeBooked ||= batch.some(({ mayBeBooked }) => mayBeBooked);
        for (const entry of batch) entry.mayBeBooked = error.mayBeBooked;
      }
      return { error };
    } finally {
      onSent?.(outcome);
    }
  }

  /** Rejects the transitions that are not retried, puts back the others, and waits; rejects them, too, after `retryMs`. */
  async #postpone(batch: readonly QueuedTransition[], error: StoreUnavailableError): Promise<void> {
    const { retryMs, clock, random } = this.#options;
    const retried = batch.filter(({ terms }) => terms.isRetried);
    for (const { terms, reject } of batch) if (!terms.isRetried) reject(error);
    if (retried.length === 0) return;
    this.#waiting.unshift(retried);
    this.#unavailableSinceMs ??= clock();
    const unavailableMs = clock() - this.#unavailableSinceMs;
    // A negative duration means that the clock was set back: waiting for it to catch up could take as long.
    if (unavailableMs >= retryMs || unavailableMs < 0) {
      this.#unavailableSinceMs = null;
      for (const entry of this.#waiting.takeAll()) {
        if (entry.terms.isRetried) entry.reject(error);
        else this.#waiting.push(entry);
      }
      return;
    }
    const backoffMs = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** this.#failuresInARow);
    this.#failuresInARow += 1;
    if (this.#pause === undefined || this.#pause.signal.aborted) this.#pause = new AbortController();
    await sleep(backoffMs * (0.5 + random() / 2), undefined, { signal: this.#pause.signal }).catch(() => {});
  }

  /** Isolates locked organizations. An isolated one waits, and is refused if it stays locked. */
  async #awaitLock(
    batch: readonly QueuedTransition[],
    isolation: Isolation | undefined,
    error: OrganizationsLockedError,
  ): Promise<void> {
    const { clock, log } = this.#options;
    this.#waiting.unshift(batch);
    const locked = new Set(batch.map(({ organizationId }) => organizationId)).intersection(error.organizationIds);
    if (isolation === undefined) {
      log.warn(
        { organizationIds: [...locked] },
        "balances are locked by another transaction: their organizations get batches of their own",
      );
      for (const id of locked) this.#isolate(id, { lockedSinceMs: clock() });
      return;
    }
    isolation.lockedSinceMs ??= clock();
    const lockedMs = clock() - isolation.lockedSinceMs;
    // A negative duration means that the clock was set back.
    if (lockedMs < LOCKED_MS_MAX && lockedMs >= 0) {
      await sleep(LOCKED_PAUSE_MS);
      isolation.isTried = false;
      return;
    }
    for (const { organizationId } of batch) {
      this.#isolated.delete(organizationId);
      for (const { reject } of this.#waiting.takeOwner(organizationId)) reject(error);
    }
  }

  /**
   * Refuses a transition that failed alone; others of its organization may fail for the same reason. To find it in a batch,
   * the organizations of the batch are isolated, and then the transitions of one of them are tried one at a time.
   */
  #isolateBroken(batch: readonly QueuedTransition[], isolation: Isolation | undefined, error: unknown): void {
    const [first, ...others] = batch;
    if (first !== undefined && others.length === 0) {
      this.#options.log.error(
        { kind: first.transition.kind, organizationId: first.organizationId, holdId: first.holdId, defect: error },
        "transition not booked",
      );
      first.reject(error);
      this.#isolate(first.organizationId, { suspects: Math.max(0, (isolation?.suspects ?? 0) - 1) });
      return;
    }
    this.#waiting.unshift(batch);
    const ids = new Set(batch.map(({ organizationId }) => organizationId));
    for (const id of ids) this.#isolate(id, { suspects: ids.size === 1 ? batch.length : 0 });
  }

  #isolate(organizationId: string, state: Partial<Isolation>): void {
    this.#isolated.set(organizationId, { lockedSinceMs: null, suspects: 0, isTried: false, ...state });
  }
}

function failureOf(error: unknown): CommitOutcome {
  if (error instanceof OrganizationsLockedError) return "organization_locked";
  if (error instanceof TablesLockedError) return "table_locked";
  return error instanceof StoreUnavailableError ? "unavailable" : "defect";
}
