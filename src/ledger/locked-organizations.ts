import { setTimeout as sleep } from "node:timers/promises";
import type { Outcome, Transition } from "../credits/books.ts";
import { OrganizationsLockedError, StoreUnavailableError } from "../errors.ts";

/** Organizations that are tried at once: each takes a connection while it waits for its lock. */
const AT_ONCE = 2;
const PAUSE_MS = 20;
/** How long an organization stays apart after a defect, unless a batch of it is booked before. */
const BROKEN_MS = 60_000;

export interface LockedOrganizationsOptions {
  /** Books a batch of one organization. Returns the failure where it was not booked. */
  attempt(batch: QueuedTransition[]): Promise<{ error: unknown } | undefined>;
  /** Takes back transitions that no longer have to wait apart. */
  giveBack(entries: QueuedTransition[]): void;
  /** Rejects a transition that can never be booked. */
  refuse(entry: QueuedTransition, error: unknown): void;
  /** How long a locked organization is tried before everything that waits for it is rejected. */
  longestMs: number;
  clock: () => number;
}

interface Queue {
  waiting: QueuedTransition[];
  /** Since when it has been found locked. */
  sinceMs: number;
  isTried: boolean;
  /** When a transition of it last failed by its own fault; null where none has. */
  brokenAtMs: number | null;
}

/**
 * Queues of organizations that must not delay others: those whose rows another transaction has locked, and those whose rows
 * are broken so that every batch with them fails. They are tried in turns until a batch can be booked; then what waits goes
 * back to where it came from, in its order.
 */
export class LockedOrganizations {
  readonly #options: LockedOrganizationsOptions;
  /** In the order of their turns. */
  readonly #queues = new Map<string, Queue>();
  readonly #runs = new Set<Promise<void>>();

  constructor(options: LockedOrganizationsOptions) {
    this.#options = options;
  }

  /** Queues a transition if its organization is apart; returns whether it is. */
  takes(entry: QueuedTransition): boolean {
    const queue = this.#queues.get(entry.organizationId);
    if (queue === undefined) return false;
    const isIdle = queue.waiting.length === 0 && !queue.isTried;
    if (isIdle && this.#options.clock() - (queue.brokenAtMs ?? 0) >= BROKEN_MS) {
      this.#queues.delete(entry.organizationId);
      return false;
    }
    queue.waiting.push(entry);
    this.#start();
    return true;
  }

  /** Queues transitions of organizations that were found locked. */
  addLocked(entries: readonly QueuedTransition[]): void {
    for (const entry of entries) if (!this.takes(entry)) this.#add(entry.organizationId, [entry], null);
    this.#start();
  }

  /** Sets an organization apart of which a transition failed by its own fault, with what waits for it. */
  addBroken(organizationId: string, entries: QueuedTransition[]): void {
    const { clock } = this.#options;
    if (!this.#queues.has(organizationId)) this.#add(organizationId, entries, clock());
    this.#start();
  }

  get isBusy(): boolean {
    return this.#runs.size > 0;
  }

  /** Resolves when nothing waits apart any more. */
  async idle(): Promise<void> {
    while (this.#runs.size > 0) await Promise.all(this.#runs);
  }

  #add(organizationId: string, waiting: QueuedTransition[], brokenAtMs: number | null): void {
    this.#queues.set(organizationId, { waiting, sinceMs: this.#options.clock(), isTried: false, brokenAtMs });
  }

  #start(): void {
    const ready = this.#queues.values().filter(isReady).toArray().length;
    for (let more = Math.min(AT_ONCE - this.#runs.size, ready); more > 0; more -= 1) {
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

  #next(): [string, Queue] | undefined {
    return this.#queues.entries().find(([, queue]) => isReady(queue));
  }

  async #try(organizationId: string, queue: Queue): Promise<void> {
    const { attempt, giveBack } = this.#options;
    const { batch, rest } = takeBatch(queue.waiting);
    queue.waiting = rest;
    const failure = await attempt(batch);
    this.#queues.delete(organizationId);
    if (failure === undefined) return giveBack(queue.waiting);
    if (failure.error instanceof OrganizationsLockedError) {
      return this.#waitForLock(organizationId, queue, batch, failure.error);
    }
    if (failure.error instanceof StoreUnavailableError || queue.brokenAtMs === null) {
      return giveBack(batch.concat(queue.waiting));
    }
    queue.brokenAtMs = this.#options.clock();
    this.#queues.set(organizationId, queue);
    const left = await this.#trySingly(batch, failure.error);
    queue.waiting = left.concat(queue.waiting);
  }

  /** Refuses those that fail by their own fault. Returns those that were not tried, because the store is away or locked. */
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

  async #waitForLock(organizationId: string, queue: Queue, batch: QueuedTransition[], error: unknown): Promise<void> {
    const { longestMs, clock } = this.#options;
    const waitedMs = clock() - queue.sinceMs;
    queue.waiting = batch.concat(queue.waiting);
    // A negative duration means that the clock was set back.
    if (waitedMs >= longestMs || waitedMs < 0) return rejectAll(queue.waiting, error);
    this.#queues.set(organizationId, queue);
    await sleep(PAUSE_MS);
  }
}

function isReady({ waiting, isTried }: Queue): boolean {
  return waiting.length > 0 && !isTried;
}

/** A transition that waits to be booked, and who asked for it. */
export interface QueuedTransition {
  transition: Transition;
  organizationId: string;
  /** Two transitions with the same one never go in one batch. */
  holdId: string | null;
  resolve: (outcome: Outcome) => void;
  reject: (reason: unknown) => void;
}

const BATCH_SIZE_MAX = 1_000;

/** Splits what waits into a batch of at most `size` transitions, in which no hold is named twice, and the rest in its order. */
export function takeBatch(
  waiting: readonly QueuedTransition[],
  size: number = BATCH_SIZE_MAX,
): { batch: QueuedTransition[]; rest: QueuedTransition[] } {
  const batch: QueuedTransition[] = [];
  const later: QueuedTransition[] = [];
  const holdIds = new Set<string>();
  const sizeMax = Math.min(BATCH_SIZE_MAX, size);
  let seen = 0;
  for (const entry of waiting) {
    if (batch.length === sizeMax) break;
    seen += 1;
    if (entry.holdId !== null && holdIds.has(entry.holdId)) later.push(entry);
    else batch.push(entry);
    if (entry.holdId !== null) holdIds.add(entry.holdId);
  }
  return { batch, rest: later.concat(waiting.slice(seen)) };
}

export function rejectAll(entries: readonly QueuedTransition[], error: unknown): void {
  for (const { reject } of entries) reject(error);
}
