import { setTimeout as sleep } from "node:timers/promises";
import { OrganizationsLockedError } from "../errors.ts";
import { rejectAll, takeBatch, type Waiting } from "./waiting.ts";

/** Organizations that are tried at once: each takes a connection while it waits for its lock. */
const AT_ONCE = 2;
const PAUSE_MS = 20;

export interface LockedOrganizationsOptions {
  /** Books a batch of one organization. Returns the failure where it was not booked. */
  attempt(batch: Waiting[]): Promise<{ error: unknown } | undefined>;
  /** Takes back what no longer waits for a lock. */
  giveBack(entries: Waiting[]): void;
  /** How long an organization is tried before all that waits for it is rejected. */
  longestMs: number;
  clock: () => number;
}

interface Queue {
  waiting: Waiting[];
  sinceMs: number;
  isTried: boolean;
}

/**
 * Queues of the organizations whose rows another transaction has locked. They are tried apart from all others, in turns,
 * until they can be booked: then what waits goes back to where it came from, in its order.
 */
export class LockedOrganizations {
  readonly #options: LockedOrganizationsOptions;
  /** In the order of their turns. */
  readonly #queues = new Map<string, Queue>();
  readonly #runs = new Set<Promise<void>>();

  constructor(options: LockedOrganizationsOptions) {
    this.#options = options;
  }

  /** Queues a transition if its organization is locked; returns whether it is. */
  takes(entry: Waiting): boolean {
    const queue = this.#queues.get(entry.organizationId);
    queue?.waiting.push(entry);
    return queue !== undefined;
  }

  /** Queues transitions of organizations that were found locked. */
  add(entries: readonly Waiting[]): void {
    for (const entry of entries) {
      if (this.takes(entry)) continue;
      this.#queues.set(entry.organizationId, {
        waiting: [entry],
        sinceMs: this.#options.clock(),
        isTried: false,
      });
    }
    while (this.#runs.size < Math.min(AT_ONCE, this.#queues.size)) {
      const run = this.#run().finally(() => this.#runs.delete(run));
      this.#runs.add(run);
    }
  }

  get isBusy(): boolean {
    return this.#runs.size > 0;
  }

  /** Resolves when no organization is locked any more. */
  async idle(): Promise<void> {
    while (this.#runs.size > 0) await Promise.all(this.#runs);
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
    return this.#queues.entries().find(([, { isTried }]) => !isTried);
  }

  async #try(organizationId: string, queue: Queue): Promise<void> {
    const { attempt, giveBack, longestMs, clock } = this.#options;
    const { batch, rest } = takeBatch(queue.waiting);
    queue.waiting = rest;
    const failure = await attempt(batch);
    this.#queues.delete(organizationId);
    if (failure === undefined) return giveBack(queue.waiting);
    const all = batch.concat(queue.waiting);
    if (!(failure.error instanceof OrganizationsLockedError)) return giveBack(all);
    const waitedMs = clock() - queue.sinceMs;
    // Less than nothing is from a clock that was set back.
    if (waitedMs >= longestMs || waitedMs < 0) return rejectAll(all, failure.error);
    queue.waiting = all;
    this.#queues.set(organizationId, queue);
    await sleep(PAUSE_MS);
  }
}
