import { EventStreamReader } from "../event-stream.ts";
import { answerTooLong, BODY_BYTES_MAX, lengthOf, readText } from "../http/body.ts";
import type { HttpBody } from "../http/exchange.ts";
import { type UpstreamChunk, UpstreamError } from "../provider.ts";
import { ChunkReader } from "./chunks.ts";
import { failureInside, type Scrub } from "./errors.ts";
import { EventTemplate } from "./event-template.ts";
import { isObject, type JsonObject } from "./json.ts";

const DONE = "[DONE]";
/** Events become larger on their way to the client, so a slow client is given few at a time. */
const EVENTS_AT_ONCE_MAX = 128;

/** Reads an unstreamed answer as the one chunk that it folds from. Rejects with UpstreamError. */
export async function readAnswer(body: HttpBody, scrub: Scrub): Promise<UpstreamChunk> {
  const answer = toObject(await readText(body));
  const failure = failureInside(answer, scrub);
  if (failure !== undefined) throw failure;
  const reader = new ChunkReader();
  const chunk = reader.readAnswer(answer);
  if (!reader.isFinished) throw new UpstreamError("failed", "The answer has no finish reason");
  return chunk;
}

/**
 * A streamed answer as chunks, one array for each read from the connection, several for a read of many events. It is
 * complete with a finish reason: then neither a missing `[DONE]` nor a connection that breaks takes anything from it.
 * Without one it breaks with UpstreamError, after all chunks that came before. Ending the iteration early closes the
 * connection at once.
 */
export class StreamedAnswer implements AsyncIterableIterator<readonly UpstreamChunk[]> {
  readonly #body: HttpBody;
  readonly #scrub: Scrub;
  readonly #events = new EventStreamReader();
  readonly #reader = new ChunkReader();
  readonly #template = new EventTemplate();
  #length = 0;
  /** Events that were read and not returned yet. */
  #unread: string[] = [];
  /** Breaks the answer after the events that came before it. */
  #tooLong: UpstreamError | undefined;
  #isEnded = false;
  #failure: unknown;

  constructor(body: HttpBody, scrub: Scrub) {
    this.#body = body;
    this.#scrub = scrub;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<readonly UpstreamChunk[], undefined>> {
    while (!this.#isEnded) {
      const chunks: UpstreamChunk[] = [];
      try {
        if (this.#unread.length === 0) await this.#read();
        this.#readEvents(this.#unread.splice(0, EVENTS_AT_ONCE_MAX), chunks);
      } catch (error) {
        // Nothing that comes after its finish reason takes anything from an answer.
        this.#end(this.#reader.isFinished && error instanceof UpstreamError ? undefined : error);
      }
      if (chunks.length > 0) return { done: false, value: chunks };
    }
    if (this.#failure === undefined) return { done: true, value: undefined };
    const failure = this.#failure;
    this.#failure = undefined;
    throw failure;
  }

  async return(): Promise<IteratorResult<readonly UpstreamChunk[], undefined>> {
    this.#isEnded = true;
    this.#failure = undefined;
    this.#body.destroy();
    return { done: true, value: undefined };
  }

  async #read(): Promise<void> {
    if (this.#tooLong !== undefined) throw this.#tooLong;
    const bytes = await this.#body.read();
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
    }
  }

  #readEvent(data: string): UpstreamChunk | undefined {
    const event = toObject(data);
    const failure = failureInside(event, this.#scrub);
    if (failure !== undefined) throw failure;
    const chunk = this.#reader.readEvent(event);
    if (chunk?.delta?.content) this.#template.learn(data, chunk.delta.content);
    return chunk;
  }

  #end(failure: unknown): void {
    if (!this.#isEnded) this.#failure = failure;
    this.#isEnded = true;
    this.#body.destroy();
  }
}

function toObject(text: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The parser's own message quotes the text, which may be a caller's: it must not reach a log.
    throw new UpstreamError("malformed", "The upstream sent something that is not JSON");
  }
  if (!isObject(value)) throw new UpstreamError("malformed", "The upstream sent JSON that is not an object");
  return value;
}
