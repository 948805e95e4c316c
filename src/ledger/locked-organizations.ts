import { setTimeout as sleep } from "node:timers/promises";
import type { Transition } from "../credits/books.ts";
import type { Outcome } from "../credits/outcomes.ts";
import { OrganizationsLockedError, StoreUnavailableError } from "../errors.ts";
import { FairQueue } from "./fair-queue.ts";

/** Organizations tried concurrently: each uses a connection while it waits for its lock. */
const CONCURRENT_MAX = 2;
const PAUSE_MS = 20;
/** Time for which an organization keeps its own queue after a defect, unless a batch of it is booked earlier. */
const BROKEN_MS = 60_000;

export interface LockedOrganizationsOptions {
  /** Books a batch of one organization. Returns the failure if it was not booked. */
  attempt(batch: QueuedTransition[]): Promise<{ error: unknown } | undefined>;
  /** Returns transitions to the common queue. */
  requeue(entries: QueuedTransition[]): void;
  /** Rejects a transition that can never be booked. */
  refuse(entry: QueuedTransition, error: unknown): void;
  /** Time for which a locked organization is retried before its transitions are rejected. */
  retryMsMax: number;
  clock: () => number;
}

interface OrganizationQueue {
  waiting: FairQueue<QueuedTransition>;
  /** When its rows were first found locked. */
  sinceMs: number;
  isTried: boolean;
  /** When a transition of it last failed for a reason that no retry fixes; null if none has. */
  brokenAtMs: number | null;
}

/**
 * Separate queues for organizations that must not delay others: those whose rows another transaction has locked, and those
 * whose rows are broken, so that every batch with them fails. They are tried in turn. When a batch has been booked, the
 * remaining transitions return to the common queue in their order.
 */
export class LockedOrganizations {
  readonly #options: LockedOrganizationsOptions;
  /** In the order in which they are tried. */
  readonly #queues = new Map<string, OrganizationQueue>();
  readonly #runs = new Set<Promise<void>>();

  constructor(options: LockedOrganizationsOptions) {
    this.#options = options;
  }

  /** Queues a transition if its organization has a queue of its own; returns false if it has none. */
  enqueue(entry: QueuedTransition): boolean {
    const queue = this.#queues.get(entry.organizationId);
    if (queue === undefined) return false;
    const isIdle = queue.waiting.size === 0 && !queue.isTried;
    if (isIdle && this.#options.clock() - (queue.brokenAtMs ?? 0) >= BROKEN_MS) {
      this.#queues.delete(entry.organizationId);
      return false;
    }
    queue.waiting.push(entry);
    this.#start();
    return true;
  }

  /** Adds transitions of organizations whose rows are locked. */
  addLocked(entries: readonly QueuedTransition[]): void {
    for (const entry of entries) if (!this.enqueue(entry)) this.#add(entry.organizationId, [entry], null);
    this.#start();
  }

  /** Gives an organization with broken rows a queue of its own, with its waiting transitions. */
  addBroken(organizationId: string, entries: QueuedTransition[]): void {
    const { clock } = this.#options;
    if (!this.#queues.has(organizationId)) this.#add(organizationId, entries, clock());
    this.#start();
  }

  get isBusy(): boolean {
    return this.#runs.size > 0;
  }

  /** Resolves when all separate queues are empty. */
  async idle(): Promise<void> {
    while (this.#runs.size > 0) await Promise.all(this.#runs);
  }

  #add(organizationId: string, entries: readonly QueuedTransition[], brokenAtMs: number | null): void {
    this.#queues.set(organizationId, {
      waiting: queueOf(entries),
      sinceMs: this.#options.clock(),
      isTried: false,
      brokenAtMs,
    });
  }

  #start(): void {
    const ready = this.#queues.values().filter(isReady).toArray().length;
    for (let more = Math.min(CONCURRENT_MAX - this.#runs.size, ready); more > 0; more -= 1) {
      const run = this.#run().finally(() => this.#runs.delete(run));
      this.#runs.add(run);
    }
  }

  async #run(): Promise<void> {
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      const [organizationId, queue] = next;
      queue.isTried = true;
      await this.#try(organizationId, queue);
      queue.isTried = false;
    }
  }

  #next(): [string, OrganizationQueue] | undefined {
    return this.#queues.entries().find(([, queue]) => isReady(queue));
  }

  async #try(organizationId: string, queue: OrganizationQueue): Promise<void> {
    const { attempt, requeue } = this.#options;
    const batch = takeBatch(queue.waiting);
    const failure = await attempt(batch);
    this.#queues.delete(organizationId);
    if (failure === undefined) return requeue(queue.waiting.takeAll());
    if (failure.error instanceof OrganizationsLockedError) {
      return this.#waitForLock(organizationId, queue, batch, failure.error);
    }
    if (failure.error instanceof StoreUnavailableError || queue.brokenAtMs === null) {
      return requeue(batch.concat(queue.waiting.takeAll()));
    }
    queue.brokenAtMs = this.#options.clock();
    this.#queues.set(organizationId, queue);
    queue.waiting.unshift(await this.#trySingly(batch, failure.error));
  }

  /** Refuses the transitions that fail again. Returns those that were not tried because the store is unavailable or locked. */
  async #trySingly(batch: QueuedTransition[], error: unknown): Promise<QueuedTransition[]> {
    const { attempt, refuse } = this.#options;
    const [only, ...others] = batch;
    if (only !== undefined && others.length === 0) {
      refuse(only, error);
      return [];
    }
    for (const [index, entry] of batch.entries()) {
      const failure = await attempt([entry]);
      if (failure === undefined) continue;
      if (failure.error instanceof StoreUnavailableError) return batch.slice(index);
      refuse(entry, failure.error);
    }
    return [];
  }

  async #waitForLock(
    organizationId: string,
    queue: OrganizationQueue,
    batch: QueuedTransition[],
    error: unknown,
  ): Promise<void> {
    const { retryMsMax, clock } = this.#options;
    const waitedMs = clock() - queue.sinceMs;
    queue.waiting.unshift(batch);
    // A negative duration means that the clock was set back.
    if (waitedMs >= retryMsMax || waitedMs < 0) return rejectAll(queue.waiting.takeAll(), error);
    this.#queues.set(organizationId, queue);
    await sleep(PAUSE_MS);
  }
}

function isReady({ waiting, isTried }: OrganizationQueue): boolean {
  return waiting.size > 0 && !isTried;
}

/** A transition that waits to be booked. */
export interface QueuedTransition {
  transition: Transition;
  organizationId: string;
  /** A batch names each hold only once. */
  holdId: string | null;
  resolve: (outcome: Outcome) => void;
  reject: (reason: unknown) => void;
}

const BATCH_SIZE_MAX = 1_000;

/** Returns a queue of transitions, of their organizations in turn. */
export function queueOf(entries: readonly QueuedTransition[]): FairQueue<QueuedTransition> {
  const queue = new FairQueue<QueuedTransition>(({ organizationId }) => organizationId);
  for (const entry of entries) queue.push(entry);
  return queue;
}

/** Takes a batch of the waiting transitions, in which no hold is named twice. */
export function takeBatch(waiting: FairQueue<QueuedTransition>): QueuedTransition[] {
  const batch: QueuedTransition[] = [];
  const later: QueuedTransition[] = [];
  const holdIds = new Set<string>();
  while (batch.length < BATCH_SIZE_MAX) {
    const entry = waiting.shift();
    if (entry === undefined) break;
    if (entry.holdId !== null && holdIds.has(entry.holdId)) later.push(entry);
    else batch.push(entry);
    if (entry.holdId !== null) holdIds.add(entry.holdId);
  }
  waiting.unshift(later);
  return batch;
}

/** Rejects transitions with one error. */
export function rejectAll(entries: readonly QueuedTransition[], error: unknown): void {
  for (const { reject } of entries) reject(error);
}
