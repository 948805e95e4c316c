import { StoreUnavailableError } from "../errors.ts";
import type { Log } from "../telemetry/logger.ts";
import { Outage } from "../telemetry/outage.ts";
import type { Store } from "./store.ts";

/**
 * Reports in the log when the store cannot be reached, and when it is back: every call of it is watched, so that one
 * place tells it, however many requests meet it.
 */
export function watchStore(store: Store, { log, clock }: { log: Log; clock: () => number }): Store {
  const texts = {
    begins: "the store is unavailable",
    lasts: "the store is still unavailable",
    ends: "the store is available again",
  };
  const outage = new Outage({ log, level: "error", texts, clock });
  return {
    kind: store.kind,
    books: watched(store.books, outage),
    accounts: watched(store.accounts, outage),
    allowances: watched(store.allowances, outage),
    admin: watched(store.admin, outage),
    directory: watched(store.directory, outage),
    requests: watched(store.requests, outage),
    usage: watched(store.usage, outage),
    conversations: watched(store.conversations, outage),
    refusals: watched(store.refusals, outage),
    inTurn: (work) => store.inTurn(work),
    ping: () => observe(store.ping(), outage),
    close: () => store.close(),
  };
}

type Verb = (...words: unknown[]) => unknown;

/** The same verbs, each of them watched. A store that is still awaited has its verbs by name alone. */
function watched<Part extends object>(part: Part, outage: Outage): Part {
  const verbs = new Map<PropertyKey, Verb>();
  return new Proxy({} as Part, {
    get(_target, name) {
      let verb = verbs.get(name);
      if (verb === undefined) {
        verb = (...words) => observe((part as Record<PropertyKey, Verb>)[name]?.(...words), outage);
        verbs.set(name, verb);
      }
      return verb;
    },
  });
}

function observe<T>(result: T, outage: Outage): T {
  if (result instanceof Promise) {
    result.then(
      () => outage.succeeded(),
      (error: unknown) => {
        if (error instanceof StoreUnavailableError) outage.failed({ err: error });
      },
    );
  }
  return result;
}
