import { setTimeout as sleep } from "node:timers/promises";
import { isoTime } from "../api/time.ts";
import { type ClosingRow, ClosingTally } from "../credits/closing.ts";
import type { Closings } from "../stores/queries/closings.ts";
import type { Log } from "../telemetry/logger.ts";

export interface RetentionOptions {
  closings: Closings;
  /** Months and days for which rows are stored; undefined: for ever. */
  readonly limits: { requestMonths?: number | undefined; auditDays?: number | undefined };
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

const DAY_MS = 86_400_000;
const EVERY_MS = 3_600_000;
const ORGANIZATIONS_PAGE = 100;
const AUDIT_ROWS = 500;
/** Share of the time in which chunks run: the rest is left to requests. */
const WORKING_SHARE = 1 / 4;

/**
 * Removes what is older than the configuration allows: requests, which become one sum per organization, and audit records.
 * Works in small chunks. Every step can be interrupted, and several processes may run it at once, see `closingRows`: the lock
 * of `runExclusively` is not taken, because it would delay the starts of other processes.
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

  /** Removes what is due. Never rejects: a failure is logged, and the next run continues. */
  run(): Promise<void> {
    this.#running ??= this.#run()
      .catch((err: unknown) => {
        if (!this.#stopping.signal.aborted)
          this.#options.log.warn({ err }, "old rows could not be removed: retried later");
      })
      .finally(() => {
        this.#running = undefined;
      });
    return this.#running;
  }

  async #run(): Promise<void> {
    const { limits, clock } = this.#options;
    if (limits.auditDays !== undefined) await this.#removeAudit(clock() - limits.auditDays * DAY_MS);
    if (limits.requestMonths !== undefined) await this.#closeBefore(monthsBefore(clock(), limits.requestMonths));
  }

  async #removeAudit(beforeMs: number): Promise<void> {
    const { closings } = this.#options;
    while ((await this.#paced(() => closings.removeAudit(beforeMs, AUDIT_ROWS))) === AUDIT_ROWS);
  }

  async #closeBefore(beforeMs: number): Promise<void> {
    const { closings, isUsageSummedUp, spooled, log } = this.#options;
    // Days that are summed up keep the usage of requests that are removed.
    if ((await spooled()) > 0 || !(await isUsageSummedUp(beforeMs))) return;
    for (let after: string | null = null; ; ) {
      const ids: string[] = await closings.organizations(beforeMs, after, ORGANIZATIONS_PAGE);
      for (const organizationId of ids) {
        await this.#close(organizationId, beforeMs).catch((err: unknown) => {
          if (this.#stopping.signal.aborted) throw err;
          log.error({ organizationId, err }, "the old requests of an organization could not be closed");
        });
      }
      after = ids.at(-1) ?? null;
      if (after === null || ids.length < ORGANIZATIONS_PAGE) return;
    }
  }

  async #close(organizationId: string, beforeMs: number): Promise<void> {
    const { closings, log } = this.#options;
    const earlier = await closings.find(organizationId);
    // The next closing is computed from rows that an earlier one did not include.
    if (earlier !== undefined) await this.#remove(earlier);
    if (earlier !== undefined && earlier.beforeAtMs >= beforeMs) return;
    if (!(await closings.freeze(organizationId, beforeMs))) return;
    const tally = new ClosingTally(organizationId, beforeMs);
    while (!(await this.#paced(() => closings.sum(tally))));
    if (!(await closings.close(tally, earlier))) return;
    log.info({ organizationId, before: isoTime(beforeMs), requests: tally.requests }, "old requests were closed");
    await this.#remove(tally.withEarlier(earlier));
  }

  async #remove(closing: ClosingRow): Promise<void> {
    for (let after: string | undefined = ""; after !== undefined; ) {
      const from: string = after;
      after = await this.#paced(() => this.#options.closings.remove(closing, from));
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

/** Returns the start of the month, in UTC, that began a number of months before the current one. */
export function monthsBefore(nowMs: number, months: number): number {
  const now = new Date(nowMs);
  return Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - months, 1);
}
