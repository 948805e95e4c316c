import { dayStart } from "../api/time.ts";
import { sharedRun } from "../internals/shared-run.ts";
import type { RefusalDayRow, RefusalRow } from "../stores/queries/refusals.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";
import { ALL_ORGANIZATIONS } from "./usage-days.ts";

/** A request of a known organization that was refused before credits were held. */
export type Refusal = Omit<RefusalRow, "id" | "count">;

export interface RefusalLogOptions {
  rows: Pick<Store["refusals"], "insert" | "addToDays">;
  /** Milliseconds since 1970. */
  clock: () => number;
  newId: () => string;
  log: Log;
}

const WRITE_EVERY_MS = 1_000;
const DROPPED_LOGGED_EVERY_MS = 60_000;
/** Token bucket of an organization: its burst and the interval for one more row. It allows 61,000 rows in seven days. */
const BURST_ROWS = 60;
const ONE_MORE_EVERY_MS = 10_000;
/** Maximum number of refusals in memory: for one organization, and in total. */
const WAITING_PER_ORGANIZATION_MAX = 60;
const WAITING_MAX = 2_000;
/** Rows per transaction. Small, so that no settlement waits long for one. */
const CHUNK_ROWS_MAX = 100;

interface OrganizationRefusals {
  rows: number;
  atMs: number;
  waiting: Map<string, RefusalRow>;
}

/**
 * Counts all refusals by day, and stores them for the request list, in the background. Equal ones (token, endpoint, model,
 * code) are counted on one row until it is written. An organization with many different ones writes a row every ten seconds.
 */
export class RefusalLog {
  readonly #options: RefusalLogOptions;
  readonly #organizations = new Map<string, OrganizationRefusals>();
  /** Counts that are not written yet, by their key. */
  #days = new Map<string, RefusalDayRow>();
  #waiting = 0;
  #dropped = 0;
  #timers: NodeJS.Timeout[] = [];
  /** Writes the rows that each organization may write now. Never rejects; rows that cannot be written are dropped. */
  readonly write = sharedRun(() => this.#writeAll());

  constructor(options: RefusalLogOptions) {
    this.#options = options;
  }

  note(refusal: Refusal): void {
    const day = dayStart(this.#options.clock());
    for (const organizationId of [refusal.organizationId, ALL_ORGANIZATIONS]) {
      this.#count({ organizationId, day, code: refusal.code, requests: 1 });
    }
    const unknown = { rows: BURST_ROWS, atMs: this.#options.clock(), waiting: new Map() };
    const organization: OrganizationRefusals = this.#organizations.get(refusal.organizationId) ?? unknown;
    this.#organizations.set(refusal.organizationId, organization);
    const key = [refusal.tokenId, refusal.endpoint, refusal.model, refusal.code].join("\n");
    const same = organization.waiting.get(key);
    if (same !== undefined) {
      same.count += 1;
    } else if (organization.waiting.size >= WAITING_PER_ORGANIZATION_MAX || this.#waiting >= WAITING_MAX) {
      this.#dropped += 1;
    } else {
      organization.waiting.set(key, { ...refusal, id: this.#options.newId(), count: 1 });
      this.#waiting += 1;
    }
  }

  start(): void {
    this.#timers = [
      setInterval(() => void this.write(), WRITE_EVERY_MS).unref(),
      setInterval(() => this.#logDropped(), DROPPED_LOGGED_EVERY_MS).unref(),
    ];
  }

  /** Stops, and writes what may be written now. */
  async stop(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    await this.write();
    this.#logDropped();
  }

  #count(row: RefusalDayRow): void {
    const key = [row.organizationId, row.day, row.code].join("\n");
    const counted = this.#days.get(key);
    if (counted === undefined) this.#days.set(key, row);
    else counted.requests += row.requests;
  }

  /** Writes the counts in the order of their keys, so that no two nodes wait for each other; keeps those that fail. */
  async #writeDays(): Promise<void> {
    const rows = [...this.#days].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, row]) => row);
    this.#days = new Map();
    for (let start = 0; start < rows.length; start += CHUNK_ROWS_MAX) {
      const chunk = rows.slice(start, start + CHUNK_ROWS_MAX);
      await this.#options.rows.addToDays(chunk).catch(() => {
        for (const row of chunk) this.#count(row);
      });
    }
  }

  async #writeAll(): Promise<void> {
    await this.#writeDays();
    const rows = this.#take();
    for (let start = 0; start < rows.length; start += CHUNK_ROWS_MAX) {
      const chunk = rows.slice(start, start + CHUNK_ROWS_MAX);
      await this.#options.rows.insert(chunk).catch(() => {
        for (const { count } of chunk) this.#dropped += count;
      });
    }
  }

  /** Takes the rows that may be written now. Forgets organizations without waiting rows and with a full token bucket. */
  #take(): RefusalRow[] {
    const nowMs = this.#options.clock();
    const taken: RefusalRow[] = [];
    for (const [id, organization] of this.#organizations) {
      const gained = Math.max(0, nowMs - organization.atMs) / ONE_MORE_EVERY_MS;
      organization.rows = Math.min(BURST_ROWS, organization.rows + gained);
      organization.atMs = nowMs;
      for (const [key, row] of organization.waiting) {
        if (organization.rows < 1) break;
        organization.rows -= 1;
        organization.waiting.delete(key);
        this.#waiting -= 1;
        taken.push(row);
      }
      if (organization.waiting.size === 0 && organization.rows >= BURST_ROWS) this.#organizations.delete(id);
    }
    return taken;
  }

  #logDropped(): void {
    if (this.#dropped === 0) return;
    this.#options.log.warn(
      { dropped: this.#dropped },
      "refused requests were dropped: they are missing from the request list",
    );
    this.#dropped = 0;
  }
}
