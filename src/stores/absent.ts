import { setTimeout as sleep } from "node:timers/promises";
import { OperatorError, StoreUnavailableError } from "../errors.ts";
import type { Store } from "./store.ts";

const RETRY_MS = 250;

/** The store cannot be reached now, and may be in a moment: nothing about it is known to be wrong. */
export class StoreAbsentError extends OperatorError {
  override readonly name = "StoreAbsentError";
}

/** A store that a start waits for. */
export interface AwaitedStore {
  /** Until it has arrived, every verb of it rejects with StoreUnavailableError. */
  store: Store;
  /** Rejects with OperatorError when it has not arrived in time, or cannot be used. */
  arrived: Promise<void>;
}

export interface WaitOptions {
  kind: Store["kind"];
  /** Rejects with StoreAbsentError as long as the store cannot be reached. */
  open: () => Promise<Store>;
  longestMs: number;
}

/** Stands in for a store that cannot be reached at the start, and asks for it again until it is there. */
export function awaitStore({ kind, open, longestMs }: WaitOptions): AwaitedStore {
  let opened: Store | undefined;
  let isClosed = false;
  const current = () => {
    if (opened !== undefined) return opened;
    throw new StoreUnavailableError("The store has not been reached since the start.");
  };
  const untilOpen = async () => {
    const giveUpAtMs = performance.now() + longestMs;
    while (opened === undefined && !isClosed) {
      await sleep(RETRY_MS);
      opened = await open().catch((error: unknown) => {
        if (error instanceof StoreAbsentError && performance.now() < giveUpAtMs) return undefined;
        throw error;
      });
    }
  };
  const arrived = untilOpen();
  // It may settle before anybody waits for it.
  arrived.catch(() => undefined);
  const store: Store = {
    kind,
    books: verbsOf(() => current().books),
    accounts: verbsOf(() => current().accounts),
    allowances: verbsOf(() => current().allowances),
    admin: verbsOf(() => current().admin),
    directory: verbsOf(() => current().directory),
    requests: verbsOf(() => current().requests),
    refusals: verbsOf(() => current().refusals),
    usage: verbsOf(() => current().usage),
    conversations: verbsOf(() => current().conversations),
    inTurn: async (work) => current().inTurn(work),
    ping: async () => current().ping(),
    async close() {
      isClosed = true;
      await arrived.catch(() => undefined);
      await opened?.close();
    },
  };
  return { store, arrived };
}

type Verb = (...words: unknown[]) => Promise<unknown>;

/** The verbs of a part of the store, each looked up when it is called. */
function verbsOf<Part extends object>(current: () => Part): Part {
  const verb = (name: string): Verb => {
    return async (...words) => (current() as Record<string, Verb>)[name]?.(...words);
  };
  return new Proxy({} as Part, { get: (_part, name) => verb(String(name)) });
}
