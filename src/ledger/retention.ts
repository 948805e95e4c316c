import { setTimeout as sleep } from "node:timers/promises";
import { DAY_MS, HOUR_MS, isoTime, monthStart } from "../api/time.ts";
import { ClosingTally } from "../credits/closing.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { StatementTerms } from "../stores/queries/monthly-statements.ts";
import type { ResponseTimes } from "../stores/queries/response-items.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";

export interface RetentionOptions {
  store: Pick<
    Store,
    "books" | "closings" | "erasure" | "monthDigests" | "conversations" | "responseItems" | "refusals" | "events"
  >;
  /** The configuration is read at each use, because a reload changes it. */
  live: { readonly config: RetentionSettings };
  isUsageSummedUp: (beforeMs: number) => Promise<boolean>;
  /** Number of transitions of this process that the store has not accepted yet. */
  spooled: () => Promise<number>;
  /** Milliseconds since 1970. */
  clock: () => number;
  /** Monotonic milliseconds. */
  now: () => number;
  log: Log;
}

/** Retention times of rows, and the settings of monthly statements. */
export interface RetentionSettings {
  /** Undefined: for ever. */
  retention: { requestMonths?: number | undefined; auditDays?: number | undefined };
  conversations: { keepDays: number };
  responses: { keepHours: number };
  statements: StatementTerms;
}

/** Rows from before a time, which the configuration allows to remove. */
export interface RetentionPlan {
  kind: "requests" | "audit_records" | "response_items" | "conversations";
  beforeMs: number;
  rows: number;
}

/** Conversations are removed within minutes of their expiry. */
const EVERY_MS = 60_000;
const MONTHS_EVERY_MS = HOUR_MS;
const REFUSALS_KEPT_MS = 7 * DAY_MS;
const EVENTS_KEPT_MS = 30 * DAY_MS;
/** Time for which an erasure is repeated: it may have been interrupted, and rows may be written after it. */
const ERASED_AGAIN_MS = 7 * DAY_MS;
/** Rows of one removal. Few, because some are large: no settlement waits long for it on a store with one writer. */
const REMOVED_ROWS = 50;
/** More, because a busy service claims hundreds of keys a second. */
const REMOVED_KEYS = 200;
/** Share of the time in which chunks of removals run, and the same for those of closings: the rest is left to requests. */
const WORKING_SHARE = 1 / 4;

/** Returns how long responses are kept: those of a stored conversation for at least as long as the conversation. */
export function responseTimesOf({
  responses,
  conversations,
}: Pick<RetentionSettings, "responses" | "conversations">): ResponseTimes {
  const usualMs = responses.keepHours * HOUR_MS;
  return { usualMs, storedMs: usualMs === 0 ? 0 : Math.max(usualMs, conversations.keepDays * DAY_MS) };
}

/**
 * Removes what is older than the configuration allows: every hour requests, which become one sum per organization, and every
 * minute other rows. Also stores the digests and statements of finished months, and completes erasures. Every step can be
 * interrupted, and several processes may run it at once, see `closingRows`.
 */
export class Retention {
  readonly #options: RetentionOptions;
  readonly #stopping = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  readonly #removeDue = sharedRun(() => this.#removeExpired());
  readonly #closeDue = sharedRun(() => this.#attempt(() => this.#closeMonths()));
  #monthsAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: RetentionOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => void this.run(), EVERY_MS).unref();
    void this.run();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#stopping.abort();
    await Promise.all([this.#removeDue.ended(), this.#closeDue.ended()]);
  }

  /** Does what is due; removals do not wait for months that are being closed. Never rejects: a failure is logged and retried. */
  async run(): Promise<void> {
    await Promise.all([this.#removeDue(), this.#closeDue()]);
  }

  async #attempt(work: () => Promise<void>): Promise<void> {
    await work().catch((err: unknown) => {
      if (this.#stopping.signal.aborted) return;
      this.#options.log.warn({ err }, "months could not be closed or old rows removed: retried later");
    });
  }

  /** Counts what a run would remove now, by kind; a kind without a limit is absent. */
  async plan(): Promise<RetentionPlan[]> {
    const { closings } = this.#options.store;
    const requestsMs = this.#requestsMs();
    const plans: RetentionPlan[] = [];
    if (requestsMs !== undefined) {
      plans.push({ kind: "requests", beforeMs: requestsMs, rows: await closings.countRequests(requestsMs) });
    }
    for (const { kind, beforeMs, count } of this.#expiring()) plans.push({ kind, beforeMs, rows: await count() });
    return plans;
  }

  /** A failure of one kind of rows does not affect the others. */
  async #removeExpired(): Promise<void> {
    for (const remove of this.#removals()) {
      await this.#attempt(async () => {
        while ((await this.#paced(remove)) >= REMOVED_ROWS);
      });
    }
  }

  async #closeMonths(): Promise<void> {
    const { store, clock, now } = this.#options;
    if (now() - this.#monthsAtMs < MONTHS_EVERY_MS) return;
    this.#monthsAtMs = now();
    const requestsMs = this.#requestsMs();
    const erased = store.erasure.recent(clock() - ERASED_AGAIN_MS);
    await this.#ofEach(erased, (id) => this.#paced(() => store.erasure.scrub(id)));
    await this.#ofEach(store.monthDigests.organizations(), async (id) => void (await this.#storeDigests(id)));
    if (requestsMs !== undefined) await this.#closeBefore(requestsMs);
  }

  /** Returns a function for each kind of rows, which removes some that have expired and returns their number. */
  #removals(): (() => Promise<number>)[] {
    const { store, clock } = this.#options;
    return [
      ...this.#expiring().map(({ remove }) => remove),
      () => store.books.removeOldKeys(REMOVED_KEYS),
      () => store.refusals.removeBefore(clock() - REFUSALS_KEPT_MS, REMOVED_ROWS),
      () => store.events.removeOldEvents(clock() - EVENTS_KEPT_MS, REMOVED_ROWS),
    ];
  }

  /** Returns the kinds of rows that the configuration limits, except for requests, each with the time before which they are removed. */
  #expiring() {
    const { store, live } = this.#options;
    const { closings, conversations, responseItems } = store;
    const { retention, conversations: kept } = live.config;
    const nowMs = this.#options.clock();
    const times = responseTimesOf(live.config);
    const [auditMs, keptMs] = [nowMs - (retention.auditDays ?? 0) * DAY_MS, kept.keepDays * DAY_MS];
    const auditRecords = {
      ...{ kind: "audit_records" as const, beforeMs: auditMs },
      count: () => closings.countAudit(auditMs),
      remove: () => closings.removeAudit(auditMs, REMOVED_ROWS),
    };
    return [
      ...(retention.auditDays === undefined ? [] : [auditRecords]),
      {
        ...{ kind: "response_items" as const, beforeMs: nowMs - times.usualMs },
        count: () => responseItems.countOld(times),
        remove: () => responseItems.removeOld(times, REMOVED_ROWS),
      },
      {
        ...{ kind: "conversations" as const, beforeMs: nowMs - keptMs },
        count: () => conversations.countOld(keptMs),
        remove: () => conversations.removeOld(keptMs, REMOVED_ROWS),
      },
    ];
  }

  /** Returns the time before which requests are closed; undefined: never. */
  #requestsMs(): number | undefined {
    const { requestMonths } = this.#options.live.config.retention;
    return requestMonths === undefined ? undefined : monthStart(this.#options.clock(), -requestMonths);
  }

  async #closeBefore(beforeMs: number): Promise<void> {
    const { isUsageSummedUp, spooled, store } = this.#options;
    const { closings } = store;
    // Days that are summed up keep the usage of requests that are removed.
    if ((await spooled()) > 0 || !(await isUsageSummedUp(beforeMs))) return;
    await this.#ofEach(closings.organizations(beforeMs), (id) => this.#close(id, beforeMs));
    await this.#ofEach(closings.organizations(beforeMs), (id) => this.#remove(id));
  }

  /** Does something for each organization of a list. A failure of one does not affect the others. */
  async #ofEach(ids: AsyncIterable<string>, work: (organizationId: string) => Promise<void>): Promise<void> {
    for await (const organizationId of ids) {
      await work(organizationId).catch((err: unknown) => {
        if (this.#stopping.signal.aborted) throw err;
        this.#options.log.error(
          { organizationId, err },
          "the old months of an organization could not be closed or removed, or its erasure not be repeated",
        );
      });
    }
  }

  /** Stores the digests of the months that are over. Returns the first month that has none; undefined if nothing was booked. */
  async #storeDigests(organizationId: string): Promise<number | undefined> {
    const { monthDigests } = this.#options.store;
    for (let last: number | undefined; ; ) {
      const next = await this.#paced(() => monthDigests.next(organizationId));
      // The same month again: its digest was refused, and would be until the next run.
      if (next === undefined || !next.isOver || next.month === last) return next?.month;
      last = next.month;
      const hash = monthDigests.begin(organizationId, next);
      while (!(await this.#paced(() => monthDigests.add(hash))));
      await monthDigests.store(hash, this.#options.live.config.statements);
    }
  }

  async #close(organizationId: string, beforeMs: number): Promise<void> {
    const { log, store } = this.#options;
    const { closings } = store;
    const earlier = await closings.find(organizationId);
    if (earlier !== undefined && earlier.beforeAtMs >= beforeMs) return;
    // Afterwards the rows of these months are removed.
    if (((await this.#storeDigests(organizationId)) ?? beforeMs) < beforeMs) return;
    if (!(await closings.freeze(organizationId, beforeMs))) return;
    const tally = new ClosingTally(organizationId, beforeMs, earlier, await closings.budgets(organizationId));
    while (!(await this.#paced(() => closings.sum(tally))));
    if (!(await closings.close(tally))) return;
    log.info({ organizationId, before: isoTime(beforeMs), requests: tally.requests }, "old requests were closed");
  }

  async #remove(organizationId: string): Promise<void> {
    const { closings } = this.#options.store;
    const closing = await closings.find(organizationId);
    if (closing === undefined) return;
    for (let after: string | undefined = ""; after !== undefined; ) {
      const from: string = after;
      after = await this.#paced(() => closings.remove(closing, from));
    }
    for (const budget of await closings.budgets(organizationId)) {
      while ((await this.#paced(() => closings.removeBudgetUses(closing, budget))) > 0);
    }
  }

  /** Runs a chunk, then leaves the store and the event loop to others for a multiple of the time that it took. */
  async #paced<T>(chunk: () => Promise<T>): Promise<T> {
    this.#stopping.signal.throwIfAborted();
    const startedAtMs = this.#options.now();
    const result = await chunk();
    const tookMs = this.#options.now() - startedAtMs;
    await sleep(tookMs * (1 / WORKING_SHARE - 1), undefined, { signal: this.#stopping.signal });
    return result;
  }
}
