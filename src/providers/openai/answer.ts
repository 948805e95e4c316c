import { failureInside } from "../errors.ts";
import { answerTooLong, BODY_BYTES_MAX, lengthOf, readText } from "../http/answer.ts";
import { copied, EventStreamReader } from "../http/event-stream.ts";
import type { BodyReader, HttpBody } from "../http/exchange.ts";
import { isObject, type JsonObject, parseJson } from "../json.ts";
import { type AnswerChunks, type TakeChunks, type UpstreamChunk, UpstreamError } from "../provider.ts";
import type { Scrub } from "../scrub.ts";

const DONE = "[DONE]";
/** Limit of events in one item. Events become larger on their way to the client, so a slow client must not get many at once. */
const EVENTS_AT_ONCE_MAX = 128;

const NO_BYTES: Buffer[] = [];

/** Reads the JSON of one answer on a wire. Keeps the state that later events of the answer depend on. */
export interface WireReader {
  /** True once the finish reason has arrived. An answer without one is incomplete. */
  readonly isFinished: boolean;
  /** True once the last event has arrived, on wires that mark it in an event. */
  readonly isEnded?: boolean;
  /** Limit of the characters of one event; default: `EVENT_LENGTH_MAX`. */
  readonly eventLengthMax?: number;
  /** Reads a streamed event; undefined if nothing in it is used. Throws UpstreamError if the answer failed. */
  readEvent(event: JsonObject): UpstreamChunk | undefined;
  /** Reads an unstreamed answer as a single chunk. Throws UpstreamError if it is not an answer. */
  readAnswer(answer: JsonObject): UpstreamChunk;
}

/** Reads an unstreamed answer as a single chunk. Rejects with UpstreamError. */
export async function readAnswer(body: HttpBody, scrub: Scrub, reader: WireReader): Promise<UpstreamChunk> {
  const answer = toObject(await readText(body));
  const failure = failureInside(answer, scrub);
  if (failure !== undefined) throw failure;
  const chunk = reader.readAnswer(answer);
  if (!reader.isFinished) throw new UpstreamError("failed", "The answer has no finish reason");
  return chunk;
}

/**
 * A streamed answer as chunks: one array for each read from the connection, or several if the read has many events. The
 * answer is complete once it has a finish reason, even if `[DONE]` is missing or the connection breaks. Without a finish
 * reason it rejects with UpstreamError after all chunks that arrived. Ending the iteration early closes the connection.
 */
export class StreamedAnswer implements AsyncIterableIterator<readonly UpstreamChunk[]>, AnswerChunks {
  readonly #body: HttpBody;
  readonly #scrub: Scrub;
  readonly #events: EventStreamReader;
  readonly #reader: WireReader;
  readonly #template = new EventTemplate();
  #length = 0;
  /** Events that were read and not returned yet. */
  #unread: string[] = [];
  /** Failure that ends the answer after the events before it. */
  #tooLong: UpstreamError | undefined;
  #isEnded = false;
  #failure: unknown;

  constructor(body: HttpBody, scrub: Scrub, reader: WireReader) {
    this.#body = body;
    this.#scrub = scrub;
    this.#reader = reader;
    this.#events = new EventStreamReader(reader.eventLengthMax);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<readonly UpstreamChunk[], undefined>> {
    while (!this.#isEnded) {
      let bytes: Buffer[] | undefined = NO_BYTES;
      try {
        if (!this.#hasEvents) bytes = await this.#body.read();
      } catch (error) {
        this.#fail(error);
        break;
      }
      const chunks = this.#readChunks(bytes);
      if (chunks.length > 0) return { done: false, value: chunks };
    }
    const failure = this.#takeFailure();
    if (failure === undefined) return { done: true, value: undefined };
    throw failure;
  }

  passTo(take: TakeChunks): Promise<void> {
    return new Promise((resolve, reject) => {
      const close = (error: unknown) => {
        reject(error);
        void this.return();
      };
      const read = (bytes: Buffer[] | undefined) => {
        try {
          for (let next = bytes; !this.#isEnded; next = NO_BYTES) {
            if (next === NO_BYTES && !this.#hasEvents) return this.#body.readTo(reader);
            const chunks = this.#readChunks(next);
            const ready = chunks.length > 0 ? take(chunks) : undefined;
            if (ready !== undefined) return void ready.then(readOn, close);
          }
        } catch (error) {
          return close(error);
        }
        const failure = this.#takeFailure();
        if (failure === undefined) resolve();
        else reject(failure);
      };
      const readOn = () => read(NO_BYTES);
      const reader: BodyReader = {
        resolve: read,
        reject: (error) => {
          this.#fail(error);
          readOn();
        },
      };
      readOn();
    });
  }

  async return(): Promise<IteratorResult<readonly UpstreamChunk[], undefined>> {
    this.#isEnded = true;
    this.#failure = undefined;
    this.#body.destroy();
    return { done: true, value: undefined };
  }

  /** True if chunks can be read without further bytes. */
  get #hasEvents(): boolean {
    return this.#unread.length > 0 || this.#tooLong !== undefined;
  }

  /** Adds further bytes, undefined at the end of the body, and reads the next events. Never throws. */
  #readChunks(bytes: Buffer[] | undefined): UpstreamChunk[] {
    const chunks: UpstreamChunk[] = [];
    try {
      if (bytes !== NO_BYTES) this.#read(bytes);
      else if (this.#unread.length === 0 && this.#tooLong !== undefined) throw this.#tooLong;
      this.#readEvents(this.#unread.splice(0, EVENTS_AT_ONCE_MAX), chunks);
    } catch (error) {
      this.#fail(error);
    }
    return chunks;
  }

  #read(bytes: Buffer[] | undefined): void {
    if (bytes === undefined) {
      if (!this.#reader.isFinished) throw new UpstreamError("failed", "The stream ended without a finish reason");
      this.#isEnded = true;
      return;
    }
    this.#length += lengthOf(bytes);
    if (this.#length > BODY_BYTES_MAX) throw answerTooLong();
    try {
      // Many small chunks are read several times faster as one.
      this.#events.push(bytes.length === 1 && bytes[0] !== undefined ? bytes[0] : Buffer.concat(bytes), this.#unread);
    } catch (error) {
      this.#tooLong = new UpstreamError("malformed", "The upstream sent an event that is too long", { cause: error });
    }
  }

  #readEvents(events: readonly string[], chunks: UpstreamChunk[]): void {
    for (const data of events) {
      if (data === DONE) {
        if (!this.#reader.isFinished) throw new UpstreamError("failed", "The stream ended without a finish reason");
        this.#isEnded = true;
        this.#body.finish();
        return;
      }
      const content = this.#template.read(data);
      const chunk = content === undefined ? this.#readEvent(data) : { delta: { content } };
      if (chunk !== undefined) chunks.push(chunk);
      if (this.#reader.isEnded === true) {
        this.#isEnded = true;
        this.#body.finish();
        return;
      }
    }
  }

  #readEvent(data: string): UpstreamChunk | undefined {
    const event = toObject(data);
    const failure = failureInside(event, this.#scrub);
    if (failure !== undefined) throw failure;
    const chunk = this.#reader.readEvent(event);
    if (chunk?.delta?.content && chunk.native === undefined) this.#template.learn(data, chunk.delta.content);
    return chunk;
  }

  /** Ends the answer. One that has a finish reason is complete, so a later failure is ignored. */
  #fail(error: unknown): void {
    const isIgnored = this.#isEnded || (this.#reader.isFinished && error instanceof UpstreamError);
    if (!isIgnored) this.#failure = error;
    this.#isEnded = true;
    this.#body.destroy();
  }

  /** Returns the failure once; undefined for a complete answer. */
  #takeFailure(): unknown {
    const failure = this.#failure;
    this.#failure = undefined;
    return failure;
  }
}

function toObject(text: string): JsonObject {
  const value = parseJson(text);
  if (value === undefined) throw new UpstreamError("malformed", "The upstream sent something that is not JSON");
  if (!isObject(value)) throw new UpstreamError("malformed", "The upstream sent JSON that is not an object");
  return value;
}

const PROBE = "probe of the template";

/**
 * Reads the content of events without parsing them. Most events of an answer differ only in their content, so this learns
 * the text before and after the content from one parsed event and compares later events with it. The result is exact:
 * before use, a probe in place of the content was parsed, and changed the content and nothing else.
 */
export class EventTemplate {
  #before: string | undefined;
  #after = "";

  /** Returns the content of an event that differs from the learned one only in its content; undefined for any other event. */
  read(data: string): string | undefined {
    const before = this.#before;
    if (before === undefined) return undefined;
    const end = data.length - this.#after.length;
    if (end <= before.length) return undefined;
    // Comparing slices is several times faster than startsWith, and streams spend much of their time here.
    if (data.slice(0, before.length) !== before || data.slice(end) !== this.#after) return undefined;
    const content = data.slice(before.length, end);
    return isPlain(content) ? content : undefined;
  }

  /** Learns from the first event whose content was parsed as `content`; later calls have no effect. */
  learn(data: string, content: string): void {
    if (this.#before !== undefined || content === "" || !isPlain(content)) return;
    const field = `"content":"`;
    const at = data.indexOf(`${field}${content}"`);
    if (at < 0) return;
    const before = data.slice(0, at + field.length);
    const after = data.slice(before.length + content.length);
    if (!hasOnlyContent(`${before}${PROBE}${after}`)) return;
    this.#before = copied(before);
    this.#after = copied(after);
  }
}

/** Tests whether a text is written in a JSON string without escapes. */
function isPlain(text: string): boolean {
  return !text.includes('"') && !text.includes("\\");
}

/** Tests whether the probe is the content of the only choice and the event contains nothing else that is read. */
function hasOnlyContent(data: string): boolean {
  const event: unknown = JSON.parse(data);
  if (!isObject(event) || !Array.isArray(event.choices) || event.choices.length !== 1) return false;
  const [choice] = event.choices;
  if (!isObject(choice) || !isObject(choice.delta) || (choice.index ?? 0) !== 0) return false;
  const { content, ...others } = choice.delta;
  const isAbsent = (value: unknown) => value === undefined || value === null;
  const otherFields = [event.usage, event.error, choice.finish_reason, choice.logprobs, ...Object.values(others)];
  return content === PROBE && event.object !== "error" && otherFields.every(isAbsent);
}
