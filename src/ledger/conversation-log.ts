import { setTimeout as sleep } from "node:timers/promises";
import type { KeptAnswer } from "../api/admin/request.ts";
import type { ChatCompletionRequest, RequestMessage } from "../api/chat/request.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { ConversationRow } from "../stores/queries/conversations.ts";
import type { Store } from "../stores/store.ts";
import type { Log } from "../telemetry/logger.ts";
import { FairBudget } from "./fair-budget.ts";
import { FairQueue } from "./fair-queue.ts";

export interface ConversationLogOptions {
  rows: Pick<Store["conversations"], "insert">;
  /** The maximum size of one record is read at each use, because a reload changes it. */
  live: { readonly config: { conversations: { limitBytes: number } } };
  /** Milliseconds since 1970. */
  clock: () => number;
  log: Log;
  queueBytesMax?: number;
  gatherMs?: number;
  retryMs?: number;
}

/** A request that has ended, of an organization with conversation storage enabled. */
export interface EndedConversation {
  organizationId: string;
  holdId: string;
  request: ChatCompletionRequest;
  /** Returns the delivered part of the answer. Called later, after the request has ended. */
  answer(): KeptAnswer | null;
}

const QUEUE_BYTES_MAX = 32 * 1024 * 1024;
/** Maximum size of one write. Small, so that no settlement waits long for it on a store with one writer. */
const CHUNK_BYTES_MAX = 512 * 1024;
const CHUNK_ROWS_MAX = 50;
const GATHER_MS = 200;
const RETRY_MS = 1_000;
const LOGGED_EVERY_MS = 60_000;

interface QueuedConversation {
  row: ConversationRow;
  byteLength: number;
}

/**
 * Stores conversations in the background. Ended requests go into a queue in memory that is limited by bytes, of which one
 * organization may use half. Conversations that do not fit are dropped and counted in the log.
 */
export class ConversationLog {
  readonly #options: ConversationLogOptions;
  #ended: EndedConversation[] = [];
  readonly #queue = new FairQueue<QueuedConversation>(({ row }) => row.organizationId);
  readonly #budget: FairBudget;
  #dropped = 0;
  #droppedLoggedAtMs = Number.NEGATIVE_INFINITY;
  #writing: Promise<void> | undefined;
  readonly #stopping = new AbortController();

  constructor(options: ConversationLogOptions) {
    this.#options = options;
    this.#budget = new FairBudget(options.queueBytesMax ?? QUEUE_BYTES_MAX);
  }

  /** Adds a conversation. Never throws; the work is done in a later turn of the event loop. */
  add(conversation: EndedConversation): void {
    this.#ended.push(conversation);
    if (this.#ended.length === 1) setImmediate(() => this.#queueEnded());
  }

  /** Stops, and tries once to write the queued conversations. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#queueEnded();
    await this.#writing;
    this.#logDropped(true);
  }

  #queueEnded(): void {
    const ended = this.#ended;
    this.#ended = [];
    for (const conversation of ended) {
      if (!this.#enqueue(conversation)) this.#dropped += 1;
    }
    if (this.#queue.size > 0) this.#writing ??= this.#write();
    this.#logDropped();
  }

  #enqueue({ organizationId, holdId, request, answer }: EndedConversation): boolean {
    const { live, clock } = this.#options;
    const { limitBytes } = live.config.conversations;
    if (this.#budget.room(organizationId) <= 0) return false;
    try {
      const { byteLength, ...record } = toConversationRecord(request, answer(), limitBytes);
      if (!this.#budget.take(organizationId, byteLength)) return false;
      this.#queue.push({ row: { organizationId, holdId, endedAtMs: clock(), ...record }, byteLength });
      return true;
    } catch {
      // The value is nested too deeply for JSON.stringify.
      return false;
    }
  }

  async #write(): Promise<void> {
    const { gatherMs = GATHER_MS, retryMs = RETRY_MS } = this.#options;
    await this.#pause(gatherMs);
    while (this.#queue.size > 0) {
      const unwritten = await this.#writeChunk(this.#takeChunk());
      this.#queue.unshift(unwritten);
      if (unwritten.length > 0 && this.#stopping.signal.aborted) this.#drop(this.#queue.takeAll());
      else if (unwritten.length > 0) await this.#pause(retryMs);
      this.#logDropped();
    }
    this.#writing = undefined;
  }

  #takeChunk(): QueuedConversation[] {
    const chunk: QueuedConversation[] = [];
    let bytes = 0;
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      bytes += next.byteLength;
      if (chunk.length === CHUNK_ROWS_MAX || (chunk.length > 0 && bytes > CHUNK_BYTES_MAX)) {
        this.#queue.unshift([next]);
        break;
      }
      chunk.push(next);
    }
    return chunk;
  }

  /** Writes a chunk. Returns what the store could not take now. A conversation that fails on its own is dropped. */
  async #writeChunk(chunk: QueuedConversation[]): Promise<QueuedConversation[]> {
    const { rows, log } = this.#options;
    try {
      await rows.insert(chunk.map(({ row }) => row));
      for (const { row, byteLength } of chunk) this.#budget.putBack(row.organizationId, byteLength);
      return [];
    } catch (error) {
      if (error instanceof StoreUnavailableError) return chunk;
      if (chunk.length > 1) {
        for (const [index, one] of chunk.entries()) {
          if ((await this.#writeChunk([one])).length > 0) return chunk.slice(index);
        }
        return [];
      }
      // Only the message is logged: other properties of the error may contain the row.
      log.error({ reason: (error as Error).message }, "a conversation cannot be stored: it is dropped");
      this.#drop(chunk);
      return [];
    }
  }

  #drop(conversations: readonly QueuedConversation[]): void {
    for (const { row, byteLength } of conversations) this.#budget.putBack(row.organizationId, byteLength);
    this.#dropped += conversations.length;
  }

  #logDropped(isLast = false): void {
    const { clock, log } = this.#options;
    const sinceMs = clock() - this.#droppedLoggedAtMs;
    if (this.#dropped === 0 || (!isLast && sinceMs >= 0 && sinceMs < LOGGED_EVERY_MS)) return;
    log.warn(
      { dropped: this.#dropped },
      "conversations were dropped: the queue was full, or the store could not write them",
    );
    this.#dropped = 0;
    this.#droppedLoggedAtMs = clock();
  }

  /** Waits, but at most until `stop` is called. */
  async #pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { ref: false, signal: this.#stopping.signal }).catch(() => undefined);
  }
}

const DATA_URL = /^data:/i;
/** Maximum length of the media type that is stored in place of an image. */
const MEDIA_TYPE_CHARACTERS_MAX = 100;

/**
 * Serializes a conversation as JSON of at most `limitBytes`, up to half of them for the answer. Of a longer one, the latest
 * messages and the beginnings of long texts remain. Data URLs become their media type and length.
 */
export function toConversationRecord(request: ChatCompletionRequest, answer: KeptAnswer | null, limitBytes: number) {
  const answerText = answer === null ? null : fitAnswer(answer, Math.floor(limitBytes / 2));
  const room = limitBytes - Buffer.byteLength(answerText?.json ?? "");
  const requestText = fitRequest({ ...request, messages: request.messages.map(withoutMediaData) }, room);
  return {
    request: requestText.json,
    answer: answerText?.json ?? null,
    isTruncated: requestText.isTruncated || answerText?.isTruncated === true,
    byteLength: Buffer.byteLength(requestText.json) + Buffer.byteLength(answerText?.json ?? ""),
  };
}

function fitAnswer(answer: KeptAnswer, limitBytes: number) {
  const fitted = fitTexts(answer, limitBytes) ?? { ...answer, message: emptied(answer.message) };
  return { json: JSON.stringify(fitted), isTruncated: fitted !== answer };
}

function fitRequest(request: ChatCompletionRequest, limitBytes: number) {
  const { messages, ...rest } = request;
  const whole = messages.reduce(addMinimumLength, 0) > limitBytes ? undefined : JSON.stringify(request);
  if (whole !== undefined && Buffer.byteLength(whole) <= limitBytes) return { json: whole, isTruncated: false };
  const fields = fitFields(rest, Math.floor(limitBytes / 2));
  let left = limitBytes - Buffer.byteLength(JSON.stringify({ ...fields, messages: [] }));
  const kept: RequestMessage[] = [];
  for (const message of messages.toReversed()) {
    const one = fitTexts(message, left - 1) ?? emptied(message);
    const length = Buffer.byteLength(JSON.stringify(one)) + 1;
    if (length > left) break;
    kept.unshift(one);
    left -= length;
    if (one !== message) break;
  }
  return { json: JSON.stringify({ ...fields, messages: kept }), isTruncated: true };
}

/** Adds a lower bound of a message's JSON length, found without serializing it. */
function addMinimumLength(sum: number, { content = "" }: RequestMessage): number {
  if (typeof content === "string") return sum + content.length;
  return content.reduce((total, part) => total + ("text" in part ? part.text.length : 0), sum);
}

/** Selects the fields that fit together, the shortest first. The instructions come last, and are truncated. */
function fitFields({ instructions, ...fields }: Omit<ChatCompletionRequest, "messages">, limitBytes: number) {
  const lengths = Object.entries(fields).map(([name, value]) => {
    return { name, value, length: Buffer.byteLength(JSON.stringify({ [name]: value })) };
  });
  let left = limitBytes;
  const kept: Record<string, unknown> = {};
  for (const { name, value, length } of lengths.sort((one, other) => one.length - other.length)) {
    if (length > left) break;
    left -= length;
    kept[name] = value;
  }
  if (instructions !== undefined) kept.instructions = fitTexts({ content: instructions }, left)?.content ?? "";
  return kept;
}

const TEXTS: ReadonlySet<string> = new Set(["content", "text", "refusal", "reasoning_content", "arguments"]);

const HIGH_SURROGATE = /[\ud800-\udbff]$/;

const USED_SHARE = 0.98;

/** Truncates the longest texts of a JSON value that is too long to one length; undefined if it does not fit without texts. */
function fitTexts<Value>(value: Value, limitBytes: number): Value | undefined {
  const cutTo = (length: number) => {
    const cut = withTextsUpTo(value, length);
    return { cut, bytes: Buffer.byteLength(JSON.stringify(cut)) };
  };
  if (cutTo(limitBytes).bytes <= limitBytes) return value;
  let [fitting, low, high] = [cutTo(0), 0, limitBytes];
  if (fitting.bytes > limitBytes) return undefined;
  while (high - low > 1 && fitting.bytes < limitBytes * USED_SHARE) {
    const length = Math.floor((low + high) / 2);
    const found = cutTo(length);
    if (found.bytes > limitBytes) high = length;
    else [fitting, low] = [found, length];
  }
  return fitting.cut;
}

/** Returns a JSON value whose texts have at most `length` characters, without splitting a surrogate pair. */
function withTextsUpTo<Value>(value: Value, length: number): Value {
  return mapStrings(value, (text, name) =>
    TEXTS.has(name) && text.length > length ? text.slice(0, length).replace(HIGH_SURROGATE, "") : text,
  );
}

/** Returns what is stored of a message that is too long without its texts. */
function emptied<Message extends { role: string }>({ role }: Message): Message {
  return { role, content: "" } as unknown as Message;
}

function mapStrings<Value>(value: Value, change: (text: string, name: string) => string): Value {
  const copy = (part: unknown, name: string): unknown => {
    if (typeof part === "string") return change(part, name);
    if (Array.isArray(part)) return part.map((item) => copy(item, name));
    if (typeof part !== "object" || part === null) return part;
    return Object.fromEntries(Object.entries(part).map(([key, member]) => [key, copy(member, key)]));
  };
  return copy(value, "") as Value;
}

/** Returns a message without the bytes of its images, files, recordings and videos. Addresses are kept. */
function withoutMediaData(message: RequestMessage): RequestMessage {
  if (!Array.isArray(message.content)) return message;
  const content = mapStrings(message.content, (text, name) => {
    const isData = name === "file_data" || name === "data" || (name === "url" && DATA_URL.test(text));
    return isData ? omitted(text) : text;
  });
  return { ...message, content };
}

/** Returns a note in place of data: the head of a data URL, and the length of the whole. */
function omitted(data: string): string {
  const comma = data.indexOf(",");
  const isAddress = DATA_URL.test(data);
  const plain = isAddress ? "data:" : "";
  const head = isAddress && comma >= 0 ? data.slice(0, Math.min(comma + 1, MEDIA_TYPE_CHARACTERS_MAX)) : plain;
  return `${head}[${data.length} characters, not kept]`;
}
