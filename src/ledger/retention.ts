import { setTimeout as sleep } from "node:timers/promises";
import { isoTime, monthStart } from "../api/time.ts";
import { ClosingTally } from "../credits/closing.ts";
import type { Closings } from "../stores/queries/closings.ts";
import type { MonthDigests } from "../stores/queries/month-digests.ts";
import type { ResponseItemRows, ResponseTimes } from "../stores/queries/response-items.ts";
import type { Log } from "../telemetry/logger.ts";

export interface RetentionOptions {
  closings: Closings;
  monthDigests: MonthDigests;
  /** Months and days for which rows are stored; undefined: for ever. */
  readonly limits: { requestMonths?: number | undefined; auditDays?: number | undefined };
  /** Items of responses, and how long they are kept. */
  readonly responseItems: Pick<ResponseItemRows, "countOld" | "removeOld">;
  readonly responseTimes: ResponseTimes;
  /** Returns true if the usage of every day before a time is stored. */
  isUsageSummedUp: (beforeMs: number) => Promise<boolean>;
  /** Number of transitions of this process that the store has not accepted yet. */
  spooled: () => Promise<number>;
  /** Milliseconds since 1970. */
  clock: () => number;
  /** Monotonic milliseconds. */
  now: () => number;
  log: Log;
  everyMs?: number;
}

/** Rows of before a time, which the configuration lets be removed. */
export interface RetentionPlan {
  kind: "requests" | "audit_records" | "response_items";
  beforeMs: number;
  rows: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;
const EVERY_MS = 3_600_000;
const ORGANIZATIONS_PAGE = 100;
const AUDIT_ROWS = 500;
const RESPONSE_ROWS = 50;
/** Attempts to remove a month that other transactions use. The next run continues. */
const LOCKED_ATTEMPTS = 20;
const LOCKED_PAUSE_MS = 2_000;
/** Share of the time in which chunks run: the rest is left to requests. */
const WORKING_SHARE = 1 / 4;

/** Returns how long responses are kept: those of a stored conversation for at least as long as the conversation. */
export function responseTimesOf(
  { keepHours }: { keepHours: number },
  { keepDays }: { keepDays: number },
): ResponseTimes {
  const usualMs = keepHours * HOUR_MS;
  return { usualMs, storedMs: usualMs === 0 ? 0 : Math.max(usualMs, keepDays * DAY_MS) };
}

/** Returns a page of ids of organizations, in their order. */
type Organizations = (after: string | null, limit: number) => Promise<string[]>;

/**
 * Stores the digests of months that are over, and removes what is older than the configuration allows: requests, which become
 * one sum per organization, audit records, and items of responses. Works in small steps. Every one can be interrupted, and several processes may
 * run it at once, see `closingRows`: the lock of `runExclusively` is not taken, because it would delay the starts of others.
 */
export class Retention {
  readonly #options: RetentionOptions;
  readonly #stopping = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;

  constructor(options: RetentionOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => void this.run(), this.#options.everyMs ?? EVERY_MS).unref();
    void this.run();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#stopping.abort();
    await this.#running;
  }

  /** Does what is due. Never rejects: a failure is logged, and the next run continues. */
  run(): Promise<void> {
    this.#running ??= this.#run()
      .catch((err: unknown) => {
        if (!this.#stopping.signal.aborted)
          this.#options.log.warn({ err }, "months could not be closed or old rows removed: retried later");
      })
      .finally(() => {
        this.#running = undefined;
      });
    return this.#running;
  }

  /** Counts what a run would remove now, by kind; a kind without a limit is absent. */
  async plan(): Promise<RetentionPlan[]> {
    const { closings } = this.#options;
    const { requestsMs, auditMs } = this.#limitsNow();
    const plans: RetentionPlan[] = [];
    if (requestsMs !== undefined) {
      plans.push({ kind: "requests", beforeMs: requestsMs, rows: await closings.countRequests(requestsMs) });
    }
    if (auditMs !== undefined) {
      plans.push({ kind: "audit_records", beforeMs: auditMs, rows: await closings.countAudit(auditMs) });
    }
    const { responseItems, responseTimes, clock } = this.#options;
    const rows = await responseItems.countOld(responseTimes);
    return [...plans, { kind: "response_items", beforeMs: clock() - responseTimes.usualMs, rows }];
  }

  async #run(): Promise<void> {
    const { requestsMs, auditMs } = this.#limitsNow();
    const { responseItems, responseTimes } = this.#options;
    while ((await this.#paced(() => responseItems.removeOld(responseTimes, RESPONSE_ROWS))) === RESPONSE_ROWS);
    if (auditMs !== undefined) await this.#removeAudit(auditMs);
    await this.#ofEach(this.#options.monthDigests.organizations, async (id) => void (await this.#storeDigests(id)));
    if (requestsMs !== undefined) await this.#closeBefore(requestsMs);
  }

  /** Returns the times before which rows are removed. */
  #limitsNow(): { requestsMs: number | undefined; auditMs: number | undefined } {
    const { limits, clock } = this.#options;
    const { requestMonths, auditDays } = limits;
    return {
      requestsMs: requestMonths === undefined ? undefined : monthStart(clock(), -requestMonths),
      auditMs: auditDays === undefined ? undefined : clock() - auditDays * DAY_MS,
    };
  }

  async #removeAudit(beforeMs: number): Promise<void> {
    const { closings } = this.#options;
    while ((await this.#paced(() => closings.removeAudit(beforeMs, AUDIT_ROWS))) === AUDIT_ROWS);
  }

  async #closeBefore(beforeMs: number): Promise<void> {
    const { closings, isUsageSummedUp, spooled } = this.#options;
    // Days that are summed up keep the usage of requests that are removed.
    if ((await spooled()) > 0 || !(await isUsageSummedUp(beforeMs))) return;
    const organizations: Organizations = (after, limit) => closings.organizations(beforeMs, after, limit);
    await this.#ofEach(organizations, (organizationId) => this.#close(organizationId, beforeMs));
    if (await this.#removeMonths(beforeMs)) await this.#ofEach(organizations, (id) => this.#remove(id));
  }

  /** Does something for each organization of a list. A failure of one does not affect the others. */
  async #ofEach(organizations: Organizations, work: (organizationId: string) => Promise<void>): Promise<void> {
    const { log } = this.#options;
    for (let after: string | null = null; ; ) {
      const ids: string[] = await organizations(after, ORGANIZATIONS_PAGE);
      for (const organizationId of ids) {
        await work(organizationId).catch((err: unknown) => {
          if (this.#stopping.signal.aborted) throw err;
          log.error({ organizationId, err }, "the old months of an organization could not be closed or removed");
        });
      }
      after = ids.at(-1) ?? null;
      if (after === null || ids.length < ORGANIZATIONS_PAGE) return;
    }
  }

  /** Stores the digests of the months that are over. Returns the first month that has none; undefined if nothing was booked. */
  async #storeDigests(organizationId: string): Promise<number | undefined> {
    const { monthDigests } = this.#options;
    for (;;) {
      const next = await this.#paced(() => monthDigests.next(organizationId));
      if (next === undefined || !next.isOver) return next?.month;
      const hash = monthDigests.begin(organizationId, next);
      while (!(await this.#paced(() => monthDigests.add(hash))));
      await monthDigests.store(hash);
    }
  }

  async #close(organizationId: string, beforeMs: number): Promise<void> {
    const { closings, log } = this.#options;
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

  /** Returns false if a month with closed requests is left, because other transactions used the requests all the time. */
  async #removeMonths(beforeMs: number): Promise<boolean> {
    const { closings, log } = this.#options;
    for (let attempts = 0; attempts < LOCKED_ATTEMPTS; ) {
      const outcome = await this.#paced(() => closings.removeMonth(beforeMs));
      if (outcome === "none") return true;
      if (outcome === "removed") continue;
      attempts += 1;
      await sleep(LOCKED_PAUSE_MS, undefined, { signal: this.#stopping.signal });
    }
    log.info({}, "old requests are removed later, because other transactions read them");
    return false;
  }

  async #remove(organizationId: string): Promise<void> {
    const { closings } = this.#options;
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
