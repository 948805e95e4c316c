import { setTimeout as sleep } from "node:timers/promises";
import type { KeptAnswer } from "../api/admin/conversation.ts";
import type { ChatCompletionRequest } from "../api/request.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { ConversationRow, ConversationRows } from "../stores/queries/conversations.ts";
import type { Log } from "../telemetry/logger.ts";
import { recordOf } from "./conversation-record.ts";

export interface ConversationKeeperOptions {
  rows: Pick<ConversationRows, "insert" | "removeOld">;
  /** How long each is kept. */
  keptMs: number;
  /** Of one record. */
  limitBytes: number;
  /** Milliseconds since 1970. */
  clock: () => number;
  log: Log;
  queueBytesMax?: number;
  gatherMs?: number;
  retryMs?: number;
}

/** What has ended, of an organization that has it kept. */
export interface EndedConversation {
  organizationId: string;
  holdId: string;
  request: ChatCompletionRequest;
  /** What was delivered of the answer; asked for later, when nobody waits any more. */
  answer(): KeptAnswer | null;
}

const QUEUE_BYTES_MAX = 32 * 1024 * 1024;
/** Written together; small, so that no settlement waits long behind one on a store with one writer. */
const CHUNK_BYTES_MAX = 512 * 1024;
const CHUNK_ROWS_MAX = 50;
const GATHER_MS = 200;
const RETRY_MS = 1_000;
const REMOVE_EVERY_MS = 60_000;
const REMOVED_ROWS = 50;
/** A minute's removal goes no further than this: more than a busy service makes meanwhile. */
const REMOVALS_MAX = 2_000;
const LOGGED_EVERY_MS = 60_000;

interface Waiting {
  row: ConversationRow;
  byteLength: number;
}

/**
 * Keeps conversations, beside what completions wait for: whatever ends is put into a queue in memory that is bounded by
 * bytes, and written from there. What finds no room is dropped, and counted in the log. Removes what is past its time.
 */
export class ConversationKeeper {
  readonly #options: ConversationKeeperOptions;
  #ended: EndedConversation[] = [];
  readonly #queue: Waiting[] = [];
  #queuedBytes = 0;
  #dropped = 0;
  #droppedLoggedAtMs = Number.NEGATIVE_INFINITY;
  #writing: Promise<void> | undefined;
  #removing: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  readonly #stopping = new AbortController();

  constructor(options: ConversationKeeperOptions) {
    this.#options = options;
  }

  /** Takes a conversation. Never throws and costs its caller nothing: all that is to be done is done in a later turn. */
  keep(conversation: EndedConversation): void {
    this.#ended.push(conversation);
    if (this.#ended.length === 1) setImmediate(() => this.#queueEnded());
  }

  /** Begins to remove what is past its time, now and from then on. */
  start(): void {
    const remove = () => {
      this.#removing ??= this.#removeOld().finally(() => {
        this.#removing = undefined;
      });
    };
    this.#timer = setInterval(remove, REMOVE_EVERY_MS).unref();
    remove();
  }

  /** Writes what waits, trying each once. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#stopping.abort();
    this.#queueEnded();
    await Promise.all([this.#writing, this.#removing]);
    this.#tellDropped(true);
  }

  #queueEnded(): void {
    const ended = this.#ended;
    this.#ended = [];
    for (const conversation of ended) {
      if (!this.#enqueue(conversation)) this.#dropped += 1;
    }
    if (this.#queue.length > 0) this.#writing ??= this.#write();
    this.#tellDropped();
  }

  #enqueue({ organizationId, holdId, request, answer }: EndedConversation): boolean {
    const { queueBytesMax = QUEUE_BYTES_MAX, limitBytes, clock } = this.#options;
    if (this.#queuedBytes >= queueBytesMax) return false;
    try {
      const { byteLength, ...record } = recordOf(request, answer(), limitBytes);
      if (this.#queuedBytes + byteLength > queueBytesMax) return false;
      this.#queue.push({ row: { organizationId, holdId, endedAtMs: clock(), ...record }, byteLength });
      this.#queuedBytes += byteLength;
      return true;
    } catch {
      // Nested too deep to be written as JSON.
      return false;
    }
  }

  async #write(): Promise<void> {
    const { gatherMs = GATHER_MS, retryMs = RETRY_MS } = this.#options;
    await this.#pause(gatherMs);
    while (this.#queue.length > 0) {
      const isDone = await this.#writeChunk(this.#nextChunk());
      if (!isDone && this.#stopping.signal.aborted) this.#drop(this.#queue.length);
      else if (!isDone) await this.#pause(retryMs);
      this.#tellDropped();
    }
    this.#writing = undefined;
  }

  #nextChunk(): Waiting[] {
    let bytes = 0;
    const end = this.#queue.findIndex(({ byteLength }, index) => {
      bytes += byteLength;
      return index > 0 && (bytes > CHUNK_BYTES_MAX || index === CHUNK_ROWS_MAX);
    });
    return this.#queue.slice(0, end === -1 ? undefined : end);
  }

  /** Whether the chunk is off the queue. One that fails for itself, and no other with it, is dropped. */
  async #writeChunk(chunk: Waiting[]): Promise<boolean> {
    const { rows, log } = this.#options;
    try {
      await rows.insert(chunk.map(({ row }) => row));
      this.#takeOff(chunk.length);
      return true;
    } catch (error) {
      if (error instanceof StoreUnavailableError) return false;
      if (chunk.length > 1) {
        for (const one of chunk) if (!(await this.#writeChunk([one]))) return false;
        return true;
      }
      // The message alone: a database may put the row beside it.
      log.error({ reason: (error as Error).message }, "a conversation cannot be written");
      this.#drop(1);
      return true;
    }
  }

  #drop(count: number): void {
    this.#takeOff(count);
    this.#dropped += count;
  }

  #takeOff(count: number): void {
    for (const { byteLength } of this.#queue.splice(0, count)) this.#queuedBytes -= byteLength;
  }

  #tellDropped(isLast = false): void {
    const { clock, log } = this.#options;
    const sinceMs = clock() - this.#droppedLoggedAtMs;
    if (this.#dropped === 0 || (!isLast && sinceMs >= 0 && sinceMs < LOGGED_EVERY_MS)) return;
    log.warn({ dropped: this.#dropped }, "conversations were dropped instead of kept: more than the store took");
    this.#dropped = 0;
    this.#droppedLoggedAtMs = clock();
  }

  async #removeOld(): Promise<void> {
    const { rows, keptMs, log } = this.#options;
    try {
      for (let chunk = 0; chunk < REMOVALS_MAX && !this.#stopping.signal.aborted; chunk += 1) {
        if ((await rows.removeOld(keptMs, REMOVED_ROWS)) < REMOVED_ROWS) return;
      }
    } catch (error) {
      log.warn({ err: error }, "old conversations could not be removed; it is tried again");
    }
  }

  /** Waits, but not beyond the beginning of a stop. */
  async #pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { ref: false, signal: this.#stopping.signal }).catch(() => undefined);
  }
}
