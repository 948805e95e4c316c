import { once } from "../../api/answer.ts";
import { isObject, type JsonObject, parseJson } from "../../api/json.ts";
import { answerObject } from "../errors.ts";
import { answerTooLong, BODY_BYTES_MAX, isEventStream, joined, lengthOf, readText } from "../http/answer.ts";
import { copied, EventRoom, EventStreamReader } from "../http/event-stream.ts";
import type { HttpBody } from "../http/exchange.ts";
import type { UpstreamClient } from "../http/upstream-client.ts";
import {
  type AnswerRoom,
  type ProviderAnswer,
  type ProviderCall,
  type UpstreamChunk,
  UpstreamError,
} from "../provider.ts";
import { type Scrub, scrubFor } from "../scrub.ts";

const DONE = "[DONE]";
/** Limit of events in one item. Events become larger on their way to the client, so a slow client must not get many at once. */
const EVENTS_AT_ONCE_MAX = 128;

/** Reads the JSON of one answer on a wire. Keeps the state that later events of the answer depend on. */
export interface WireReader {
  /** True once the finish reason has arrived. An answer without one is incomplete. */
  readonly isFinished: boolean;
  /** True while a choice that was asked for has not begun: only a clean end completes the answer then. */
  readonly awaitsChoices?: boolean;
  /** True once the last event has arrived, on wires that mark it in an event. */
  readonly isEnded?: boolean;
  /** Reads a streamed event; undefined if nothing in it is used. Throws UpstreamError if the answer failed. */
  readEvent(event: JsonObject): UpstreamChunk | UpstreamChunk[] | undefined;
  /** Reads an unstreamed answer. Throws UpstreamError if it is not an answer. */
  readAnswer(answer: JsonObject): UpstreamChunk[];
}

/** The request of a call on one wire. */
interface WireRequest {
  /** Path below the base address. */
  path: string;
  body: string;
  headers?: Readonly<Record<string, string>>;
  reader(scrub: Scrub): WireReader;
  /** True if the client expects an answer of the kind that it asked for, because events are passed on. */
  isPassed?: boolean;
}

/** Sends a request and returns the chunks of its answer. An unstreamed one is read first. Rejects with UpstreamError. */
export async function ask(
  client: UpstreamClient,
  call: ProviderCall,
  { path, body, headers = {}, reader: createReader, isPassed = false }: WireRequest,
): Promise<ProviderAnswer["chunks"]> {
  const { request, signal, room } = call;
  const scrub = scrubFor(request, client.scrub);
  const answer = await client.post(path, body, { isStreamed: request.stream, identity: call, headers, signal, scrub });
  // The content type decides, not the request: some upstreams never stream, others always do.
  const isStream = isEventStream(answer, request.stream);
  if (isPassed && isStream !== request.stream) {
    answer.body.destroy();
    throw new UpstreamError("malformed", "The upstream ignored the field `stream`");
  }
  const reader = createReader(scrub);
  if (isStream) return new StreamedAnswer(answer.body, scrub, reader, room);
  const chunks = reader.readAnswer(answerObject(parseJson(await readText(answer.body, { room })), scrub));
  if (!reader.isFinished) throw new UpstreamError("failed", "The answer has no finish reason");
  return once(chunks);
}

/**
 * A streamed answer as chunks: one array for each read from the connection, or several if the read has many events.
 * The answer is complete once it has a finish reason, even if `[DONE]` is missing or the connection breaks. Without a finish
 * reason it rejects with UpstreamError after all chunks that arrived. Ending the iteration early closes the connection.
 */
class StreamedAnswer implements AsyncIterableIterator<readonly UpstreamChunk[]> {
  readonly #body: HttpBody;
  readonly #scrub: Scrub;
  readonly #events = new EventStreamReader();
  readonly #room: EventRoom;
  readonly #reader: WireReader;
  readonly #template = new EventTemplate();
  #length = 0;
  /** Events that were split off and not read yet. */
  #unread: string[] = [];
  /** The failure that ends the answer after these events. */
  #failure: unknown;
  #isEnded = false;

  constructor(body: HttpBody, scrub: Scrub, reader: WireReader, room: AnswerRoom | undefined) {
    this.#body = body;
    this.#scrub = scrub;
    this.#reader = reader;
    this.#room = new EventRoom(room);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Unlike a generator, keeps nothing of a read in variables while a slow client is waited for. */
  async next(): Promise<IteratorResult<readonly UpstreamChunk[], undefined>> {
    try {
      while (!this.#isEnded) {
        if (this.#unread.length === 0 && this.#failure === undefined) {
          const waiting = this.#room.fit(this.#events.pendingLength);
          if (waiting !== undefined) await waiting;
          this.#split(await this.#body.read());
        }
        const chunks = this.#readChunks();
        if (this.#isEnded) this.#body.finish();
        if (chunks.length > 0) return { done: false, value: chunks };
      }
    } catch (error) {
      const isComplete = this.#reader.isFinished && this.#reader.awaitsChoices !== true;
      const isIgnored = this.#isEnded || (isComplete && error instanceof UpstreamError);
      await this.return();
      if (!isIgnored) throw error;
    }
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<readonly UpstreamChunk[], undefined>> {
    this.#isEnded = true;
    this.#body.destroy();
    return { done: true, value: undefined };
  }

  /** Reads the next events. Throws a failure once all chunks before it were returned. */
  #readChunks(): UpstreamChunk[] {
    const chunks: UpstreamChunk[] = [];
    if (this.#unread.length === 0 && this.#failure !== undefined) throw this.#failure;
    try {
      for (const data of this.#unread.splice(0, EVENTS_AT_ONCE_MAX)) {
        const read = this.#readEvent(data) ?? [];
        for (const chunk of Array.isArray(read) ? read : [read]) chunks.push(chunk);
        if (this.#isEnded) break;
      }
    } catch (error) {
      if (chunks.length === 0) throw error;
      this.#failure = error;
      this.#unread = [];
    }
    return chunks;
  }

  #end(): undefined {
    if (!this.#reader.isFinished) throw new UpstreamError("failed", "The stream ended without a finish reason");
    this.#isEnded = true;
  }

  /** Splits off the events of further bytes, undefined at the end of the body. */
  #split(bytes: Buffer[] | undefined): undefined {
    if (bytes === undefined) return this.#end();
    this.#length += lengthOf(bytes);
    if (this.#length > BODY_BYTES_MAX) throw answerTooLong();
    try {
      // Many small chunks are read several times faster as one.
      this.#events.push(joined(bytes), this.#unread);
    } catch (error) {
      this.#failure = error;
    }
  }

  #readEvent(data: string): ReturnType<WireReader["readEvent"]> {
    if (data === DONE) return this.#end();
    const content = this.#template.read(data);
    if (content !== undefined) return { delta: { content } };
    const chunk = this.#reader.readEvent(answerObject(parseJson(data), this.#scrub));
    this.#isEnded = this.#reader.isEnded === true;
    if (Array.isArray(chunk)) return chunk;
    if (chunk?.delta?.content && chunk.native === undefined) this.#template.learn(data, chunk.delta.content);
    return chunk;
  }
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
