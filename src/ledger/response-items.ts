import { setTimeout as sleep } from "node:timers/promises";
import { LRUCache } from "lru-cache";
import { REPEATABLE_MS } from "../credits/holds.ts";
import type { ItemOwner } from "../stores/queries/response-items.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";
import { FairTurns } from "./fair-queue.ts";
import { responseTimesOf } from "./retention.ts";

export interface ResponseItemsOptions {
  rows: Omit<Store["responseItems"], "countOld" | "removeOld">;
  /** The configuration is read at each use, because a reload changes it. `limitBytes` is that of one caller. */
  live: {
    readonly config: { responses: { keepHours: number; limitBytes: number }; conversations: { keepDays: number } };
  };
  /** Milliseconds since 1970. */
  clock: () => number;
  log: Log;
  waitMs?: number;
}

/** Something that later requests can refer to, as JSON. */
export interface KeptItem {
  id: string;
  content: string;
}

/** Share of a caller's bytes that one item may have, and that are written before the oldest items are removed. */
const SHARE = 1 / 8;
/** A paid answer waits no longer for its items to be written. */
const WAIT_MS = 2_000;
/** More bytes are read and written for one request of an organization at a time, because commits of others wait for them. */
const LARGE_BYTES = 256 * 1024;
const CALLERS_MAX = 10_000;
const REMOVED_ROWS = 100;

export type ResponseItems = ReturnType<typeof responseItemsOver>;

/** Keeps the items of responses for later requests of the same caller, on any node. What the store cannot take is not kept. */
export function responseItemsOver({ rows, live, clock, log, waitMs = WAIT_MS }: ResponseItemsOptions) {
  /** Bytes of callers that were written since their oldest items were last removed; unknown after a start. */
  const writtenBy = new LRUCache<string, number>({ max: CALLERS_MAX });
  const turns = new FairTurns(Number.POSITIVE_INFINITY);
  const inTurn = <Result>({ organizationId }: ItemOwner, bytes: number, task: () => Promise<Result>) =>
    bytes > LARGE_BYTES ? turns.run(organizationId, task) : task();
  return {
    isOn: () => live.config.responses.keepHours > 0,
    /** Finds items by their ids; those of other callers are absent. `reserve` gets the bytes before they are read; it may throw. */
    async find(
      owner: ItemOwner & { keepsConversations: boolean },
      ids: readonly string[],
      reserve: (bytes: number) => void,
    ): Promise<ReadonlyMap<string, string>> {
      if (ids.length === 0) return new Map();
      const { usualMs, storedMs } = responseTimesOf(live.config);
      const retentionMs = owner.keepsConversations ? storedMs : usualMs;
      const sizes = await rows.sizes(owner, ids, retentionMs);
      const bytes = sizes.reduce((sum, row) => sum + Number(row.bytes), 0);
      reserve(bytes);
      const found = await inTurn(owner, bytes, () => rows.contents(owner, ids, retentionMs));
      return new Map(found.map(({ id, content }) => [id, content]));
    },
    /** Keeps items of a response. Resolves when they are committed, or cannot be. Never rejects. */
    async keep(owner: ItemOwner, answerId: string, items: readonly KeptItem[]): Promise<void> {
      const { limitBytes } = live.config.responses;
      const row = { ...owner, answerId, keptAtMs: clock(), undelivered: null };
      const kept = items
        .map((item) => ({ ...row, ...item, bytes: Buffer.byteLength(item.content) }))
        .filter(({ bytes }) => bytes <= limitBytes * SHARE);
      const key = `${owner.organizationId}/${owner.callerId}`;
      const keptBytes = kept.reduce((sum, { bytes }) => sum + bytes, 0);
      const written = keptBytes + (writtenBy.get(key) ?? limitBytes);
      const isDue = written > limitBytes * SHARE;
      const patience = new AbortController();
      try {
        const keptBytesMax = isDue ? Math.floor(limitBytes * (1 - SHARE)) : undefined;
        const writing = inTurn(owner, keptBytes, () => rows.insert(owner, kept, keptBytesMax));
        const late = sleep(waitMs, undefined, { ref: false, signal: patience.signal }).then(() => {
          throw new Error(`The store took longer than ${waitMs} ms`);
        });
        await Promise.race([writing, late]);
        writtenBy.set(key, isDue ? 0 : written);
      } catch (error) {
        // Only the message is logged: other properties of the error may contain the items.
        const reason = (error as Error).message;
        log.warn({ ...owner, reason }, "items of a response could not be kept: later requests cannot refer to them");
      } finally {
        patience.abort();
      }
    },
    ...redelivery(rows, log),
    /** Returns whether anything of a response is kept. */
    hasAnswer: (owner: ItemOwner, answerId: string) => rows.hasAnswer(owner, answerId),
    /** Removes what is kept of one response. */
    removeAnswer: (owner: ItemOwner, answerId: string) =>
      removeAll((limit) => rows.removeAnswer(owner, answerId, limit)),
    /** Removes everything that was kept for an organization until now. */
    async removeOf(organizationId: string): Promise<void> {
      const untilMs = clock();
      await removeAll((limit) => rows.removeOf(organizationId, untilMs, limit));
    },
  };
}

/** Stored answers whose delivery broke, for the retries that get them. */
function redelivery(rows: ResponseItemsOptions["rows"], log: Log) {
  return {
    /** Offers a kept response whose delivery broke to its retry. Never rejects: without that, the retry is a new request. */
    offer: (owner: ItemOwner, answerId: string, fingerprint: string): Promise<void> =>
      rows.offer(owner, answerId, fingerprint).catch((err: unknown) => {
        log.warn({ ...owner, err }, "a response that was not delivered could not be offered to a retry");
      }),
    /** Takes the content of the response that was offered to a retry a short time ago; undefined if there is none. `reserve` is that of `find`. */
    take: (owner: ItemOwner, fingerprint: string, reserve: (bytes: number) => void) =>
      rows.take(owner, fingerprint, REPEATABLE_MS, reserve),
  };
}

async function removeAll(remove: (limit: number) => Promise<number>): Promise<void> {
  while ((await remove(REMOVED_ROWS)) === REMOVED_ROWS);
}
