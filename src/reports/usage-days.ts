import { LRUCache } from "lru-cache";
import { addHistogram } from "../api/latency.ts";
import { DAY_MS, dayStart, HOUR_MS } from "../api/time.ts";
import { addCounts, sumOf, type UsageCounts } from "../credits/usage-counts.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { Books } from "../stores/queries/books.ts";
import type { LatencyCount, LatencyDayRow, RequestSum, UsageDayRow, UsageRange } from "../stores/queries/usage.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";

export interface UsageDaysOptions {
  rows: Store["usage"];
  books: Pick<Books, "recordBalance">;
  /** Milliseconds since 1970. */
  clock: () => number;
  log: Pick<Log, "warn">;
}

const EVERY_MS = 600_000;
/** A day is finished when it ended this long ago and none of its requests is running … */
const DONE_AFTER_MS = HOUR_MS;
/** … and at the latest after this time. Requests that end later are in the statement, but not in the usage. */
const DONE_AT_LATEST_MS = 2 * DAY_MS;
/** Requests of an hour may still arrive for this long, because clocks differ. */
const HOUR_IS_OVER_AFTER_MS = 120_000;
/** Maximum age of the sums of an hour that is still open. */
const FRESH_MS = 3_000;
/** Rows of finished days that are cached, about 80 MB: a range can have one for each token. */
const ROWS_CACHED_MAX = 250_000;
/** Days of an overview for which no period is selected. */
export const DAYS_DEFAULT = 30;
/** Limits how far back days are summed up, in case a clock was wrong. */
const DAYS_BACK_MAX = 400;

/** A day that is not finished: the sums of its finished hours, and those of its open hours. */
interface OpenDay {
  settled: UsageTally;
  settledHours: Set<number>;
  openHours: Map<number, { rows: UsageDayRow[]; atMs: number }>;
  read(): Promise<void>;
}

/** Computes the usage by day. Finished days are stored, and finished hours cached, so that a query reads only the current hour. */
export class UsageDays {
  readonly #options: UsageDaysOptions;
  readonly #openDays = new Map<number, OpenDay>();
  /** Finished days by organization. They no longer change. */
  readonly #ranges = new LRUCache<string, UsageDayRow[], UsageRange>({
    maxSize: ROWS_CACHED_MAX,
    sizeCalculation: (rows) => rows.length + 1,
    fetchMethod: (_key, _stale, { context }) => this.#finished(context),
    ignoreFetchAbort: true,
  });
  #timer: NodeJS.Timeout | undefined;
  /** Sums up the days that are due. Never rejects: a failure is logged and retried at the next interval. */
  readonly sumUp = sharedRun(() =>
    this.#sumUp().catch((error: unknown) =>
      this.#options.log.warn({ err: error }, "the usage of a day could not be summed up: it is retried"),
    ),
  );
  /** Sums up days, and reads what the overview shows, so that a page waits for the current hour only. Never rejects. */
  readonly refresh = sharedRun(async () => {
    await this.sumUp();
    const today = dayStart(this.#options.clock());
    if (this.#isStopping) return;
    await this.usage(ALL_ORGANIZATIONS, today - (DAYS_DEFAULT - 1) * DAY_MS, today).catch((error: unknown) =>
      this.#options.log.warn({ err: error }, "the usage for the overview could not be read ahead: it is retried"),
    );
    // The first page after a start would lack the newest requests.
    for (const { openHours } of this.#openDays.values()) for (const hour of openHours.values()) hour.atMs = 0;
  });
  #isStopping = false;

  constructor(options: UsageDaysOptions) {
    this.#options = options;
  }

  start(): void {
    void this.refresh();
    this.#timer = setInterval(() => void this.refresh(), EVERY_MS).unref();
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    clearInterval(this.#timer);
    await this.refresh.ended();
  }

  /**
   * Returns the usage of an organization, or of `ALL_ORGANIZATIONS`, from `fromDay` to `toDay` inclusive. Rows by token and
   * organization are summed over the finished days. `pendingDays` is the number of past days that are not summed up yet.
   */
  async usage(organizationId: string, fromDay: number, toDay: number) {
    const { done, open, pendingDays } = await this.#daysOf(fromDay, toDay);
    const key = `${organizationId} ${done[0]} ${done.at(-1)} ${done.length}`;
    const found = [await this.#ranges.forceFetch(key, { context: { organizationId, days: done } })];
    for (const day of open) {
      const { settled, openHours } = await this.#open(day);
      const rows = [...settled.rows(), ...openHours.values().flatMap((hour) => hour.rows)];
      found.push(rows.filter((row) => row.organizationId === organizationId));
    }
    return { rows: found.flat(), pendingDays };
  }

  /** Returns the latencies of a model by day and route, without hours that are not finished. `pendingDays` is as in `usage`. */
  async latencies(model: string, fromDay: number, toDay: number) {
    const { done, open, pendingDays } = await this.#daysOf(fromDay, toDay);
    const found = await this.#options.rows.latencies(model, done);
    for (const day of open) found.push(...(await this.#open(day)).settled.latencies());
    return { rows: found.filter((row) => row.model === model), pendingDays };
  }

  /** Returns the days of a range whose sums are stored, those that are not finished, and the number of those that are late. */
  async #daysOf(fromDay: number, toDay: number) {
    const { rows, clock } = this.#options;
    const done = await rows.doneDays(fromDay, toDay + DAY_MS);
    const nowMs = clock();
    const others = daysBetween(fromDay, toDay).filter((day) => !done.includes(day) && day <= nowMs);
    const { open = [], late = [] } = Object.groupBy(others, (day) =>
      nowMs < day + DAY_MS + DONE_AT_LATEST_MS ? "open" : "late",
    );
    // Days before the first request are not pending.
    const firstMs = late.length === 0 ? null : await rows.firstRequestMs();
    const pendingDays = firstMs === null ? 0 : late.filter((day) => day >= dayStart(firstMs)).length;
    return { done, open, pendingDays };
  }

  /** Returns true if the usage of every day before a time is stored, as far back as days are summed up. */
  async isSummedUp(beforeMs: number): Promise<boolean> {
    const firstDay = dayStart(this.#options.clock()) - DAYS_BACK_MAX * DAY_MS;
    return (await this.#missingDays(firstDay, dayStart(beforeMs - 1))).length === 0;
  }

  /** Returns the days of a range whose sums are not stored, without those before the first request. */
  async #missingDays(fromDay: number, toDay: number): Promise<number[]> {
    const { rows } = this.#options;
    const firstMs = await rows.firstRequestMs();
    if (firstMs === null) return [];
    const firstDay = Math.max(fromDay, dayStart(firstMs));
    const done = new Set(await rows.doneDays(firstDay, toDay + DAY_MS));
    return daysBetween(firstDay, toDay).filter((day) => !done.has(day));
  }

  /** The newest days come first. */
  async #sumUp(): Promise<void> {
    const lastDay = dayStart(this.#options.clock() - DONE_AFTER_MS) - DAY_MS;
    const days = await this.#missingDays(lastDay - DAYS_BACK_MAX * DAY_MS, lastDay);
    // Another node may have finished a day that was open here.
    for (const day of this.#openDays.keys()) if (day <= lastDay && !days.includes(day)) this.#openDays.delete(day);
    for (const day of days.toReversed()) if (!this.#isStopping) await this.#finish(day);
  }

  async #finish(day: number): Promise<void> {
    const { rows, books, clock } = this.#options;
    const tally = new UsageTally(day);
    for (let hour = day; hour < day + DAY_MS; hour += HOUR_MS) {
      if (this.#isStopping) return;
      const sums = await rows.requests(hour, hour + HOUR_MS);
      const isRunning = sums.some(({ open }) => open > 0);
      if (isRunning && clock() < day + DAY_MS + DONE_AT_LATEST_MS) return;
      tally.add(sums, await this.#latencyCounts(hour));
    }
    for (const organizationId of tally.organizations()) {
      if (this.#isStopping) return;
      await books.recordBalance(organizationId, day + DAY_MS);
    }
    await rows.finishDay(day, tally.rows(), clock(), tally.latencies());
    this.#openDays.delete(day);
  }

  /** Counts the latencies of an hour. Returns none if that fails, because the usage does not depend on them. */
  #latencyCounts(hour: number): Promise<LatencyCount[]> {
    return this.#options.rows.latencyCounts(hour, hour + HOUR_MS).catch((error: unknown) => {
      this.#options.log.warn(
        { err: error },
        "the latencies of an hour could not be counted: they are not in the reports",
      );
      return [];
    });
  }

  async #finished(range: UsageRange): Promise<UsageDayRow[]> {
    const { rows } = this.#options;
    const parts = [
      rows.byDay("model", range),
      rows.byDay("route", range),
      rows.byDay("first_token", range),
      rows.together("token", range),
      rows.together("organization", range),
    ];
    return (await Promise.all(parts)).flat();
  }

  /** Reads the usage of an open day. Concurrent calls share one query. */
  async #open(day: number): Promise<OpenDay> {
    const nothing = { settled: new UsageTally(day), settledHours: new Set<number>(), openHours: new Map() };
    const open: OpenDay = this.#openDays.get(day) ?? { ...nothing, read: sharedRun(() => this.#read(day, open)) };
    this.#openDays.set(day, open);
    await open.read();
    return open;
  }

  async #read(day: number, open: OpenDay): Promise<void> {
    const { rows, clock } = this.#options;
    for (let hour = day; hour < day + DAY_MS && hour <= clock() && !this.#isStopping; hour += HOUR_MS) {
      const nowMs = clock();
      const known = open.openHours.get(hour);
      if (open.settledHours.has(hour) || (known !== undefined && nowMs - known.atMs < FRESH_MS)) continue;
      const sums = await rows.requests(hour, hour + HOUR_MS);
      const isOver = nowMs >= hour + HOUR_MS + HOUR_IS_OVER_AFTER_MS && !sums.some((sum) => sum.open > 0);
      if (isOver) {
        open.settled.add(sums, await this.#latencyCounts(hour));
        open.settledHours.add(hour);
        open.openHours.delete(hour);
      } else {
        const tally = new UsageTally(day);
        tally.add(sums);
        open.openHours.set(hour, { rows: tally.rows(), atMs: nowMs });
      }
    }
  }
}

/** Returns the first milliseconds of the days of a range, both inclusive; none if it is empty. */
export function daysBetween(fromDay: number, toDay: number): number[] {
  const length = Math.max(0, Math.round((toDay - fromDay) / DAY_MS) + 1);
  return Array.from({ length }, (_, index) => fromDay + index * DAY_MS);
}

/** Organization id of the sums over all organizations. */
export const ALL_ORGANIZATIONS = "*";

/** Sums up the requests of a day in the rows that are stored for it. */
export class UsageTally {
  readonly #day: number;
  readonly #rows = new Map<string, UsageDayRow>();
  readonly #latencies = new Map<string, LatencyDayRow>();

  constructor(day: number) {
    this.#day = day;
  }

  add(sums: readonly RequestSum[], latencies: readonly LatencyCount[] = []): void {
    for (const sum of sums) {
      const { organizationId, tokenId, model, route, bucket } = sum;
      for (const owner of [organizationId, ALL_ORGANIZATIONS]) {
        this.#addTo(owner, "model", model, sum);
        this.#addTo(owner, "route", route, sum);
        this.#addTo(owner, "token", tokenId, sum);
        if (bucket !== null) this.#addTo(owner, "first_token", String(bucket), sum);
      }
      this.#addTo(ALL_ORGANIZATIONS, "organization", organizationId, sum);
    }
    for (const { model, route, firstToken, duration, requests } of latencies) {
      const key = JSON.stringify([model, route]);
      const row = this.#latencies.get(key) ?? { day: this.#day, model, route, firstTokens: {}, durations: {} };
      if (firstToken !== null) addHistogram(row.firstTokens, { [firstToken]: requests });
      if (duration !== null) addHistogram(row.durations, { [duration]: requests });
      this.#latencies.set(key, row);
    }
  }

  /** Returns the ids of the organizations that made requests. */
  organizations(): string[] {
    return this.rows().flatMap(({ dimension, name }) => (dimension === "organization" ? [name] : []));
  }

  rows(): UsageDayRow[] {
    return [...this.#rows.values()];
  }

  latencies(): LatencyDayRow[] {
    return [...this.#latencies.values()];
  }

  #addTo(organizationId: string, dimension: UsageDayRow["dimension"], name: string, sum: UsageCounts): void {
    const key = `${organizationId} ${dimension} ${name}`;
    const row = this.#rows.get(key);
    if (row === undefined) this.#rows.set(key, { organizationId, dimension, day: this.#day, name, ...sumOf([sum]) });
    else addCounts(row, sum);
  }
}
