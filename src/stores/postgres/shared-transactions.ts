import { setImmediate as nextTurn } from "node:timers/promises";
import type { Transition } from "../../credits/books.ts";
import { holdIdOf, organizationIdOf } from "../../credits/names.ts";
import type { Outcome } from "../../credits/outcomes.ts";
import { OrganizationsLockedError, StoreUnavailableError } from "../../errors.ts";
import type { Durability } from "../driver.ts";

/** Books transitions in one transaction. */
export type BookBatch = (durability: Durability, transitions: Transition[]) => Promise<Outcome[]>;

interface Batch {
  durability: Durability;
  transitions: Transition[];
  organizationIds: Set<string>;
  holdIds: Set<string>;
  resolve: (outcomes: Outcome[]) => void;
  reject: (error: unknown) => void;
}

/**
 * Books batches in as few transactions as their locks allow. A transaction locks the balances of its organizations until it
 * is on disk, so a batch that shares one of them with a running transaction waits for its end in any case. It waits here,
 * and is booked together with the others that waited. Batches of different organizations run at the same time.
 */
export class SharedTransactions {
  readonly #book: BookBatch;
  #waiting: Batch[] = [];
  readonly #running = new Set<readonly Batch[]>();

  constructor(book: BookBatch) {
    this.#book = book;
  }

  /** Books a batch as `StoreDriver.apply` says. */
  apply(durability: Durability, transitions: Transition[]): Promise<Outcome[]> {
    const names = {
      organizationIds: new Set(transitions.map(organizationIdOf)),
      holdIds: new Set(transitions.map(holdIdOf).filter((id) => id !== null)),
    };
    return new Promise((resolve, reject) => {
      this.#waiting.push({ durability, transitions, ...names, resolve, reject });
      this.#start();
    });
  }

  /** Starts all batches that wait for no lock, in their order. */
  #start(): void {
    const busy = [...this.#running].flat();
    const groups: Batch[][] = [];
    const kept: Batch[] = [];
    for (const batch of this.#waiting) {
      const sharing = groups.filter((group) => group.some((other) => sharesOrganization(batch, other)));
      const [group] = sharing;
      const mustWait = [...busy, ...kept].some((other) => sharesOrganization(batch, other));
      if (mustWait || sharing.length > 1 || group?.some((other) => sharesHold(batch, other))) kept.push(batch);
      else if (group === undefined) groups.push([batch]);
      else group.push(batch);
    }
    this.#waiting = kept;
    for (const group of groups) void this.#run(group);
  }

  async #run(batches: readonly Batch[]): Promise<void> {
    this.#running.add(batches);
    await this.#send(batches);
    // The senders of these batches have the next ones ready only when they have handled the outcomes.
    await nextTurn();
    this.#running.delete(batches);
    this.#start();
  }

  /** Books batches together; one by one if that fails for a reason that concerns only some of them. Never rejects. */
  async #send(batches: readonly Batch[]): Promise<void> {
    const durability = batches.some((batch) => batch.durability === "durable") ? "durable" : "holds";
    try {
      const outcomes = await this.#book(
        durability,
        batches.flatMap(({ transitions }) => transitions),
      );
      let first = 0;
      for (const { transitions, resolve } of batches) {
        resolve(outcomes.slice(first, first + transitions.length));
        first += transitions.length;
      }
    } catch (error) {
      const concernsAll = error instanceof StoreUnavailableError && !(error instanceof OrganizationsLockedError);
      if (batches.length > 1 && !concernsAll) await this.#sendSingly(batches, error);
      else for (const { reject } of batches) reject(error);
    }
  }

  async #sendSingly(batches: readonly Batch[], error: unknown): Promise<void> {
    for (const batch of batches) {
      const locked = error instanceof OrganizationsLockedError ? lockedOf(batch, error) : [];
      if (locked.length === 0) await this.#send([batch]);
      else batch.reject(new OrganizationsLockedError(locked, { cause: error }));
    }
  }
}

function sharesOrganization(one: Batch, other: Batch): boolean {
  return !one.organizationIds.isDisjointFrom(other.organizationIds);
}

/** A decision over a batch takes each hold once. */
function sharesHold(one: Batch, other: Batch): boolean {
  return !one.holdIds.isDisjointFrom(other.holdIds);
}

function lockedOf({ organizationIds }: Batch, error: OrganizationsLockedError): string[] {
  return [...organizationIds].filter((id) => error.organizationIds.has(id));
}
