import { setTimeout as sleep } from "node:timers/promises";
import type { KeptAnswer } from "../api/admin/request.ts";
import type { ChatCompletionRequest, ContentPart, RequestMessage } from "../api/request.ts";
import { StoreUnavailableError } from "../errors.ts";
import type { ConversationRow, ConversationRows } from "../stores/queries/conversations.ts";
import type { Log } from "../telemetry/logger.ts";

export interface ConversationLogOptions {
  rows: Pick<ConversationRows, "insert" | "removeOld">;
  /** How long each is kept. */
  retentionMs: number;
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

interface QueuedConversation {
  row: ConversationRow;
  byteLength: number;
}

/**
 * Keeps conversations, beside what completions wait for: whatever ends is put into a queue in memory that is bounded by
 * bytes, and written from there. What finds no room is dropped, and counted in the log. Removes what is past its time.
 */
export class ConversationLog {
  readonly #options: ConversationLogOptions;
  #ended: EndedConversation[] = [];
  readonly #queue: QueuedConversation[] = [];
  #queuedBytes = 0;
  #dropped = 0;
  #droppedLoggedAtMs = Number.NEGATIVE_INFINITY;
  #writing: Promise<void> | undefined;
  #removing: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  readonly #stopping = new AbortController();

  constructor(options: ConversationLogOptions) {
    this.#options = options;
  }

  /** Takes a conversation. Never throws and costs its caller nothing: all that is to be done is done in a later turn. */
  add(conversation: EndedConversation): void {
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

  #nextChunk(): QueuedConversation[] {
    let bytes = 0;
    const end = this.#queue.findIndex(({ byteLength }, index) => {
      bytes += byteLength;
      return index > 0 && (bytes > CHUNK_BYTES_MAX || index === CHUNK_ROWS_MAX);
    });
    return this.#queue.slice(0, end === -1 ? undefined : end);
  }

  /** Whether the chunk is off the queue. One that fails for itself, and no other with it, is dropped. */
  async #writeChunk(chunk: QueuedConversation[]): Promise<boolean> {
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
    const { rows, retentionMs, log } = this.#options;
    try {
      for (let chunk = 0; chunk < REMOVALS_MAX && !this.#stopping.signal.aborted; chunk += 1) {
        if ((await rows.removeOld(retentionMs, REMOVED_ROWS)) < REMOVED_ROWS) return;
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

/** What was asked and answered, as it is kept. */
export interface ConversationRecord {
  /** JSON. */
  request: string;
  /** JSON. */
  answer: string | null;
  isTruncated: boolean;
  byteLength: number;
}

/** Kept of the part of an image's address that says what it is. */
const IMAGE_KIND_CHARACTERS_MAX = 100;

/**
 * A conversation as JSON of at most `limitBytes`, half of them for the answer. What is longer is cut: of the messages the
 * latest are kept, of texts the beginning. Images that were sent as bytes are left out, but for their kind and length.
 */
export function recordOf(
  request: ChatCompletionRequest,
  answer: KeptAnswer | null,
  limitBytes: number,
): ConversationRecord {
  const answerText = answer === null ? null : fittedAnswer(answer, Math.floor(limitBytes / 2));
  const room = limitBytes - bytesOf(answerText?.json ?? "");
  const requestText = fittedRequest({ ...request, messages: request.messages.map(withoutImages) }, room);
  return {
    request: requestText.json,
    answer: answerText?.json ?? null,
    isTruncated: requestText.isCut || answerText?.isCut === true,
    byteLength: bytesOf(requestText.json) + bytesOf(answerText?.json ?? ""),
  };
}

interface Fitted {
  json: string;
  isCut: boolean;
}

function fittedAnswer(answer: KeptAnswer, limitBytes: number): Fitted {
  const whole = JSON.stringify(answer);
  if (bytesOf(whole) <= limitBytes) return { json: whole, isCut: false };
  const around = bytesOf(JSON.stringify({ ...answer, message: null }));
  return { json: JSON.stringify({ ...answer, message: cutMessage(answer.message, limitBytes - around) }), isCut: true };
}

function fittedRequest(request: ChatCompletionRequest, limitBytes: number): Fitted {
  const { messages, ...rest } = request;
  const whole = sum(messages, leastLengthOf) > limitBytes ? undefined : JSON.stringify(request);
  if (whole !== undefined && bytesOf(whole) <= limitBytes) return { json: whole, isCut: false };
  const fields = fittingFields(rest, limitBytes / 2);
  let left = limitBytes - bytesOf(JSON.stringify({ ...fields, messages: [] }));
  const kept: RequestMessage[] = [];
  for (const message of messages.toReversed()) {
    const fits = leastLengthOf(message) < left && bytesOf(JSON.stringify(message)) < left;
    const one = fits ? message : cutMessage(message, left - 1);
    const length = bytesOf(JSON.stringify(one)) + 1;
    if (length > left) break;
    kept.unshift(one);
    left -= length;
    if (!fits) break;
  }
  return { json: JSON.stringify({ ...fields, messages: kept }), isCut: true };
}

/** At least so many bytes of JSON, without making any: a long prompt is not written out to be thrown away. */
function leastLengthOf({ content = "" }: RequestMessage): number {
  return typeof content === "string" ? content.length : sum(content, (part) => ("text" in part ? part.text.length : 0));
}

function sum<One>(all: readonly One[], lengthOf: (one: One) => number): number {
  return all.reduce((total, one) => total + lengthOf(one), 0);
}

/** The fields that fit together, the shortest first; the instructions come last, and are cut. */
function fittingFields({ instructions, ...fields }: Omit<ChatCompletionRequest, "messages">, limitBytes: number) {
  const lengths = Object.entries(fields).map(([name, value]) => {
    return { name, value, length: bytesOf(JSON.stringify({ [name]: value })) };
  });
  const budget = new Budget(limitBytes);
  const kept: Record<string, unknown> = {};
  for (const { name, value, length } of lengths.sort((one, other) => one.length - other.length)) {
    if (budget.takes(length)) kept[name] = value;
  }
  if (instructions !== undefined) kept.instructions = budget.cut(instructions);
  return kept;
}

type Texts = Pick<RequestMessage, "content" | "refusal" | "reasoning_content" | "tool_calls">;
type Cuttable = { role: string } & { [Field in keyof Texts]?: Texts[Field] | null };

/** With the beginnings of its texts; where that is still too long, nothing but who said it. */
function cutMessage<Message extends Cuttable>(message: Message, limitBytes: number): Message {
  const bare = emptied(message, () => "");
  const budget = new Budget(limitBytes - bytesOf(JSON.stringify(bare)));
  const cut = emptied(message, (text) => budget.cut(text));
  const isShort = bytesOf(JSON.stringify(cut)) <= limitBytes;
  return isShort ? cut : ({ role: message.role, content: "" } as Message);
}

function emptied<Message extends Cuttable>(message: Message, cut: (text: string) => string): Message {
  const { content, refusal, reasoning_content, tool_calls } = message;
  const partOf = (part: ContentPart) => (part.type === "text" ? { ...part, text: cut(part.text) } : part);
  return {
    ...message,
    ...(content && { content: typeof content === "string" ? cut(content) : content.map(partOf) }),
    ...(refusal && { refusal: cut(refusal) }),
    ...(reasoning_content && { reasoning_content: cut(reasoning_content) }),
    ...(tool_calls && {
      tool_calls: tool_calls.map((call) => {
        return { ...call, function: { ...call.function, arguments: cut(call.function.arguments) } };
      }),
    }),
  };
}

/** Bytes of JSON that are left for texts. */
class Budget {
  #leftBytes: number;

  constructor(bytes: number) {
    this.#leftBytes = Math.max(0, bytes);
  }

  takes(bytes: number): boolean {
    if (bytes > this.#leftBytes) return false;
    this.#leftBytes -= bytes;
    return true;
  }

  /** As much of the beginning of a text as fits. */
  cut(text: string): string {
    // No character takes less than a byte.
    let kept = beginningOf(text, this.#leftBytes);
    for (;;) {
      // Its quotation marks are counted where it stands.
      const length = bytesOf(JSON.stringify(kept)) - 2;
      if (this.takes(length)) return kept;
      const share = Math.floor((kept.length * this.#leftBytes) / length);
      kept = beginningOf(kept, Math.min(share, kept.length - 1));
    }
  }
}

const FIRST_HALF = /[\ud800-\udbff]$/;

/** Never with half of a character of two code units at its end. */
function beginningOf(text: string, length: number): string {
  return length >= text.length ? text : text.slice(0, length).replace(FIRST_HALF, "");
}

function withoutImages(message: RequestMessage): RequestMessage {
  if (!Array.isArray(message.content)) return message;
  return { ...message, content: message.content.map(withoutBytes) };
}

function withoutBytes(part: ContentPart): ContentPart {
  if (part.type !== "image_url" || !/^data:/i.test(part.image_url.url)) return part;
  const { url } = part.image_url;
  const comma = url.indexOf(",");
  const kind = comma < 0 ? "data:" : url.slice(0, Math.min(comma + 1, IMAGE_KIND_CHARACTERS_MAX));
  return { ...part, image_url: { ...part.image_url, url: `${kind}[${url.length} characters, not kept]` } };
}

function bytesOf(text: string): number {
  return Buffer.byteLength(text);
}
